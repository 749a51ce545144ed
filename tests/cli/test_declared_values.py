"""Values that a workload declares, from one module and one suite to every command that shows or judges them."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import made_up
import pytest
from front_door import HASTY, in_process, lines
from shared_hosts import dlbench

from dlbench.core.model import Status

MODULE = '''
import os

from dlbench import Unit, Value, Work, workload

P99 = Value("p99_s", Unit.SECONDS, "lower", "99th percentile of the latencies")
HITS = Value("hits", Unit.FRACTION, "higher", "requests within the bound")
CURVE = Value("curve", Unit.NUMBER, "lower", "loss after each step", series=True)
SERVED = Value("served", Unit.COUNT, None, "requests")


@workload(values=(P99, HITS, CURVE, SERVED))
def serve(device, *, load: int = 1) -> Work:
    """Serve requests, as slowly as the environment says."""
    slow = float(os.environ.get("SLOW", "1"))
    return Work(observe=lambda clock: {"p99_s": 0.0125 * load * slow, "hits": 0.5, "curve": [2.0, 1.0, 0.5 * slow], "served": 12})
'''
SUITE = f"""
about = "How fast are requests served?"
{HASTY}
[[bench]]
workload = "serve"
axes.load = [1, 2]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one module, one suite, and two runs of it; the second takes 1.5 times as long."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "serving.py").write_text(MODULE)
    (folder / "serving.toml").write_text(SUITE)
    for name, slow in (("before", "1"), ("after", "1.5")):
        arguments = ("run", "serving.toml", "serving.py", "--device", "cpu", "--rounds", "5", "-o", f"{name}.jsonl")
        done = dlbench(*arguments, cwd=folder, variables={"SLOW": slow})
        assert done.code == 0, done.err
    return folder


def test_one_module_and_one_suite_show_a_value_with_its_unit(served: Path) -> None:
    shown = in_process(served, "show", "before.jsonl", "--topic", "details").out
    table = shown.split("Values of serve")[1]
    found = [line.split() for line in table.splitlines() if line.strip()]
    assert found[0] == ["case", "p99", "hits", "curve", "served"]
    assert found[2] == ["serve", "12.5", "ms", "50.0", "%", "2.00…0.500", "(3", "values)", "12"]
    assert found[3] == ["serve", "load=2", "25.0", "ms", "50.0", "%", "2.00…0.500", "(3", "values)", "12"]
    assert "p99: 99th percentile of the latencies" in shown


def test_the_values_of_a_workload_that_reports_no_times_are_paired(tmp_path: Path) -> None:
    (tmp_path / "serving.py").write_text(
        MODULE.replace("load: int = 1", "dtype: Dtype")
        .replace("load * slow", "(2 if dtype == 'fp32' else 1)")
        .replace("import Unit", "import Dtype, Unit")
    )
    (tmp_path / "serving.toml").write_text(SUITE.replace("axes.load = [1, 2]", 'axes.dtype = ["fp32", "bf16"]'))
    done = dlbench("run", "serving.toml", "serving.py", "--device", "cpu", "--rounds", "2", "-o", "run.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
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
    done = in_process(served, "compare", "before.jsonl", "after.jsonl", "--format", "json")
    assert done.code == 3, done.err
    first, second = json.loads(done.out)
    assert (first["compare.verdict"], first["compare.regressed"]) == ("slower", "value.p99_s")
    assert first["compare.note"] == (
        "p99 worse: 12.5 ms to 18.8 ms (+50.0 %); hits: 50.0 %; curve: 2.00…0.500 (3 values) to 2.00…0.750 (3 values); served: 12"
    )
    told = ("base", "new", "change", "verdict")
    assert [second[f"value.p99_s.{name}"] for name in told] == [0.025, pytest.approx(0.0375), pytest.approx(0.5), "worse"]
    assert [first[f"value.hits.{name}"] for name in told] == [0.5, 0.5, 0.0, "same"]
    assert [first[f"value.served.{name}"] for name in told] == [12.0, 12.0, 0.0, None]
    assert [first[f"value.curve.{name}"] for name in told] == ["[2.0, 1.0, 0.5]", "[2.0, 1.0, 0.75]", None, None]


@pytest.mark.parametrize(
    ("threshold", "code"),
    [("value=60%", 0), ("value=40%", 3)],
)
def test_a_threshold_holds_for_all_values(served: Path, threshold: str, code: int) -> None:
    assert in_process(served, "compare", "before.jsonl", "after.jsonl", "--threshold", threshold).code == code


def test_a_suite_sets_the_threshold_of_a_workloads_values(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("two", 1.5)):
        header = {"name": "quick", "thresholds": {"value": 0.05, "serve": {"value": 0.6}}}
        written(tmp_path / f"{name}.jsonl", value, suites=[header])
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json")
    (row,) = json.loads(done.out)
    assert (row["compare.verdict"], row["value.p99_s.verdict"]) == ("same", "same")


WRONG = {
    "undeclared": ("{'a': 1.0, 'b': 2.0}", "value 'b' was returned and is not declared"),
    "missing": ("{}", "value 'a' is declared and was not returned"),
    "series": ("{'a': [1.0, 2.0]}", "value 'a' is declared as a scalar and is a series"),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_is_not_as_declared_fails_the_case_with_a_sentence(tmp_path: Path, how: str) -> None:
    returned, sentence = WRONG[how]
    (tmp_path / "w.py").write_text(
        "from dlbench import Unit, Value, Work, workload\n"
        '@workload(values=(Value("a", Unit.NUMBER, None, "a"),))\n'
        f"def wrong(device) -> Work:\n    'Err.'\n    return Work(observe=lambda clock: {returned})\n"
    )
    (tmp_path / "w.toml").write_text(f'about = "?"\n{HASTY}\n[[bench]]\nworkload = "wrong"\n')
    done = dlbench("run", "w.toml", "w.py", "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path)
    (row,) = json.loads(done.out)
    assert (done.code, row["case.status"]) == (5, "failed")
    assert row["case.reason"] == f"{sentence}; put it right in @workload(values=…)"


def test_a_missing_value_leaves_the_times(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "from dlbench import Unit, Value, Work, workload\n"
        '@workload(values=(Value("a", Unit.NUMBER, None, "a"),))\n'
        "def wrong(device) -> Work:\n    'Err.'\n    return Work(call=lambda: sum(range(1000)))\n"
    )
    (tmp_path / "w.toml").write_text(f'about = "?"\n{HASTY}\n[[bench]]\nworkload = "wrong"\n')
    done = dlbench("run", "w.toml", "w.py", "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path)
    (row,) = json.loads(done.out)
    assert (done.code, row["case.status"], row["time.rounds"]) == (5, "failed", 1)
    assert row["time.median_s"] > 0


def test_a_call_reports_values_beside_its_time_and_leaves_out_what_a_machine_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "from dlbench import Sweep, Unit, Value, Work, workload\n"
        'CALLS = Value("calls", Unit.COUNT, None, "m")\n'
        'LINK = Value("link", Unit.BYTES_PER_S, None, "m", optional=True, bounds="rate.bytes_per_s")\n'
        "@workload(values=(CALLS, LINK), ceiling='copy')\n"
        "def counts(device, *, n: Sweep[int] = 1) -> Work:\n    'Count.'\n    called = []\n"
        "    def report(clock):\n        checked = b'x' * (256 << 20)\n        return {'calls': len(called)}\n"
        "    return Work(call=lambda: called.append(0), report=report, bytes=8)\n"
    )
    (tmp_path / "w.toml").write_text(f'about = "?"\n{HASTY}\n[[bench]]\nworkload = "counts"\n')
    done = dlbench("run", "w.toml", "w.py", "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path)
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
    (tmp_path / "w.py").write_text(
        "import enum\nfrom dlbench import Work, workload\n"
        "class Way(enum.Enum):\n    SHORT = 's'\n    LONG = 'l'\n"
        "@workload\ndef taken(device, *, way: Way | None = None) -> Work:\n    'Take it.'\n"
        "    assert way is Way.LONG, repr(way)\n    return Work(call=lambda: None)\n"
    )
    (tmp_path / "w.toml").write_text(f'about = "?"\n{HASTY}\n[[bench]]\nworkload = "taken"\naxes.way = ["l"]\n')
    done = dlbench("run", "w.toml", "w.py", "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path)
    (row,) = json.loads(done.out)
    assert (row["case.status"], row["case.reason"]) == ("ok", None)


MISTAKES = {
    'Value("a", "ms", None, "")': (
        "value 'a': unit must be a member of Unit (TEXT, COUNT, NUMBER, SECONDS, BYTES, PER_S, ITEMS_PER_S, FLOPS_PER_S, BYTES_PER_S, "
        "FRACTION, RATIO, JOULES, WATTS, HERTZ, CELSIUS, MONEY, FLAG), not 'ms'"
    ),
    'Value("a", Unit.TEXT, None, "")': "value 'a': values are numbers, and have no unit 'text'",
    'Value("a", Unit.MONEY, None, "")': "value 'a': values are numbers, and have no unit 'money'",
    'Value("a", Unit.SECONDS, None, "", when={"form": "tower"})': (
        "value 'a': when must be texts by parameter, such as {'form': ('async',)}, not {'form': 'tower'}"
    ),
    'Value("a", Unit.SECONDS, None, "", when=3)': "value 'a': when must be texts by parameter, such as {'form': ('async',)}, not 3",
    'Value("a", Unit.SECONDS, "down", "")': "value 'a': direction must be one of lower, higher, not 'down'",
    'Value("a b", Unit.SECONDS, None, "")': "value 'a b': its name must be one of Python, such as p99_s",
    'Value("a", Unit.SECONDS, None, ""), Value("a", Unit.SECONDS, None, "")': "value 'a': it is declared twice",
    'Value("a", Unit.SECONDS, None, "", when={"fom": ("x",)})': "value 'a': no parameter is called 'fom'; did you mean 'form'?",
    'Value("a", Unit.SECONDS, None, "", role="inputs")': (
        "value 'a': role must be one of input, transfer, host, served, p50, p90, p99, within, queries, once, sample, accuracy, diverged, "
        "largest, input_alone, step_alone, clock, temperature, power, throttle, pace, burst, steady, error, product_error, seed_accuracy, "
        "seed_loss, seed_diverged, loss_curve, at_once, in_turn, kept, efficiency, missed, late, backlog, "
        "saturation, highest_rate, failing_rate, rate_curve, not 'inputs'"
    ),
    'Value("a", Unit.RATIO, None, "", role="input")': "value 'a': the role 'input' is that of a number of seconds",
    'Value("a", Unit.COUNT, None, "", role="largest")': (
        "value 'a': it takes one parameter that is searched, such as batch: Searched[Size] = None"
    ),
    'Value("a", Unit.ITEMS_PER_S, None, "", role="highest_rate")': (
        "value 'a': it takes one parameter that is searched, such as batch: Searched[Size] = None"
    ),
    'Value("a", Unit.SECONDS, None, "", bounds="rate.byte_per_s")': (
        "value 'a': bounds must be one of rate.bytes_per_s, not 'rate.byte_per_s'"
    ),
    'Value("a", Unit.RATIO, None, "", role="once")': "value 'a': the role 'once' is that of a number of seconds",
    'Value("a", Unit.SECONDS, None, "", optional="yes")': "value 'a': optional must be true or false, not 'yes'",
    'Value("a", Unit.SECONDS, "lower", "", margin=-1)': "value 'a': margin must be a number above 0, in its unit, not -1",
    'Value("a", Unit.SECONDS, "lower", "", margin=0)': "value 'a': margin must be a number above 0, in its unit, not 0",
    'Value("a", Unit.SECONDS, "lower", "", margin="1%")': "value 'a': margin must be a number, not '1%'",
    'Value("a", Unit.SECONDS, None, "", margin=1)': "value 'a': a margin is of a number with a direction, as nothing else is judged",
    'Value("a", Unit.SECONDS, "lower", "", series=True, margin=1)': (
        "value 'a': a margin is of a number with a direction, as nothing else is judged"
    ),
    'Value("a", Unit.FRACTION, "higher", "", series=True, margin=0.01, paired=True)': (
        "value 'a': what is judged in pairs is a series with points, a direction and a margin"
    ),
    'Value("a", Unit.SECONDS, None, "", points=("x",))': "value 'a': points name those of a series; give series=True",
}


def planned(folder: Path, declared: str, parameters: str) -> tuple[int, str]:
    """The exit code, and what is said, where a workload declared so is to be planned."""
    (folder / "w.py").write_text(
        "from typing import Annotated, Literal\nimport dlbench\nfrom dlbench import *\n"
        f"@workload({declared})\ndef wrong(device, *, {parameters}) -> Work:\n    'Err.'\n    return Work(call=lambda: None)\n"
    )
    (folder / "w.toml").write_text('about = "?"\n[[bench]]\nworkload = "wrong"\n')
    done = dlbench("list", "w.toml", "w.py", cwd=folder)
    return done.code, done.err.replace(f"{folder}/", "")


@pytest.mark.parametrize("values", MISTAKES)
def test_a_declaration_that_makes_no_sense_is_a_sentence(tmp_path: Path, values: str) -> None:
    said = planned(tmp_path, f"values=({values},)", "form: str = 'x'")
    assert said == (2, f"dlbench: w.py, line 4: workload 'wrong', {MISTAKES[values]}\n")


MISFITS = {
    'values=(Value("a", Unit.RATIO, None, "", when={"flag": ("1",)}),)': "value 'a': flag must be true or false, not '1'",
    'values=(Value("a", Unit.SECONDS, None, "", when={"form": ("tover",)}),)': "value 'a': form must be one of ddp, tower, not 'tover'",
    'parallel=Parallel(scaling="weka")': "parallel: scaling must be one of weak, strong, not 'weka'",
    'ceiling="memry"': "ceiling must be one of arithmetic, memory, launch, synchronisation, copy, not 'memry'",
    'writes_files="path"': "writes_files must be true or false, not 'path'",
}


@pytest.mark.parametrize("declared", MISFITS)
def test_a_declaration_that_does_not_fit_the_signature_is_a_sentence(tmp_path: Path, declared: str) -> None:
    said = planned(tmp_path, declared, "form: Literal['ddp', 'tower'] = 'ddp', flag: bool = True, ranks: int = 1")
    assert said == (2, f"dlbench: w.py, line 4: workload 'wrong', {MISFITS[declared]}\n")


UNBEARABLE = {
    "form: Sweep[Literal['a', 'b']] = 'a'": "parameter 'form': with the role 'sweep' it must be integer or number, not text",
    "form: Communicates[str] = 'a'": "parameter 'form': with the role 'communicates' it must be flag, not text",
    "n: Switch[int] = 1": "parameter 'n': with the role 'switch' it must be text, not integer",
    "form: Switch[Literal['a', 'b']]": "parameter 'form': a switch has a plain default; write form: Switch[…] = …",
    "form: Switch[Literal['a', 'b']] | None = None": "parameter 'form': a switch has a plain default; write form: Switch[…] = …",
    "form: Annotated[Literal['loops', 'rows'], Role('way', 'lops')] = 'rows'": (
        "parameter 'form': role 'way': 'lops' is none of its values; did you mean 'loops'?"
    ),
    "form: Annotated[Literal['loops', 'rows'], Role('way')] = 'rows'": (
        "parameter 'form': role 'way' names the value that stands out, such as Role('way', 'loops')"
    ),
    "n: Annotated[int, Role('swep')] = 1": ("parameter 'n': no role is called 'swep'; did you mean 'sweep'?"),
    "batch: Searched[Size] = 8": "parameter 'batch': it can't be left open; write batch: Searched[…] = None",
    "batch: Searched[Size]": "parameter 'batch': it can't be left open; write batch: Searched[…] = None",
    "threads: SearchedCores[str] = None": "parameter 'threads': with the role 'searched_cores' it must be integer, not text",
    "form: Searched[str] = None": (
        "parameter 'form': it has no values to try; annotate it with Size, or where the fastest is wanted a Literal"
    ),
    "n: [8, 16] = 8": "parameter 'n': annotate it with int, float, str, bool, a Literal or an Enum, not [8, 16]",
}


@pytest.mark.parametrize("parameters", UNBEARABLE)
def test_a_role_that_its_parameter_cannot_bear_is_a_sentence(tmp_path: Path, parameters: str) -> None:
    assert planned(tmp_path, "", parameters) == (2, f"dlbench: w.py, line 4: workload 'wrong', {UNBEARABLE[parameters]}\n")


def written(path: Path, value: float | Sequence[float], suites: Sequence[object] = ("quick",), **declared: object) -> Path:
    """A run of rounds that reported one value: seven alike, or these."""
    values = [value] * 7 if isinstance(value, float) else value
    rounds = made_up.rounds_of(made_up.case("serve", n=1), [[1.0]] * len(values), memory=made_up.Memory())
    told = {"serve": {"values": [{"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m", **declared}], "parallel": {}}}
    of_rounds = [made_up.with_values(made_up.without_rounds(each), p99_s=one) for each, one in zip(rounds, values, strict=True)]
    return made_up.write(path, of_rounds, workloads=told, suites=suites)


OVERLAPPING = (1.02, 0.85, 1.17, 0.93, 1.30, 0.76, 1.08), (1.53, 1.27, 1.75, 1.21, 1.95, 1.28, 1.62)
"""Seven rounds each that differ by 15 to 20 %, the second by half more: its lowest lies among the first."""
JUDGED = {
    "rounds that overlap": (*OVERLAPPING, {}, "worse", 3),
    "the same the other way": (*OVERLAPPING[::-1], {}, "better", 0),
    "one share lost": ((0.98,) * 7, (0.89,) * 7, {"unit": "fraction", "direction": "higher", "margin": 0.01}, "worse", 3),
    "the same within a margin": ((0.98,) * 7, (0.89,) * 7, {"unit": "fraction", "direction": "higher", "margin": 0.1}, "same", 0),
    "zero and next to nothing": ((0.0,) * 7, (1e-12,) * 7, {"margin": 1e-3}, "same", 0),
    "more than nothing": ((0.0,) * 7, (2.0,) * 7, {"margin": 0.5}, "worse", 3),
    "less than zero": ((-10.0, -11.0, -9.9, -10.1, -10.2, -9.8, -10.4), (-13.0, -14.0, -12.9, -13.1, -13.2, -12.8, -13.4),
                       {"direction": "higher"}, "worse", 3),
    "nothing on both sides": ((0.0,) * 7, (0.0,) * 7, {}, "same", 0),
}  # fmt: skip


@pytest.mark.parametrize("what", JUDGED)
def test_a_value_is_judged_by_ranks_and_by_its_margin(tmp_path: Path, what: str) -> None:
    base, new, declared, verdict, code = JUDGED[what]
    written(tmp_path / "one.jsonl", base, **declared)
    written(tmp_path / "two.jsonl", new, **declared)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json")
    (row,) = json.loads(done.out)
    assert (row["value.p99_s.verdict"], done.code) == (verdict, code)


def test_the_margin_is_that_of_base_and_an_old_file_takes_the_others(tmp_path: Path) -> None:
    written(tmp_path / "old.jsonl", 1.0)
    written(tmp_path / "narrow.jsonl", 1.04, margin=0.03)
    written(tmp_path / "wide.jsonl", 1.0, margin=0.05)
    found = [
        json.loads(in_process(tmp_path, "compare", *files, "--format", "json").out)[0]["value.p99_s.verdict"]
        for files in (("old.jsonl", "narrow.jsonl"), ("wide.jsonl", "narrow.jsonl"))
    ]
    assert found == ["worse", "same"]


def test_a_change_from_zero_without_a_margin_decides_nothing_and_says_what_would(tmp_path: Path) -> None:
    written(tmp_path / "one.jsonl", 0.0)
    written(tmp_path / "two.jsonl", 1e-12)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--strict", "--format", "json")
    (row,) = json.loads(done.out)
    said = "not judged, as a share of zero is no margin; declare one in the value's own unit, Value(…, margin=…)"
    assert (done.code, row["compare.verdict"], row["value.p99_s.verdict"]) == (4, "inconclusive", "inconclusive")
    assert said in row["compare.note"]
    assert said in row["compare.unseen"]


def test_rounds_that_are_too_few_for_a_value_are_told_with_how_many_would_do(tmp_path: Path) -> None:
    written(tmp_path / "one.jsonl", (1.0, 1.01, 0.99))
    written(tmp_path / "two.jsonl", (2.0, 2.01, 1.99))
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json")
    (row,) = json.loads(done.out)
    assert (done.code, row["compare.verdict"]) == (4, "inconclusive")
    assert row["compare.note"] == "p99: 1.00 s to 2.00 s (+100.0 %), 3 rounds a side are too few, 4 would do"


def test_a_value_that_may_be_worse_by_what_must_be_seen_leaves_a_case_undecided(tmp_path: Path) -> None:
    noisy = (1.0, 1.6, 0.7, 1.3, 0.8, 1.9, 1.1)
    written(tmp_path / "one.jsonl", noisy)
    written(tmp_path / "two.jsonl", tuple(reversed(noisy)))
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--detect", "25%", "--format", "json")
    (row,) = json.loads(done.out)
    assert (done.code, row["compare.unseen"], row["compare.detect"]) == (4, "p99 may be up to 400 ms worse", 0.25)
    assert row["value.p99_s.possible"] == pytest.approx(0.4)  # of a median of 1.1 s
    assert "a worsening of 25.0 % or more is not excluded in 1 of 1 case" in done.err
    assert "rounds a side would probably call or exclude it" in done.err
    for name in ("steady", "other"):
        written(tmp_path / f"{name}.jsonl", (1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0))
    done = in_process(tmp_path, "compare", "steady.jsonl", "other.jsonl", "--detect", "25%", "--format", "json")
    assert (done.code, json.loads(done.out)[0]["compare.unseen"]) == (0, None)


@pytest.mark.parametrize(
    "declared",
    [{"unit": "bytes"}, {"direction": "higher"}, {"series": True}],
)
def test_sides_that_declare_a_value_differently_are_told_and_not_judged(tmp_path: Path, declared: dict[str, object]) -> None:
    written(tmp_path / "one.jsonl", 1.0)
    written(tmp_path / "two.jsonl", 2.0, **declared)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json")
    (row,) = json.loads(done.out)
    assert "not judged, as its unit, direction or kind is declared otherwise on each side" in row["compare.note"]
    assert (row["value.p99_s.base"], row["value.p99_s.new"], row["value.p99_s.verdict"]) == (1.0, 2.0, None)


def searched(path: Path, batch: int, limit_bytes: int | None) -> Path:
    """A run whose search found a batch within so much memory; none at batch 0."""
    case = made_up.case("fit", model="resnet18")
    memory = made_up.Memory(batch << 20)
    (found,) = made_up.rounds_of(case, [[1.0]], memory=memory, found={"batch": batch}, limit_bytes=limit_bytes)
    values = [{"name": "largest", "unit": "count", "direction": "higher", "meaning": "m", "role": "largest"}]
    told = {"fit": {"values": values, "parameters": {"batch": {"searched": ""}, "memory_gib": {"limit": ""}}}}
    measured = made_up.with_values(made_up.without_rounds(found), largest=float(batch))
    if not batch:
        measured = replace(made_up.ended(case, Status.OOM, "not even batch=1 fits: full"), limit_bytes=limit_bytes)
    return made_up.write(path, [measured], workloads=told)


GIB = 1 << 30
SEARCHED = {
    "one step of each side": (100, GIB, 110, GIB, "same", "largest: 100 to 110 (+10.0 %)"),
    "more than that": (100, GIB, 88, GIB, "slower", "largest worse: 100 to 88 (-12.0 %)"),
    "nearly as much memory": (100, GIB, 88, int(0.96 * GIB), "slower", "largest worse: 100 to 88 (-12.0 %)"),
    "less memory": (100, GIB, 50, GIB // 2, "incomparable",
                    "the searches could take other memory, 1.00 GiB against 512 MiB; give both the same limit"),
    "too little for any": (40, GIB, 0, 256 << 20, "incomparable",
                           "the searches could take other memory, 1.00 GiB against 256 MiB; give both the same limit"),
    "enough, after too little": (0, 256 << 20, 40, GIB, "incomparable",
                                 "the searches could take other memory, 256 MiB against 1.00 GiB; give both the same limit"),
    "nothing fits in the same": (40, GIB, 0, GIB, "failed", "oom: not even batch=1 fits: full"),
    "a side that can't tell": (100, None, 50, GIB, "slower", "largest worse: 100 to 50 (-50.0 %)"),
}  # fmt: skip


@pytest.mark.parametrize("what", SEARCHED)
def test_what_a_search_found_is_compared_within_the_same_memory(tmp_path: Path, what: str) -> None:
    batch, limit, other_batch, other_limit, verdict, note = SEARCHED[what]
    searched(tmp_path / "one.jsonl", batch, limit)
    searched(tmp_path / "two.jsonl", other_batch, other_limit)
    (row,) = json.loads(in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json").out)
    assert (row["compare.verdict"], row["compare.note"]) == (verdict, note)


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [
        ((272, 421), (297, 421), "same"),
        ((354, 421), (272, 386), "inconclusive"),  # a fall by a quarter, within what the search left open
        ((272, 421), (182, 257), "slower"),
        ((182, 257), (272, 421), "faster"),
    ],
)
def test_rates_that_searches_found_differ_where_what_they_left_open_does_not_overlap(
    tmp_path: Path, base: tuple[float, float], new: tuple[float, float], verdict: str
) -> None:
    values = [
        {"name": name, "unit": "items/s", "direction": better, "meaning": "m", "role": role}
        for name, better, role in (("held", "higher", "highest_rate"), ("failed", None, "failing_rate"))
    ]
    told = {"serve": {"values": values, "parameters": {"rate": {"searched": ""}}}}
    for name, (held, failed) in (("one.jsonl", base), ("two.jsonl", new)):
        (found,) = made_up.rounds_of(made_up.case("serve", model="resnet18"), [[1.0]], found={"rate": held})
        measured = made_up.with_values(made_up.without_rounds(found), held=float(held), failed=float(failed))
        made_up.write(tmp_path / name, [measured], workloads=told)
    (row,) = json.loads(in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json").out)
    assert row["compare.verdict"] == verdict


@pytest.mark.parametrize(
    ("base", "new", "code", "unseen"),
    [
        (4, 2, 4, "largest is within two steps of its search"),
        (2, 1, 4, "largest is within two steps of its search"),
        (2, 4, 0, None),
        (12, 10, 0, None),
    ],
)
def test_what_a_search_found_may_not_fall_by_what_must_be_seen_and_be_the_same(
    tmp_path: Path, base: int, new: int, code: int, unseen: str | None
) -> None:
    searched(tmp_path / "one.jsonl", base, GIB)
    searched(tmp_path / "two.jsonl", new, GIB)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl", "--format", "json")
    (row,) = json.loads(done.out)
    assert (done.code, row["compare.unseen"], row["compare.detect"]) == (code, unseen, 0.25)
    assert row["compare.verdict"] == ("inconclusive" if unseen else "same")


def test_a_value_that_no_sum_could_hold_is_a_damaged_line(tmp_path: Path) -> None:
    written(tmp_path / "one.jsonl", 1e308)
    written(tmp_path / "two.jsonl", 1.7e308)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl")
    assert done.code == 4
    assert "Expected `float` <= 1e+100 - at `$.values[...]`" in done.err


def test_rounds_that_suffice_for_values_and_not_for_memory_beside_them_are_too_few(tmp_path: Path) -> None:
    """Four rounds a side carry one test, and here are two: of the value and of the host's memory."""
    for name, factor in (("one", 1.0), ("two", 1.2)):
        values = [factor * each for each in (1.0, 1.001, 0.999, 1.002)]
        rounds = made_up.rounds_of(made_up.case("serve", n=1), [[1.0]] * 4)
        told = {"serve": {"values": [{"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m"}], "parallel": {}}}
        of_rounds = [made_up.with_values(made_up.without_rounds(each), p99_s=one) for each, one in zip(rounds, values, strict=True)]
        made_up.write(tmp_path / f"{name}.jsonl", of_rounds, workloads=told)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl")
    assert done.code == 4
    assert "too few rounds: in 2 tests none could have been called worse; 10 rounds a side would do" in done.err


def test_one_noisy_case_beside_cases_of_values_alone_is_not_all_of_a_comparison(tmp_path: Path) -> None:
    wide = made_up.flat((0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05))
    told = {"serve": {"values": [{"name": "p99_s", "unit": "s", "direction": "lower", "meaning": "m"}], "parallel": {}}}
    for name, factor in (("one", 1.0), ("two", 1.15)):
        timed = [made_up.scaled(each, factor) for each in made_up.rounds_of(made_up.case("matmul", n=1), wide)]
        served = made_up.rounds_of(made_up.case("serve", n=1), [[1.0]] * 7, memory=made_up.Memory())
        values = [made_up.with_values(made_up.without_rounds(each), p99_s=1.0) for each in served]
        made_up.write(tmp_path / f"{name}.jsonl", [*timed, *values], workloads=told)
    done = in_process(tmp_path, "compare", "one.jsonl", "two.jsonl")
    assert (done.code, "is not excluded in 1 of 2 cases" in done.err) == (0, True)


DOUBTS = {
    '{"values": null}': "Expected `array`, got `null` - at `$.values`",
    '{"values": [], "parallel": null}': "Expected `object`, got `null` - at `$.parallel`",
    '{"ceiling": "roof"}': "Invalid enum value 'roof' - at `$.ceiling`",
    '{"parameters": {"mode": {"swich": "eager"}}}': "Invalid enum value 'swich' - at `key` in `$.parameters[...]`",
    '{"values": [{"name": "hits", "unit": "furlong"}]}': "Invalid enum value 'furlong' - at `$.values[0].unit`",
    '{"values": [{"name": "two words", "unit": "s"}]}': "value 'two words': its name must be one of Python, such as p99_s",
    '{"values": [{"name": "hits"}]}': "Object missing required field `unit` - at `$.values[0]`",
}


@pytest.mark.parametrize("declared", DOUBTS)
def test_a_declaration_in_a_header_that_makes_no_sense_is_refused(tmp_path: Path, declared: str) -> None:
    path = written(tmp_path / "one.jsonl", 1.0)
    header, *rest = lines(path)
    header["workloads"]["other"] = json.loads(declared)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *rest)))
    done = in_process(tmp_path, "show", path.name)
    where = f"dlbench: one.jsonl, line 1: in the header, workloads.other: {DOUBTS[declared]}"
    assert (done.code, done.err.startswith(where), done.err.count("\n")) == (2, True, 1), done.err
