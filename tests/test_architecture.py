"""The tables of docs/design.md hold: a module imports only what stands below it, and each outside library in few places."""

import ast
import itertools
import re
import sys
from dataclasses import fields
from functools import cache
from graphlib import TopologicalSorter

import pytest
import test_docs

import dlbench
from dlbench.analysis.answers.bottleneck.kinds import KINDS
from dlbench.analysis.presentation.columns import PAIR_COLUMNS
from dlbench.core.measurement import Measurement
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.columns import BY_NAME

PACKAGE = test_docs.ROOT / "dlbench"

# The rooms and their modules, lowest first: a module may import those before it and nothing else of ours. A star stands for all others of
# the room, which take part by being there and do not import each other.
ROOMS = {
    room: names.split(", ")
    for room, names, _ in test_docs.table("docs/design.md", "room", "modules, lowest first", "what lives there")
    if names
}


def in_order(room, names):
    """The modules of a room by full name, those that a star stands for in one group, and at last what it is imported by."""
    rest = {path.stem for path in (PACKAGE / room.replace(".", "/")).glob("*.py")} - {*names, "__init__"}
    return [[f"dlbench.{room}.{each}" for each in (sorted(rest) if name == "*" else [name])] for name in names] + [[f"dlbench.{room}"]]


# The rooms of what is measured, lowest first: a module may import those of its own room and of the rooms before it.
AUTHORS = ("dlbench.models", "dlbench.kit", "dlbench.workloads")

GROUPS = [group for room, names in ROOMS.items() for group in in_order(room, names)]
ORDER = [module for group in GROUPS for module in group]

# Outside libraries, and the only modules that may import them. Standard library apart, nothing else may be imported at all.
DOORS = {
    library: [f"dlbench.{place}" for place in places.split(", ")]
    for library, places in test_docs.table("docs/design.md", "library", "where")
}


@cache
def trees():
    """Each module of the package, taken apart."""
    paths = {path.relative_to(PACKAGE).with_suffix("").parts: path for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        ".".join(part for part in ("dlbench", *parts) if part != "__init__"): ast.parse(path.read_text()) for parts, path in paths.items()
    }


@cache
def nodes(module):
    return list(ast.walk(trees()[module]))


@cache
def imports(module, types=False):
    """What a module imports when the program runs, at the top or inside a function, by full name; with ``types`` for those, too.

    Imports under ``if TYPE_CHECKING`` never happen when the program runs.
    """
    found = set()
    branches = [node for node in nodes(module) if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and not types]
    guarded = [node for node in branches if node.test.id == "TYPE_CHECKING"]
    skipped = {id(inner) for node in guarded for each in node.body for inner in ast.walk(each)}
    for node in nodes(module):
        if isinstance(node, ast.Import) and id(node) not in skipped:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            assert node.level == 0, "imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module.startswith("dlbench") else {node.module}
    return found


def ours(name):
    """The module of ours that an imported name stands in: ``dlbench.core.errors.UsageError`` is in ``dlbench.core.errors``."""
    while name not in trees():
        name = name.rpartition(".")[0]
    return name


def imported_of_ours(module, types=False):
    return {ours(name) for name in imports(module, types) if name.split(".")[0] == "dlbench"}


def within(module, places):
    return any(module == place or module.startswith(f"{place}.") for place in places)


def test_a_module_imports_only_what_stands_below_it():
    """The package, its main module, cli and testing are on top of everything."""
    for module in trees():
        if module in ORDER:
            below = {each for group in itertools.takewhile(lambda group, module=module: module not in group, GROUPS) for each in group}
            allowed = {each for each in below if not (module.startswith("dlbench.analysis") and each.startswith("dlbench.harness"))}
        elif within(module, AUTHORS):
            # Of the rest they know the façade alone, whose names are no modules.
            floor = next(floor for floor, place in enumerate(AUTHORS) if within(module, (place,)))
            allowed = {"dlbench"} | {each for each in trees() if within(each, AUTHORS[: floor + 1])}
        else:
            continue
        assert imported_of_ours(module) <= allowed, f"{module} must not import {sorted(imported_of_ours(module) - allowed)}"


@pytest.mark.parametrize("home", [lambda module: module, lambda module: module.rpartition(".")[0]], ids=["modules", "folders"])
def test_no_imports_go_round_in_a_circle(home):
    """Those for types count, too. The façade apart: it offers what stands below those that import it."""
    packages = {module.rpartition(".")[0] for module in trees()}
    place = {module: module if module in packages and home(module) != module else home(module) for module in trees()}
    graph = {each: set() for each in place.values()}
    for module in trees():
        graph[place[module]] |= {place[each] for each in imported_of_ours(module, types=True)} - {place[module], "dlbench"}
    TopologicalSorter(graph).prepare()


def test_no_command_is_imported_by_another_module():
    """The command line imports each when it is called, by name; what commands share stands beside them."""
    assert [module for module in trees() if any(within(each, ("dlbench.cli.commands",)) for each in imported_of_ours(module))] == []


def test_each_outside_library_has_one_door():
    for module in trees():
        libraries = {name.split(".")[0] for name in imports(module)} - {"dlbench"} - sys.stdlib_module_names
        assert [name for name in libraries if not within(module, DOORS.get(name, ()))] == [], module


def test_the_measuring_process_needs_torch_and_the_standard_library_only():
    seen, outside = set(), set()
    # The package is loaded by its path and the workloads by name; what is imported for types alone is not there when it runs.
    pending = ["dlbench", "dlbench.harness.worker.serving.main", *(name for name in trees() if within(name, AUTHORS))]
    homes = {f"dlbench.{name}": home for home, names in dlbench._HOMES.items() for name in names.split()}
    while pending:
        if (module := pending.pop()) not in seen:
            seen.add(module)
            found = imports(module)
            pending += [homes.get(name) or ours(name) for name in found if name.startswith("dlbench")]
            outside |= {name.split(".")[0] for name in found if not name.startswith("dlbench")} - sys.stdlib_module_names
    # NumPy is measured; Triton is for CUDA, the others decode. What lacks one of them says so.
    assert outside == {"torch", "numpy", "triton", "PIL", "torchcodec"}
    assert not [module for module in seen if within(module, ("dlbench.cli", "dlbench.analysis", "dlbench.core.rows"))]


def test_every_module_has_its_place():
    placed = {*ORDER, "dlbench", "dlbench.__main__", "dlbench.testing"}
    assert {module for module in trees().keys() - placed if not within(module, ("dlbench.cli", *AUTHORS))} == set()
    assert set(ORDER) <= trees().keys()


def test_only_the_command_line_prints_and_exits():
    for module in trees():
        calls = {ast.unparse(node.func) for node in nodes(module) if isinstance(node, ast.Call)}
        assert within(module, ("dlbench.cli", "dlbench.__main__")) or not {"print", "sys.exit", "exit", "click.echo"} & calls, module


# What gradients travel as is the choice that torch's communication hooks give, and no list of precisions; formats that trainings are
# emulated in are called as precisions are where they are one.
NAMES_PRECISIONS = ("dlbench.core.precision", "dlbench.workloads.parallel.data_parallel", "dlbench.kit.formats")


def test_one_module_lists_the_precisions():
    """Each of the others names one at most: a default, or the one it is about."""
    for module in trees():
        named = {node.value for node in nodes(module) if isinstance(node, ast.Constant)} & PRECISIONS.keys()
        assert len(named) < 2 or module in NAMES_PRECISIONS, f"{module} lists {sorted(named)}; dlbench.core.precision is the one table"


def test_readers_know_a_workload_by_what_it_declares_and_never_by_its_name():
    functions = [node for module, tree in trees().items() if within(module, ("dlbench.workloads",)) for node in tree.body]
    decorated = [node for node in functions if isinstance(node, ast.FunctionDef) and node.decorator_list]
    names = {node.name for node in decorated if ast.unparse(node.decorator_list[0]).startswith("workload(")}
    assert {"matmul", "collective", "data_parallel", "spin", "vectorised"} <= names
    # A group of columns, transfer, and a kind of operation, elementwise, are called as workloads are.
    names -= {each.name for each in fields(Measurement)} | {each.short for each in KINDS.values()}
    for module in trees():
        if not within(module, ("dlbench.core", "dlbench.analysis")):
            continue
        assert {node.value for node in nodes(module) if isinstance(node, ast.Constant) and isinstance(node.value, str)} & names == set()
        for node in nodes(module):
            sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
            by_name = any(re.search(r"\bworkload\b\W*$", ast.unparse(each)) for each in sides)
            constant = any(isinstance(each, ast.Constant | ast.Tuple | ast.Set | ast.List) for each in sides)
            assert not (by_name and constant), f"{module}: {ast.unparse(node)}"


# Rows are records: what concludes from rows reads their fields, and names of columns are for the edge.
CONCLUDING = [f"dlbench.analysis.{room}" for room in ("answers", "compare", "scaling", "ratios")]
NAMES = BY_NAME.keys() | PAIR_COLUMNS.keys()
PREFIXES = "|".join(sorted({name.partition(".")[0] for name in NAMES} | {"param", "value"}))
# How a column's name begins that is completed by a variable, and what a computed field is taken of: a row, or a group of its fields.
BEGINNING, IN_A_ROW = re.compile(rf"({PREFIXES})\.(\w+_)?$"), re.compile(rf"\b(row|base|new|other|side|each|{PREFIXES})$")


def columns_named(tree):
    """Yield the code of each name of a column, and of what stands for one: a part of a name, a computed field or subscript."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(name)) if id(node) not in texts:  # a docstring is no value
                found = name in NAMES or re.fullmatch(r"(param|value)\.\w+", name)
            case ast.JoinedStr(values=[ast.Constant(value=str(name)), _, *_]):
                found = BEGINNING.fullmatch(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[of, *_]):
                found = IN_A_ROW.search(ast.unparse(of))
            case ast.Subscript():
                found = re.search(r"\b[A-Z_]+\.name$", ast.unparse(node.slice))  # row[TIME.name]
            case _:
                found = None
        if found:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_what_concludes_from_rows_names_no_column():
    concluding = {module: tree for module, tree in trees().items() if within(module, CONCLUDING)}
    assert len(concluding) > 30
    assert {module: found for module, tree in concluding.items() if (found := [*columns_named(tree)])} == {}


WRONG = """row['time.median_s']; ID = 'case.id'; row.get('param.batch'); f'value.{name}'; f'ratio.ci_{end}'; row[SPEEDUP.name]
row[columns.SPEEDUP.name]; getattr(row.time, name); getattr(pair.base, group); {'memory.peak_bytes': 1}"""
RIGHT = """row.time.median_s; Column('batch.enough', Unit.FLAG, 'whether its interval is narrow enough'); f'{value}: rounds'
'''time.median_s'''; counts[case.name]; getattr(noise, kind); 'the median of time.median_s'"""


def test_a_name_of_a_column_is_found_wherever_it_stands_and_nothing_else():
    assert [len([*columns_named(statement)]) for statement in ast.parse(WRONG).body] == [1] * 10
    assert [*columns_named(ast.parse(RIGHT))] == []


def test_a_class_name_stands_for_one_thing():
    names = [node.name for module in trees() for node in nodes(module) if isinstance(node, ast.ClassDef)]
    assert sorted(names) == sorted(set(names))


def test_files_and_functions_stay_short():
    """450 lines a file, 60 a function, 50 a command."""
    assert [str(path) for path in PACKAGE.rglob("*.py") if path.read_text().count("\n") > 450] == []
    for module in trees():
        functions = [node for node in nodes(module) if isinstance(node, ast.FunctionDef)]
        assert [each.name for each in functions if each.end_lineno - each.lineno >= (50 if each.name.endswith("_command") else 60)] == [], (
            module
        )
