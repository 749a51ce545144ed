"""Outliers, intervals, counts and omissions of exports, which docs/export.md does not show. The shapes are held in test_export_command."""

import json
from pathlib import Path
from typing import Any

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.export.formats import DOCUMENTS, not_exported, timed_and_others
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status
from dlbench.core.store import RunFile

CASE = made_up.case("infer_step", model="resnet18", batch=4, dtype="fp32")
ID = "infer_step[model=resnet18,batch=4,dtype=fp32]@cpu"


def run_of(measurements: list[Measurement], **header: Any) -> RunFile:
    return RunFile(Path("run.jsonl"), header, tuple(measurements), {}, torn=False)


def exported(to: str, measurements: list[Measurement]) -> Any:
    run = run_of(measurements)
    return DOCUMENTS[to](run, timed_and_others(run)[0])


HALF = made_up.rounds_of(CASE, [[0.5]])


def test_what_a_header_does_not_say_is_left_out() -> None:
    context = {"host_name": "", "executable": "dlbench", "library_build_type": "release", "cpu_time": "repeats real_time"}
    assert exported("google-benchmark", HALF)["context"] == context
    assert exported("pyperf", HALF)["metadata"] == {"unit": "second"}


NINE = made_up.rounds_of(CASE, made_up.flat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]))
INTERVAL = {"range": "± 3000.0", "extra": f"rounds: 9\ndevice: {made_up.CPU}\nrange: half of the 95 % interval"}


@pytest.mark.parametrize(
    ("measurements", "latency", "entry"),
    [
        (NINE, {"value": 5e9, "lower_value": 2e9, "upper_value": 8e9}, {"value": 5000.0, **INTERVAL}),  # the second of nine to the eighth
        (HALF, {"value": 5e8}, {"value": 500.0, "extra": f"rounds: 1\ndevice: {made_up.CPU}"}),
    ],
)
def test_from_six_rounds_on_the_range_is_the_interval_and_one_has_none(measurements: Any, latency: Any, entry: Any) -> None:
    assert exported("bencher", measurements)[ID]["latency"] == latency
    assert exported("github-action-benchmark", measurements)["smaller-is-better"] == [{"name": ID, "unit": "ms", **entry}]


@pytest.mark.parametrize(
    ("counts", "throughputs", "measures"),
    [
        ({"items": None, "flops": 3.0}, [("FLOP/s", 6.0)], ["latency"]),
        ({"items": 2, "flops": 3.0}, [("items/s", 4.0)], ["latency", "throughput"]),
        ({"items": None, "flops": None}, [], ["latency"]),
        ({"items": 0, "flops": 0}, [], ["latency"]),
        ({"items": 1.7e308, "flops": None}, [], ["latency"]),
    ],
)
def test_throughput_is_of_items_or_else_of_operations(counts: dict[str, Any], throughputs: list[Any], measures: list[str]) -> None:
    run = made_up.rounds_of(CASE, [[0.5]], memory=Memory(), **counts)
    bigger = exported("github-action-benchmark", run)["bigger-is-better"]
    assert [(entry["unit"], entry["value"]) for entry in bigger] == throughputs
    assert list(exported("bencher", run)[ID]) == measures


def test_peak_memory_is_that_of_the_accelerator_where_there_is_one() -> None:
    on_gpu = exported("bencher", made_up.rounds_of(made_up.case("noop", "cuda:0"), [[0.5]]))
    assert on_gpu["noop[]@cuda:0"]["peak-memory"] == {"value": 5.0 * (1 << 20)}


def test_only_ok_cases_with_times_are_exported_in_the_order_of_the_table() -> None:
    eight, good, bad, odd, still = (made_up.rounds_of(made_up.case("matmul", n=n), [[0.5]]) for n in (8, 16, 32, 64, 128))
    zero = made_up.rounds_of(still[0].case, [[0.5, 0.0]])
    oom = made_up.ended(bad[0].case, Status.OOM, "out of\nmemory", 1)
    measurements = [*good, made_up.without_rounds(odd[0]), *eight, *zero, *bad, oom]
    found, untimed = timed_and_others(run_of(measurements))
    assert [case.id for case in found] == ["matmul[n=8]@cpu", "matmul[n=16]@cpu"]
    assert list(untimed.items()) == [
        ("oom: out of\nmemory", ["matmul[n=32]@cpu"]),
        ("it reports values, not times", ["matmul[n=64]@cpu"]),
        ("a block reads as zero, or as longer than anybody waits", ["matmul[n=128]@cpu"]),
    ]
    assert not_exported({**untimed, "it reports values, not times": ["a", "b", "c"]}, 7)[:2] == [
        "1 of 7 cases not exported, oom: out of memory: matmul[n=32]@cpu",
        "3 of 7 cases not exported, it reports values, not times: a, b and 1 more",
    ]


NAMES = st.sampled_from(["cpu", "versions", "name", "governor"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(
    blocks=st.lists(st.lists(st.floats(0, 1e100), min_size=1, max_size=3), min_size=1, max_size=8),
    items=st.none() | st.floats(0, 1.7e308),
    parameter=st.floats() | st.text(max_size=5),
    environment=st.dictionaries(st.sampled_from(["identity", "stack", "state", "provenance"]), json_values, max_size=4),
)
def test_whatever_a_file_holds_is_exported_as_json_or_named(blocks: Any, items: Any, parameter: Any, environment: Any) -> None:
    run = run_of(made_up.rounds_of(made_up.case("w", p=parameter), blocks, items=items), environment=environment, dlbench=parameter)
    cases, _ = timed_and_others(run)
    for document in DOCUMENTS.values():
        json.dumps(document(run, cases), allow_nan=False)
