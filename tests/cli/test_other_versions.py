"""Files of other versions: one sentence on what this dlbench does not know, and everything else is read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import made_up
import pytest
from front_door import in_process, lines

from dlbench import __version__
from dlbench.core.conditions import RoundState

Edit = Callable[[list[dict[str, Any]]], object]
COMMANDS = {
    "show": ("show", "f.jsonl"),
    "compare": ("compare", "plain.jsonl", "f.jsonl"),
    "export": ("export", "f.jsonl", "--to", "csv", "-o", "out.csv"),
}


def written(folder: Path, edit: Edit) -> Path:
    """Write a plain file, and beside it one whose lines were edited."""
    rounds = [made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat(made_up.SEVEN)) for n in (8, 16)]
    states = [RoundState(number, 1.0, before={"cpu": {}}) for number in range(7)]
    plain = made_up.write(folder / "plain.jsonl", [each for pair in zip(*rounds, strict=True) for each in pair], states=states)
    edited = lines(plain)
    edit(edited)
    path = folder / "f.jsonl"
    path.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in edited))
    return path


def notes(folder: Path, *command: str) -> list[str]:
    """Notes of a command on versions and fields, of which it has to read all cases."""
    done = in_process(folder, *command)
    assert done.code in (0, 4), done.err  # nothing is compared with confidence where two files are alike to the last digit
    return [line for line in done.err.splitlines() if "newer" in line or "field" in line or "damaged" in line]


def of_a_version_to_come(file: list[dict[str, Any]]) -> None:
    """Write what a later version may add."""
    file[0] |= {"dlbench": "12.3.4", "weather": "fair"}
    file[1]["memory"]["swap_bytes"] = 5
    file.insert(3, {"kind": "energy", "joules": 3.0})


NEWER = f"f.jsonl was written by dlbench 12.3.4, newer than this {__version__}: what that added is not shown; update dlbench"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_file_of_a_version_to_come_is_read_and_one_sentence_says_what_is_not_shown(tmp_path: Path, command: tuple[str, ...]) -> None:
    written(tmp_path, of_a_version_to_come)
    assert notes(tmp_path, *command) == [f"note: {NEWER}"]
    shown = [in_process(tmp_path, "show", name, "--format", "json") for name in ("f.jsonl", "plain.jsonl")]
    assert [each.out.replace('"plain"', '"f"') for each in shown] == [shown[0].out] * 2


def test_a_page_on_a_file_of_a_version_to_come_says_so(tmp_path: Path) -> None:
    written(tmp_path, of_a_version_to_come)
    assert in_process(tmp_path, "report", "f.jsonl", "-o", "out.html").code == 0
    page = (tmp_path / "out.html").read_text()
    assert (page.count(NEWER), page.count("damaged")) == (1, 0)


UNKNOWN: Mapping[str, tuple[Edit, int, str]] = {
    "header": (lambda file: file[0].update(weather="fair"), 1, "weather"),
    "measurement": (lambda file: file[4].update(watts=3), 5, "watts"),
    "group": (lambda file: [each["samples"].update(sigma=0.5) for each in file[2:15]], 3, "samples.sigma"),
    "two of them": (lambda file: [file[number].update({f"field{number}": None}) for number in (9, 5)], 6, "field5"),
    "case": (lambda file: file[1]["case"].update(colour="red"), 2, "case.colour"),
    "round": (lambda file: file[-2].update(noise=1), 22, "noise"),
    "footer": (lambda file: file[-1].update(joules=1), 23, "joules"),
    "odd name": (lambda file: file[1].update({"\x1b[31m\ud800": 1}), 2, "\\x1b[31m?"),
}


@pytest.mark.parametrize("edit", UNKNOWN)
def test_the_first_field_that_this_version_does_not_know_is_named_with_its_line(tmp_path: Path, edit: str) -> None:
    change, line, name = UNKNOWN[edit]
    written(tmp_path, change)
    where = f"note: f.jsonl, line {line}: this dlbench knows no field '{name}'"
    assert notes(tmp_path, *COMMANDS["show"]) == [f"{where} and shows nothing of it; another version wrote it, or the file was edited"]


@pytest.mark.parametrize("version", ["0.1.0", __version__, "0.2", "?", 3, None, "9" * 5000])
def test_a_file_of_this_version_or_an_older_one_says_nothing_of_versions(tmp_path: Path, version: object) -> None:
    written(tmp_path, lambda file: file[0].update(dlbench=version))
    assert notes(tmp_path, *COMMANDS["show"]) == []
    assert notes(tmp_path, *COMMANDS["compare"]) == []


def test_no_other_kind_of_line_is_expected_of_this_version(tmp_path: Path) -> None:
    written(tmp_path, lambda file: file.insert(3, {"kind": "energy", "joules": 3.0}))
    (note,) = notes(tmp_path, *COMMANDS["show"])
    assert note.startswith("note: f.jsonl: 1 line is damaged and left out: line 4 (no kind of line that dlbench writes)")
