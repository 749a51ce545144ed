"""``dlbench compare`` as a user calls it: what it prints, and the code it ends with."""

import csv
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import front_door
import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.export.verdict_files import COLUMNS
from dlbench.cli.recording import LEAST_ROUNDS
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Policy, Status
from dlbench.core.rank_test import TESTS_A_CASE, rounds_for_gate, smallest_p
from dlbench.core.units import parse_fraction
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.worker import registry

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
ONE, TWO = made_up.case("matmul", n=1), made_up.case("matmul", n=2)
UNPROVEN = "no calibration: differences may be session noise (identical code has read 11 % slower)"
REMEDY = "run dlbench calibrate, or dlbench ab for both sides alternately"


def timed(a_case: made_up.Case, factor: float = 1.0, rounds: Sequence[float] = TEN, **fields: Any) -> list[Measurement]:
    return made_up.rounds_of(a_case, made_up.flat([factor * each for each in rounds]), **fields)


def environment(cpu: str = "AMD EPYC 7B13", torch: str = "2.13.0") -> Mapping[str, Any]:
    identity, stack = {"cpu": {"name": cpu}}, {"versions": {"torch": torch}}
    return {"machine_key": cpu, "stack_key": torch, "identity": identity, "stack": stack}


class Folder:
    """Two files, and the command that compares them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, *measurements: Sequence[Measurement], **options: Any) -> Path:
        return made_up.write(self.path / f"{name}.jsonl", [each for some in measurements for each in some], **options)

    def compare(self, *arguments: str, files: Sequence[str] = ("base.jsonl", "new.jsonl")) -> front_door.Done:
        return front_door.in_process(self.path, "compare", *files, *arguments)

    def rows(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.compare("--format", "json", *arguments)
        return done.code, json.loads(done.out)

    def verdicts(self, *arguments: str) -> tuple[int, dict[str, str]]:
        code, rows = self.rows(*arguments)
        return code, {row["compare.case"]: row["compare.verdict"] for row in rows}


def suites(path: Path) -> ElementTree.Element:
    return ElementTree.parse(path).getroot()  # noqa: S314  # our own file


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


STEADY = timed(TWO)
WIDE = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)


@pytest.mark.parametrize(
    ("base", "new", "verdict", "code", "strict"),
    [
        (timed(ONE), timed(ONE), "same", 0, 0),
        (timed(ONE), timed(ONE, 1.2), "slower", 3, 3),
        (timed(ONE), timed(ONE, 0.8), "faster", 0, 0),
        (timed(ONE, 1, WIDE), timed(ONE, 1, WIDE), "inconclusive", 0, 4),
        (timed(ONE), timed(ONE, threads=4), "incomparable", 0, 4),
        (timed(ONE), [], "missing", 5, 5),
        ([made_up.ended(ONE, Status.SKIPPED, "no device")], [], "not measured", 0, 0),
        ([made_up.ended(ONE, Status.UNSUPPORTED, "no TF32")], [], "not measured", 0, 0),
        ([], [made_up.ended(ONE, Status.UNSUPPORTED, "no TF32")], "not measured", 0, 0),
        ([made_up.ended(ONE, Status.UNSUPPORTED, "a")], [made_up.ended(ONE, Status.UNSUPPORTED, "b")], "not measured", 0, 0),
        ([made_up.ended(ONE, Status.OOM, "too large")], [], "same", 0, 0),
        ([made_up.ended(ONE, Status.CRASHED, "killed")], [], "same", 0, 0),
        ([], timed(ONE), "new", 0, 0),
        ([], [made_up.ended(ONE, Status.CRASHED, "killed")], "failed", 5, 5),
        (timed(ONE), [made_up.ended(ONE, Status.FAILED, "ValueError")], "failed", 5, 5),
        (timed(ONE), [*timed(ONE)[:9], made_up.ended(ONE, Status.CRASHED, "killed", 9)], "failed", 5, 5),
        (timed(ONE), [made_up.ended(ONE, Status.OOM, "too large")], "failed", 5, 5),
        (timed(ONE), [made_up.ended(ONE, Status.SKIPPED, "no device")], "failed", 5, 5),
        ([made_up.ended(ONE, Status.FAILED, "a")], [made_up.ended(ONE, Status.FAILED, "b")], "failed", 5, 5),
        ([made_up.ended(ONE, Status.OOM, "a")], [made_up.ended(ONE, Status.OOM, "b")], "same", 0, 0),
        ([made_up.ended(ONE, Status.OOM, "a")], timed(ONE), "incomparable", 0, 4),
        ([made_up.ended(ONE, Status.OOM, "a")], [made_up.ended(ONE, Status.TIMEOUT, "b")], "incomparable", 0, 4),
        (timed(ONE, 0), timed(ONE), "inconclusive", 0, 4),
        (timed(ONE), timed(ONE, 2, steady=False), "inconclusive", 4, 4),
        (timed(ONE), timed(ONE, 1, steady=False), "inconclusive", 0, 4),
        ([made_up.ended(ONE, Status.SKIPPED, "spent")], [made_up.ended(ONE, Status.SKIPPED, "spent")], "not measured", 0, 4),
    ],
)
def test_each_verdict_and_its_exit_code(
    folder: Folder, base: list[Measurement], new: list[Measurement], verdict: str, code: int, strict: int
) -> None:
    folder.write("base", base, STEADY)
    folder.write("new", new, STEADY)
    assert folder.verdicts() == (code, {ONE.id: verdict, TWO.id: "same"})
    assert folder.compare("--strict").code == strict


HERE, ELSEWHERE = ({"environment": environment(cpu=cpu)} for cpu in ("AMD EPYC 7B13", "Intel Xeon"))
NEWER = {"environment": {**environment(torch="2.14.0"), "stack": {"versions": {"torch": "2.14.0"}, "driver": None}}}
ON_CARD, ABSENT = (made_up.case(device=device, n=1) for device in ("cuda:0", "cuda:3"))
BF16, ALONE = made_up.case("train_step", model="resnet18", batch=16, dtype="bf16"), made_up.case("matmul", n=1, dtype="bf16")
NO_DEVICE = [made_up.ended(ABSENT, Status.SKIPPED, "this machine has no cuda:3")]


def at(clock_hz: float, **options: Any) -> dict[str, Any]:
    """A file whose card had that clock."""
    return {"state": {"accelerators": {"cuda:0": {"clock_sm_hz": clock_hz}}}, **options}


REPORTED = ("--across-machines",)
Written = tuple[Sequence[Measurement], Mapping[str, Any]]
SAID: Mapping[str, tuple[Sequence[Written], tuple[str, ...]]] = {
    "another machine": ([(timed(ONE), HERE), (timed(ONE, 2, device_name="Intel Xeon", threads=56), ELSEWHERE)], ()),
    "another machine, reported on": ([(timed(ONE), HERE), (timed(ONE, 2), ELSEWHERE)], ("--across-machines", "--strict")),
    "held back on another machine": ([(timed(ONE), HERE), (timed(ONE, 2, steady=False), ELSEWHERE)], ("--across-machines", "--strict")),
    "missing on another machine": ([([*timed(ONE), *STEADY], HERE), (timed(ONE), ELSEWHERE)], REPORTED),
    "one machine all the same": ([(timed(ONE), HERE), (timed(ONE, 2), HERE)], REPORTED),
    "a machine that is not named": ([(timed(ONE), HERE), (timed(ONE), {})], ()),
    "other software": ([(timed(ONE), HERE), (timed(ONE), NEWER)], ()),
    "a device that neither has": ([([*NO_DEVICE, *STEADY], HERE)] * 2, ("--strict",)),
    "nothing measured": ([(NO_DEVICE, HERE)] * 2, ()),
    "never measured in the base": ([([made_up.ended(ONE, Status.SKIPPED, "no time"), *STEADY], HERE), (STEADY, HERE)], ()),
    "no cases": ([([], HERE)] * 2, ()),
    "one round": ([(timed(ONE, 1, TEN[:1]), HERE), (timed(ONE, 3, TEN[:1]), HERE)], ()),
    "three rounds": ([(timed(ONE, 1, TEN[:3]), HERE), (timed(ONE, 3, TEN[:3]), HERE)], ()),
    "unequal rounds": ([(timed(ONE, 1, TEN[:7]), HERE), (timed(ONE, 1.3), HERE)], ()),
    "three files": ([(timed(ONE), HERE), (timed(ONE), HERE), (timed(ONE, 1.5), HERE)], ()),
    "other clocks": ([(timed(ON_CARD), at(1.98e9, **HERE)), (timed(ON_CARD, 1.2), at(1.755e9, **HERE))], ()),
    "nearly the same clocks": ([(timed(ON_CARD), at(1.98e9, **HERE)), (timed(ON_CARD, 1.2), at(1.95e9, **HERE))], ()),
    "unknown clocks": ([(timed(ON_CARD), at(1.98e9, **HERE)), (timed(ON_CARD, 1.2), HERE)], ()),
    "clocks of another machine": ([(timed(ON_CARD), at(1.98e9, **HERE)), (timed(ON_CARD, 1.2), at(1.2e9, **ELSEWHERE))], REPORTED),
    "within one file": ([(made_up.both_kinds(), HERE)], ("--by", "dtype")),
    "slower within one file": ([(made_up.both_kinds(), HERE)], ("--by", "batch")),
    "failed within one file": ([([*made_up.both_kinds(), *timed(ONE), made_up.ended(BF16, Status.FAILED, "no")], HERE)], ("--by", "dtype")),
    "alone within one file": ([([*made_up.both_kinds(), *timed(ALONE)], HERE)], ("--by", "dtype")),
}
"""Files, and the options with which they are compared, by what is said."""


SPENT = made_up.ended(ONE, Status.SKIPPED, "the budget of 60 s was spent before its turn; give a larger --budget")
BUDGET = {"policy": Policy(rounds=14, budget_s=60.0), "footer": {"rounds": 10, "seconds": 60.0}}
LEFT_OUT = [([*timed(ONE), *STEADY], HERE), ([SPENT, *STEADY], {**HERE, **BUDGET})]
THREE_CASES = [*timed(ONE), *STEADY, *timed(made_up.case("matmul", n=3), 1, WIDE)]


def quick(**thresholds: Any) -> dict[str, Any]:
    return {**HERE, "suites": [{"name": "quick", "thresholds": thresholds}]}


def metered(watts: float | None, **energy: Any) -> Written:
    """Steps that took so much power, None where nothing metered it, with these fields of their energy changed."""
    steps = made_up.sustained("training", "cpu", (0.90, 0.905, 0.895, 0.91, 0.89, 0.9, 0.9), watts=watts)
    return [replace(each, energy=replace(each.energy, **energy)) for each in steps if each.energy], {**HERE, "workloads": made_up.SUSTAINED}


def allocated(bytes_: int) -> Written:
    return timed(ON_CARD, memory=made_up.Memory(bytes_, bytes_)), HERE


TWO_OF_SUITES = [
    ([*timed(ONE), *timed(made_up.case("noop"))], quick(time=0.5, memory="50%", matmul={"time": "30%"})),
    ([*timed(ONE, 1.2), *timed(made_up.case("noop"), 1.2)], quick(time=0.001)),
]
OTHER_SUITE = {**HERE, "suites": [{"name": "other", "thresholds": {"time": 0.5}}]}
JUDGED: Mapping[str, tuple[Sequence[Written], tuple[str, ...]]] = {
    "left out by a budget": (LEFT_OUT, ()),
    "left out by a budget, strict": (LEFT_OUT, ("--strict",)),
    "left out by a budget, and to be detected": (LEFT_OUT, ("--detect", "25%")),
    "all left out by a budget": ([(timed(ONE), HERE), ([SPENT], HERE)], ()),
    "slower, missing and inconclusive": ([(THREE_CASES, HERE), ([*timed(ONE, 1.3), *THREE_CASES[20:]], HERE)], ("--strict",)),
    "missing and inconclusive": ([(THREE_CASES, HERE), ([*timed(ONE), *THREE_CASES[20:]], HERE)], ("--strict",)),
    "more memory": ([allocated(1000), allocated(1100)], ()),
    "more memory, within its threshold": ([allocated(1000), allocated(1100)], ("--threshold", "memory=20%", "--threshold", "time=5%")),
    "more energy": ([metered(300), metered(330)], ()),
    "more energy, within its threshold": ([metered(300), metered(330)], ("--threshold", "energy=20%")),
    "less energy": ([metered(330), metered(300)], ()),
    "energy that one side did not meter": ([metered(300), metered(None)], ()),
    "energy of another meter": ([metered(300, source="nvml_power"), metered(330)], ()),
    "energy from nothing": ([metered(300, joules=0.0), metered(330)], ()),
    "thresholds of the base's suite": (TWO_OF_SUITES, ()),
    "thresholds of the command line": (TWO_OF_SUITES, ("--threshold", "5%")),
    "thresholds of another suite": ([(timed(ONE), OTHER_SUITE), (timed(ONE, 1.2), OTHER_SUITE)], ()),
    "thresholds within one file": ([(made_up.both_kinds(), quick(time="999%"))], ("--by", "batch")),
    "a threshold that may be meant as a percentage": ([(made_up.both_kinds(), quick(time=9.99))], ("--by", "batch")),
    "edited thresholds": ([(timed(ONE), quick(time=-1)), (timed(ONE), HERE)], ()),
}


@pytest.mark.parametrize(("name", "scenes"), [("compare-says", SAID), ("compare-judges", JUDGED)])
def test_what_it_says(tmp_path: Path, snapshot: Callable[[str, str], None], name: str, scenes: Mapping[str, Any]) -> None:
    texts = {}
    for what, (runs, arguments) in scenes.items():
        files = [made_up.write(tmp_path / what / f"run{number}.jsonl", run, **options) for number, (run, options) in enumerate(runs)]
        done = front_door.in_process(tmp_path / what, "compare", *(each.name for each in files), *arguments)
        texts[f"{what}, exit {done.code}"] = done.out + done.err
    snapshot(name, front_door.under_titles(texts))


MACHINE = "0123456789abcdef"
CALIBRATION = f"results/calibration/{MACHINE}.json"


def calibrated(folder: Folder, machine: str = MACHINE, path: str = CALIBRATION, sd: float = 0.1) -> None:
    noise = {"occasions": 5, "median": sd, "p10": sd, "mean": sd}
    content = {"kind": "calibration", "schema": 2, "common": None, "first": "2026-01-01T12:00", "last": "2026-01-05T12:00"}
    (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
    (folder.path / path).write_text(json.dumps({**content, "machine_key": machine, "pooled": noise, "cases": {ONE.id: noise}}))


BEGAN = {
    "2026-01-01T12:59:59+00:00": "",
    "2026-01-01T13:10:00+00:00": "",  # the base took ten minutes
    "2026-01-01T14:10:00+01:00": "",
    "2026-01-01T13:10:01": "60 min",
    "2026-01-01T10:50:00+00:00": "60 min",
    "2026-01-09T12:00:00+00:00": "8 days",
    "yesterday": "",
}


@pytest.mark.parametrize(("began", "apart"), BEGAN.items())
def test_files_of_two_sessions_without_a_calibration_are_undecided_if_strict(folder: Folder, began: str, apart: str) -> None:
    where, elsewhen = ({**environment(), "provenance": {"utc": utc}} for utc in ("2026-01-01T12:00:00+00:00", began))
    folder.write("base", timed(ONE), environment=where, footer={"seconds": 600.0})
    folder.write("new", timed(ONE), environment=elsewhen, footer={"seconds": 590.0})
    assert folder.compare("--strict", "--verdict", "v.json", "--junit", "j.xml").code == (4 if apart else 0)
    (comparison,) = json.loads((folder.path / "v.json").read_text())["comparisons"]
    errors = [each.attrib["message"] for each in suites(folder.path / "j.xml").iterfind(".//error")]
    assert (errors, comparison["other_occasion"] is None) == ([comparison["other_occasion"]] if apart else [], not apart)
    remark = f"; more than an hour from base, which ends --strict with 4: new ({apart})" if apart else ""
    done = folder.compare()
    assert (done.code, done.err) == (0, f"note: {UNPROVEN}{remark}; {REMEDY}\n")
    folder.write("slower", timed(ONE, 1.5), environment=elsewhen)
    assert folder.compare("--strict", files=["base.jsonl", "slower.jsonl"]).code == 3
    calibrated(folder, machine="AMD EPYC 7B13", path="m.json", sd=0.001)
    assert folder.compare("--strict", "--calibration", "m.json").code == 0


def test_a_torn_file_is_compared_as_far_as_it_goes(folder: Folder) -> None:
    folder.write("base", timed(ONE), timed(TWO))
    path = folder.write("new", timed(ONE), planned=2, finished=False)
    with path.open("a") as file:
        file.write('{"kind": "meas')
    done = folder.compare()
    assert (done.code, done.out.splitlines()[-1]) == (5, "1 same, 1 missing; exit 5")
    assert done.err.startswith("note: new.jsonl: the last line was cut while it was written and is left out; ")


def test_pyperf_on_one_side(folder: Folder) -> None:
    def pyperf(factor: float) -> dict[str, Any]:
        runs = [{"values": [factor * each] * 3, "metadata": {"date": "2026-01-31 12:00:00"}} for each in TEN]
        return {"version": "1.0", "metadata": {"unit": "second"}, "benchmarks": [{"metadata": {"name": "sort"}, "runs": runs}]}

    for name, factor in (("base", 1.0), ("new", 1.5)):
        (folder.path / f"{name}.json").write_text(json.dumps(pyperf(factor)))
    done = folder.compare(files=("base.json", "new.json"))
    assert (done.code, done.out.splitlines()[-1]) == (3, "1 slower; exit 3")


def test_each_new_file_is_a_family_of_its_own(folder: Folder) -> None:
    """Seven rounds carry 42 cases: in one family with another file's 42 they would carry none."""
    cases = [made_up.case("matmul", n=n) for n in range(42)]
    for name in ("base", "new", "later"):
        folder.write(name, *(timed(each, 1, made_up.SEVEN) for each in cases))
    assert folder.compare(files=("base.jsonl", "new.jsonl", "later.jsonl")).code == 0


def test_files_of_one_name_are_told_apart(folder: Folder) -> None:
    for side, factor in (("a", 1.0), ("b", 1.5)):
        (folder.path / side).mkdir()
        made_up.write(folder.path / side / "run.jsonl", timed(ONE, factor))
    done = folder.compare(files=("a/run.jsonl", "b/run.jsonl"))
    assert (done.code, done.out.splitlines()[0]) == (3, "run 2 against run 1, on cpu")
    assert done.err.splitlines()[-2:] == ["note: run 1 is a/run.jsonl", "note: run 2 is b/run.jsonl"]
    assert "a/run" not in folder.compare("--format", "csv", files=("a/run.jsonl", "b/run.jsonl")).out
    in_full = [str(folder.path / side / "run.jsonl") for side in "ab"]
    assert folder.compare(files=in_full).out == done.out


def test_a_threshold_is_a_percentage_or_a_fraction_and_throughput_is_time_turned_over(folder: Folder) -> None:
    folder.write("base", timed(ONE))
    folder.write("new", timed(ONE, 1.12))
    texts = {"5%": 3, "0.05": 3, "time=5 %": 3, "20%": 0, "0.2": 0, "throughput=10%": 3, "throughput=11%": 0}
    assert {text: folder.compare("--threshold", text).code for text in texts} == texts
    assert folder.rows("--threshold", "throughput=20%")[1][0]["compare.threshold"] == pytest.approx(0.25)


def test_a_calibration_of_this_machine_is_found_or_given_and_allowed_for(folder: Folder) -> None:
    for name, factor, cpu in (("base", 1.0, MACHINE), ("new", 1.2, MACHINE), ("elsewhere", 1.2, "Intel Xeon")):
        folder.write(name, timed(ONE, factor), environment=environment(cpu=cpu))
    assert folder.compare().code == 3
    calibrated(folder, path="mine.json")
    assert folder.compare().code == 3
    assert folder.compare("--calibration", "mine.json").code == 4
    calibrated(folder)
    done = folder.compare()
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")
    note = f"note: verdicts allow for the noise between sessions in {CALIBRATION}: 5 sessions from 2026-01-01 to 2026-01-05"
    assert done.err.splitlines()[-2] == note
    done = folder.compare("--across-machines", files=("base.jsonl", "elsewhere.jsonl"))
    assert (done.code, done.out.splitlines()[-1], "calibration" in done.err) == (0, "1 slower; exit 0", False)
    calibrated(folder, machine="../../mine", path="mine.json")
    for name in ("one", "other"):
        folder.write(name, timed(ONE), environment=environment(cpu="../../mine"))  # a key that is a path to one
    assert UNPROVEN in folder.compare(files=("one.jsonl", "other.jsonl")).err


def test_what_makes_no_sense_is_2_and_one_sentence(folder: Folder, transcript: Callable[..., None]) -> None:
    for name in ("base", "new", "runs/one"):
        folder.write(name, timed(ONE), environment=environment(cpu=MACHINE))
    calibrated(folder, path="other.json", machine="other")
    (folder.path / "torn.json").write_text((folder.path / "other.json").read_text()[:50])

    def compare(words: str) -> str:
        files = [f"{word}.jsonl" if word in ("base", "new", "absent") else word for word in words.split()]
        return front_door.refusal(folder.compare(files=files))

    transcript("wrong-comparisons", 22, compare)


def test_data_formats_hold_every_column_and_the_conclusion_goes_to_stderr(folder: Folder) -> None:
    folder.write("base", timed(ONE), timed(TWO))
    folder.write("new", timed(ONE, 1.2))
    _, rows = folder.rows()
    assert [list(row) for row in rows] == [[each.name for each in COLUMNS]] * 2
    assert rows[0]["median.change"] == pytest.approx(0.2)
    assert (rows[0]["compare.statistic"], rows[0]["base.rounds"], rows[0]["median.p"]) == ("median", 10, 2 / 184756)
    assert (rows[1]["compare.verdict"], rows[1]["new.id"], rows[1]["median.p"]) == ("missing", None, None)
    done = folder.compare("--format", "csv")
    assert (len(list(csv.DictReader(io.StringIO(done.out)))), done.err.splitlines()[0]) == (2, "1 slower, 1 missing; exit 3")
    assert len(folder.compare("--format", "md").out.splitlines()) == 4


def test_junit(folder: Folder) -> None:
    hostile = made_up.case("matmul", n=3, text='<&"\x1b[31m')
    folder.write("base", timed(ONE), timed(TWO), timed(hostile, 1, WIDE), timed(made_up.case("noop")))
    folder.write("new", timed(ONE), timed(TWO, 1.2), timed(hostile, 1, WIDE))
    assert folder.compare("--junit", "verdicts.xml").code == 3
    suite = suites(folder.path / "verdicts.xml")[0]
    counts = {"name": "new against base", "tests": "4", "failures": "2", "errors": "0", "skipped": "1"}
    assert {name: suite.get(name) for name in counts} == counts
    cases = suite.iter("testcase")
    endings = {test.get("name"): [(end.tag, end.get("message")) for end in test if end.tag != "properties"] for test in cases}
    (skipped,) = endings.pop('matmul[n=3,text=<&"[31m]@cpu')
    assert skipped[0] == "skipped"
    assert endings == {
        ONE.id: [],
        TWO.id: [("failure", "slower: time +20.0 %, 95 % interval +18.2…+21.8 %")],
        "noop[]@cpu": [("failure", "missing: not in the new file")],
    }
    folder.write("short", timed(ONE, 1, [1.0]))
    folder.write("other", timed(ONE, 1, [1.0]))
    assert folder.compare("--junit", "short.xml", files=["short.jsonl", "other.jsonl"]).code == 4
    undecided = suites(folder.path / "short.xml")[0]
    assert (undecided.get("tests"), undecided.get("errors")) == ("2", "1")  # the error is that nothing could have failed


def test_a_reader_that_leaves_changes_no_verdict(folder: Folder) -> None:
    folder.write("base", timed(ONE), timed(TWO))
    folder.write("new", timed(ONE, 1.2), timed(TWO, 1.2))
    process = front_door.start("compare", "base.jsonl", "new.jsonl", "--junit", "o.xml", cwd=folder.path)
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.wait() == 3
    assert (folder.path / "o.xml").is_file()


@given(st.text(max_size=8), st.integers(1, 100_000))
def test_a_fraction_is_a_percentage_or_refused_in_a_sentence(text: str, hundredths: int) -> None:
    assert parse_fraction(f"{hundredths / 100}%") == pytest.approx(hundredths / 10_000)
    try:
        assert 1e-4 <= parse_fraction(text) <= 10
    except ValueError as error:
        assert str(error) == f"'{text}' is not a fraction; write for example 5% or 0.05"


def full(*devices: str) -> list[Case]:
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    return list(planning.plan([load("full")], signatures, devices, include_absent=False))


def write_rounds(path: Path, cases: list[Case], rounds: int, seed: int, slow: Case | None = None) -> None:
    """Write a result file whose rounds lie 3 % apart; the slow case takes twice its time."""
    chance = random.Random(seed)
    times = {case.id: [(2 if case is slow else 1) * chance.lognormvariate(0, 0.03) for _ in range(rounds)] for case in cases}
    made_up.write(path, [each for case in cases for each in made_up.rounds_of(case, made_up.flat(times[case.id]))])


def test_one_case_of_full_that_takes_twice_as_long_is_found(tmp_path):
    cases, rounds = full("cpu"), 14
    for count in (len(cases), len(full("cpu", "cuda:0"))):
        assert rounds_for_gate(TESTS_A_CASE * count, least=LEAST_ROUNDS) == rounds
    slow = cases[len(cases) // 2]
    write_rounds(tmp_path / "base.jsonl", cases, rounds, 1)
    write_rounds(tmp_path / "new.jsonl", cases, rounds, 2, slow)
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl", "--format", "json")
    slower = [row["compare.case"] for row in json.loads(done.out) if row["compare.verdict"] == "slower"]
    assert (done.code, slower) == (3, [slow.id])


def test_a_gate_over_full_that_could_not_have_failed_is_4_and_says_so(tmp_path):
    cases = full("cpu")
    write_rounds(tmp_path / "base.jsonl", cases, 7, 1)
    write_rounds(tmp_path / "new.jsonl", cases, 7, 2, cases[0])
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl")
    sentence = f"too few rounds: in {3 * len(cases)} tests none could have been called slower; 11 rounds a side would do: --rounds 11"
    assert (done.code, sentence in done.err) == (4, True)


PAGE = (front_door.ROOT / "docs" / "compare.md").read_text()


def rows_below(heading: str) -> list[list[str]]:
    lines = PAGE.split(f"{heading}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines]


def test_the_page_has_the_verdicts_of_the_program() -> None:
    assert {row[0] for row in rows_below("| verdict | meaning | exit code |")} == {each.value for each in Verdict}


def test_the_page_has_the_rounds_that_carry_a_gate() -> None:
    for row in rows_below("| rounds | smallest p | cases whose correction it survives |"):
        rounds, p, cases = int(row[0]), float(row[1]), int(row[2])
        assert smallest_p(rounds, rounds) == pytest.approx(p, rel=0.05)
        assert rounds_for_gate(2 * (cases + 1), 0.05, least=1) == rounds + 1
        assert cases == 0 or rounds_for_gate(2 * cases, 0.05, least=1) <= rounds


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    by_layout = [each for layout in ("nchw", "nhwc") for each in timed(made_up.case("conv", layout=layout, dtype="fp32"))]
    for name in ("before", "after", "later", "run"):
        made_up.write(tmp_path / f"{name}.jsonl", by_layout)
    session = {"version": "1.0", "benchmarks": [{"metadata": {"name": "sort"}, "runs": [{"values": [1.0]}]}]}
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps(session))
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith("dlbench compare ")]
    assert len(commands) >= 5
    for command in commands:
        assert front_door.in_process(tmp_path, *command).code in (0, 4)
