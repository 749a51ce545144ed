"""The layers of docs/design.md: a module imports only what stands below it, and each outside library in few places."""

import ast
import itertools
import re
import sys
from dataclasses import fields
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dlbench
from dlbench.analysis.answers.bottleneck.kinds import KINDS
from dlbench.core.measurement import Measurement
from dlbench.core.precision import PRECISIONS

PACKAGE = Path(__file__).parent.parent / "dlbench"


# The rooms and their modules, lowest first: a module may import those before it and nothing else of ours. A star stands for all others of
# the room, which take part by being there and do not import each other.
ROOMS = {
    "core": "units errors files precision machine stats decoding conditions thresholds rank_test "
    "declarations model prices measurement store writer",
    "core.reference": "networks peaks published claims",
    "core.rows": "columns row rates summary",
    "harness.plan": "suite rates searches cases",
    "harness.probe": "linux processor programs nvml devices fingerprint sampler checks",
    "harness.process": "wire folders launch worker_process",
    "harness.worker": "parent usage user signatures registry failures",
    "harness.worker.backends": "base torch_build builtin __init__",
    "harness.worker.measuring": "measure",
    "harness.worker.checking": "operations rule correctness",
    "harness.worker.profiling": "profile",
    "harness.worker.serving": "ranks main rank_main",
    "harness.ranks": "placement machines rank_group",
    "harness": "schedule progress pool runner",
    "analysis.read": "pyperf header usability ceilings table runs",
    "analysis.ratios": "ratio matching",
    "analysis.presentation": "wording names columns",
    "analysis.scaling": "outliers speedup projection",
    "analysis.compare": "calibration judge power values provenance verdict comparison sides",
    "analysis.answers.engine": "question making pairs lines costs",
    "analysis.answers.bottleneck": "kinds ceilings steps __init__",
    "analysis.answers": "* __init__",
    "analysis": "claims",
    "analysis.report": "sentences screen tables compare_terminal terminal chart page",
    "analysis.export": "tabular formats answers_export verdict_files",
    "analysis.contribute": "public offer",
    "analysis.doctor": "checks selftest",
}


def in_order(room, names):
    """The modules of a room by full name, those that a star stands for in one group."""
    rest = {path.stem for path in (PACKAGE / room.replace(".", "/")).glob("*.py")} - {*names.split(), "__init__"}
    for name in names.split():
        group = sorted(rest) if name == "*" else [name]
        yield [f"dlbench.{room}.{each}".removesuffix(".__init__") for each in group]


# The rooms of what is measured, lowest first: a module may import those of its own room and of the rooms before it.
AUTHORS = ("dlbench.models", "dlbench.kit", "dlbench.workloads")

GROUPS = [group for room, names in ROOMS.items() for group in in_order(room, names)]
ORDER = [module for group in GROUPS for module in group]

# Outside libraries, and the only modules that may import them. Standard library apart, nothing else may be imported at all.
DOORS = {
    "torch": (
        "dlbench.harness.worker.backends",
        "dlbench.harness.worker.serving.ranks",
        "dlbench.harness.worker.checking",
        "dlbench.harness.worker.profiling",
        "dlbench.harness.worker.measuring",
        "dlbench.harness.worker.serving.main",
        *AUTHORS,
        "dlbench.testing",
    ),
    "msgspec": ("dlbench.core.decoding",),
    "numpy": ("dlbench.workloads.vectorised",),
    "triton": ("dlbench.kit.binary_triton",),
    "PIL": ("dlbench.workloads.preprocess",),
    "torchcodec": ("dlbench.workloads.preprocess",),
    "pandas": ("dlbench.analysis",),
    "pynvml": ("dlbench.harness.probe.nvml",),
    "psutil": ("dlbench.harness.probe.processor", "dlbench.harness.probe.programs", "dlbench.harness.probe.fingerprint"),
    "rich": ("dlbench.analysis.report.screen", "dlbench.analysis.report.terminal", "dlbench.cli"),
    "vl_convert": ("dlbench.analysis.report.chart",),
    "jinja2": ("dlbench.analysis.report.page",),
    "click": ("dlbench.cli",),
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
    packages = {".".join(f"dlbench.{room}".split(".")[:depth]) for room in ROOMS for depth in range(1, 5)}
    placed = {*ORDER, *packages, "dlbench.__main__", "dlbench.testing"}
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
