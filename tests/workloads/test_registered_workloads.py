"""Importing the package registers what suites name."""

import ast
import tomllib
from collections.abc import Collection
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path

from dlbench import workloads
from dlbench.analysis.read.declared import declaration_of
from dlbench.core.declarations import Declaration
from dlbench.core.declared_json import from_json
from dlbench.core.former import by_workload
from dlbench.harness.worker import registry

UNDECLARED = resources.files("dlbench.analysis.read").joinpath("undeclared.toml")

FOLDER = Path(workloads.__file__).parent


def builtin() -> dict[str, registry.Workload]:
    return {name: each for name, each in registry.all_workloads().items() if each.function.__module__.startswith("dlbench.workloads.")}


def test_every_workload_in_the_folder_is_registered() -> None:
    registry.load_builtins()
    written = {
        node.name: f"dlbench.workloads.{'.'.join(path.relative_to(FOLDER).with_suffix('').parts)}"
        for path in FOLDER.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each).startswith("workload(") for each in node.decorator_list)
    }
    assert "matmul" in written
    assert written == {name: each.function.__module__ for name, each in builtin().items()}


def test_files_without_declarations_are_read_with_every_declared_field() -> None:
    """Those of before, and references, whose headers hold no texts of others. Values that older files reported may stand there, too."""
    registry.load_builtins()
    known = {name: from_json(payload) for name, payload in tomllib.loads(UNDECLARED.read_text()).items()}
    assert [doubt for _, doubts in known.values() for doubt in doubts] == []

    def told(declared: Declaration, names: Collection[str]) -> dict[str, object]:
        values = [replace(each, meaning="") for each in declared.values if each.name in names]
        return {each.name: values if each.name == "values" else getattr(declared, each.name) for each in fields(declared)}

    declared = {name: each.signature.declared for name, each in builtin().items() if name in known}
    names = {name: {value.name for value in each.values} for name, each in declared.items()}
    found = {name: told(known[name][0], names[name]) for name in declared}
    assert found == {name: told(each, names[name]) for name, each in declared.items()}


def test_headers_of_before_roles_are_read_with_the_roles_that_workloads_have_today() -> None:
    """Whatever they declared then, ``undeclared.toml`` says of the same workloads today."""
    former = by_workload(tomllib.loads((Path(__file__).parents[1] / "data" / "former_declarations.toml").read_text()))
    today = {name: from_json(payload) for name, payload in tomllib.loads(UNDECLARED.read_text()).items()}
    assert {name: declaration_of(name, payload) for name, payload in former.items()} == {name: today[name] for name in former}


def test_signatures_say_what_is_required_and_what_is_valid() -> None:
    registry.load_builtins()
    ours = (
        "matmul",
        "conv2d",
        "train_step",
        "infer_step",
        "data_parallel",
        "model_parallel",
        "noop",
        "spin",
        "slowed",
        "transfer",
        "pin",
        "overlap",
    )
    signature = {name: registry.get(name).signature for name in ours}
    required = {name: [p.name for p in each.parameters if p.required] for name, each in signature.items()}
    assert required == {
        "matmul": ["n"],
        "conv2d": ["batch", "channels", "size", "filters", "kernel"],
        "train_step": ["model", "batch"],
        "infer_step": ["model", "batch"],
        "data_parallel": ["form", "model", "batch", "ranks"],
        "model_parallel": ["form", "model", "batch", "ranks"],
        "noop": [],
        "spin": [],
        "slowed": ["program"],
        "transfer": ["bytes", "direction"],
        "pin": ["bytes"],
        "overlap": [],
    }
    model = signature["train_step"].parameter("model")
    padding = signature["conv2d"].parameter("padding")
    assert model is not None
    assert "resnet50" in model.choices
    assert padding is not None
    assert (padding.check(0), padding.check(None)) == (0, None)
    assert all(each.about.endswith(".") for each in signature.values())
