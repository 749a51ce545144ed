"""Throughput against the batch, in made-up rows of one file."""

from pathlib import Path

import made_up
import pytest

from dlbench.analysis.read.table import collect


def flagged(folder: Path, *measurements):
    """Which batches are implausible, and why."""
    frame = collect([made_up.write(folder / "run.jsonl", [each for rounds in measurements for each in rounds])]).frame
    chosen = frame[frame["flag.implausible"].fillna(value=False)]
    return dict(zip(chosen["case.id"], chosen["flag.implausible_reason"], strict=True))


def rounds(seconds, device="cuda:0", count=7, name="batch", **params):
    """Rounds around so many seconds, 3 % to either side, of a case of so many items."""
    times = made_up.flat([seconds * each for each in made_up.SEVEN[:count]])
    case = made_up.case("infer_step", device, model="resnet18", **params)
    return made_up.rounds_of(case, times, items=params[name], flops=None)


def test_throughput_that_grows_more_than_the_batch_is_implausible(tmp_path):
    assert flagged(tmp_path, rounds(1.0, batch=8), rounds(0.2, batch=16), rounds(0.9, batch=32)) == {
        "infer_step[model=resnet18,batch=16]@cuda:0": "10.0 times the throughput of batch 8 at 2 times the batch; "
        "see that the larger one does all its work"
    }


@pytest.mark.parametrize("seconds", [2.0, 1.0, 0.94, 0.5, 0.255])
def test_a_batch_that_costs_little_or_nothing_more_or_has_a_better_algorithm_is_believed(tmp_path, seconds):
    assert flagged(tmp_path, rounds(1.0, batch=8), rounds(seconds, batch=16)) == {}


def test_a_convolution_that_is_faster_at_batch_two_than_at_one_is_believed(tmp_path):
    assert flagged(tmp_path, rounds(6.3e-3, batch=1), rounds(5.4e-3, batch=2)) == {}


def test_no_algorithm_in_use_takes_a_fifth_of_the_time_for_twice_the_work(tmp_path):
    assert list(flagged(tmp_path, rounds(1.0, batch=8), rounds(0.2, batch=16))) == ["infer_step[model=resnet18,batch=16]@cuda:0"]


def test_too_few_rounds_accuse_nobody(tmp_path):
    assert flagged(tmp_path, rounds(1.0, batch=8, count=3), rounds(0.1, batch=16, count=3)) == {}


def test_rows_that_differ_in_more_than_the_batch_are_not_compared(tmp_path):
    others = rounds(0.1, batch=16, device="cpu"), rounds(0.1, batch=32, dtype="bf16")
    assert flagged(tmp_path, rounds(1.0, batch=8), *others) == {}


def test_more_ranks_do_not_do_more_than_their_share(tmp_path):
    found = flagged(tmp_path, rounds(1.0, ranks=1, name="ranks"), rounds(0.8, ranks=2, name="ranks"))
    (reason,) = found.values()
    assert reason == "2.50 times the throughput of ranks 1 at 2 times the ranks; see that the larger one does all its work"


def test_an_implausible_row_keeps_what_else_is_wrong_with_it(tmp_path):
    wrong = made_up.rounds_of(made_up.case("infer_step", "cuda:0", batch=16), made_up.flat([0.1] * 7), items=16, flops=0)
    right = made_up.rounds_of(made_up.case("infer_step", "cuda:0", batch=8), made_up.flat([1.0] * 7), items=8, flops=None)
    (reason,) = flagged(tmp_path, right, wrong).values()
    assert reason.startswith("it states 0 operations; leave a count out where it means nothing; also, 20.0 times the throughput of batch 8")


@pytest.mark.parametrize("batch", [0, -8, 10**400, 2.5, "many", True])
def test_a_batch_that_is_none_accuses_nobody(tmp_path, batch):
    right, wrong = made_up.case("infer_step", "cuda:0", batch=8), made_up.case("infer_step", "cuda:0", batch=batch)
    both = [made_up.rounds_of(each, made_up.flat([seconds] * 7), flops=None) for each, seconds in ((right, 1.0), (wrong, 0.1))]
    assert flagged(tmp_path, *both) == {}
