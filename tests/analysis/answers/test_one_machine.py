"""Result files of one machine and stack are one device in every answer; another is called by what differs."""

import json
import re
from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.presentation.columns import PLACE
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import collect
from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Status
from dlbench.core.store import read_header

REFERENCES = front_door.ROOT / "results" / "reference"
CASE = made_up.case("matmul", "cpu", n=64, dtype="fp32")


def place(day="2026-11-21", *, cpu={}, cards=(), stack={}, hashes={}, **versions):  # noqa: B006  # read alone
    """What a header says of where a file was measured."""
    known = {"name": made_up.CPU, "isa": "AVX512", "physical_cores": 2, "memory_gib": 24, **cpu}
    software = {"versions": {"python": "3.11.7", "torch": "2.13.0", **versions}, "kernel": "6.8.0-41-generic", "environ": {}, **stack}
    return {
        "identity": {"os": "Linux", "cpu": known, "accelerators": [{"kind": "cuda", "name": name} for name in cards]},
        "stack": software,
        "provenance": {"utc": f"{day}T12:00:00+00:00", "cards": dict(hashes)},
    }


def products(*seconds, device="cpu", sizes=(64,), **fields):
    """Products of some sizes, a round for each of these times."""
    cases = [made_up.case("matmul", device, n=n, dtype="fp32") for n in sizes]
    return [each for of in cases for each in made_up.rounds_of(of, made_up.flat(seconds), **fields)]


SEVEN = products(*made_up.SEVEN)


@pytest.fixture
def shown(tmp_path):
    """A function that writes files, by name their environment and measurements, and returns what ``dlbench show`` says of them."""

    def show(files, *arguments):
        for name, (environment, measurements) in files.items():
            if not (tmp_path / f"{name}.jsonl").exists():
                made_up.write(tmp_path / f"{name}.jsonl", measurements, environment=environment)
        done = front_door.in_process(tmp_path, "show", *(f"{name}.jsonl" for name in files), *arguments)
        assert done.code == 0, done.err
        return done.out

    return show


def lines_of(text, case):
    """The lines of the table of cases that are of one case, as words."""
    return [line.split() for line in text.splitlines() if line.startswith(f" {case} ")]


def test_seven_files_of_one_machine_are_one_device(shown):
    files = {f"day{n}": (place(f"2026-11-2{n}"), products(*made_up.SEVEN, sizes=(64, 128 + n))) for n in range(7)}
    text = shown(files)
    assert text.startswith(f"cpu: {made_up.CPU}, 2 threads\n")
    assert ", 8 cases, 7 rounds" in text
    assert [line[2] for line in lines_of(text, "matmul n=64 fp32")] == ["fp32"]
    found = json.loads(shown(files, "--topic", "all", "--format", "json"))["answers"]
    assert not [text for each in found for text in each.get("sentences", ()) if "day" in text and "files with" not in text]


SKIPPED = {"status": Status.SKIPPED}


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        ({"day": "2026-11-21"}, {"day": "2026-11-22"}, "other"),
        ({"day": "2026-11-22"}, {"day": "2026-11-21"}, "one"),
        ({"rounds": 7}, {"rounds": 6, "day": "2026-11-22"}, "one"),
        ({"rounds": 7, "steady": False}, {"rounds": 2, "day": "2026-11-20"}, "other"),
        ({"check": SpotCheck(follows_input=False)}, {"rounds": 2, "day": "2026-11-20"}, "other"),
        ({"status": Status.OOM, "day": "2026-11-22"}, {"rounds": 1}, "other"),
        ({"status": Status.OOM}, {**SKIPPED, "day": "2026-11-22"}, "one"),
        ({**SKIPPED, "found": {"n": 8}}, {**SKIPPED, "day": "2026-11-22"}, "one"),
        ({**SKIPPED, "found": {"n": 8}, "day": "2026-11-22"}, {"rounds": 1}, "other"),
    ],
)
def test_the_sound_row_of_most_rounds_counts_and_then_the_newest(shown, one, other, counts):
    def file(day="2026-11-21", rounds=7, status=None, **fields):
        ended = [replace(made_up.ended(CASE, status, "why"), **fields)] if status else []
        return place(day), [*(ended or products(*made_up.SEVEN[:rounds], **fields)), *products(1.0, sizes=(128,))]

    text = shown({"one": file(**one), "other": file(**other)})
    ((*_, file_shown),) = [line[:4] for line in lines_of(text, "matmul n=64 fp32")]
    assert (file_shown, ", 2 cases" in text) == (counts, True)


def other_cards(*days):
    """Places with a card of one name each, but not the same card."""
    return [place(day, cards=["NVIDIA H200"], hashes={"cuda:0": str(number)}) for number, day in enumerate(days)]


CARDS = ("NVIDIA H100", "NVIDIA H200")
VERSIONS = ("2.13.0", "3.11"), ("2.13.0", "3.12"), ("2.11.0", "3.12")
PLACES = {
    "torch before all else of the stack": (
        [place(torch=version, python=f"3.{number}") for number, version in enumerate(("2.13.0", "2.11.0"))],
        ["torch 2.13.0", "torch 2.11.0"],
    ),
    "the rest of the stack by the file": ([place(stack={"blas": name}) for name in ("mkl", "openblas")], ["run0", "run1"]),
    "two of the stack": (
        [place(torch=torch, python=python) for torch, python in VERSIONS],
        [f"torch {torch}, python {python}" for torch, python in VERSIONS],
    ),
    "a variable that only one has": ([place(stack={"environ": {"A": "2"}}), place("2026-11-22")], ["2026-11-21", "2026-11-22"]),
    "vector units": (
        [place(cpu={"isa": isa}, torch=torch) for isa, torch in (("AVX512", "2.13.0"), ("AVX512, AMX", "2.11.0"))],
        ["AVX512", "AVX512, AMX"],
    ),
    "cores": ([place(cpu={"physical_cores": count}) for count in (2, 4)], ["2-core", "4-core"]),
    "memory": ([place(cpu={"memory_gib": size}) for size in (24, 96)], ["24 GiB", "96 GiB"]),
    "cards of other names": ([place(cards=[name]) for name in CARDS], [*CARDS]),
    "more cards of another name": ([place(cards=["NVIDIA H100"] * 4), place(cards=["NVIDIA H200"])], ["4 × NVIDIA H100", "NVIDIA H200"]),
    "other cards of one name by the day": (other_cards("2026-11-20", "2026-11-21"), ["2026-11-20", "2026-11-21"]),
    "other cards of one name and day by the file": (other_cards("2026-11-20", "2026-11-20"), ["run0", "run1"]),
    "files that do not say": ([{}, {}], ["run0", "run1"]),
    "one that does not say": ([place(), {}], [made_up.CPU, "run1"]),
    "one that fits two places": ([*(place(cards=[name]) for name in CARDS), place()], [*CARDS, "run2"]),
    # One machine is one machine after
    "a restart": ([place(cpu={"memory_gib": size}, stack={"kernel": kernel}) for size, kernel in ((24, "6.8.0-41"), (25, "6.8.0-45"))], []),
    "an accelerator that took no part": ([place(), place(cards=["NVIDIA H200"], stack={"driver": "580.65"})], []),
    "other cards of one machine": ([place(cards=["NVIDIA H200"] * 2, hashes={f"cuda:{n}": f"{n}"}) for n in range(2)], []),
    "what a later dlbench records": ([place(), place(stack={"math": {"flush_denormal": False}})], []),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_are_called_by_what_differs(shown, name):
    environments, expected = PLACES[name]
    text = shown({f"run{n}": (each, SEVEN) for n, each in enumerate(environments)})
    devices = [line.partition(":")[0] for line in text.splitlines() if line.endswith(": AMD EPYC 7B13, 2 threads")]
    assert sorted(devices) == (sorted(f"cpu ({each})" for each in expected) or ["cpu"])
    assert (f", {len(expected)} cases, " if expected else ", 1 case, 7 rounds") in text


def test_a_cpu_in_one_file_and_an_accelerator_in_another_are_one_machine(shown):
    files = {"cpus": (place(), SEVEN), "cards": (place(cards=["NVIDIA H200"]), products(*made_up.SEVEN, device="cuda:0"))}
    assert shown(files, "--topic", "speed-up").splitlines()[:4] == [
        "cpu: AMD EPYC 7B13, 2 threads",
        "cuda:0: NVIDIA H200, 2 threads",
        "speed-up: no gain shown in matmul  n=64 fp32  noisy",
        "  matmul, matmul n=64: each at its best 1.00 × (0.970…1.03), same case 1.00 × (0.970…1.03).",
    ]
    (pair,) = json.loads(shown(files, "--by", "device", "--format", "json"))
    assert (pair["base.run"], pair["other.run"]) == ("cpus", "cards")


def test_an_answer_counts_a_case_of_several_files_once(shown):
    def unsteady(measurement):
        return replace(measurement, samples=replace(measurement.samples, steady=False))

    files = {
        f"day{n}": (place(f"2026-11-2{n}"), [unsteady(each) for each in made_up.both_kinds() if each.case.device == device or n == 0])
        for n, device in enumerate(("cpu", "cpu", "cuda:0"))
    }
    (answer,) = json.loads(shown(files, "--topic", "precision", "--format", "json"))["answers"]
    assert "8 of 8 cases it rests on are noisy" in answer["weaknesses"]


def test_a_try_of_a_side_that_the_header_does_not_name_is_read_with_those_of_other_files(tmp_path):
    """Damage to a line may cost a try of an A/B its side."""
    sided, (alone,) = [replace(each, side="a") for each in products(1.0)], products(1.0)
    paths = [made_up.write(tmp_path / f"{name}.jsonl", sided, sides=made_up.TWO_SIDES, tries=[alone]) for name in ("one", "other")]
    assert [row.case.run for row in merged(collect(paths)).tries] == ["one", "other"]


QUANTITY = re.compile(
    r"(?<![\w.=])\d[\d.,]*(?:(?: [kMGT])? /s| ×| %| [kMGTP]?(?:FLOP/s|B/s)| [KMGT]i?B(?:/s)?| (?:ns|µs|ms|s|min|h|days?))(?![\w/])"
)
"""A number with its unit, as `core.units` writes it."""


def missing(sentence, tables):
    """The quantities of a sentence that are in no cell of its answer's tables."""
    cells = [text for table in tables for _, texts in table.cells() for text in texts]
    return [quantity for quantity in QUANTITY.findall(sentence) if not any(quantity in cell for cell in cells)]


def assert_one_device_a_place(paths, devices, places):
    """Assert that answers on these files name so many devices at most, and that each headline stands in a table of its answer."""
    results = replace(collect(paths), references=False)
    assert len(merged(results).environments) == places
    found = [each for each in answers(results) if isinstance(each, Answer)]
    assert found
    for each in found:
        for table in each.tables:  # each tells its own devices apart, and no others
            named = {str(row["place"]) for row in table.rows} - {"all"} if ("device", PLACE) in table.columns else set()
            assert len({name.partition(" against ")[0] for name in named}) <= devices, (each.question.topic, named)
            assert not [name for path in paths for name in named if path.stem in re.split(r"[ ()]", name)]
        for sentence in each.sentences:  # but for a deadline, which is no measurement
            assert "did not finish within" in sentence or not missing(sentence, each.tables), (each.question.topic, sentence)


def test_references_of_one_machine_are_one_device_and_each_headline_stands_in_its_table():
    machines = {}
    headers = {path: read_header(path) for path in sorted(REFERENCES.glob("*/*.jsonl"))}
    for path, header in headers.items():
        machines.setdefault((path.parent.name, header["environment"]["stack"]["versions"]["torch"]), []).append(path)
    devices = [max(len(headers[path]["devices"]) for path in paths) for paths in machines.values()]
    for paths, count in zip(machines.values(), devices, strict=True):
        assert_one_device_a_place(paths, count, 1)
    # Without the second card of a name, whose machine differs from that of the first in nothing that a name could say.
    unlike = [paths for (machine, _), paths in machines.items() if not machine.endswith("-2")]
    assert_one_device_a_place([path for paths in unlike for path in paths], sum(devices), len(unlike))
