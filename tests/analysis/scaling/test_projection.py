"""Steps on more devices, projected from made-up rows that follow the formula, so that it has to find them again."""

import json
from pathlib import Path

import made_up
import pytest
from click.testing import CliRunner

from dlbench.analysis.read.table import collect
from dlbench.analysis.report import tables
from dlbench.analysis.scaling.projection import project_steps
from dlbench.analysis.scaling.speedup import scaling
from dlbench.cli.main import dlbench

LATENCY_S, BYTE_S = 1e-5, 1e-9
GRADIENTS, MESSAGES = 4 * 11_689_512, 2  # of resnet18, in buckets of 25 MiB
COMPUTING_S, HIDDEN_S = 0.5, 0.02


def ring_s(ranks, size, messages=1):
    return messages * LATENCY_S * 2 * (ranks - 1) + size * BYTE_S * 2 * (ranks - 1) / ranks


def step_s(ranks, part=1.0):
    """A step by the formula, with so large a part of the computing."""
    exposed = max(0.0, ring_s(ranks, GRADIENTS, MESSAGES) - part * HIDDEN_S) if ranks > 1 else 0.0
    return part * COMPUTING_S + exposed


def exactly(workload, seconds, device="cuda:0", items=1, threads=1, **params):
    """Seven rounds that took just so long."""
    return made_up.rounds_of(made_up.case(workload, device, **params), made_up.flat([seconds] * 7), items=items, threads=threads)


def ddp(ranks, seconds, synchronise=True, batch=32, scaling="weak", **options):
    params = {"form": "ddp", "model": "resnet18", "batch": batch, "ranks": ranks, "scaling": scaling, "dtype": "fp32"}
    items = batch if scaling == "strong" else ranks * batch
    return exactly("data_parallel", seconds, items=items, **params, synchronise=synchronise, **options)


def all_reduces(ranks=2):
    sizes = (1 << 10, 1 << 20, 1 << 26)
    return [
        each
        for size in sizes
        for each in exactly("collective", ring_s(ranks, size), op="all_reduce", bytes=size, ranks=ranks, dtype="fp32")
    ]


def weak(*ranks):
    steps = [each for count in ranks for each in ddp(count, step_s(count))]
    return [*steps, *ddp(2, COMPUTING_S, synchronise=False)]


def rows(folder: Path, measurements):
    path = made_up.write(folder / "run.jsonl", measurements)
    return json.loads(CliRunner().invoke(dlbench, ["show", str(path), "--by", "ranks", "--format", "json"]).stdout)


def table(folder: Path):
    """The table of the file that was written last."""
    results = collect([folder / "run.jsonl"])
    return tables.projection(project_steps(scaling(results), results))


def beyond(found):
    return {row["scaling.ranks"]: row["scaling.projected_s"] for row in found if row["scaling.verdict"] == "projection"}


def test_weak_scaling_is_found_again_up_to_1024_devices(tmp_path):
    found = rows(tmp_path, [*all_reduces(), *weak(1, 2)])
    assert beyond(found) == {2**power: pytest.approx(step_s(2**power), rel=1e-6) for power in range(2, 11)}
    far = found[-1]
    assert far["scaling.projected_items_per_s"] == pytest.approx(1024 * 32 / step_s(1024))
    assert (far["scaling.case"], far["scaling.items_per_s"], far["scaling.reason"]) == (None, None, "projected from 2 ranks")


def test_a_size_that_no_message_has_is_none_of_those_it_stands_on(tmp_path):
    edited = exactly("collective", 1.0, op="all_reduce", bytes=10**400, ranks=2, dtype="fp32")
    found = rows(tmp_path, [*all_reduces(), *edited, *weak(1, 2)])
    assert beyond(found)[4] == pytest.approx(step_s(4), rel=1e-6)


def test_copies_of_the_inputs_stand_beside_the_step(tmp_path):
    found = rows(tmp_path, [*all_reduces(), *weak(1, 2)])
    assert {row["scaling.projected_copies_s"] for row in found if row["scaling.verdict"] == "projection"} == {0.25}
    assert "copies, projected" in dict(table(tmp_path).cells())


def test_a_cpu_copies_nothing(tmp_path):
    on_cpu = [ddp(2, step_s(2), device="cpu"), ddp(2, COMPUTING_S, synchronise=False, device="cpu")]
    at = {size: {"op": "all_reduce", "bytes": size, "ranks": 2, "dtype": "fp32"} for size in (1 << 10, 1 << 26)}
    sizes = [exactly("collective", ring_s(2, size), "cpu", **params) for size, params in at.items()]
    found = rows(tmp_path, [each for rounds in (*on_cpu, *sizes) for each in rounds])
    assert len(found) == 10
    assert {row["scaling.projected_copies_s"] for row in found} == {None}
    assert "copies, projected" not in dict(table(tmp_path).cells())


def test_a_step_of_strong_scaling_is_not_projected(tmp_path):
    measured = [*all_reduces(), *ddp(1, COMPUTING_S, scaling="strong"), *ddp(2, step_s(2, 0.5), scaling="strong")]
    measured += ddp(2, COMPUTING_S / 2, synchronise=False, scaling="strong")
    assert beyond(rows(tmp_path, measured)) == {}


def test_its_error_is_that_of_the_steps_measured_beyond_what_it_stands_on(tmp_path):
    found = rows(tmp_path, [*all_reduces(), *weak(1, 2, 4), *ddp(8, step_s(8) / 0.9)])
    errors = {row["scaling.ranks"]: row["scaling.projection_error"] for row in found if row["scaling.projection_error"] is not None}
    assert errors == {4: pytest.approx(0, abs=1e-9), 8: pytest.approx(-0.1)}
    assert sorted(beyond(found)) == [16, 32, 64, 128, 256, 512, 1024]
    assert table(tmp_path).notes[-1] == "Checked on 2 measured steps of more ranks: off by 10.0 % at most."


def test_the_anchor_is_the_step_on_the_fewest_ranks_that_also_have_all_reduces(tmp_path):
    alone = [each for ranks in (2, 4) for each in ddp(ranks, COMPUTING_S, synchronise=False)]
    steps = [each for ranks in (1, 2, 4, 8) for each in ddp(ranks, step_s(ranks))]
    found = rows(tmp_path, [*all_reduces(4), *steps, *alone])
    projected = {row["scaling.ranks"]: row["scaling.projected_s"] for row in found if row["scaling.projected_s"] is not None}
    assert projected == {2**power: pytest.approx(step_s(2**power), rel=1e-6) for power in range(3, 11)}
    assert {row["scaling.reason"] for row in found if row["scaling.verdict"] == "projection"} == {"projected from 4 ranks"}


@pytest.mark.parametrize(
    "measured",
    [
        weak(1, 2),
        [*all_reduces(4), *weak(1, 2)],
        [*all_reduces()[:7], *weak(1, 2)],
        [*all_reduces(), *weak(1)],
        [*all_reduces(), *ddp(1, 0.5), *ddp(2, 0.6)],
        [*all_reduces(), *ddp(1, 0.5), *ddp(2, 0.1), *ddp(2, 0.1, synchronise=False)],
    ],
    ids=["no collective", "of other ranks", "one size", "one rank", "never without communication", "implausible"],
)
def test_without_all_that_it_takes_nothing_is_projected(tmp_path, measured):
    found = rows(tmp_path, measured)
    assert {row["scaling.projected_s"] for row in found} <= {None}
    assert (table(tmp_path).rows, table(tmp_path).notes) == ((), ())


def test_wherever_it_appears_it_is_called_a_projection(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", [*all_reduces(), *weak(1, 2)])
    assert "Projection" not in CliRunner().invoke(dlbench, ["show", str(path)]).stdout
    shown = CliRunner().invoke(dlbench, ["show", str(path), "--topic", "details"]).stdout
    assert "Projection, not measured" in CliRunner().invoke(dlbench, ["show", str(path), "--by", "ranks"]).stdout
    before, after = shown.split("Projection, not measured: a data-parallel step on more devices")
    assert "512" not in before
    assert "Assumed: gradients go around a ring" in after
    assert "so how far it is off is not known" in after
    data = json.loads(CliRunner().invoke(dlbench, ["show", str(path), "--by", "ranks", "--format", "json"]).stdout)
    assert {row["scaling.verdict"] for row in data if row["scaling.projected_s"] is not None} == {"projection"}
