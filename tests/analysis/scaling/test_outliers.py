"""Result files of many machines: kinds, outliers, environments that differ."""

import json
import shlex
from pathlib import Path

import made_up
import pytest
from click.testing import CliRunner

from dlbench.cli.main import dlbench
from dlbench.core.errors import UsageError

NAME = "NVIDIA H200"


def machine(folder: Path, name: str, *seconds: float, device_name: str = NAME, driver: str = "580.65", count: int = 7) -> Path:
    """The file of one machine, with cases that take so long."""
    measurements = [
        made_up.renamed(each, device_name, 4)
        for n, middle in enumerate(seconds)
        for each in made_up.rounds_of(made_up.case("matmul", "cuda:0", n=n), made_up.flat([middle * f for f in made_up.SEVEN[:count]]))
    ]
    environment = {"machine_key": device_name, "stack_key": driver, "identity": {"name": device_name}, "stack": {"driver": driver}}
    return made_up.write(folder / f"{name}.jsonl", measurements, environment=environment)


def command(*arguments: str | Path):
    return CliRunner().invoke(dlbench, [*map(str, arguments)])


def notes(folder: Path) -> list[str]:
    result = command("show", folder)
    assert result.exit_code == 0, result.output
    return [line.removeprefix("note: ") for line in result.stderr.splitlines()]


def test_a_slow_machine_is_named_with_its_worst_case(tmp_path):
    for number, factor in enumerate((1.0, 1.01, 0.99, 1.0, 1.25)):
        machine(tmp_path, f"node{number}", factor, 2 * factor * (1.2 if number == 4 else 1), 3.0)
    assert notes(tmp_path) == [
        f"node4 is slower than others with {NAME} in 2 of 3 cases, most in matmul[n=1]@cuda:0: +50.0 % of their median"
    ]


def test_a_fast_one_is_named_as_well(tmp_path):
    for number, factor in enumerate((1.0, 1.0, 1.0, 1.0, 0.8)):
        machine(tmp_path, f"node{number}", factor)
    assert notes(tmp_path) == [
        f"node4 is faster than others with {NAME} in 1 of 1 case, most in matmul[n=0]@cuda:0: -20.0 % of their median"
    ]


@pytest.mark.parametrize("times", [(1.0, 1.01, 0.99, 1.02, 1.09), (1.0, 1.2, 0.8, 1.1, 1.3)], ids=["too little", "a wide spread"])
def test_what_is_within_the_spread_or_does_not_matter_is_no_outlier(tmp_path, times):
    for number, seconds in enumerate(times):
        machine(tmp_path, f"node{number}", seconds)
    assert notes(tmp_path) == [f"5 files with {NAME}: none stands out"]


def test_four_are_too_few(tmp_path):
    for number, seconds in enumerate((1.0, 1.0, 1.0, 9.0)):
        machine(tmp_path, f"node{number}", seconds)
    assert notes(tmp_path) == [f"4 files with {NAME}: too few to compare; it takes 5 with the same case"]


def test_kinds_are_told_and_never_mixed(tmp_path):
    for number in range(5):
        machine(tmp_path, f"fast{number}", 1.0)
        machine(tmp_path, f"slow{number}", 9.0, device_name="NVIDIA L4")
    assert notes(tmp_path) == [
        f"5 files with {NAME}: fast0, fast1, fast2, fast3 and 1 more",
        "5 files with NVIDIA L4: slow0, slow1, slow2, slow3 and 1 more",
        "each kind of machine is judged alone",
        f"5 files with {NAME}: none stands out",
        "5 files with NVIDIA L4: none stands out",
    ]


def test_machines_of_which_each_is_the_only_one_of_its_kind_share_a_sentence(tmp_path):
    for number in range(5):
        machine(tmp_path, f"node{number}", 1.0)
    for card in ("L4", "L40", "T4"):
        machine(tmp_path, card, 9.0, device_name=f"NVIDIA {card}")
    assert [note for note in notes(tmp_path) if " is not as " not in note] == [
        "3 files have no other of their kind of machine: too few to compare; it takes 5 with the same case",
        f"5 files with {NAME}: none stands out",
    ]


def test_an_environment_that_differs_is_shown(tmp_path):
    for number in range(5):
        machine(tmp_path, f"node{number}", 1.0, driver="575.57" if number == 0 else "580.65")
    assert notes(tmp_path)[1:] == ["node0 is not as node1 and most: stack.driver: '580.65' against '575.57'"]


def test_data_on_stdout_is_that_of_all_files(tmp_path):
    for number in range(3):
        machine(tmp_path, f"node{number}", 1.0)
    (tmp_path / "notes.txt").write_text("no result file")
    rows = json.loads(command("show", tmp_path, "--format", "json").stdout)
    assert [row["case.run"] for row in rows] == ["node0", "node1", "node2"]


def test_files_without_a_folder_are_no_fleet(tmp_path):
    files = [machine(tmp_path, f"node{number}", 1.0) for number in range(5)]
    assert command("show", *files).stderr == ""


def test_each_file_of_a_folder_is_compared_with_the_base_which_may_lie_there_too(tmp_path):
    for number, factor in enumerate((1.0, 1.0, 1.0, 1.0, 1.0, 2.0)):
        machine(tmp_path, f"node{number}", factor)
    result = command("compare", tmp_path / "node0.jsonl", tmp_path)
    titles = [line for line in result.stdout.splitlines() if " against " in line]
    assert titles == [f"node{number} against node0, on cuda:0" for number in range(1, 6)]
    assert f"node5 is slower than others with {NAME} in 1 of 1 case" in result.stderr
    assert result.stdout.splitlines()[-1].endswith("; exit 3")


def test_a_folder_is_no_base_and_an_empty_one_no_fleet(tmp_path):
    machine(tmp_path, "node0", 1.0)
    refused = command("compare", tmp_path)
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception).endswith(f"for which of its files stand out: dlbench show {shlex.quote(str(tmp_path))}")
    (tmp_path / "empty").mkdir()
    result = command("show", tmp_path / "empty")
    assert isinstance(result.exception, UsageError)
    assert "folder without a result file" in str(result.exception)
