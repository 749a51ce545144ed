"""A gate over the largest suite can fail: on made-up files with the cases that `full` plans, at the rounds that dlbench chooses."""

import json
import random
from pathlib import Path

import made_up
import pytest
from front_door import in_process

from dlbench.cli.recording import LEAST_ROUNDS
from dlbench.core.measurement import measurement_to_json
from dlbench.core.model import Case
from dlbench.core.rank_test import TESTS_A_CASE, rounds_for_gate
from dlbench.core.store import SCHEMA
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.worker import registry


def full(*devices: str) -> list[Case]:
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    return list(planning.plan([load("full")], signatures, devices, include_absent=False))


def write(path: Path, cases: list[Case], rounds: int, seed: int, slow: Case | None = None) -> Path:
    """A result file whose rounds lie 3 % apart; the slow case takes twice its time. Not by `made_up.write`, which waits for the disk."""
    chance = random.Random(seed)
    header = {"kind": "header", "schema": SCHEMA, "planned": {"count": len(cases)}}
    with path.open("w") as file:
        file.write(f"{json.dumps(header)}\n")
        for case in cases:
            factor = 2 if case is slow else 1
            blocks = made_up.flat([factor * chance.lognormvariate(0, 0.03) for _ in range(rounds)])
            file.writelines(f"{json.dumps(measurement_to_json(each))}\n" for each in made_up.rounds_of(case, blocks))
        file.write('{"kind": "footer"}\n')
    return path


@pytest.mark.parametrize(("devices", "rounds"), [(("cpu",), 14), (("cpu", "cuda:0"), 14)])
def test_one_case_of_full_that_takes_twice_as_long_is_found(tmp_path, devices, rounds):
    cases = full(*devices)
    assert rounds_for_gate(TESTS_A_CASE * len(cases), least=LEAST_ROUNDS) == rounds
    slow = cases[len(cases) // 2]
    write(tmp_path / "base.jsonl", cases, rounds, 1)
    write(tmp_path / "new.jsonl", cases, rounds, 2, slow)
    done = in_process(tmp_path, "compare", "base.jsonl", "new.jsonl", "--format", "json")
    slower = [row["compare.case"] for row in json.loads(done.out) if row["compare.verdict"] == "slower"]
    assert (done.code, slower) == (3, [slow.id])


def test_a_gate_over_full_that_could_not_have_failed_is_4_and_says_so(tmp_path):
    cases = full("cpu")
    write(tmp_path / "base.jsonl", cases, 7, 1)
    write(tmp_path / "new.jsonl", cases, 7, 2, cases[0])
    done = in_process(tmp_path, "compare", "base.jsonl", "new.jsonl")
    assert done.code == 4
    assert (
        f"too few rounds: in {3 * len(cases)} tests none could have been called slower; 11 rounds a side would do: --rounds 11"
    ) in done.err
