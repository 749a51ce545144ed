"""A gate over the largest suite can fail: on made-up files with the cases that `full` plans, at the rounds that dlbench chooses."""

import json
import random
from pathlib import Path

import front_door
import made_up

from dlbench.cli.recording import LEAST_ROUNDS
from dlbench.core.model import Case
from dlbench.core.rank_test import TESTS_A_CASE, rounds_for_gate
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.worker import registry


def full(*devices: str) -> list[Case]:
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    return list(planning.plan([load("full")], signatures, devices, include_absent=False))


def write(path: Path, cases: list[Case], rounds: int, seed: int, slow: Case | None = None) -> None:
    """Write a result file whose rounds lie 3 % apart; the slow case takes twice its time."""
    chance = random.Random(seed)
    times = {case.id: [(2 if case is slow else 1) * chance.lognormvariate(0, 0.03) for _ in range(rounds)] for case in cases}
    made_up.write(path, [each for case in cases for each in made_up.rounds_of(case, made_up.flat(times[case.id]))])


def test_one_case_of_full_that_takes_twice_as_long_is_found(tmp_path):
    cases = full("cpu", "cuda:0")
    rounds = rounds_for_gate(TESTS_A_CASE * len(cases), least=LEAST_ROUNDS)
    assert rounds == 14
    slow = cases[len(cases) // 2]
    write(tmp_path / "base.jsonl", cases, rounds, 1)
    write(tmp_path / "new.jsonl", cases, rounds, 2, slow)
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl", "--format", "json")
    slower = [row["compare.case"] for row in json.loads(done.out) if row["compare.verdict"] == "slower"]
    assert (done.code, slower) == (3, [slow.id])


def test_a_gate_over_full_that_could_not_have_failed_is_4_and_says_so(tmp_path):
    cases = full("cpu")
    write(tmp_path / "base.jsonl", cases, 7, 1)
    write(tmp_path / "new.jsonl", cases, 7, 2, cases[0])
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl")
    sentence = f"too few rounds: in {3 * len(cases)} tests none could have been called slower; 11 rounds a side would do: --rounds 11"
    assert (done.code, sentence in done.err) == (4, True)
