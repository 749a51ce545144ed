"""Result files of many machines: kinds, outliers, environments that differ."""

import json
import shlex

import front_door
import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.analysis.scaling.outliers import fleet_notes

NAME = "NVIDIA H200"


@pytest.fixture
def machine(tmp_path):
    """A function that writes the file of one machine, with cases that take so long."""

    def machine(name, *seconds, device_name=NAME, driver="580.65"):
        cases = [(made_up.case("matmul", "cuda:0", n=n), [middle * f for f in made_up.SEVEN]) for n, middle in enumerate(seconds)]
        measured = [made_up.renamed(each, device_name, 4) for case, s in cases for each in made_up.rounds_of(case, made_up.flat(s))]
        environment = {"machine_key": device_name, "stack_key": driver, "identity": {"name": device_name}, "stack": {"driver": driver}}
        return made_up.write(tmp_path / f"{name}.jsonl", measured, environment=environment)

    return machine


TOO_FEW = "too few to compare; it takes 5 with the same case"


@pytest.mark.parametrize(
    ("times", "notes"),
    [
        (
            [(factor, 2 * factor * more, 3.0) for factor, more in ((1.0, 1), (1.01, 1), (0.99, 1), (1.0, 1), (1.25, 1.2))],
            [f"node4 is slower than others with {NAME} in 2 of 3 cases, most in matmul[n=1]@cuda:0: +50.0 % of their median"],
        ),
        (
            [(1.0,), (1.0,), (1.0,), (1.0,), (0.8,)],
            [f"node4 is faster than others with {NAME} in 1 of 1 case, most in matmul[n=0]@cuda:0: -20.0 % of their median"],
        ),
        # What is within the spread, or does not matter, is no outlier.
        ([(1.0,), (1.01,), (0.99,), (1.02,), (1.09,)], [f"5 files with {NAME}: none stands out"]),
        ([(1.0,), (1.2,), (0.8,), (1.1,), (1.3,)], [f"5 files with {NAME}: none stands out"]),
        ([(1.0,), (1.0,), (1.0,), (9.0,)], [f"4 files with {NAME}: {TOO_FEW}"]),
    ],
)
def test_what_stands_out_is_named_with_its_worst_case(machine, times, notes):
    paths = [machine(f"node{number}", *seconds) for number, seconds in enumerate(times)]
    assert list(fleet_notes(collect(paths))) == notes


def test_kinds_are_never_mixed_and_an_environment_that_differs_is_shown(machine):
    fast = [machine(f"fast{number}", 1.0, driver="575.57" if number == 0 else "580.65") for number in range(5)]
    slow = [machine(f"slow{number}", 9.0, device_name="NVIDIA L4") for number in range(5)]
    assert list(fleet_notes(collect([*fast, *slow, machine("alone", 9.0, device_name="NVIDIA T4")]))) == [
        f"5 files with {NAME}: none stands out",
        "5 files with NVIDIA L4: none stands out",
        f"1 file with NVIDIA T4: {TOO_FEW}",
        "fast0 is not as fast1 and most: stack.driver: '580.65' against '575.57'",
    ]


def test_a_folder_is_a_fleet_whose_notes_go_to_stderr_and_files_alone_are_none(tmp_path, machine):
    for number in range(5):
        machine(f"node{number}", 1.0)
    (tmp_path / "notes.txt").write_text("no result file")
    done = front_door.in_process(tmp_path, "show", ".", "--format", "json")
    assert [row["case.run"] for row in json.loads(done.out)] == [f"node{number}" for number in range(5)]
    assert f"5 files with {NAME}: none stands out" in done.err
    assert front_door.in_process(tmp_path, "show", *(f"node{number}.jsonl" for number in range(5))).err == ""


def test_each_file_of_a_folder_is_compared_with_the_base_which_may_lie_there_too(tmp_path, machine):
    for number, factor in enumerate((1.0, 1.0, 1.0, 1.0, 1.0, 2.0)):
        machine(f"node{number}", factor)
    done = front_door.in_process(tmp_path, "compare", "node0.jsonl", ".")
    titles = [line for line in done.out.splitlines() if " against " in line]
    assert titles == [f"node{number} against node0, on cuda:0" for number in range(1, 6)]
    assert f"node5 is slower than others with {NAME} in 1 of 1 case" in done.err
    assert done.out.splitlines()[-1].endswith("; exit 3")
    refused = front_door.in_process(tmp_path, "compare", str(tmp_path))
    assert refused.err.endswith(f"for which of its files stand out: dlbench show {shlex.quote(str(tmp_path))}\n")
    (tmp_path / "empty").mkdir()
    assert "folder without a result file" in front_door.in_process(tmp_path, "show", "empty").err
