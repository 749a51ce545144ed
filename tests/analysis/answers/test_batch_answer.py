import made_up
import pytest

from dlbench.core.model import Status


def sweep(device="cuda:0", model="resnet18", **seconds):
    """Seven rounds of a training step at each batch: ``b8=1.0`` takes a second at batch 8."""
    found = []
    for name, each in seconds.items():
        case = made_up.case("train_step", device, model=model, batch=int(name[1:]), dtype="fp32")
        found += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]), items=int(name[1:]), flops=None)
    return found


def test_enough_is_the_smallest_batch_near_the_best_and_what_the_smallest_costs_is_a_ratio(asked):
    answer = asked([*sweep(b1=1.0, b8=2.0, b64=15.5)])["batch"]
    assert answer["sentences"] == [
        "On cuda:0 batch=8 is enough for train_step resnet18 fp32: 4.00 /s, 4.00 × (3.88…4.12) the throughput of batch=1; "
        "all up to batch=64 fit."
    ]
    (table,) = answer["tables"]
    (row,) = table["rows"]
    assert (row["batch.enough"], row["batch.smallest"], row["batch.fits"], row["batch.too_large"]) == (8, 1, 64, None)
    assert row["ratio.speedup"] == pytest.approx(4)
    assert len(answer["cases"]) == 3
    (few,) = asked([each for each in sweep(b1=1.0, b8=2.0) if each.round < 3])["batch"]["sentences"]
    assert "4.00 × (no interval before 4 rounds) the throughput of batch=1, too few rounds to tell; a larger one may" in few


def test_what_runs_out_of_memory_is_said_of_the_work_in_the_middle(asked):
    oom = [
        made_up.ended(made_up.case("train_step", "cuda:0", model="resnet18", batch=batch, dtype="fp32"), Status.OOM, "full")
        for batch in (256, 128)
    ]
    answer = asked([*sweep(b8=1.0, b64=4.0), *oom, *sweep(model="vgg16", b8=1.0, b64=2.0)])["batch"]
    assert answer["sentences"] == [
        "On cuda:0 batch=64 is enough for train_step resnet18 fp32: 16.0 /s, 2.00 × (1.94…2.06) the throughput of batch=8, "
        "in the middle of 2 cases from 2.00 × to 4.00 ×; batch=128 runs out of memory."
    ]


def test_a_batch_that_brings_nothing_is_not_asked_for_and_accelerators_come_first(asked):
    answer = asked([*sweep("cpu", b1=1.0, b2=2.0), *sweep("cuda:0", b1=1.0, b2=1.0)])["batch"]
    assert answer["sentences"] == [
        "On cuda:0 batch=2 is the largest measured and gives most for train_step resnet18 fp32: 2.00 /s, "
        "2.00 × (1.94…2.06) the throughput of batch=1; a larger one may give more.",
        "On cpu batch=1 is enough for train_step resnet18 fp32: 1.00 /s, the smallest measured; all up to batch=2 fit.",
    ]


def test_several_ranks_and_batches_that_are_none_do_not_count(asked):
    ranks = [made_up.case("data_parallel", ranks=2, batch=batch, dtype="fp32") for batch in (4, 8)]
    odd = [made_up.case("train_step", model="a", batch=batch, dtype="fp32") for batch in ("many", True, -1, 0)]
    answer = asked([each for case in (*ranks, *odd) for each in made_up.rounds_of(case, [[1.0]] * 7)])["batch"]
    assert (answer["reason"], answer["command"]) == ("no work was measured at several batch sizes", "dlbench run batch")
