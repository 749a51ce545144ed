"""Rows matched by all but one setting, each side at its own best, ratios of both, and differences of paired numbers."""

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import made_up
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis.answers.engine.pairs import best_pairs
from dlbench.analysis.presentation.columns import PAIR_COLUMNS, pair_frame
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.ratios.matching import Matches, Unmatched, match_rows
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, paired_difference, speed_ratio
from dlbench.analysis.read.table import Results, collect
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement, Transfer
from dlbench.core.model import Case, Status

if TYPE_CHECKING:
    import pandas as pd


@pytest.fixture
def read(tmp_path):
    """A function that writes a file for each of these runs, and collects them."""

    def read(*runs: Iterable[Measurement], **header: Any) -> Results:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return collect([made_up.write(folder / f"run{number}.jsonl", list(run), **header) for number, run in enumerate(runs)])

    return read


@pytest.fixture
def matched(read):
    """A function that returns the table of the pairs of a run by a setting."""
    return lambda run, by, base=None, **header: table(match_rows(read(run, **header), by, base))


@pytest.fixture
def bests(read):
    """A function that returns the table of the pairs of a run whose sides are each at their best."""
    return lambda run, **header: pair_frame(best_pairs(read(run, **header)))


def table(pairs: Matches) -> "pd.DataFrame":
    return pair_frame(pairs.rows)


def timed(*cases: tuple[Case, float], rounds: int = 7, **fields: Any) -> list[Measurement]:
    """So many rounds of each case, which takes so long."""
    return [each for case, seconds in cases for each in made_up.rounds_of(case, made_up.flat([seconds] * rounds), **fields)]


def cells(frame: "pd.DataFrame", *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame[list(names)].itertuples(index=False)]


def test_the_accelerator_is_measured_against_the_cpu_on_the_same_case(read):
    pairs = match_rows(read(made_up.both_kinds(cpu_s=0.4, gpu_s=0.01)), "device")
    frame = table(pairs)
    assert (list(frame.columns), pairs.unmatched) == (list(PAIR_COLUMNS), ())
    assert dict(cells(frame, "pair.case", "ratio.speedup")) == {
        f"train_step[model=resnet18,batch={batch},dtype={dtype}]": pytest.approx(speedup)
        for batch, dtype, speedup in ((8, "fp32", 40), (8, "bf16", 80), (64, "fp32", 50), (64, "bf16", 100))
    }
    row = frame.iloc[0]
    names = ("device", "device_name", "threads", "dtype", "batch", "run", "value", "rounds", "median_s")
    assert [row[f"base.{name}"] for name in names] == ["cpu", made_up.CPU, 2, "fp32", 8, "run0", "cpu", 7, 0.4]
    assert [row[f"other.{name}"] for name in names] == ["cuda:0", made_up.GPU, 2, "fp32", 8, "run0", "cuda:0", 7, 0.01]
    assert row["pair.by"] == "case.device"
    # The interval of seven against seven holds whatever the spreads; the ninth would cover 96.2 % where spreads are alike, and else 87.5 %.
    quotients = sorted(0.4 * a / (0.01 * b) for a in made_up.SEVEN for b in made_up.SEVEN)
    assert (row["ratio.ci_low"], row["ratio.ci_high"]) == (pytest.approx(quotients[6]), pytest.approx(quotients[-7]))
    assert (row["ratio.confidence"], row.isna()["ratio.reason"]) == (pytest.approx(0.948, abs=0.001), True)


def test_few_rounds_give_a_ratio_without_an_interval_and_say_why(matched):
    row = matched(made_up.both_kinds(rounds=3), "device").iloc[0]
    assert row["ratio.speedup"] == pytest.approx(40)
    assert row[["ratio.ci_low", "ratio.ci_high", "ratio.confidence"]].isna().all()
    assert row["ratio.reason"] == "3 and 3 rounds are too few for a 95 % interval; 4 and 4 are enough"
    assert [speed_ratio([1.0] * 3, [speed] * 3).outcome for speed in (0.5, 1.0, 2.0)] == ["loss", "gain", "gain"]


def test_rows_without_a_match_are_named_with_the_reason(read):
    cases = [made_up.case("matmul", device, n=n, dtype="fp32") for n, device in ((1, "cpu"), (2, "cpu"), (3, "cpu"), (1, "cuda:0"))]
    too_large = made_up.ended(made_up.case("matmul", "cuda:0", n=3, dtype="fp32"), Status.OOM, "it wanted 100 GiB")
    pairs = match_rows(read([*timed(*((case, 1.0) for case in cases), rounds=1), too_large]), "device")
    assert list(table(pairs)["pair.case"]) == ["matmul[n=1,dtype=fp32]"]
    assert pairs.unmatched == (
        Unmatched("matmul[n=2,dtype=fp32]@cpu", "run0", "nothing to pair it with at another device"),
        Unmatched("matmul[n=3,dtype=fp32]@cuda:0", "run0", "oom: it wanted 100 GiB"),
        Unmatched("matmul[n=3,dtype=fp32]@cpu", "run0", "nothing to pair it with at another device"),
    )
    values = [made_up.without_rounds(each) for d in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case(device=d), [[1.0]])]
    zero = [each for d in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case("noop", d), [[0.0]])]
    pairs = match_rows(read([*(made_up.with_values(each, loss=1.0) for each in values), *zero]), "device")
    reasons = {"train_step": "it reports values, not times", "noop": "its time reads as zero"}
    assert {(each.case, each.reason) for each in pairs.unmatched} == {
        (f"{name}[]@{device}", reason) for name, reason in reasons.items() for device in ("cpu", "cuda:0")
    }
    assert (len(pairs.rows), len(match_rows(read([]), "device").rows), len(best_pairs(read([])))) == (0, 0, 0)
    batches = match_rows(read([*made_up.both_kinds(), *timed((made_up.case("noop"), 1.0))]), "batch")
    assert batches.unmatched == ()  # rows without the column take no part


def test_ranks_on_a_cpu_are_no_pair_with_as_many_accelerators(read):
    cases = [(ranks, device, s) for ranks in (1, 2) for device, s in (("cpu", 1.0), ("cuda:0", 0.1))]
    results = read(timed(*((made_up.case("data_parallel", device, form="ddp", ranks=ranks), s) for ranks, device, s in cases)))
    pairs = match_rows(results, "device")
    assert [each.base.case.id for each in (*pairs.rows, *best_pairs(results))] == ["data_parallel[form=ddp,ranks=1]@cpu"] * 2
    assert [each.reason for each in pairs.unmatched] == ["it has several devices, and ranks on a CPU share one; see --by ranks"] * 2


@pytest.mark.parametrize("difference", [{"dtype": "bf16"}, {"mode": "compile"}, {"batch": 16}, {"layout": "channels_last"}], ids=str)
def test_rows_that_differ_in_anything_else_are_no_pair(read, difference):
    common = {"dtype": "fp32", "mode": "eager", "batch": 8, "layout": "nchw"}
    cpu, gpu = made_up.case(device="cpu", **common), made_up.case(device="cuda:0", **{**common, **difference})
    pairs = match_rows(read(timed((cpu, 1.0), (gpu, 1.0), rounds=1)), "device")
    assert (len(pairs.rows), {each.case for each in pairs.unmatched}) == (0, {cpu.id, gpu.id})


def test_by_dtype_the_base_is_fp32_and_sides_stay_on_one_device_with_their_flags(matched):
    frame = matched(made_up.both_kinds(), "dtype")
    assert cells(frame, "base.value", "other.value", "base.device", "other.device") == [
        ("fp32", "bf16", device, device) for _ in (8, 64) for device in ("cpu", "cuda:0")
    ]
    assert dict(cells(frame, "other.id", "ratio.speedup")) == {
        f"train_step[model=resnet18,batch={batch},dtype=bf16]@{device}": pytest.approx(speedup)
        for batch in (8, 64) for device, speedup in (("cpu", 1), ("cuda:0", 2))
    }  # fmt: skip
    flags = [(1, "fp32", False), (1, "tf32", True), (2, "fp32", True)]
    measured = [each for n, dtype, tf32 in flags for each in timed((made_up.case(n=n, dtype=dtype), 1.0), math={"tf32": tf32})]
    assert (len(matched(measured, "dtype")), len(matched(measured, "n"))) == (1, 0)  # flags differ with a precision, and nothing else


@pytest.mark.parametrize("by", ["batch", "param.batch"])
def test_a_parameter_is_named_short_or_in_full(matched, by):
    frame = matched(made_up.both_kinds(), by)
    assert set(cells(frame, "pair.by", "base.value", "other.value")) == {("param.batch", "8", "64")}
    assert set(cells(frame.round(9), "other.device", "ratio.speedup")) == {("cpu", 1 / 4), ("cuda:0", 1 / 3.2)}


@pytest.mark.parametrize(
    ("by", "base", "message"),
    [
        ("device", "cuda:1", r"no row has case\.device = 'cuda:1'; did you mean 'cuda:0'\?"),
        ("devise", None, r"can't be paired by 'devise'.*did you mean 'device'"),
        ("param.bach", None, r"did you mean 'param\.batch'"),
        ("time.median_s", None, r"can't be paired by 'time\.median_s'"),
    ],
)
def test_an_unknown_column_or_base_is_refused_with_the_nearest(read, by, base, message):
    with pytest.raises(UsageError, match=message):
        match_rows(read(made_up.both_kinds()), by, base)


def test_another_base_and_two_files(matched, read):
    assert matched(made_up.both_kinds(), "device", "cuda:0")["ratio.speedup"][0] == pytest.approx(1 / 40)
    cpu_run = [made_up.renamed(each, "Intel Xeon 8480", 56) for each in made_up.both_kinds(cpu_s=0.1) if each.case.device == "cpu"]
    frame = table(match_rows(read(cpu_run, made_up.both_kinds(cpu_s=0.4)), "device"))
    first = frame[frame["pair.case"] == "train_step[model=resnet18,batch=8,dtype=fp32]"]
    names = ("base.run", "base.device_name", "base.threads", "other.run", "other.device_name", "ratio.speedup")
    assert cells(first, *names) == [
        ("run0", "Intel Xeon 8480", 56, "run1", made_up.GPU, pytest.approx(10)),
        ("run1", made_up.CPU, 2, "run1", made_up.GPU, pytest.approx(40)),
    ]
    frame = table(match_rows(read(made_up.both_kinds(0.4, 0.01), made_up.both_kinds(0.2, 0.005)), "run"))
    assert cells(frame, "base.run", "other.run", "ratio.speedup") == [("run0", "run1", pytest.approx(2))] * 8


def cold_and_hot(**device_s: float) -> list[Measurement]:
    """Products of 20 µs cold and 10 µs hot by the wall; of each the given share of that by the device's own events."""
    products = timed(*((made_up.case("matmul", "cuda:0", n=256, cache=cache), s) for cache, s in (("hot", 10e-6), ("cold", 20e-6))))
    shares = [device_s.get(str(each.case.params["cache"])) for each in products]
    return [each if share is None else made_up.timed_on_device(each, share) for each, share in zip(products, shares, strict=True)]


def test_cold_calls_are_set_beside_hot_ones_by_device_times(matched):
    row = matched(cold_and_hot(hot=0.9, cold=0.675), "cache", "hot").iloc[0]
    assert (row["pair.time"], row["base.median_s"], row["other.median_s"]) == ("device", 10e-6, 20e-6)
    assert (row["base.device_s"], row["other.device_s"]) == (pytest.approx(9e-6), pytest.approx(13.5e-6))
    assert (row["ratio.speedup"], row["ratio.ci_low"]) == (pytest.approx(1 / 1.5), pytest.approx(1 / 1.5))


BOTH_COLD_AND_HOT = cold_and_hot(hot=0.9, cold=0.9)


@pytest.mark.parametrize(
    "measured",
    [
        cold_and_hot(), cold_and_hot(hot=0.9), cold_and_hot(cold=0.9), cold_and_hot(hot=0.9, cold=0.0),
        [*timed((BOTH_COLD_AND_HOT[0].case, 10e-6), rounds=1), *BOTH_COLD_AND_HOT[1:]],
    ],
    ids=["neither", "hot", "cold", "zero", "one round without"],
)  # fmt: skip
def test_without_device_times_of_all_rounds_on_both_sides_it_is_wall_times(matched, measured):
    row = matched(measured, "cache", "hot").iloc[0]
    assert (row["pair.time"], row["ratio.speedup"]) == ("wall", pytest.approx(0.5))


def test_other_columns_are_paired_by_what_a_user_waits_for(matched):
    runs = timed(*((made_up.case("matmul", "cuda:0", n=64, dtype=dtype), 1.0) for dtype in ("fp32", "bf16")))
    runs = [made_up.timed_on_device(each, 0.1 if each.case.params["dtype"] == "bf16" else 1.0) for each in runs]
    names = ("pair.time", "ratio.speedup", "base.launch_bound", "other.launch_bound")
    assert cells(matched(runs, "dtype"), *names) == [("wall", 1.0, False, True)]


@pytest.mark.parametrize(
    ("by", "values", "parameters", "base"),
    [
        ("layout", ("channels_last", "nchw"), {}, "nchw"),
        ("library", ("autograd", "numpy", "torch"), {"library": {"way": "numpy"}}, "numpy"),
        ("optimizer", ("adam", "sgd"), {"optimizer": {"switch": "sgd"}}, "sgd"),
        ("optimizer", ("adam", "lion"), {"optimizer": {"switch": "sgd"}}, "adam"),  # it was not measured
        ("library", ("autograd", "numpy"), {}, "autograd"),
        ("limit", (2, ""), {"limit": {"switch": ""}}, ""),  # an empty text is a default, too
    ],
)
def test_the_base_is_the_plain_default_where_one_is_declared(matched, by, values, parameters, base):
    declared = {"mine": {"values": [], "parallel": {}, "parameters": parameters}}
    frame = matched(timed(*((made_up.case("mine", **{by: value}), 1.0) for value in values)), by, workloads=declared)
    assert set(frame["base.value"]) == {base}


def test_each_side_at_its_own_best_batch_and_precision(bests):
    # On the CPU bf16 takes longer than fp32 here, so the two sides choose differently.
    slower = [
        made_up.scaled(each, 3.0) if each.case.device == "cpu" and each.case.params["dtype"] == "bf16" else each
        for each in made_up.both_kinds()
    ]
    names = ("pair.case", "pair.work", "pair.by", "base.device", "base.batch", "base.dtype", "other.device", "other.batch", "other.dtype")
    frame = bests(slower)
    work = "train_step[model=resnet18]"
    assert cells(frame, *names) == [(work, work, "best", "cpu", 64, "fp32", "cuda:0", 64, "bf16")]
    row = frame.iloc[0]
    rates = [row[name] for name in ("base.items_per_s", "other.items_per_s", "ratio.speedup")]
    assert rates == pytest.approx([64 / 1.6, 64 / 0.016, 100])
    assert row["ratio.ci_low"] < 100 < row["ratio.ci_high"]


def variants(workload: str, times: dict[tuple[str, Any], float], name: str, **params: Any) -> list[Measurement]:
    """A workload on devices in values of a parameter, which take so long."""
    return timed(*((made_up.case(workload, device, **params, **{name: value}), s) for (device, value), s in times.items()))


def test_each_side_chooses_its_layout_mode_and_precision_but_not_its_network_or_shape(bests):
    layouts = {("cpu", "nchw"): 1.0, ("cpu", "channels_last"): 2.0, ("cuda:0", "nchw"): 0.4, ("cuda:0", "channels_last"): 0.1}
    frame = bests(variants("train_step", layouts, "layout", model="resnet50", batch=8))
    names = ("pair.case", "base.layout", "other.layout", "ratio.speedup")
    assert cells(frame, *names) == [("train_step[model=resnet50]", "nchw", "channels_last", pytest.approx(10))]
    cases = [("train_step", {"model": "vgg11"}), ("train_step", {"model": "vgg16"}), ("train_step", {"model": "vgg16", "mode": "compile"})]
    cases += [("matmul", {"n": 64}), ("matmul", {"n": 128})]
    both = [(made_up.case(name, d, **params, dtype="fp32"), s) for name, params in cases for d, s in (("cpu", 1.0), ("cuda:0", 0.5))]
    works = ["matmul[n=64]", "matmul[n=128]", "train_step[model=vgg11]", "train_step[model=vgg16]"]
    assert cells(bests(timed(*both, rounds=1)), "pair.case", "ratio.speedup") == [(work, pytest.approx(2)) for work in works]
    precisions = {("cpu", "fp64"): 1.0, ("cpu", "fp32"): 0.5, ("cuda:0", "fp32"): 0.25, ("cuda:0", "bf16"): 0.05}
    counted = [replace(each, items=None, flops=1e6) for each in variants("matmul", precisions, "dtype", n=64)]
    names = ("base.dtype", "other.dtype", "base.flops_per_s", "other.flops_per_s", "ratio.speedup")
    assert cells(bests(counted), *names) == [("fp32", "bf16", pytest.approx(2e6), pytest.approx(2e7), pytest.approx(10))]  # without items


def test_what_a_search_found_is_a_best_and_no_same_case(read):
    found = {"dtype": "bf16", "batch": 64, "mode": "compile", "layout": "channels_last", "implementation": "fused"}
    searches = timed(*((made_up.case("search", d, model="vgg11"), s) for d, s in (("cpu", 1.0), ("cuda:0", 0.5))))
    results = read([replace(each, found=found) for each in searches])
    frame = pair_frame(best_pairs(results))
    assert cells(frame, "pair.case", *(f"other.{name}" for name in found)) == [("search[model=vgg11]", *found.values())]
    pairs = match_rows(results, "device")
    assert (pairs.rows, {each.reason for each in pairs.unmatched}) == (
        (), {"it stands for what its search found, which another's need not have"}
    )  # fmt: skip
    # How much fits on two devices is no speed of either.
    largest = [
        Measurement(made_up.case("search", device), 0, Status.OK, values={"largest_batch": batch}, found={"batch": int(batch)})
        for device, batch in (("cpu", 25.0), ("cuda:0", 400.0))
    ]
    assert not match_rows(read(largest), "device", timed=False).rows


def test_a_call_that_was_held_up_changes_neither_a_pair_nor_the_best_and_what_can_not_be_true_is_none(matched, bests):
    # A block of the accelerator stalls, so three take 0.9 s.
    measurements = [
        *made_up.rounds_of(made_up.case(batch=8), [[1.0, 1.0, 1.0]]),
        *made_up.rounds_of(made_up.case(device="cuda:0", batch=8), [[0.1, 0.1, 0.7]], transfer=Transfer(1, 0.1, 1, 0.1)),
    ]
    assert [frame["ratio.speedup"][0] for frame in (matched(measurements, "device"), bests(measurements))] == pytest.approx([10, 10])
    implausible = {f"train_step[model=resnet18,batch={batch},dtype=bf16]@cuda:0" for batch in (8, 64)}
    frame = bests([replace(each, flops=1e18) if each.case.id in implausible else each for each in made_up.both_kinds()])
    assert cells(frame, "other.dtype", "ratio.speedup") == [("fp32", pytest.approx(50))]


def test_each_side_chooses_its_workloads_own_switches_and_a_declared_default_is_not_named(read):
    declared = {"parameters": {"kernels": {"switch": "plain"}, "layout": {"switch": "blocked"}, "depth": {"searched": ""}}}
    times = {("cpu", "plain"): 1.0, ("cpu", "tuned"): 2.0, ("cuda:0", "plain"): 0.4, ("cuda:0", "tuned"): 0.1}
    rounds = variants("mine", times, "kernels", n=8, layout="blocked", depth=2)
    (pair,) = best_pairs(read(rounds, workloads={"mine": declared}))
    assert (pair.case, pair.work, pair.ratio.speedup) == ("mine[n=8]", "mine[n=8]", pytest.approx(10))
    assert (choice(pair.base), choice(pair.other)) == ("depth=2", "tuned depth=2")
    assert [(each.case, each.ratio.speedup) for each in best_pairs(read(rounds))] == [
        ("mine[n=8,depth=2,kernels=plain]", pytest.approx(2.5)),
        ("mine[n=8,depth=2,kernels=tuned]", pytest.approx(20)),
    ]


NUMBERS = st.integers(-400, 400).map(lambda eighths: eighths / 8)
"""Eighths, which floats hold exactly."""
few = settings(max_examples=30)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9)
SIX = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=6, max_size=6)


def sides(pairs):
    return [one for one, _ in pairs], [other for _, other in pairs]


def accepted(differences, centre):
    """Whether the signed-rank test keeps a centre at 5 %, by all signs that the differences from it may have; they must be distinct."""
    off = sorted((each - centre for each in differences), key=abs)
    positive = sum(rank for rank, each in enumerate(off, 1) if each > 0)
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in itertools.product((0, 1), repeat=len(off))]
    tails = sum(each <= positive for each in sums), sum(each >= positive for each in sums)
    return min(1.0, 2 * min(tails) / len(sums)) > 0.05


def test_six_seeds_by_hand():
    found = paired_difference([0.62, 0.61, 0.63, 0.60, 0.64, 0.62], [0.61, 0.61, 0.62, 0.61, 0.60, 0.60])
    # The differences in points: -1, 0, -1, 1, -4, -2; of their 21 Walsh averages the middle one is -1.
    assert found.shift == pytest.approx(-0.01)
    assert (found.interval.low, found.interval.high, found.interval.confidence) == pytest.approx((-0.04, 0.01, 1 - 2 / 64))
    assert [found.is_at_least(limit) for limit in (-0.04, -0.039)] == [True, False]


@given(SIX)
@few
def test_of_six_pairs_it_goes_from_the_least_difference_to_the_greatest(pairs):
    found, differences = paired_difference(*sides(pairs)), [other - one for one, other in pairs]
    assert (found.interval.low, found.interval.high) == (min(differences), max(differences))
    averages = [(one + other) / 2 for at, one in enumerate(differences) for other in differences[at:]]
    assert found.shift == statistics.median(averages)


@given(st.sets(st.integers(-1000, 1000), min_size=6, max_size=8))
@few
def test_it_holds_the_centres_that_the_test_keeps(found):
    differences = [each + each * abs(each) / 2**20 for each in found]
    interval = paired_difference([0.0] * len(differences), differences).interval
    inwards = (interval.high - interval.low) / 1000
    for end, towards in ((interval.low, inwards), (interval.high, -inwards)):
        assert accepted(differences, end + towards)
        assert not accepted(differences, end - towards)


@given(PAIRS, NUMBERS)
@few
def test_sides_that_change_places_and_a_shift_of_one_do_what_they_should(pairs, by):
    base, other = sides(pairs)
    there, back = paired_difference(base, other), paired_difference(other, base)
    moved = paired_difference(base, [each + by for each in other])
    assert back.shift == -there.shift
    assert moved.shift == there.shift + by
    if len(pairs) >= ENOUGH_PAIRS:
        assert (back.interval.low, back.interval.high) == (-there.interval.high, -there.interval.low)
    else:
        assert there.interval is None or base == other


@given(PAIRS)
@few
def test_equal_sides_are_known_to_be_so_and_unequal_numbers_of_pairs_tell_nothing(pairs):
    base, _ = sides(pairs)
    assert paired_difference(base, base) == (0.0, (0.0, 0.0, 1.0))
    assert paired_difference(base, base[1:]) is None
