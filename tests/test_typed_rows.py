"""Rows are records: names of columns are for the edge, and what concludes from rows reads their fields."""

import ast
import re

import front_door
import pytest

from dlbench.analysis.presentation.columns import PAIR_COLUMNS
from dlbench.core.rows.columns import BY_NAME

ANALYSIS = front_door.ROOT / "dlbench" / "analysis"
ROOMS = ("answers", "compare", "scaling", "ratios")
"""What concludes from rows."""
NAMES = BY_NAME.keys() | PAIR_COLUMNS.keys()
GROUPS = "|".join(sorted({name.partition(".")[0] for name in NAMES} | {"param", "value"}))
OPEN_ENDED = re.compile(r"(param|value)\.\w+")
"""A column of a parameter, or of a value."""
BEGINNING = re.compile(rf"({GROUPS})\.(\w+_)?$")
"""Of the name of a column, as where the rest is put behind it."""
IN_A_ROW = re.compile(rf"\b(row|base|new|other|side|each|{GROUPS})$")
"""What a computed field is taken of, where that is a row or a group of its fields."""


def paths():
    for room in ROOMS:
        yield from sorted((ANALYSIS / room).rglob("*.py"))


def docstrings(tree):
    """Texts that are no values: of modules, classes and functions, and behind attributes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def columns_named(source):
    """Yield the line and the code of each name of a column, and of what stands for one: a part of a name, a computed field or subscript."""
    tree = ast.parse(source)
    passed = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            found = node.value in NAMES or OPEN_ENDED.fullmatch(node.value)
        elif isinstance(node, ast.JoinedStr):
            found = isinstance(node.values[0], ast.Constant) and len(node.values) > 1 and BEGINNING.fullmatch(node.values[0].value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            found = IN_A_ROW.search(ast.unparse(node.args[0]))
        elif isinstance(node, ast.Subscript):
            found = re.search(r"\b[A-Z_]+\.name$", ast.unparse(node.slice))  # row[TIME.name]
        else:
            found = False
        if found:
            yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", list(paths()), ids=lambda path: str(path.relative_to(ANALYSIS)))
def test_what_concludes_from_rows_names_no_column(path):
    found = list(columns_named(path.read_text()))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "row['time.median_s']",
        "ID = 'case.id'",
        "row.get('param.batch')",
        "f'value.{name}'",
        "f'ratio.ci_{end}'",
        "row[SPEEDUP.name]",
        "row[columns.SPEEDUP.name]",
        "getattr(row.time, name)",
        "getattr(pair.base, group)",
        "{'memory.peak_bytes': 1}",
    ],
)
def test_a_name_of_a_column_is_found_wherever_it_stands(line):
    assert list(columns_named(line))


@pytest.mark.parametrize(
    "line",
    [
        "'''time.median_s'''",
        "row.time.median_s",
        "Column('batch.enough', Unit.FLAG, 'whether its interval is narrow enough')",
        "f'{value}: rounds'",
        "counts[case.name]",
        "getattr(noise, kind)",
        "'the median of time.median_s'",
    ],
)
def test_what_is_no_name_of_a_column_may_stand(line):
    assert list(columns_named(line)) == []
