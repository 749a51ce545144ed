"""pyperf's JSON as a result file: what it says is read, what it leaves open stays open, what is wrong is a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up
import pytest
from edited import edited
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
from dlbench.core.model import Case

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
    found = load(written(tmp_path / "any.name", FOREIGN, **style))
    assert [(each.case.id, each.round, each.samples and (each.samples.calls, each.samples.block_s)) for each in found] == [
        ("[1]*1000@cpu", 0, (8, [0.25, 0.5])),
        ("[1]*1000@cpu", 1, (32, [1.0])),
        ("telco@cpu", 0, (1, [2.0])),
    ]
    assert found[0].case == Case("[1]*1000@cpu", "pyperf", "[1]*1000", {}, "cpu")
    assert (found[0].device_name, found[0].started) == ("Intel Xeon 8480", "2026-11-21 12:00:00")


def test_the_table_has_what_pyperf_says_and_null_for_the_rest(tmp_path: Path) -> None:
    results = table.collect([written(tmp_path / "foreign.json", FOREIGN)])
    row = table.records(results.frame)[0]
    known = {"case.id": "[1]*1000@cpu", "case.run": "foreign", "case.status": "ok", "time.median_s": 0.6875, "time.rounds": 2}
    known |= {"time.blocks": 3, "flag.not_steady": False}
    unknown = ("time.first_call_s", "case.threads", "case.math", "memory.host_peak_bytes", "rate.items_per_s", "case.dtype")
    assert {name: row[name] for name in (*known, *unknown)} == {**known, **dict.fromkeys(unknown)}
    assert (results.notes, wording.short("[1]*1000")) == ((), "[1]*1000")


def test_what_dlbench_exported_is_read_back(tmp_path: Path) -> None:
    run = table.load(made_up.write(tmp_path / "run.jsonl", made_up.both_kinds()))
    paths = [tmp_path / "run.jsonl", written(tmp_path / "run.json", DOCUMENTS["pyperf"](run, timed_and_others(run)[0]))]
    own, back = (table.collect([path]).frame.sort_values("case.id", ignore_index=True) for path in paths)
    names = ["case.id", "case.device", "case.device_name", "time.blocks"]
    names += [f"time.{name}_s" for name in ("median", "ci_low", "ci_high", "p90")]
    assert back[names].equals(own[names])


@given(
    rounds=st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=4), min_size=1, max_size=4),
    calls=st.integers(1, 10**6),
    n=st.integers(),
    device=st.sampled_from(["cpu", "cuda:0"]),
)
def test_dump_and_load_are_inverse(tmp_path_factory: pytest.TempPathFactory, rounds: Any, calls: int, n: int, device: str) -> None:
    measurements = made_up.rounds_of(made_up.case("matmul", device, n=n), rounds, calls)
    path = written(tmp_path_factory.mktemp("pyperf") / "f.json", pyperf_file.dump([measurements], {}))
    found = [(each.case.id, each.case.device, each.samples and (each.samples.calls, each.samples.block_s)) for each in load(path)]
    assert found == [(measurements[0].case.id, device, (calls, blocks)) for blocks in rounds]


def test_dates_are_written_as_pyperf_does() -> None:
    dates = {
        "2026-11-21T15:40:58.670+00:00": "2026-11-21 15:40:58.670000",
        "2026-11-21T15:40:58+01:00": "2026-11-21 14:40:58",
        "2026-11-21 12:00:00": "2026-11-21 12:00:00",
        **dict.fromkeys(("0001-01-01T00:00:00+10:00", "soon", "")),
    }
    runs = [made_up.rounds_of(made_up.case("noop"), [[1.0]], started=started) for started in dates]
    assert [each["runs"][0]["metadata"].get("date") for each in pyperf_file.dump(runs, {})["benchmarks"]] == [*dates.values()]


def test_what_pyperf_would_not_write_is_a_sentence(tmp_path: Path, transcript: Callable[..., None]) -> None:
    def refused(changes: str) -> str:
        with pytest.raises(ResultFileError) as caught:
            pyperf_file.load(written(tmp_path / "f.json", edited(FOREIGN, changes)))
        return str(caught.value).removeprefix(f"{tmp_path}/")

    transcript("edited-pyperf", 15, refused)


@pytest.mark.parametrize(
    "data", [{"benchmarks": []}, {"version": "1.0"}, {"kind": "header", "schema": 1}, {"machine_info": {}, "benchmarks": []}, []]
)
def test_other_files_folders_and_missing_files_are_left_to_others(tmp_path: Path, data: Any) -> None:
    assert [pyperf_file.load(path) for path in (written(tmp_path / "f.json", data), tmp_path, tmp_path / "missing.json")] == [None] * 3


TEXT = json.dumps(FOREIGN, sort_keys=True)
CUT = [TEXT[:length].encode() for length in range(TEXT.index(":") + 1, len(TEXT), 3)]
INSIDE = ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '"\xff']


@pytest.mark.parametrize("contents", [CUT, [f'{{"version": {inside}'.encode("latin-1") for inside in INSIDE]], ids=["cut anywhere", "odd"])
def test_what_no_parser_takes_is_a_sentence(tmp_path: Path, contents: list[bytes]) -> None:
    for content in contents:
        (tmp_path / "f.json").write_bytes(content)
        with pytest.raises(ResultFileError, match=r"f\.json: not JSON; the file was cut, edited or damaged"):
            pyperf_file.load(tmp_path / "f.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(data: Any) -> list[str]:
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for step, inner in steps for place in (f"{step}", *(f"{step}.{more}" for more in places(inner)))]


@given(place=st.sampled_from(places(FOREIGN)), change=json_values.map(lambda value: f" = {json.dumps(value)}") | st.just(" removed"))
@settings(max_examples=25)
def test_any_value_anywhere(tmp_path_factory: pytest.TempPathFactory, place: str, change: str) -> None:
    file = written(tmp_path_factory.mktemp("hostile") / "f.json", edited(FOREIGN, place + change))
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


def test_what_pyperf_itself_writes_is_read(tmp_path: Path) -> None:
    pyperf = pytest.importorskip("pyperf", reason="wrote what is read here")
    each = {"warmups": [(4, 1.0)], "collect_metadata": False}
    calibration = pyperf.Run([], metadata={"name": "bench", "loops": 4, "calibrate_loops": 4}, **each)
    measured = pyperf.Run([1.0, 2.0], metadata={"name": "bench", "loops": 4}, **each)
    pyperf.BenchmarkSuite([pyperf.Benchmark([calibration, measured])]).dump(str(tmp_path / "bench.json"))
    (only,) = load(tmp_path / "bench.json")
    assert only.samples is not None
    assert (only.case.id, only.samples.calls, only.samples.block_s) == ("bench@cpu", 4, [1.0, 2.0])
