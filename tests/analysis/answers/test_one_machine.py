"""Result files of one machine and stack are one device in every answer; what is another is told by what differs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import made_up
import pytest
from click.testing import CliRunner

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer, Table
from dlbench.analysis.presentation.columns import PLACE
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import page
from dlbench.cli.main import dlbench
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import Status

REFERENCES = Path(__file__).parents[3] / "results" / "reference"
CASE = made_up.case("matmul", "cpu", n=64, dtype="fp32")


def place(
    day: str = "2026-11-21",
    *,
    cpu: Mapping[str, Any] = {},
    cards: Sequence[str] = (),
    stack: Mapping[str, Any] = {},
    hashes: Mapping[str, str] = {},
    **versions: str,
) -> dict[str, Any]:
    """What a header says of where a file was measured."""
    known = {"name": made_up.CPU, "isa": "AVX512", "physical_cores": 2, "memory_gib": 24, **cpu}
    return {
        "identity": {"os": "Linux", "cpu": known, "accelerators": [{"kind": "cuda", "name": name} for name in cards]},
        "stack": {
            "versions": {"python": "3.11.7", "torch": "2.13.0", **versions}, "kernel": "6.8.0-41-generic", "environ": {}, **stack,
        },
        "provenance": {"utc": f"{day}T12:00:00+00:00", "cards": dict(hashes)},
    }  # fmt: skip


def products(*seconds: float, device: str = "cpu", sizes: Sequence[int] = (64,), dtype: str = "fp32", **fields: Any) -> list[Measurement]:
    """Products of some sizes, a round for each of these times."""
    cases = [made_up.case("matmul", device, n=n, dtype=dtype) for n in sizes]
    return [each for of in cases for each in made_up.rounds_of(of, made_up.flat(seconds), **fields)]


@pytest.fixture
def shown(tmp_path):
    """A function that writes files, by name their environment and measurements, and returns what ``dlbench show`` says of them."""

    def show(files: Mapping[str, tuple[Mapping[str, Any], Sequence[Measurement]]], *arguments: str) -> str:
        names = [f"{name}.jsonl" for name in files]
        for name, (environment, measurements) in files.items():
            if not (tmp_path / f"{name}.jsonl").exists():
                made_up.write(tmp_path / f"{name}.jsonl", measurements, environment=environment)
        result = CliRunner().invoke(dlbench, ["show", *(str(tmp_path / name) for name in names), *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return show


def lines_of(text: str, case: str) -> list[list[str]]:
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


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        ({"day": "2026-11-21"}, {"day": "2026-11-22"}, "other"),
        ({"day": "2026-11-22"}, {"day": "2026-11-21"}, "one"),
        ({"rounds": 7}, {"rounds": 6, "day": "2026-11-22"}, "one"),
        ({"rounds": 7, "steady": False}, {"rounds": 2, "day": "2026-11-20"}, "other"),
        ({"check": SpotCheck(follows_input=False)}, {"rounds": 2, "day": "2026-11-20"}, "other"),
        ({"status": Status.OOM, "day": "2026-11-22"}, {"rounds": 1}, "other"),
        ({"status": Status.OOM}, {"status": Status.SKIPPED, "day": "2026-11-22"}, "one"),
        ({"status": Status.SKIPPED, "found": {"n": 8}}, {"status": Status.SKIPPED, "day": "2026-11-22"}, "one"),
        ({"status": Status.SKIPPED, "found": {"n": 8}, "day": "2026-11-22"}, {"rounds": 1}, "other"),
    ],
)
def test_the_sound_row_of_most_rounds_counts_and_then_the_newest(shown, one, other, counts):
    def file(day: str = "2026-11-21", rounds: int = 7, status: Status | None = None, **fields: Any) -> Any:
        ended = [replace(made_up.ended(CASE, status, "why"), **fields)] if status else []
        measured = ended or products(*made_up.SEVEN[:rounds], **fields)
        return place(day), [*measured, *products(1.0, sizes=(128,))]

    text = shown({"one": file(**one), "other": file(**other)})
    ((*_, file_shown),) = [line[:4] for line in lines_of(text, "matmul n=64 fp32")]
    assert (file_shown, ", 2 cases" in text) == (counts, True)


CARDS = ("NVIDIA H100", "NVIDIA H200")
PLACES = {
    "torch before all else of the stack": (
        [place(torch=version, python=f"3.{number}") for number, version in enumerate(("2.13.0", "2.11.0"))],
        ["cpu (torch 2.13.0)", "cpu (torch 2.11.0)"],
    ),
    "the rest of the stack by the file": ([place(stack={"blas": name}) for name in ("mkl", "openblas")], ["cpu (run0)", "cpu (run1)"]),
    "two of the stack": (
        [place(torch=torch, python=python) for torch, python in (("2.13.0", "3.11"), ("2.13.0", "3.12"), ("2.11.0", "3.12"))],
        ["cpu (torch 2.13.0, python 3.11)", "cpu (torch 2.13.0, python 3.12)", "cpu (torch 2.11.0, python 3.12)"],
    ),
    "a variable that only one has": (
        [place(stack={"environ": {"OMP_NUM_THREADS": "2"}}), place("2026-11-22")],
        ["cpu (2026-11-21)", "cpu (2026-11-22)"],
    ),
    "vector units": (
        [place(cpu={"isa": isa}, torch=torch) for isa, torch in (("AVX512", "2.13.0"), ("AVX512, AMX", "2.11.0"))],
        ["cpu (AVX512)", "cpu (AVX512, AMX)"],
    ),
    "cores": ([place(cpu={"physical_cores": count}) for count in (2, 4)], ["cpu (2-core)", "cpu (4-core)"]),
    "memory": ([place(cpu={"memory_gib": size}) for size in (24, 96)], ["cpu (24 GiB)", "cpu (96 GiB)"]),
    "cards of other names": ([place(cards=[name]) for name in CARDS], [f"cpu ({name})" for name in CARDS]),
    "more cards of another name": (
        [place(cards=["NVIDIA H100"] * 4), place(cards=["NVIDIA H200"])],
        ["cpu (4 × NVIDIA H100)", "cpu (NVIDIA H200)"],
    ),
    "other cards of one name by the day": (
        [place(f"2026-11-2{n}", cards=["NVIDIA H200"], hashes={"cuda:0": f"{n}"}) for n in range(2)],
        ["cpu (2026-11-20)", "cpu (2026-11-21)"],
    ),
    "other cards of one name and day by the file": (
        [place(cards=["NVIDIA H200"], hashes={"cuda:0": f"{n}"}) for n in range(2)],
        ["cpu (run0)", "cpu (run1)"],
    ),
    "files that do not say": ([{}, {}], ["cpu (run0)", "cpu (run1)"]),
    "one that does not say": ([place(), {}], [f"cpu ({made_up.CPU})", "cpu (run1)"]),
    "one that fits two places": (
        [*(place(cards=[name]) for name in CARDS), place()],
        ["cpu (NVIDIA H100)", "cpu (NVIDIA H200)", "cpu (run2)"],
    ),
}
SAME = {
    "a restart": [place(cpu={"memory_gib": size}, stack={"kernel": kernel}) for size, kernel in ((24, "6.8.0-41"), (25, "6.8.0-45"))],
    "an accelerator that took no part": [place(), place(cards=["NVIDIA H200"], stack={"driver": "580.65"})],
    "other cards of one machine": [place(cards=["NVIDIA H200"] * 2, hashes={f"cuda:{n}": f"{n}"}) for n in range(2)],
    "what a later dlbench records": [place(), place(stack={"math": {"flush_denormal": False}})],
}


@pytest.mark.parametrize("name", PLACES)
def test_places_are_told_by_what_differs(shown, name):
    environments, expected = PLACES[name]
    text = shown({f"run{n}": (each, products(*made_up.SEVEN)) for n, each in enumerate(environments)})
    devices = [line.partition(":")[0] for line in text.splitlines() if line.endswith(": AMD EPYC 7B13, 2 threads")]
    assert sorted(devices) == sorted(expected)
    assert f", {len(expected)} cases, " in text


@pytest.mark.parametrize("name", SAME)
def test_one_machine_is_one_machine_after(shown, name):
    text = shown({f"run{n}": (each, products(*made_up.SEVEN)) for n, each in enumerate(SAME[name])})
    assert text.startswith(f"cpu: {made_up.CPU}, 2 threads\n")
    assert ", 1 case, 7 rounds" in text


def test_a_cpu_in_one_file_and_an_accelerator_in_another_are_one_machine(shown):
    files = {
        "cpus": (place(), products(*made_up.SEVEN)),
        "cards": (place(cards=["NVIDIA H200"]), products(*made_up.SEVEN, device="cuda:0")),
    }
    assert shown(files, "--topic", "speed-up").splitlines()[:5] == [
        "cpu: AMD EPYC 7B13, 2 threads",
        "cuda:0: NVIDIA H200, 2 threads",
        "speed-up: no gain shown in matmul  n=64 fp32  noisy",
        "  matmul, matmul n=64: each at its best 1.00 × (0.970…1.03), same case 1.00 × (0.970…1.03).",
        "  its cases are from 2 files of one machine: no interval holds what changed there between them",
    ]
    (pair,) = json.loads(shown(files, "--by", "device", "--format", "json"))
    assert (pair["base.run"], pair["other.run"]) == ("cpus", "cards")


def test_precisions_of_two_files_are_paired_and_by_run_keeps_files_apart(shown):
    files = {dtype: (place(), products(*made_up.SEVEN, dtype=dtype)) for dtype in ("fp32", "bf16")}
    assert "1.00 ×" in shown(files, "--by", "dtype")
    days = {f"day{n}": (place(f"2026-11-2{n}"), products(*(s * (n + 1) for s in made_up.SEVEN))) for n in range(2)}
    assert ["matmul", "n=64", "fp32", "1.00", "s", "2.00", "s", "0.500", "×"] in [
        line.split()[:9] for line in shown(days, "--by", "run").splitlines()
    ]


def test_data_has_the_rows_of_all_files(shown):
    files = {f"day{n}": (place(f"2026-11-2{n}"), products(*made_up.SEVEN)) for n in range(3)}
    assert [row["case.run"] for row in json.loads(shown(files, "--format", "json"))] == ["day0", "day1", "day2"]


def unsteady(measurement):
    return replace(measurement, samples=replace(measurement.samples, steady=False))


def test_an_answer_tells_of_each_case_the_file_and_counts_it_once(shown):
    step = "train_step"
    files = {
        f"day{n}": (place(f"2026-11-2{n}"), [unsteady(each) for each in made_up.both_kinds() if each.case.device == device or n == 0])
        for n, device in enumerate(("cpu", "cpu", "cuda:0"))
    }
    found = {each["question"]["topic"]: each for each in json.loads(shown(files, "--topic", "all", "--format", "json"))["answers"]}
    speedup, whole = found["speed-up"], f"{step}[model=resnet18,batch=8,dtype=fp32]"
    assert {case: names for case, names in speedup["files"].items() if case.startswith(whole)} == {
        f"{whole}@cpu": ["day1"],
        f"{whole}@cuda:0": ["day2"],
    }
    assert "its cases are from 2 files of one machine: no interval holds what changed there between them" in speedup["weaknesses"]
    assert "8 of 8 cases it rests on are noisy" in [text for each in found.values() for text in each.get("weaknesses", ())]


def test_a_page_names_one_device_and_measures_each_case_again_as_its_file_did(tmp_path):
    environments = {name: place() for name in ("quick", "cnn")}
    for name, environment in environments.items():
        environment["provenance"]["argv"] = ["dlbench", "run", name, "-o", f"{name}.jsonl"]
        sizes = (64, 128) if name == "quick" else (256,)
        made_up.write(tmp_path / f"{name}.jsonl", products(*made_up.SEVEN, sizes=sizes), environment=environment)
    html = page.report(collect(sorted(tmp_path.glob("*.jsonl")))).html
    assert html.count("cpu: AMD EPYC 7B13, 2 threads") == 1
    assert "<code>matmul[n=256,dtype=fp32]@cpu (cnn)</code>" in html
    assert "dlbench run quick -k &#39;matmul[n=128" in html
    assert "dlbench run cnn" in html


def test_figures_have_a_line_for_the_same_case_on_each_machine(tmp_path):
    for name in ("2.13.0", "2.11.0"):
        measured = [each for dtype in ("fp32", "bf16") for each in products(*made_up.SEVEN, dtype=dtype, check=SpotCheck(error=1e-3))]
        made_up.write(tmp_path / f"{name}.jsonl", measured, environment=place(torch=name))
    found = {each.question.topic: each for each in answers(replace(collect(sorted(tmp_path.glob("*.jsonl"))), references=False))}
    lines = [{row["place"] for row in figure.rows} for figure in found["precision"].figures]
    assert lines == [{f"cpu (torch {name})" for name in ("2.13.0", "2.11.0")}] * 2


def test_a_file_in_which_nothing_ran_is_of_no_kind_of_machine(tmp_path):
    made_up.write(tmp_path / "run.jsonl", products(*made_up.SEVEN))
    made_up.write(tmp_path / "empty.jsonl", [made_up.ended(CASE, Status.SKIPPED, "no budget")])
    result = CliRunner().invoke(dlbench, ["show", str(tmp_path)], catch_exceptions=False)
    assert [line for line in result.stderr.splitlines() if "with :" in line or "with  " in line] == []
    assert f"1 file with {made_up.CPU}: too few" in result.stderr


def test_a_try_of_a_side_that_the_header_does_not_name_is_read_with_those_of_other_files(tmp_path):
    """Damage to a line may cost a try of an A/B its side."""
    tried = made_up.measurement_to_json(products(1.0)[0]) | {"kind": "try"}
    for name in ("one", "other"):
        path = made_up.write(tmp_path / f"{name}.jsonl", [replace(each, side="a") for each in products(1.0)], sides=made_up.TWO_SIDES)
        path.write_text(f"{path.read_text()}{json.dumps(tried)}\n")
    assert [row.case.run for row in merged(collect(sorted(tmp_path.glob("*.jsonl")))).tries] == ["one", "other"]


# Headlines.

QUANTITY = re.compile(
    r"(?<![\w.=])\d[\d.,]*(?:(?: [kMGT])? /s| ×| %| [kMGTP]?(?:FLOP/s|B/s)| [KMGT]i?B(?:/s)?| (?:ns|µs|ms|s|min|h|days?))(?![\w/])"
)
"""A number with its unit, as `core.units` writes it."""


def stands(sentence: str, tables: Sequence[Table]) -> list[str]:
    """Which quantities of a sentence are in no cell of its answer's tables."""
    cells = [text for table in tables for _, texts in table.cells() for text in texts]
    return [quantity for quantity in QUANTITY.findall(sentence) if not any(quantity in cell for cell in cells)]


def assert_one_device_a_place(paths: Sequence[Path], devices: int, places: int) -> None:
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
        for sentence in each.sentences:
            if "did not finish within" in sentence:
                continue  # a deadline is no measurement
            assert not stands(sentence, each.tables), (each.question.topic, sentence)


def header_of(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        return json.loads(file.readline())


def test_references_of_one_machine_are_one_device_and_each_headline_stands_in_its_table():
    machines: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(REFERENCES.glob("*/*.jsonl")):
        machines.setdefault((path.parent.name, header_of(path)["environment"]["stack"]["versions"]["torch"]), []).append(path)
    devices = [max(len(header_of(path)["devices"]) for path in paths) for paths in machines.values()]
    for paths, count in zip(machines.values(), devices, strict=True):
        assert_one_device_a_place(paths, count, 1)
    # Without the second card of a name, whose machine differs from that of the first in nothing that a name could tell.
    unlike = [paths for (machine, _), paths in machines.items() if not machine.endswith("-2")]
    assert_one_device_a_place([path for paths in unlike for path in paths], sum(devices), len(unlike))


@pytest.mark.parametrize(("cards", "torches"), [(cards, torches) for cards in (1, 4) for torches in (("2.13.0",), ("2.13.0", "2.11.0"))])
def test_so_it_is_on_machines_with_one_card_and_with_four(tmp_path, cards, torches):
    paths = []
    for number, (torch, day) in enumerate(product(torches, (1, 2))):
        steps = [each for each in made_up.both_kinds(rounds=5 + day) if each.case.device == "cpu" or day == 2]
        for card in range(1, cards):
            for each in made_up.both_kinds(gpu_s=0.01 + card / 1000):
                if each.case.device == "cuda:0":
                    of_card = made_up.case("train_step", f"cuda:{card}", **each.case.params)
                    steps.append(made_up.moved(each, of_card))
        for ranks in (1, 2, 4)[: cards and 3]:
            step = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=8, ranks=ranks, scaling="weak", dtype="fp32")
            times = made_up.flat([0.01 * seconds * (1 + ranks / 50) for seconds in made_up.SEVEN])
            steps += made_up.rounds_of(step, times, items=8 * ranks) if ranks <= cards else []
        environment = place(f"2026-11-2{day}", cards=[made_up.GPU] * cards, torch=torch)
        paths.append(made_up.write(tmp_path / f"file-{number}.jsonl", steps, environment=environment))
    assert_one_device_a_place(paths, (1 + cards) * len(torches), len(torches))
