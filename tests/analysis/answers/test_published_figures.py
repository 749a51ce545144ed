from dataclasses import replace

import made_up
import pytest

from dlbench.core.measurement import Transfer
from dlbench.core.precision import PRECISIONS
from dlbench.core.reference.networks import PARAMETERS, schedules
from dlbench.core.reference.published import published_figures
from dlbench.core.rows.columns import BY_NAME


def steps(rate, device="cuda:0", batch=64, dtype="amp_fp16", model="resnet50"):
    """Training steps of so many images a second."""
    a_case = made_up.case("train_step", device, model=model, batch=batch, dtype=dtype)
    return made_up.rounds_of(a_case, made_up.flat([batch / rate] * 7), items=batch, flops=None, transfer=None)


def published(answer):
    return [table for table in answer["tables"] if table["title"].startswith("Against published figures")]


def test_a_row_stands_beside_the_figure_of_its_device_and_the_nearest_batch(asked):
    (table,) = published(asked([*steps(2000, batch=64), *steps(2434.15, batch=128)])["health"])
    (row,) = table["rows"]
    assert (row["case.id"], row["published.ratio"]) == (
        "train_step[model=resnet50,batch=128,dtype=amp_fp16]",
        pytest.approx(0.5),
    )
    assert (row["published.configuration"], row["published.source"]) == (
        "NVIDIA H200, batch=256",
        "mila-iqia/milabench, config/scaling/H200.yaml, 2025-05-06",
    )
    assert table["notes"][0].endswith("for the order of magnitude, and never a verdict")
    assert "with a loader of real ones it is 2204 images/s" in table["notes"][1]


def test_what_a_search_found_stands_beside_the_figure_of_that_precision_and_batch(asked):
    case = made_up.case("fastest_train_step", "cuda:0", model="resnet50")
    rounds = made_up.rounds_of(case, made_up.flat([256 / 4868.3] * 7), items=256, flops=None, transfer=None)
    searched = [replace(each, found={"dtype": "amp_fp16", "batch": 256}) for each in rounds]
    (table,) = published(asked([*searched, *steps(2000, batch=64)])["health"])
    (row,) = table["rows"]
    assert (row["case.id"], row["published.ratio"]) == ("fastest_train_step[model=resnet50]", pytest.approx(1))


def test_another_precision_or_kind_of_device_is_not_the_same_work(asked):
    measured = [*steps(2000, dtype="amp_bf16"), *steps(20, "cpu", dtype="fp32"), *steps(20, "cpu", dtype="tf32")]
    (table,) = published(asked(measured)["health"])
    (row,) = table["rows"]
    assert row["published.configuration"] == "2 x Intel Xeon E5-2630 v3, batch=16, without the update"
    assert row["published.ratio"] == pytest.approx(20 / (16_000 / 6627.25))
    assert "known error: one of its tables repeats the forward column as backward" in table["notes"][1]


def test_a_batch_that_no_source_states_is_told(asked, monkeypatch):
    monkeypatch.setitem(made_up.NAMES, "cuda:0", "NVIDIA H100 80GB HBM3")
    (table,) = published(asked(steps(2616))["health"])
    (row,) = table["rows"]
    assert (row["published.configuration"], row["published.ratio"]) == ("NVIDIA H100 80GB HBM3, batch not stated", pytest.approx(1))


def test_a_product_and_copies_stand_beside_theirs(asked):
    a_case = made_up.case("matmul", "cuda:0", n=128, m=1760, k=1760, dtype="fp16")
    copies = Transfer(1000, 0.25, 10, 0.125, pinned_h2d_s=1000 / 27.715e9)
    (table,) = published(asked(made_up.rounds_of(a_case, made_up.flat([31e-6] * 7), items=1, flops=None, transfer=copies))["health"])
    assert [[row[f"published.{name}"] for name in ("quantity", "measured", "value")] for row in table["rows"]] == [
        ["items a second", "32.3 k/s", "32.3 k/s"],
        ["copies to the device", "27.7 GB/s", "55.4 GB/s"],
    ]
    assert [row["published.ratio"] for row in table["rows"]] == [pytest.approx(1.0), pytest.approx(0.5)]


def test_every_figure_names_what_dlbench_has_with_a_source_and_a_date():
    for figure in published_figures():
        assert BY_NAME[figure.column].unit.value in ("items/s", "bytes/s")
        assert figure.dtype in (None, *PRECISIONS)
        assert figure.params.get("model", "resnet50") in PARAMETERS
        assert all((figure.value > 0, figure.device, figure.source, figure.date))


def test_every_schedule_is_of_a_network_that_dlbench_has():
    assert set(schedules()) == set(PARAMETERS) - {"gpt2"}  # whose authors state none
    assert all(schedule.source and bool(schedule.took) == bool(schedule.took_source) for schedule in schedules().values())
