"""Whatever a file holds, reading it gives a table or one sentence, never a traceback."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis import sentences
from dlbench.analysis.findings import best, pair
from dlbench.analysis.table import collect
from dlbench.analysis.terminal import overview
from dlbench.core.errors import ResultFileError

ROW = {
    "kind": "measurement",
    "case": {"id": "matmul[n=4]@cpu", "suite": "s", "workload": "matmul", "params": {"n": 4}, "device": "cpu"},
    "round": 0,
    "status": "ok",
    "device_name": "NVIDIA H200",
    "threads": 2,
    "samples": {"calls": 1, "block_s": [0.5], "first_call_s": 1.0, "warmup_s": 1.0, "steady": True},
    "memory": {"peak_bytes": 5},
    "transfer": {"h2d_bytes": 1, "h2d_s": 0.5, "d2h_bytes": 1, "d2h_s": 0.5},
    "check": {"follows_input": True, "error": 1e-7, "tolerance": 1e-5, "empty_call_s": 4e-8},
    "items": 1,
    "flops": 8,
    "least_flops": 2,
    "bytes": 10**12,
    "values": {"loss": 0.5},
    "throttling": {"thermal": 0.5, "reasons": ["hw_slowdown"], "tries": 2},
}
ROUND = {
    "kind": "round",
    "round": 0,
    "seconds": 5.0,
    "other_cpus": 0.5,
    "before": {"cpu": {"governor": "powersave"}, "accelerators": {"cuda:0": {"other_processes": 1}}},
    "after": {},
}
HEADER = {"kind": "header", "schema": 1, "policy": {"target": 0.02}, "devices": [{"id": "cpu", "name": "A CPU"}], "planned": {"count": 1}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def replaced(record, path, value):
    """The record with the value put at the path."""
    first, *rest = path
    return {**record, first: replaced(record[first], rest, value) if rest else value}


def paths(record):
    for name, value in record.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in paths(value))


@given(
    change=st.one_of(
        st.tuples(st.just(0), st.sampled_from(list(paths(HEADER))), json_values),
        st.tuples(st.just(1), st.sampled_from(list(paths(ROW))), json_values),
        st.tuples(st.just(2), st.sampled_from(list(paths(ROUND))), json_values),
    )
)
@settings(max_examples=400)
def test_any_value_anywhere(tmp_path_factory, change):
    records = [HEADER, ROW, ROUND]
    number, path, value = change
    records[number] = replaced(records[number], path, value)
    file = tmp_path_factory.mktemp("hostile") / "f.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    try:
        results = collect([file])
        overview(results)
        sentences.unpaired(pair(results, "device").unpaired)
        best(results)
    except ResultFileError as error:
        assert str(error).startswith(str(file))
