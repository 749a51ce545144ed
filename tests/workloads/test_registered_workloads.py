"""Importing the package registers what suites name."""

import ast
from dataclasses import replace
from pathlib import Path

import made_up

from dlbench import workloads
from dlbench.analysis.contribute.public import public_records
from dlbench.analysis.read.header import declaration
from dlbench.core.declarations import Declaration
from dlbench.core.model import declaration_to_json
from dlbench.core.store import load
from dlbench.harness.worker import registry

FOLDER = Path(workloads.__file__).parent


def builtin() -> dict[str, registry.Workload]:
    return {name: each for name, each in registry.all_workloads().items() if each.function.__module__.startswith("dlbench.workloads.")}


def test_every_workload_in_the_folder_is_registered():
    registry.load_builtins()
    written = {
        node.name: f"dlbench.workloads.{'.'.join(path.relative_to(FOLDER).with_suffix('').parts)}"
        for path in FOLDER.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each).startswith("workload(") for each in node.decorator_list)
    }
    assert "matmul" in written
    assert written == {name: each.function.__module__ for name, each in builtin().items()}


def test_published_copies_keep_every_field_that_a_workload_declares(tmp_path):
    """But sentences, which may have anything in them."""
    registry.load_builtins()
    declared = {name: each.signature.declared for name, each in builtin().items()}
    path = made_up.write(tmp_path / "run.jsonl", [], workloads={name: declaration_to_json(each) for name, each in declared.items()})
    header, *_ = public_records(load(path))

    def without_sentences(each: Declaration) -> Declaration:
        return replace(each, values=tuple(replace(value, meaning="") for value in each.values))

    found = {name: without_sentences(declaration(payload)) for name, payload in header["workloads"].items()}
    assert found == {name: without_sentences(each) for name, each in declared.items()}
