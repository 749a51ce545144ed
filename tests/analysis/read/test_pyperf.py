"""pyperf's JSON as a result file: what it says is read, what it leaves open stays open, what is wrong is a sentence."""

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_up
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis.answers.engine.pairs import best_pairs
from dlbench.analysis.export.formats import DOCUMENTS, timed_and_others
from dlbench.analysis.presentation import wording
from dlbench.analysis.ratios.matching import match_rows
from dlbench.analysis.read import pyperf as pyperf_file
from dlbench.analysis.read import table
from dlbench.analysis.report import sentences
from dlbench.analysis.report.terminal import overview
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement

FOREIGN: dict[str, Any] = {
    "version": "1.0",
    "metadata": {"cpu_model_name": "Intel Xeon 8480", "unit": "second", "hostname": "somewhere"},
    "benchmarks": [
        {
            "metadata": {"name": "[1]*1000", "loops": 8},
            "runs": [
                {"metadata": {"calibrate_loops": 8}, "warmups": [[1, 0.5], [8, 0.25]]},
                {"metadata": {"date": "2026-11-21 12:00:00"}, "values": [0.25, 0.5], "warmups": [[8, 0.25]]},
                {"metadata": {"loops": 16, "inner_loops": 2}, "values": [1]},
            ],
        },
        {"metadata": {"name": "telco"}, "runs": [{"values": [2.0]}]},
    ],
}


def written(path: Path, data: Any, **style: Any) -> Path:
    path.write_text(json.dumps(data, **style))
    return path


def load(path: Path) -> tuple[Measurement, ...]:
    run = pyperf_file.load(path)
    assert run is not None
    return run.measurements


@pytest.mark.parametrize("style", [{}, {"sort_keys": True, "separators": (",", ":")}, {"indent": 4}])
def test_each_run_with_values_is_a_round_of_seconds_a_call(tmp_path: Path, style: dict[str, Any]) -> None:
    first, second, other = load(written(tmp_path / "any.name", FOREIGN, **style))
    assert first.samples is not None
    assert second.samples is not None
    assert (first.round, first.samples.calls, first.samples.block_s) == (0, 8, [0.25, 0.5])
    assert (second.round, second.samples.calls, second.samples.block_s) == (1, 32, [1.0])
    assert (first.case.id, first.case.workload, first.case.suite, first.case.device) == ("[1]*1000@cpu", "[1]*1000", "pyperf", "cpu")
    assert (first.case.params, first.device_name, first.started) == ({}, "Intel Xeon 8480", "2026-11-21 12:00:00")
    assert (other.case.id, other.round, other.samples and other.samples.calls) == ("telco@cpu", 0, 1)


def test_the_table_has_what_pyperf_says_and_null_for_the_rest(tmp_path: Path) -> None:
    results = table.collect([written(tmp_path / "foreign.json", FOREIGN)])
    assert results.notes == ()
    row = table.records(results.frame)[0]
    assert (row["case.id"], row["case.run"], row["case.status"], row["time.median_s"]) == ("[1]*1000@cpu", "foreign", "ok", 0.6875)
    assert (row["time.rounds"], row["time.blocks"], row["flag.not_steady"]) == (2, 3, False)
    unknown = ("time.first_call_s", "case.threads", "case.math", "memory.host_peak_bytes", "rate.items_per_s", "case.dtype")
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert wording.short("[1]*1000") == "[1]*1000"


def test_what_dlbench_exported_is_read_back(tmp_path: Path) -> None:
    measurements = made_up.both_kinds()
    run = table.load(made_up.write(tmp_path / "run.jsonl", measurements))
    back = table.collect([written(tmp_path / "run.json", DOCUMENTS["pyperf"](run, timed_and_others(run)[0]))])
    own = table.collect([tmp_path / "run.jsonl"])
    for name in (
        "case.id",
        "case.device",
        "case.device_name",
        "time.median_s",
        "time.ci_low_s",
        "time.ci_high_s",
        "time.p90_s",
        "time.blocks",
    ):
        assert list(back.frame.sort_values("case.id")[name]) == list(own.frame.sort_values("case.id")[name]), name


@given(
    rounds=st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=4), min_size=1, max_size=4),
    calls=st.integers(1, 10**6),
    n=st.integers(),
    device=st.sampled_from(["cpu", "cuda:0"]),
)
def test_dump_and_load_are_inverse(tmp_path_factory: pytest.TempPathFactory, rounds: Any, calls: int, n: int, device: str) -> None:
    measurements = made_up.rounds_of(made_up.case("matmul", device, n=n), rounds, calls)
    path = written(tmp_path_factory.mktemp("pyperf") / "f.json", pyperf_file.dump([measurements], {}))
    found = load(path)
    assert [each.samples and (each.samples.calls, each.samples.block_s) for each in found] == [(calls, blocks) for blocks in rounds]
    assert {(each.case.id, each.case.device) for each in found} == {(measurements[0].case.id, device)}


@pytest.mark.parametrize(
    ("started", "date"),
    [
        ("2026-11-21T15:40:58.670+00:00", "2026-11-21 15:40:58.670000"),
        ("2026-11-21T15:40:58+01:00", "2026-11-21 14:40:58"),
        ("2026-11-21 12:00:00", "2026-11-21 12:00:00"),
        ("0001-01-01T00:00:00+10:00", None),
        ("soon", None),
        ("", None),
    ],
)
def test_dates_are_written_as_pyperf_does(started: str, date: str | None) -> None:
    measurements = made_up.rounds_of(made_up.case("noop"), [[1.0]], started=started)
    assert pyperf_file.dump([measurements], {})["benchmarks"][0]["runs"][0]["metadata"].get("date") == date


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with the value at that path, or with nothing there if the value is `GONE`."""
    data = copy.deepcopy(data)
    held = data
    for step in path[:-1]:
        held = held[step]
    if value is GONE:
        del held[path[-1]]
    else:
        held[path[-1]] = value
    return data


GONE = object()
BENCHMARK = ("benchmarks", 0)
RUN = (*BENCHMARK, "runs", 1)
NOT_PYPERF = "the file was edited or is not pyperf's"
WITHOUT = "a benchmark has a name, and its loops and inner_loops are positive integers"


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("version",), "0.9", " is not of pyperf's format 1.0; a file of an older pyperf becomes so by: pyperf convert"),
        (("version",), [[]], " is not of pyperf's format 1.0; a file of an older pyperf becomes so by: pyperf convert"),
        (("benchmarks",), {}, f": Expected `array`, got `object` - at `$.benchmarks`; {NOT_PYPERF}"),
        (("benchmarks",), [], " has no values; give a file of a pyperf run that came to its end"),
        (("metadata",), [], f": Expected `object`, got `array` - at `$.metadata`; {NOT_PYPERF}"),
        (("metadata", "unit"), "byte", f": its unit is byte, and dlbench reads seconds only; {NOT_PYPERF}"),
        ((*BENCHMARK, "runs"), GONE, f": Object missing required field `runs` - at `$.benchmarks[0]`; {NOT_PYPERF}"),
        ((*BENCHMARK, "metadata", "name"), "\n", f": {WITHOUT}; {NOT_PYPERF}"),
        ((*BENCHMARK, "metadata", "name"), "telco", f": two benchmarks are called telco@cpu; {NOT_PYPERF}"),
        ((*BENCHMARK, "metadata", "loops"), True, f": {WITHOUT}; {NOT_PYPERF}"),
        ((*RUN, "metadata", "inner_loops"), 0, f": {WITHOUT}; {NOT_PYPERF}"),
        ((*RUN, "metadata", "name"), "other", f": a run of other is called [1]*1000; {NOT_PYPERF}"),
        ((*RUN, "values"), [0.0], f": Expected `float` >= 1e-15 - at `$.benchmarks[0].runs[1].values[0]`; {NOT_PYPERF}"),
        ((*RUN, "values", 0), 1e10, f": Expected `float` <= 1000000000.0 - at `$.benchmarks[0].runs[1].values[0]`; {NOT_PYPERF}"),
        ((*RUN, "values", 0), float("nan"), ": not JSON; the file was cut, edited or damaged"),
    ],
)
def test_what_pyperf_would_not_write_is_a_sentence(tmp_path: Path, path: tuple[Any, ...], value: Any, sentence: str) -> None:
    file = written(tmp_path / "f.json", put(FOREIGN, path, value))
    with pytest.raises(ResultFileError) as caught:
        pyperf_file.load(file)
    assert str(caught.value) == f"{file}{sentence}"


@pytest.mark.parametrize(
    "data", [{"benchmarks": []}, {"version": "1.0"}, {"kind": "header", "schema": 1}, {"machine_info": {}, "benchmarks": []}, []]
)
def test_other_files_are_left_to_others(tmp_path: Path, data: Any) -> None:
    assert pyperf_file.load(written(tmp_path / "f.json", data)) is None


def test_a_folder_and_a_missing_file_are_left_to_others(tmp_path: Path) -> None:
    assert pyperf_file.load(tmp_path) is None
    assert pyperf_file.load(tmp_path / "missing.json") is None


def test_a_file_cut_anywhere_is_a_sentence(tmp_path: Path) -> None:
    text = json.dumps(FOREIGN, sort_keys=True)
    for length in range(text.index(":") + 1, len(text)):
        (tmp_path / "f.json").write_text(text[:length])
        with pytest.raises(ResultFileError, match=r"f\.json: not JSON; the file was cut, edited or damaged"):
            pyperf_file.load(tmp_path / "f.json")


@pytest.mark.parametrize("inside", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '"\xff'])
def test_what_no_parser_takes_is_a_sentence(tmp_path: Path, inside: str) -> None:
    (tmp_path / "f.json").write_bytes(f'{{"version": {inside}'.encode("latin-1"))
    with pytest.raises(ResultFileError, match="not JSON; the file was cut, edited or damaged"):
        pyperf_file.load(tmp_path / "f.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(data: Any) -> list[tuple[Any, ...]]:
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path for step, inner in steps for path in ((step,), *((step, *more) for more in paths(inner)))]


@given(path=st.sampled_from(paths(FOREIGN)), value=json_values | st.just(GONE))
@settings(max_examples=60)
def test_any_value_anywhere(tmp_path_factory: pytest.TempPathFactory, path: tuple[Any, ...], value: Any) -> None:
    file = written(tmp_path_factory.mktemp("hostile") / "f.json", put(FOREIGN, path, value))
    try:
        results = table.collect([file])
    except ResultFileError as error:
        assert str(error).startswith(str(file))
        return
    overview(results)
    sentences.unpaired(match_rows(results, "device").unmatched)
    best_pairs(results)
    run = table.load(file)
    timed, _ = timed_and_others(run)
    for document in DOCUMENTS.values():
        json.dumps(document(run, timed), allow_nan=False)


@pytest.mark.skipif(importlib.util.find_spec("pyperf") is None, reason="needs pyperf")
def test_what_pyperf_itself_writes_is_read(tmp_path: Path) -> None:
    code = """
import pyperf
def run(values, **metadata):
    return pyperf.Run(values, warmups=[(4, 1.0)], metadata={"name": "bench", "loops": 4, **metadata}, collect_metadata=False)
pyperf.BenchmarkSuite([pyperf.Benchmark([run([], calibrate_loops=4), run([1.0, 2.0])])]).dump("bench.json")
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    (only,) = load(tmp_path / "bench.json")
    assert only.samples is not None
    assert (only.case.id, only.samples.calls, only.samples.block_s) == ("bench@cpu", 4, [1.0, 2.0])
