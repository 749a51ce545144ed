"""Values that a workload declares, from one module and one suite to every command that shows or judges them."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest
from front_door import in_process, lines
from shared_hosts import dlbench

from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.harness.worker import registry

NO_MEMORY = made_up.Memory()
MODULE = '''
from dlbench import Unit, Value, Work, workload

P99 = Value("p99_s", Unit.SECONDS, "lower", "99th percentile of the latencies")
HITS = Value("hits", Unit.FRACTION, "higher", "requests within the bound")
CURVE = Value("curve", Unit.NUMBER, "lower", "loss after each step", series=True)
SERVED = Value("served", Unit.COUNT, None, "requests")
SLOW = 1


@workload(values=(P99, HITS, CURVE, SERVED))
def serve(device, *, load: int = 1) -> Work:
    """Serve requests."""
    return Work(observe=lambda clock: {"p99_s": 0.0125 * load * SLOW, "hits": 0.5, "curve": [2.0, 1.0, 0.5 * SLOW], "served": 12})
'''


def run(folder: Path, module: str, bench: str, *options: str, output: str = "o") -> front_door.Done:
    """Measure a workload of the user's module."""
    (folder / "mine.py").write_text(module)
    suite = front_door.suite(folder, bench)
    return dlbench("run", suite, "mine.py", "--device", "cpu", "--format", "json", "-o", f"{output}.jsonl", *options, cwd=folder)


def compare(folder: Path, *arguments: str, files: Sequence[str] = ("one.jsonl", "two.jsonl")) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code, the rows, and what goes to stderr."""
    done = in_process(folder, "compare", *files, "--format", "json", *arguments)
    return done.code, json.loads(done.out), done.err


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of the module; the second takes 1.5 times as long."""
    folder = tmp_path_factory.mktemp("served")
    for name, module in (("before", MODULE), ("after", MODULE.replace("SLOW = 1", "SLOW = 1.5"))):
        done = run(folder, module, 'workload = "serve"\naxes.load = [1, 2]', "--rounds", "5", output=name)
        assert done.code == 0, done.err
    return folder


def test_one_module_and_one_suite_show_a_value_with_its_unit(served: Path) -> None:
    shown = in_process(served, "show", "before.jsonl", "--topic", "details").out
    heading, _, *rows = (line.split() for line in shown.split("Values of serve")[1].splitlines() if line.strip())
    assert heading == ["case", "p99", "hits", "curve", "served"]
    assert [" ".join(row) for row in rows[:2]] == [
        "serve 12.5 ms 50.0 % 2.00…0.500 (3 values) 12",
        "serve load=2 25.0 ms 50.0 % 2.00…0.500 (3 values) 12",
    ]
    assert "p99: 99th percentile of the latencies" in shown


def test_the_values_of_a_workload_that_reports_no_times_are_paired(tmp_path: Path) -> None:
    measured = [each for dtype, value in (("fp32", 0.025), ("bf16", 0.0125)) for each in reported([value] * 7, dtype=dtype)]
    made_up.write(tmp_path / "run.jsonl", measured, workloads=SERVE)
    paired = in_process(tmp_path, "show", "run.jsonl", "--by", "dtype")
    head, row = (re.split(" {2,}", line.strip()) for line in paired.out.splitlines() if "  " in line.strip())
    assert list(zip(head, row, strict=True))[:3] == [("case", "serve"), ("p99 (fp32)", "25.0 ms"), ("p99 (bf16)", "12.5 ms")]
    assert paired.err == ""


def test_the_declarations_travel_in_the_header(served: Path) -> None:
    header = lines(served / "before.jsonl")[0]
    assert header["workloads"]["serve"]["values"] == [
        {"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "99th percentile of the latencies"},
        {"name": "hits", "unit": "fraction", "direction": "higher", "meaning": "requests within the bound"},
        {"name": "curve", "unit": "number", "direction": "lower", "meaning": "loss after each step", "series": True},
        {"name": "served", "unit": "count", "meaning": "requests"},
    ]


def test_csv_and_json_have_values_in_base_units(served: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(in_process(served, "show", "before.jsonl", "--format", "csv").out)))
    assert [(row["value.p99_s"], row["value.curve"]) for row in rows] == [("0.0125", "[2.0, 1.0, 0.5]"), ("0.025", "[2.0, 1.0, 0.5]")]
    exported = in_process(served, "export", "before.jsonl", "--to", "csv").out
    assert list(csv.DictReader(io.StringIO(exported))) == rows
    data = json.loads(in_process(served, "show", "before.jsonl", "--format", "json").out)
    assert [(row["value.hits"], row["value.served"]) for row in data] == [(0.5, 12.0), (0.5, 12.0)]


def test_compare_judges_what_has_a_direction_and_shows_the_rest(served: Path) -> None:
    files = "before.jsonl", "after.jsonl"
    code, (first, second), _ = compare(served, files=files)
    assert (code, first["compare.verdict"], first["compare.regressed"]) == (3, "slower", "value.p99_s")
    assert first["compare.note"] == (
        "p99 worse: 12.5 ms to 18.8 ms (+50.0 %); hits: 50.0 %; curve: 2.00…0.500 (3 values) to 2.00…0.750 (3 values); served: 12"
    )

    def judged(row: dict[str, Any], value: str) -> list[Any]:
        return [row[f"value.{value}.{name}"] for name in ("base", "new", "change", "verdict")]

    assert judged(second, "p99_s") == [0.025, pytest.approx(0.0375), pytest.approx(0.5), "worse"]
    assert judged(first, "hits") == [0.5, 0.5, 0.0, "same"]
    assert judged(first, "served") == [12.0, 12.0, 0.0, None]
    assert judged(first, "curve") == ["[2.0, 1.0, 0.5]", "[2.0, 1.0, 0.75]", None, None]
    thresholds = {"value=60%": 0, "value=40%": 3}
    assert {text: compare(served, "--threshold", text, files=files)[0] for text in thresholds} == thresholds


@pytest.mark.parametrize(
    ("work", "sentence", "rounds"),
    [
        ("observe=lambda clock: {'a': 1.0, 'b': 2.0}", "value 'b' was returned and is not declared", None),
        ("observe=lambda clock: {}", "value 'a' is declared and was not returned", None),
        ("observe=lambda clock: {'a': [1.0, 2.0]}", "value 'a' is declared as a scalar and is a series", None),
        ("call=lambda: sum(range(1000))", "value 'a' is declared and was not returned", 1),  # the times stay
    ],
)
def test_what_is_not_as_declared_fails_the_case_with_a_sentence(tmp_path: Path, work: str, sentence: str, rounds: int | None) -> None:
    module = (
        "from dlbench import Unit, Value, Work, workload\n"
        '@workload(values=(Value("a", Unit.NUMBER, None, "a"),))\n'
        f"def wrong(device) -> Work:\n    'Err.'\n    return Work({work})\n"
    )
    done = run(tmp_path, module, 'workload = "wrong"')
    (row,) = json.loads(done.out)
    assert (done.code, row["case.status"], row["case.reason"]) == (5, "failed", f"{sentence}; put it right in @workload(values=…)")
    assert (row["time.rounds"] or None, row["time.median_s"] is None) == (rounds, rounds is None)


def test_a_call_reports_values_with_its_time_and_leaves_out_what_a_machine_does_not_know(tmp_path: Path) -> None:
    module = (
        "from dlbench import Sweep, Unit, Value, Work, workload\n"
        'CALLS = Value("calls", Unit.COUNT, None, "m")\n'
        'LINK = Value("link", Unit.BYTES_PER_S, None, "m", optional=True, bounds="rate.bytes_per_s")\n'
        "@workload(values=(CALLS, LINK), ceiling='copy')\n"
        "def counts(device, *, n: Sweep[int] = 1) -> Work:\n    'Count.'\n    called = []\n"
        "    def report(clock):\n        checked = b'x' * (256 << 20)\n        return {'calls': len(called)}\n"
        "    return Work(call=lambda: called.append(0), report=report, bytes=8)\n"
    )
    done = run(tmp_path, module, 'workload = "counts"')
    (row,) = json.loads(done.out)
    header, measured, *_ = lines(tmp_path / "o.jsonl")
    timed = measured["samples"]["calls"] * len(measured["samples"]["block_s"])
    assert (done.code, row["case.status"], "value.link" in row) == (0, "ok", False)
    assert measured["values"]["calls"] > timed  # the warm-up is in it; copies and checks come later
    assert (measured["memory"]["host_peak_bytes"] or 0) < 128 << 20  # what the report takes is no memory of the call
    declared = header["workloads"]["counts"]
    assert (declared["ceiling"], declared["parameters"]) == ("copy", {"n": {"sweep": ""}})
    assert declared["values"][1] == {"name": "link", "unit": "bytes/s", "meaning": "m", "optional": True, "bounds": "rate.bytes_per_s"}


def test_a_parameter_that_may_be_left_out_gets_the_member_of_its_enum(tmp_path: Path) -> None:
    module = (
        "import enum\nfrom dlbench import Work, workload\n"
        "class Length(enum.Enum):\n    SHORT = 's'\n    LONG = 'l'\n"
        "@workload\ndef taken(device, *, length: Length | None = None) -> Work:\n    'Take it.'\n"
        "    assert length is Length.LONG, repr(length)\n    return Work(call=lambda: None)\n"
    )
    (row,) = json.loads(run(tmp_path, module, 'workload = "taken"\naxes.length = ["l"]').out)
    assert (row["case.status"], row["case.reason"]) == ("ok", None)


def refused(folder: Path, decorator: str, parameters: str) -> str:
    """The sentence with which a module is refused that declares a workload so."""
    path = folder / "w.py"
    path.write_text(
        "from typing import Annotated, Literal\nimport dlbench\nfrom dlbench import *\n"
        f"{decorator}\ndef wrong{parameters.replace('(', '(device, *, ', 1)} -> Work:\n    'Err.'\n    return Work(call=lambda: None)\n"
    )
    with pytest.raises(UsageError) as error:
        registry.load_plugin(str(path))
    return str(error.value).removeprefix(f"{folder}/")


def test_a_declaration_that_makes_no_sense_is_a_sentence(
    tmp_path: Path, transcript: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which would be that of the module before it
    transcript("wrong-declarations", 43, lambda function: refused(tmp_path, *function.split(" def wrong")))


P99 = {"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m"}
SERVE = {"serve": {"values": [P99], "parallel": {}}}


def reported(values: Sequence[float], memory: made_up.Memory = NO_MEMORY, **parameters: Any) -> list[Measurement]:
    """Rounds that reported one value each, and no times."""
    rounds = made_up.rounds_of(made_up.case("serve", **parameters), [[1.0]] * len(values), memory=memory)
    return [made_up.with_values(made_up.without_rounds(each), p99_s=one) for each, one in zip(rounds, values, strict=True)]


def written(path: Path, value: float | Sequence[float], suites: Sequence[object] = ("quick",), **declared: object) -> Path:
    """Write a run of rounds that reported one value: seven alike, or these."""
    values = [value] * 7 if isinstance(value, float) else value
    return made_up.write(path, reported(values), workloads={"serve": {"values": [{**P99, **declared}], "parallel": {}}}, suites=suites)


def test_what_a_comparison_says_of_values(tmp_path: Path, transcript: Callable[..., None]) -> None:
    """Of what one file reported and declared against another; noisy rounds differ by 15 to 20 %."""

    def compared(title: str) -> str:
        what, base, declared, new, otherwise, options, code = re.fullmatch(
            r"(.*?): (.+?) (\{.*\}) against (.+?) (\{.*\})(.*), exit (.)", title
        ).groups()  # type: ignore[union-attr]  # or the title is wrong
        for name, values, more in (("one", base, declared), ("two", new, otherwise)):
            written(tmp_path / what / f"{name}.jsonl", json.loads(values), **json.loads(more))
        done = in_process(tmp_path / what, "compare", "one.jsonl", "two.jsonl", *options.split())
        assert done.code == int(code)
        return done.out + done.err

    transcript("compare-values", 19, compared)


GIB = 1 << 30


def searched(path: Path, batch: int, limit_bytes: int | None = GIB) -> Path:
    """Write a run whose search found a batch within so much memory; none at batch 0."""
    case = made_up.case("fit", model="resnet18")
    (found,) = made_up.rounds_of(case, [[1.0]], memory=made_up.Memory(batch << 20), found={"batch": batch}, limit_bytes=limit_bytes)
    values = [{"name": "largest", "unit": "count", "direction": "higher", "meaning": "m", "role": "largest"}]
    declared = {"fit": {"values": values, "parameters": {"batch": {"searched": ""}, "memory_gib": {"limit": ""}}}}
    measured = made_up.with_values(made_up.without_rounds(found), largest=float(batch))
    if not batch:
        measured = replace(made_up.ended(case, Status.OOM, "not even batch=1 fits: full"), limit_bytes=limit_bytes)
    return made_up.write(path, [measured], workloads=declared)


def rated(path: Path, held: int, failed: int) -> Path:
    """Write a run whose search found the highest rate that held, and the lowest that failed."""
    values = [
        {"name": name, "unit": "items/s", "direction": better, "meaning": "m", "role": role}
        for name, better, role in (("held", "higher", "highest_rate"), ("failed", None, "failing_rate"))
    ]
    (found,) = made_up.rounds_of(made_up.case("serve", model="resnet18"), [[1.0]], found={"rate": held})
    measured = made_up.with_values(made_up.without_rounds(found), held=float(held), failed=float(failed))
    return made_up.write(path, [measured], workloads={"serve": {"values": values, "parameters": {"rate": {"searched": ""}}}})


def test_what_searches_found_is_compared_within_the_same_memory_and_what_they_left_open(
    tmp_path: Path, transcript: Callable[..., None]
) -> None:
    def compared(title: str) -> str:
        what, of, *numbers, expected = re.fullmatch(
            r"(.*): (batch|rate) (\d+) (?:in|to) (\w+) .*, then (\d+) (?:in|to) (\w+) .*, exit (.)", title
        ).groups()  # type: ignore[union-attr]  # or the title is wrong
        for name, found, edge in zip(("one", "two"), numbers[::2], numbers[1::2], strict=True):
            path = tmp_path / what / f"{name}.jsonl"
            if of == "rate":
                rated(path, int(found), int(edge))
            else:
                searched(path, int(found), None if edge == "unknown" else int(edge) << 20)
        code, (row,), _ = compare(tmp_path / what)
        assert code == int(expected)
        return f"{row['compare.verdict']}: {row['compare.note']}; unseen: {row['compare.unseen']}"

    transcript("compare-searches", 16, compared)


def test_rounds_that_suffice_for_values_and_not_for_their_memory_are_too_few(tmp_path: Path) -> None:
    """Four rounds a side carry one test, and here are two: of the value and of the host's memory."""
    for name, factor in (("one", 1.0), ("two", 1.2)):
        measured = reported([factor * each for each in (1.0, 1.001, 0.999, 1.002)], made_up.Memory(host_peak_bytes=3 << 20))
        made_up.write(tmp_path / f"{name}.jsonl", measured, workloads=SERVE)
    code, _, err = compare(tmp_path)
    assert (code, "too few rounds: in 2 tests none could have been called worse; 10 rounds a side would do" in err) == (4, True)


def test_one_noisy_case_among_cases_of_values_alone_is_not_all_of_a_comparison(tmp_path: Path) -> None:
    wide = made_up.flat((0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05))
    for name, factor in (("one", 1.0), ("two", 1.15)):
        timed = [made_up.scaled(each, factor) for each in made_up.rounds_of(made_up.case("matmul", n=1), wide)]
        made_up.write(tmp_path / f"{name}.jsonl", [*timed, *reported([1.0] * 7)], workloads=SERVE)
    code, _, err = compare(tmp_path)
    assert (code, "is not excluded in 1 of 2 cases" in err) == (0, True)


def test_a_declaration_in_a_header_that_makes_no_sense_is_refused(tmp_path: Path, transcript: Callable[..., None]) -> None:
    path = written(tmp_path / "one.jsonl", 1.0)
    header, *rest = lines(path)

    def show(declared: str) -> str:
        header["workloads"]["other"] = json.loads(declared)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *rest)))
        return front_door.refusal(in_process(tmp_path, "show", path.name))

    transcript("wrong-headers", 7, show)
