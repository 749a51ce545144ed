import made_up
import pytest

from dlbench.core.model import Status


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def sweep(device="cuda:0", model="resnet18", workload="train_step", **seconds):
    """Seven rounds of a training step at each batch: ``b8=1.0`` takes a second at batch 8."""
    found = []
    for name, each in seconds.items():
        case = made_up.case(workload, device, model=model, batch=int(name[1:]), dtype="fp32")
        found += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]), items=int(name[1:]), flops=None)
    return found


def test_enough_is_the_smallest_batch_near_the_best_and_what_the_smallest_costs_is_a_ratio(asked):
    answer = asked([*sweep(b1=1.0, b8=2.0, b64=15.5)])["batch"]
    assert line(answer) == ("8 is enough for train resnet18", "96.9 % of the best throughput", [])
    assert answer["sentences"] == [
        "train_step resnet18 fp32: batch 8, items 4.00 /s (3.88…4.12 /s), of the best 96.9 %, ratio 4.00 × (3.88…4.12), fits 64."
    ]
    (table,) = answer["tables"]
    (row,) = table["rows"]
    assert (row["batch.enough"], row["batch.smallest"], row["batch.fits"], row["batch.too_large"]) == (8, 1, 64, None)
    assert (row["ratio.speedup"], row["batch.share"]) == (pytest.approx(4), pytest.approx(4 / (64 / 15.5)))
    assert len(answer["cases"]) == 3
    few = asked([each for each in sweep(b1=1.0, b8=2.0) if each.round < 3])["batch"]
    assert line(few) == ("8 is the largest measured; more may help", "train resnet18", ["few rounds"])


def test_what_runs_out_of_memory_is_said_of_the_work_in_the_middle(asked):
    oom = [
        made_up.ended(made_up.case("train_step", "cuda:0", model="resnet18", batch=batch, dtype="fp32"), Status.OOM, "full")
        for batch in (256, 128)
    ]
    answer = asked([*sweep(b8=1.0, b64=4.0), *oom, *sweep(model="vgg16", b8=1.0, b64=2.0)])["batch"]
    assert answer["sentences"] == [
        "train_step resnet18 fp32: batch 64, items 16.0 /s (15.5…16.5 /s), of the best 100.0 %, ratio 2.00 × (1.94…2.06), fits 64, "
        "too large 128.",
    ]


def test_a_batch_that_brings_nothing_is_not_asked_for_and_accelerators_come_first(asked):
    answer = asked([*sweep("cpu", b1=1.0, b2=2.0), *sweep("cuda:0", b1=1.0, b2=1.0)])["batch"]
    assert line(answer) == ("2 is the largest measured; more may help", "train resnet18", [])
    (table,) = answer["tables"]
    assert [(row["place"], row["batch.enough"]) for row in table["rows"]] == [("cuda:0", 2), ("cpu", 1)]


def test_a_gain_that_its_interval_does_not_show_is_none(asked):
    rounds = (1.0, 2.0, 0.5, 1.9, 0.6, 1.8, 0.7)
    of_batch = {batch: made_up.case("matmul", batch=batch, dtype="fp32") for batch in (1, 8)}
    smallest = made_up.rounds_of(of_batch[1], made_up.flat([1.0] * 7), items=1)
    answer = asked([*smallest, *made_up.rounds_of(of_batch[8], made_up.flat([7 * each for each in rounds]), items=8)])["batch"]
    assert line(answer) == ("no gain shown from batch 1 to 8", "matmul", ["noisy"])


def test_kinds_of_work_are_not_mixed_and_of_several_devices_the_fastest_is_told(asked):
    name = "n" * 200
    infer = sweep("cpu", name, "infer_step", b1=1.0, b8=8.0)
    slow, fast = sweep("cpu", b1=2.0, b8=2.0), sweep("cpu", b1=1.0, b8=1.0)
    answer = asked([*slow, *infer], [made_up.renamed(each, "Faster", 4) for each in fast])["batch"]
    assert line(answer) == ("8 is the largest measured; more may help", "train resnet18 on run1 and 1 more", [])
    assert answer["sentences"][0].startswith("train_step resnet18 fp32, cpu (run1): batch 8, items 8.00 /s")
    assert max(len(each.split()) for each in answer["sentences"]) <= 25
    assert line(asked(infer)["batch"]) == ("1 is enough", f"{'n' * 37}…", [])
