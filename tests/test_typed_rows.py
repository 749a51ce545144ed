"""Rows are records: names of columns are for the edge, and what concludes from rows reads their fields."""

import ast
import re

import front_door

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


def columns_named(source):
    """Yield the line and the code of each name of a column, and of what stands for one: a part of a name, a computed field or subscript."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:  # a docstring is no value
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


def test_what_concludes_from_rows_names_no_column():
    paths = [path for room in ROOMS for path in sorted((ANALYSIS / room).rglob("*.py"))]
    assert len(paths) > 30
    assert {str(path): found for path in paths if (found := list(columns_named(path.read_text())))} == {}


def test_a_name_of_a_column_is_found_wherever_it_stands_and_nothing_else():
    wrong = """
        row['time.median_s']
        ID = 'case.id'
        row.get('param.batch')
        f'value.{name}'
        f'ratio.ci_{end}'
        row[SPEEDUP.name]
        row[columns.SPEEDUP.name]
        getattr(row.time, name)
        getattr(pair.base, group)
        {'memory.peak_bytes': 1}
    """
    right = """
        '''time.median_s'''
        row.time.median_s
        Column('batch.enough', Unit.FLAG, 'whether its interval is narrow enough')
        f'{value}: rounds'
        counts[case.name]
        getattr(noise, kind)
        'the median of time.median_s'
    """
    assert [line for line in wrong.split("\n") if line.strip() and not [*columns_named(line.strip())]] == []
    assert [line for line in right.split("\n") if [*columns_named(line.strip())]] == []
