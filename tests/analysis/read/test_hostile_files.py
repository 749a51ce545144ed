"""Whatever a file holds, reading it gives a table or one sentence, never a traceback."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.export.answers_export import as_json
from dlbench.analysis.ratios.pairing import match_rows
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import sentences
from dlbench.analysis.report.terminal import overview, reasoning
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
    "check": {"follows_input": True, "error": 1e-7, "tolerance": 1e-5, "empty_call_s": 4e-8, "operations": 3},
    "items": 1,
    "flops": 8,
    "least_flops": 2,
    "bytes": 10**12,
    "least_bytes": 10**11,
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


def of_ranks(workload, values=None, **params):
    """A row of several ranks; one with values is an experiment and has no times."""
    told = {"values": values, "samples": None} if values else {}
    case = {**ROW["case"], "id": f"{workload}[{params}]@cpu", "workload": workload, "params": {"ranks": 2, **params}}
    return {name: value for name, value in {**ROW, "case": case, **told}.items() if value is not None}


TRAINED = {
    "updates_per_s": 4.0,
    "items_per_s": 8.0,
    "loss": 0.5,
    "staleness_0": 1.0,
    "staleness_2_3": 3.0,
    "replicate_s": 0.5,
    "wait_s": 0.25,
}
RANKS = [
    of_ranks("collective", op="all_reduce", bytes=1 << 10, dtype="fp32"),
    of_ranks("collective", op="all_reduce", bytes=1 << 20, dtype="fp32"),
    of_ranks("data_parallel", form="ddp", model="resnet18", batch=4, scaling="weak", dtype="fp32"),
    of_ranks("data_parallel", form="ddp", model="resnet18", batch=4, scaling="weak", dtype="fp32", synchronise=False),
    of_ranks("data_parallel", form="async", model="resnet18", batch=4, scaling="weak", values=TRAINED),
    of_ranks("model_parallel", form="layers", model="resnet18", batch=4, microbatches=1),
    of_ranks("model_parallel", form="gpipe", model="resnet18", batch=4, microbatches=2),
]
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


RECORDS = [HEADER, ROW, ROUND, *RANKS]


@given(number_and_path=st.sampled_from([(number, path) for number, each in enumerate(RECORDS) for path in paths(each)]), value=json_values)
@settings(max_examples=250)
def test_any_value_anywhere(tmp_path_factory, number_and_path, value):
    number, path = number_and_path
    records = [*RECORDS[:number], replaced(RECORDS[number], path, value), *RECORDS[number + 1 :]]
    file = tmp_path_factory.mktemp("hostile") / "f.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    try:
        results = collect([file])
        overview(results, details=True)
        reasoning(results)
        as_json(answers(results))
        sentences.unpaired(match_rows(results, "device").unpaired)
        best(results)
    except ResultFileError as error:
        assert str(error).startswith(str(file))
