"""Batch sizes: the smallest of full throughput, what a small one costs a training, what a sample takes, and the largest that fits."""

import made_up
import pytest
from plain_answers import columns_of, head_of

from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status, declaration_to_json
from dlbench.harness.worker import registry

registry.load_builtins()
DECLARED = {"largest_batch": declaration_to_json(registry.get("largest_batch").signature.declared)}
MIB = 1 << 20


def sweep(device="cuda:0", model="resnet18", workload="train_step", **seconds):
    """Seven rounds of a step at each batch: ``b8=1.0`` takes a second at batch 8."""
    found = []
    for batch, each in ((int(name[1:]), each) for name, each in seconds.items()):
        case = made_up.case(workload, device, model=model, batch=batch, dtype="fp32")
        found += made_up.around(case, each, items=batch, flops=None)
    return found


def too_large(*batches):
    cases = [made_up.case("train_step", "cuda:0", model="resnet18", batch=batch, dtype="fp32") for batch in batches]
    return [made_up.ended(case, Status.OOM, "full") for case in cases]


def training(batch, rate=0.1, **values):
    """Seven rounds of a training at a batch that reports these values."""
    rounds = made_up.rounds_of(made_up.case("small_batch", batch=batch, norm="batch", learning_rate=rate), [[1.0]] * 7)
    values = [{**values, "sample_s": values["sample_s"] * factor} for factor in made_up.SEVEN]
    return [made_up.without_rounds(made_up.with_values(each, **reported)) for each, reported in zip(rounds, values, strict=True)]


def test_what_it_says(scenes):
    found = {
        "8 does nearly as much as 64": sweep(b1=1.0, b8=2.0, b64=15.5),
        "128 is too large; another network has less to gain": [
            *sweep(b8=1.0, b64=4.0), *too_large(256, 128), *sweep(model="vgg16", b8=1.0, b64=2.0),
        ],
        "a card that gains, and a CPU that does not": [*sweep("cpu", b1=1.0, b2=2.0), *sweep("cuda:0", b1=1.0, b2=1.0)],
        "two CPUs, of which the second is faster, and inference with a long name": (
            [*sweep("cpu", b1=2.0, b2=2.0), *sweep("cpu", "n" * 50, "infer_step", b1=1.0, b8=8.0)],
            [made_up.renamed(each, "Faster", 4) for each in sweep("cpu", b1=1.0, b8=1.0)],
        ),
        "trainings that diverge or not": [
            *training(1, sample_s=5e-4, accuracy=0.1, diverged_at=320), *training(64, sample_s=1e-4, accuracy=0.9),
            *training(1, rate=0.01, sample_s=6e-4, accuracy=0.8), *training(64, rate=0.01, sample_s=1e-4, accuracy=0.5),
        ],
        "one batch alone": training(1, sample_s=1.0, accuracy=0.5),
        "a training beside other work": [
            *sweep(b1=1.0, b8=1.0), *training(1, sample_s=5e-4, accuracy=0.9), *training(8, sample_s=1e-4, accuracy=0.9),
        ],
    }  # fmt: skip
    one, eight = (made_up.case("matmul", batch=batch, dtype="fp32") for batch in (1, 8))
    uneven = made_up.around(eight, 7.0, (1.0, 2.0, 0.5, 1.9, 0.6, 1.8, 0.7), items=8)
    heads = {
        "few rounds": [each for each in sweep(b1=1.0, b8=2.0) if each.round < 3],
        "a long name": sweep(model="n" * 200, workload="infer_step", b1=1.0, b8=8.0),
        "perhaps no gain": [*made_up.around(one, 1.0, [1] * 7, items=1), *uneven],
        "a small batch that costs nothing": [*training(1, sample_s=1e-4, accuracy=0.9), *training(64, sample_s=1e-4, accuracy=0.9)],
    }
    scenes("batch", "batch", found, heads)


@pytest.mark.parametrize("odd", [0.0, -1.0, 1e308])
def test_odd_numbers_of_an_edited_file_do_no_harm(asked, odd):
    rows = [*training(1, sample_s=odd, accuracy=1e9, diverged_at=-5), *training(64, sample_s=1e-4, accuracy=0.9)]
    assert asked(rows)["batch"]


def tried(batch, status=Status.OK, fixed=200, sample=30, gib=1.0):
    """A try of a search that took 200 MiB, and 30 for each sample."""
    case = made_up.case("largest_batch", model="resnet18", batch=batch, memory_gib=gib)
    if status is not Status.OK:
        return made_up.ended(case, status, "full")
    memory = Memory(host_peak_bytes=(fixed + sample * batch) * MIB)
    return made_up.rounds_of(case, [[0.1 * batch]], items=batch, memory=memory)[0]


def search(found=25, status=Status.OK, reason=None, gib=1.0):
    """The outcome of a search: so large a batch, or why none was found."""
    fields = {"found": {"batch": found}, "values": {"largest_batch": float(found)}} if status is Status.OK else {}
    case = made_up.case("largest_batch", model="resnet18", memory_gib=gib)
    return Measurement(case, 0, status, reason, device_name=made_up.CPU, threads=2, **fields)


LATE = "unfinished: batch=8 fits so far; batch=25: not done within 60 s; raise --timeout"
NOTHING = search(status=Status.OOM, reason="not even batch=1 fits: full")
FOUND, OTHERS = "batch 25 fits into 1.00 GiB", [tried(26, Status.OOM), tried(32, Status.OOM)]
WILD = [tried(batch, fixed=0, sample=mib) for batch, mib in ((1, 100), (2, 400), (4, 100), (8, 400), (16, 100), (32, 400))]


@pytest.mark.parametrize(
    ("outcomes", "tries", "headline", "rows"),
    [  # the largest batch, the next that did not fit, MiB a sample and beside these
        ([search()], [*map(tried, (1, 2, 8, 25)), *OTHERS], FOUND, [(25, 26, 30, 200)]),
        ([search(), search(4, gib=0.5)], [tried(each, gib=0.5) for each in (1, 2, 4)], FOUND, [(25, None, None, None), (4, None, 30, 200)]),
        ([search(22)], [], "batch 22 fits into 1.00 GiB", [(22, None, None, None)]),
        ([search(22)], [*map(tried, (1, 2, 8, 22, 32)), tried(24, Status.OOM)], "batch 22 fits into 1.00 GiB", [(22, 24, 30, 200)]),
        # What fits in its second try is not the next that does not.
        ([search(22)], [*map(tried, (1, 2, 8, 22)), tried(22, Status.OOM), tried(24, Status.OOM)], "batch 22 fits into 1.00 GiB",
         [(22, 24, 30, 200)]),
        ([search(status=Status.TIMEOUT, reason=LATE)], [*map(tried, (1, 2, 8)), tried(25, Status.TIMEOUT)],
         "batch 8 fits so far into 1.00 GiB", [(8, None, 30, 200)]),
        ([NOTHING], [tried(1, Status.OOM)], "no batch fits into 1.00 GiB", [(None, 1, None, None)]),
        ([search(32)], WILD, "batch 32 fits into 1.00 GiB", [(32, None, None, None)]),
    ],
    ids=["found", "two", "no tries", "above one that did not fit", "second try", "cut short", "nothing fits", "no line"],
)  # fmt: skip
def test_a_search_says_what_fits_and_what_a_sample_takes(asked, outcomes, tries, headline, rows):
    answer = asked(outcomes, tries=tries, workloads=DECLARED)["batch"]
    assert head_of(answer) == (headline, "largest_batch resnet18", ["unfinished"] if "so far" in headline else [])
    found = columns_of(answer["tables"][0]["rows"], "batch.largest", "batch.beyond", "batch.sample_bytes", "batch.fixed_bytes")
    assert [(*each[:2], *(size and size / MIB for size in each[2:])) for each in found] == [pytest.approx(row) for row in rows]
    reasons = [f"the search for the largest batch of largest_batch resnet18: {each.reason}" for each in outcomes if each.reason]
    assert answer["weaknesses"] == reasons
    assert answer["figures"] == []
    if rows == [(25, 26, 30, 200)]:
        values = "limit 1.00 GiB, largest batch 25, too large 26, a sample 30.0 MiB, fixed part 200 MiB"
        assert answer["sentences"] == [f"largest_batch resnet18: {values}."]


def peaks(*mib):
    """Steps at batches of 1, 2, 4 and so on with these peaks."""
    cases = [made_up.case("train_step", model="resnet18", batch=1 << at, dtype="fp32") for at in range(len(mib))]
    memories = [Memory(host_peak_bytes=int(each * MIB)) for each in mib]
    sizes = zip(cases, memories, strict=True)
    return [each for case, memory in sizes for each in made_up.rounds_of(case, [[1.0]] * 4, items=case.params["batch"], memory=memory)]


def test_a_sweep_has_the_memory_of_a_sample_and_a_wild_peak_does_not_carry_it_away(asked):
    answer = asked(peaks(230, 260, 320, 440, 2000))["batch"]
    assert answer["sentences"][-1] == "train_step resnet18 fp32: a sample 30.0 MiB, fixed part 200 MiB."


@pytest.mark.parametrize("mib", [(0, 0, 0), (5, 5, 5), (9, 5, 1), (1, 1 << 40, 1)])
def test_peaks_that_show_nothing_are_no_trouble(asked, mib):
    assert asked(peaks(*mib))["batch"]["kind"] == "answer"
