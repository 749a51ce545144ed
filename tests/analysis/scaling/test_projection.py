"""Steps on more devices, projected from made-up rows that follow the formula, so that it has to find them again."""

import json

import front_door
import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.analysis.report import tables
from dlbench.analysis.scaling.projection import project_steps
from dlbench.analysis.scaling.speedup import scaling

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


def all_reduces(ranks=2, device="cuda:0"):
    """Products of three sizes by the formula."""
    sizes = ((size, ring_s(ranks, size)) for size in (1 << 10, 1 << 20, 1 << 26))
    return [
        each
        for size, seconds in sizes
        for each in exactly("collective", seconds, device, op="all_reduce", bytes=size, ranks=ranks, dtype="fp32")
    ]


def weak(*ranks, device="cuda:0"):
    steps = [each for count in ranks for each in ddp(count, step_s(count), device=device)]
    return [*steps, *ddp(2, COMPUTING_S, synchronise=False, device=device)]


@pytest.fixture
def projected(tmp_path):
    """The projections of these measurements, and their table."""

    def project(measured):
        results = collect([made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", measured)])
        found = project_steps(scaling(results), results)
        return found, tables.projection(found)

    return project


def seconds_by_ranks(found):
    return {each.step.ranks: each.projected_s for each in found if not each.is_measured}


def formula(*powers):
    return {2**power: pytest.approx(step_s(2**power), rel=1e-6) for power in range(*powers)}


EDITED = exactly("collective", 1.0, op="all_reduce", bytes=10**400, ranks=2, dtype="fp32")


@pytest.mark.parametrize("more", [[], EDITED], ids=["as it is", "a size that no message has"])
def test_weak_scaling_is_found_again_up_to_1024_devices(projected, more):
    found, table = projected([*all_reduces(), *more, *weak(1, 2)])
    assert seconds_by_ranks(found) == formula(2, 11)
    assert found[-1].projected_items_per_s == pytest.approx(1024 * 32 / step_s(1024))
    assert {each.projected_copies_s for each in found if not each.is_measured} == {0.25}
    assert "copies, projected" in dict(table.cells())


def test_a_cpu_copies_nothing(projected):
    found, table = projected([*all_reduces(device="cpu"), *weak(2, device="cpu")])
    assert (seconds_by_ranks(found), {each.projected_copies_s for each in found}) == (formula(2, 11), {None})
    assert "copies, projected" not in dict(table.cells())


def test_its_error_is_that_of_the_steps_measured_beyond_what_it_stands_on(projected):
    found, table = projected([*all_reduces(), *weak(1, 2, 4), *ddp(8, step_s(8) / 0.9)])
    assert {each.step.ranks: each.projection_error for each in found if each.is_measured} == {
        4: pytest.approx(0, abs=1e-9), 8: pytest.approx(-0.1),
    }  # fmt: skip
    assert sorted(seconds_by_ranks(found)) == [16, 32, 64, 128, 256, 512, 1024]
    assert table.notes[-1] == "Checked on 2 measured steps of more ranks: off by 10.0 % at most."


def test_the_anchor_is_the_step_on_the_fewest_ranks_that_also_have_all_reduces(projected):
    alone = [each for ranks in (2, 4) for each in ddp(ranks, COMPUTING_S, synchronise=False)]
    steps = [each for ranks in (1, 2, 4, 8) for each in ddp(ranks, step_s(ranks))]
    found, _ = projected([*all_reduces(4), *steps, *alone])
    assert {each.step.ranks: each.projected_s for each in found} == formula(3, 11)
    assert {each.anchor_ranks for each in found} == {4}


STRONG = [each for ranks, part in ((1, 1.0), (2, 0.5)) for each in ddp(ranks, step_s(ranks, part), scaling="strong")]


@pytest.mark.parametrize(
    "measured",
    [
        weak(1, 2),
        [*all_reduces(4), *weak(1, 2)],
        [*all_reduces()[:7], *weak(1, 2)],
        [*all_reduces(), *weak(1)],
        [*all_reduces(), *ddp(1, 0.5), *ddp(2, 0.6)],
        [*all_reduces(), *ddp(1, 0.5), *ddp(2, 0.1), *ddp(2, 0.1, synchronise=False)],
        [*all_reduces(), *STRONG, *ddp(2, COMPUTING_S / 2, synchronise=False, scaling="strong")],
    ],
    ids=["no collective", "of other ranks", "one size", "one rank", "never without communication", "implausible", "strong scaling"],
)
def test_without_all_that_it_takes_nothing_is_projected(projected, measured):
    found, table = projected(measured)
    assert (found, table.rows, table.notes) == ([], (), ())


def test_wherever_it_appears_it_is_called_a_projection(tmp_path):
    made_up.write(tmp_path / "run.jsonl", [*all_reduces(), *weak(1, 2)])

    def show(*options):
        return front_door.in_process(tmp_path, "show", "run.jsonl", *options).out

    assert "Projection" not in show()
    assert "Projection, not measured" in show("--by", "ranks")
    before, after = show("--topic", "details").split("Projection, not measured: a data-parallel step on more devices")
    assert "512" not in before
    assert "Assumed: gradients go around a ring" in after
    assert "so how far it is off is not known" in after
    far = json.loads(show("--by", "ranks", "--format", "json"))[-1]
    assert {name: far[f"scaling.{name}"] for name in ("case", "ranks", "items_per_s", "verdict", "reason")} == {
        "case": None, "ranks": 1024, "items_per_s": None, "verdict": "projection", "reason": "projected from 2 ranks",
    }  # fmt: skip
    assert (far["scaling.projected_s"], far["scaling.projected_copies_s"]) == (pytest.approx(step_s(1024)), 0.25)
