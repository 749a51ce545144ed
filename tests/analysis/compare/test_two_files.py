"""Verdicts on made-up rounds: what decides them, how often they are wrong, and how often they find what is there."""

import math
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import made_up
import pytest
from compared import TEN, run, runs, timed, verdict
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare import power
from dlbench.analysis.compare.calibration import Drift
from dlbench.analysis.compare.judge import combined_verdict, judge_family, rank_tests
from dlbench.analysis.compare.provenance import compare_machines, find_other_occasions, gap_s
from dlbench.analysis.compare.sides import compare, compare_by
from dlbench.analysis.compare.verdict import Comparison
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.rows.summary import per_round
from dlbench.core.thresholds import Thresholds

Rounds = list[Measurement]
CASE = made_up.case(model="resnet18", batch=8, dtype="fp32")
ON_GPU = made_up.case(device="cuda:0", model="resnet18", batch=8, dtype="fp32")
WILD = (3.0, 4.8, 2.1, 3.9, 2.4, 4.5, 3.0, 1.8, 4.2, 2.7)
WIDE = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)
EXCLUDED = "a slowdown of 25.0 % or more is excluded"
OPPOSITE = "slower by its median, faster by its p10, slower by its mean"
TOO_FEW = "too few rounds to exclude any slowdown"
QUIETER = "measure again on a quieter machine"


def blocks(p10: float, median: float, medians: Sequence[float] = (1.0,) * 10) -> Rounds:
    """Ten rounds with the p10 and the median of each, over those of `TEN`."""
    return made_up.rounds_of(CASE, [[p10 * each] * 4 + [median * wild * each] * 6 for each, wild in zip(TEN, medians, strict=True)])


def with_params(**params: float) -> Rounds:
    return [replace(each, case=replace(each.case, params={**each.case.params, **params})) for each in timed()]


@pytest.mark.parametrize(
    ("base", "new", "thresholds", "expected", "note"),
    [
        (timed(), timed(1.2), {}, "slower", ""),
        (timed(), timed(0.8), {}, "faster", ""),
        (timed(), timed(1.0), {}, "same", ""),
        (timed(), timed(1.05), {}, "same", ""),
        (timed(), timed(1.095), {}, "inconclusive", EXCLUDED),
        (timed(), timed(1.05), {"time": 0.03}, "slower", ""),
        (timed(), timed(1.2), {"time": 0.5}, "same", ""),
        (timed(items=8), timed(items=4), {}, "same", ""),  # throughput says nothing that time does not
        (blocks(1, 1), blocks(1, 1.5), {}, "slower", ""),
        (blocks(1, 1, WILD), blocks(1.3, 1, WILD), {}, "slower", "inconclusive by its median, slower by its p10"),
        (blocks(1, 2), blocks(0.5, 3), {}, "inconclusive", f"{OPPOSITE}; up to +51.5 % is possible"),
        (timed(1, WIDE), timed(1.05, WIDE), {}, "inconclusive", "up to +26.0 % is possible"),
        (timed(1, TEN[:3]), timed(2, TEN[:3]), {}, "inconclusive", "up to +104.0 % is possible"),
        *((timed(1, TEN[:some]), timed(1, TEN[:others]), {}, "same", "") for some, others in ((7, 10), (10, 7))),
        *((timed(1, TEN[:some]), timed(1, TEN[:others]), {}, "inconclusive", TOO_FEW) for some, others in ((1, 10), (10, 1))),
        (timed(1, TEN[:7]), timed(1.3), {}, "slower", ""),
        (timed(1, [1.0] * 7), timed(1, [1.0] * 7), {}, "same", ""),
        (timed(1, [1.0] * 7), timed(1.2, [1.0] * 7), {}, "slower", ""),
        (timed(0), timed(), {}, "inconclusive", "its time reads as zero in the base; give it more to do"),
        (timed(), timed(0), {}, "inconclusive", "its time reads as zero in the new file; give it more to do"),
        (blocks(0, 1), blocks(0, 1), {}, "inconclusive", "its time reads as zero in the base; give it more to do"),
        *(
            (timed(), timed(factor, **fields), {}, "inconclusive", f"{why} in the new file; its times alone would say {alone}; {remedy}")
            for fields, why, remedy in (({"steady": False}, "unsteady", QUIETER), ({"flops": 0}, "implausible", "dlbench show says why"))
            for factor, alone in ((2.0, "slower"), (0.5, "faster"), (1.0, "same"))
        ),
        (timed(), timed(threads=4), {}, "incomparable", "case.threads: 2 against 4"),
        (timed(), timed(device_name="Xeon"), {}, "incomparable", "case.device_name: AMD EPYC 7B13 against Xeon"),
        (timed(), timed(math={"tf32": True, "cudnn": "auto"}), {}, "incomparable", "tf32: false against true"),
        (
            *(timed(math={"blas": f"mkl, threads={count}"}) for count in (1, 2)),
            {}, "incomparable", "blas: mkl, threads=1 against mkl, threads=2",
        ),
        (with_params(momentum=0.9), with_params(momentum=0.8), {}, "incomparable", "param.momentum: 0.9 against 0.8"),
        (with_params(), with_params(momentum=0.8), {}, "same", ""),
    ],
)  # fmt: skip
def test_the_verdict_on_times_and_why(base: Rounds, new: Rounds, thresholds: Any, expected: str, note: str) -> None:
    case = verdict(base, new, Thresholds(**thresholds))
    assert (case.verdict.value, case.note, case.regressed) == (expected, note, ("time",) if expected == "slower" else ())


def test_the_numbers_of_a_change() -> None:
    case = verdict(timed(1, (1, 2, 3, 4)), timed(10, (1, 2, 3, 4)))
    change = case.shown
    assert change is not None
    assert (case.statistic, change.p, change.p_holm, change.change) == ("median", 2 / 70, 4 / 70, pytest.approx(9))
    assert change.change_interval == pytest.approx((1.5, 39, 1 - 2 / 70))
    assert verdict(blocks(1, 1, WILD), blocks(1.3, 1, WILD)).statistic == "p10"
    assert verdict(timed(0), timed()).tests == {}


def test_rounds_that_would_exclude_a_slowdown_are_planned_whether_or_not_it_is_excluded() -> None:
    undecided, faster = (verdict(timed(1, WIDE), timed(factor, WIDE)) for factor in (1.05, 0.9))
    assert undecided.detectable == pytest.approx(1.3 ** (1 + 0.8416 / 2.2414) - 1, rel=1e-3)  # 80 % power at 2.5 %, two-sided
    assert faster.possible == pytest.approx(1.26 * 0.9 / 1.05 - 1, abs=0.001)
    assert (undecided.rounds_to_see, faster.rounds_to_see, faster.unseen) == (27, 27, None)


def test_what_is_detectable_is_called_in_four_of_five_although_the_threshold_is_near() -> None:
    chance, called, least = random.Random(31), 0, []
    for _ in range(100):
        base, new = ([factor * chance.lognormvariate(0, 0.03) for _ in range(14)] for factor in (1.0, 1.111))
        case = verdict(timed(1, base), timed(1, new))
        least.append(case.detectable)
        called += case.verdict.value == "slower"
    assert statistics.median(each for each in least if each) == pytest.approx(0.111, abs=0.002)
    assert 70 <= called <= 95


def test_the_rounds_that_carry_a_gate_depend_on_its_size() -> None:
    few = compare(run(timed(1, TEN[:3]), "base"), run(timed(2, TEN[:3]), "new"))
    assert few.powerless == "too few rounds: in 3 tests none could have been called slower; 10 rounds a side would do: --rounds 10"
    advised = {}
    for cases, rounds in ((3, 5), (4, 5), (42, 7), (43, 7)):
        some = run([each for n in range(cases) for each in timed(1, TEN[:rounds], made_up.case(n=n))])
        reasons = [compare(some, some, paired=paired).powerless for paired in (False, True)]
        advised[cases, rounds] = [reason and reason.rpartition(" ")[2] for reason in reasons]
    assert advised == {(3, 5): [None, None], (4, 5): ["10", "13"], (42, 7): [None, None], (43, 7): ["10", "16"]}
    one_with_enough = run([*timed(), *timed(1, [1.0], made_up.case(n=1))])
    assert compare(one_with_enough, one_with_enough).powerless is None


MORE = [1.02 * wide * ten for wide, ten in zip(WIDE, TEN, strict=True)]


@pytest.mark.parametrize(
    ("blocks_a_round", "paired", "drift", "numbers"),
    [
        (10, False, None, (0.525306797, 0.217509091, 34.7791254, 80.9174999, 5)),
        (10, True, None, (0.106373878, 0.217509091, 34.7791254, 5, 5)),
        (10, True, Drift(0.02, 8, 0.01, 4), (0.139014314, 0.224301095, 44.8640905, 5, 5)),
        (9, False, Drift(0.02, 8, 0.01, 4), (0.48422371, 0.224301095, 44.8640905, 109.169502, 5)),
        (9, True, None, (0.106373878, 0.0301873762, 0.0954054164, 5, 5)),
    ],
)
def test_what_tests_detect_and_exclude_and_the_rounds_for_it(
    blocks_a_round: int, paired: bool, drift: Drift | None, numbers: tuple[float, ...]
) -> None:
    rounds = [per_round(made_up.rounds_of(CASE, [[each] * blocks_a_round for each in side])) for side in (WIDE, MORE)]
    tests = rank_tests(*rounds, 0.1, dict.fromkeys(("median", "p10", "paired"), drift) if drift else {}, paired)
    found = power.detectable(tests, 14), power.possible(tests), power.rounds_to_exclude(tests, math.log(1.25), 5)
    assert (*found, power.rounds_to_call(tests, 14, 0.16), power.least_rounds(tests, 14)) == pytest.approx(numbers, rel=1e-6)


def test_rounds_are_planned_only_where_there_are_fewer() -> None:
    tests = rank_tests(*[per_round(timed(1, TEN[:5]))] * 2, 0.1)
    assert [power.more_rounds(tests, planned) for planned in (4, 5, 5.5, 6, math.inf)] == [None, None, 6, 6, None]


def test_a_p10_takes_ten_blocks_in_four_of_five_rounds_of_each_side() -> None:
    full = per_round(timed())
    found = {}
    for count in (7, 8, 10):
        part = per_round(made_up.rounds_of(CASE, [[each] * (10 if at < count else 9) for at, each in enumerate(TEN)]))
        found[count] = [[*rank_tests(part, full, 0.1)], [*rank_tests(full, part, 0.1, paired=True)]]
    every = [["median", "p10", "mean"], ["median", "p10", "paired", "mean"]]
    assert found == {7: [["median", "mean"], ["median", "paired", "mean"]], 8: every, 10: every}


def several(*threads: int) -> list[Measurement]:
    return [each for n, count in enumerate(threads) for each in timed(case=made_up.case(n=n), threads=count)]


HIDDEN = "a slowdown of 25.0 % or more is not excluded in"
WITH_DETECT = "with --detect 25% that would end with 4"


@pytest.mark.parametrize(
    ("base", "new", "options", "undecidable", "doubt"),
    [
        # Cases that can't be compared decide a comparison of which they are most.
        (several(2, 2), several(4, 2), {}, None, f"{HIDDEN} 1 of 2 cases; {WITH_DETECT}"),
        (several(2, 2, 2), several(4, 4, 2), {}, f"{HIDDEN} 2 of 3 cases", f"{HIDDEN} 2 of 3 cases"),
        (several(2, 2), several(4, 2), {"insist": True}, f"{HIDDEN} 1 of 2 cases", f"{HIDDEN} 1 of 2 cases"),
        (
            [*timed(), *timed(1, WIDE, CASE)], [*timed(), *timed(1.05, WIDE, CASE)], {}, None,
            f"{HIDDEN} 1 of 2 cases; 31 rounds a side would probably call or exclude it: --rounds 31; {WITH_DETECT}",
        ),
        (several(2), several(2), {}, None, None),
    ],
)  # fmt: skip
def test_what_is_hidden_decides_where_it_was_asked_for_or_is_most(
    base: Rounds, new: Rounds, options: Any, undecidable: str | None, doubt: str | None
) -> None:
    found = compare(run(base, "base"), run(new, "new"), **options)
    assert (found.undecidable, found.doubt) == (undecidable, doubt)


def test_a_change_as_small_as_the_threshold_need_not_be_detected() -> None:
    assert [verdict(timed(), timed(), Thresholds(time=each)).detect for each in (0.2, 0.25, 0.3)] == [0.25, 0.5, 0.6]


def test_a_case_whose_rounds_may_be_lost_is_noted() -> None:
    both, old, new = (made_up.case(n=n) for n in range(3))
    base, other = (run([*timed(case=both), *timed(case=each)], name) for each, name in ((old, "base"), (new, "new")))
    noted = []
    for lost in ({}, {"new": frozenset[str]()}, {"new": frozenset((both.id, new.id))}, {"new": frozenset((both.id,))}):
        found = [each for each in compare(base, replace(other, lost=lost)).cases if each.lost]
        noted.append({each.case for each in found})
        assert {each.reasons[-1] for each in found} <= {"damaged lines of the new file may have had rounds of it"}
    assert noted == [set(), {old.id}, {both.id, old.id, new.id}, {both.id, old.id}]


A = {"machine_key": "a", "stack_key": "s", "identity": {"cpu": {"name": "A"}}, "stack": {"driver": "1"}}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "base": {**A, "provenance": {"dlbench": "1.0"}},
    "software": {**A, "provenance": {"dlbench": "1.1"}},
    "machine": {"machine_key": "b", "stack_key": "t", "identity": {"cpu": {"name": "B"}}, "stack": {"driver": "2"}},
    "pyperf": {"pyperf": {"hostname": "x"}},
    "unknown": {},
}
OTHER_MACHINE = "base and machine are of different machines, which differ in identity.cpu.name: 'A' against 'B'"


def test_files_of_other_machines_software_and_thresholds_are_named() -> None:
    limits = {"quick": {"time": 0.1}}
    files = replace(runs(dict.fromkeys(ENVIRONMENTS, ()), ENVIRONMENTS), thresholds={**dict.fromkeys(ENVIRONMENTS, limits), "software": {}})
    assert compare_machines(files, "base", [*ENVIRONMENTS][1:], across_machines=True) == (
        {"machine"},
        [
            "unknown does not say which machine it is of",
            "the software differs, base against software: dlbench 1.0 against 1.1",
            "base and software were run with other thresholds in quick; those of base hold",
            f"{OTHER_MACHINE}; slower does not fail here",
            "the software differs, base against machine: stack.driver: '1' against '2'",
        ],
    )
    with pytest.raises(UsageError, match="^" + re.escape(f"{OTHER_MACHINE}; compare runs of one machine, or have a report without a gate")):
        compare_machines(files, "base", ["machine"], across_machines=False)


def test_files_an_hour_apart_are_of_other_occasions() -> None:
    times = {
        "base": ("10:00:00", 600),
        "near": ("11:10:00", 1),
        "far": ("11:10:01", 1),
        "before": ("08:00:00", 3599),
        "within": ("10:05:00", 1),
    }
    files = runs(
        dict.fromkeys([*times, "unknown"], ()),
        {"unknown": {}} | {name: {"provenance": {"utc": f"2026-01-01T{utc}+00:00"}, "seconds": s} for name, (utc, s) in times.items()},
    )
    gaps = {name: gap_s(files.environments["base"], files.environments[name]) for name in [*times, "unknown"]}
    assert gaps == {"base": 0, "near": 3600, "far": 3601, "before": 3601, "within": 0, "unknown": None}
    found, (note,) = find_other_occasions(files, "base", [*gaps][1:])
    assert (found, "ends --strict with 4: far (60 min), before (60 min);" in note) == ({"far", "before"}, True)
    assert find_other_occasions(files, "base", []) == (set(), [])


def test_values_of_which_nothing_is_declared_are_not_judged() -> None:
    values = run([made_up.with_values(made_up.without_rounds(each), accuracy=0.5) for each in timed()])
    comparison = compare(values, values)
    assert comparison.cases[0][1:3] == ("inconclusive", ("the base has values, not times", "accuracy: 0.500"))
    assert comparison.powerless == "no case has times that can be compared, so nothing could have been called slower"


def test_a_throttled_row_is_inconclusive_at_most_and_an_unsteady_one_makes_the_comparison_undecidable() -> None:
    base, new, unsteady = run(timed(), "base"), run(timed(2), "new"), run(timed(2, steady=False), "new")
    throttled = replace(new, rows=tuple(replace(row, flag=replace(row.flag, throttled=True)) for row in new.rows))
    assert compare(base, throttled).cases[0].note.startswith("throttled in the new file; ")
    assert compare(base, unsteady).undecidable == f"a slowdown of 25.0 % or more is not excluded in 1 of 1 case; {QUIETER}"


def on_gpu(peak_bytes: int, rounds: int = 10, factor: float = 1.0) -> Rounds:
    return timed(factor, TEN[:rounds], ON_GPU, memory=Memory(peak_bytes, peak_bytes, 1 << 30))


def on_host(*mib: float) -> Rounds:
    """A round for each peak."""
    rounds = timed(1, TEN[: len(mib)], CASE)
    return [replace(each, memory=Memory(host_peak_bytes=round(size * 2**20))) for each, size in zip(rounds, mib, strict=True)]


HOST = on_host(34, 35, 35, 42, 51, 55, 34)
UNKNOWN_ON_GPU = timed(case=ON_GPU, memory=Memory(host_peak_bytes=1 << 40))
ODD = [*on_gpu(1000)[:9], replace(on_gpu(1)[9], memory=Memory(1 << 20, 1 << 20))]


@pytest.mark.parametrize(
    ("base", "new", "threshold", "regressed"),
    [
        # An accelerator's is judged by the threshold alone, on the medians.
        (on_gpu(1000), on_gpu(1051), 0.05, ("memory",)),
        (on_gpu(1000), on_gpu(1050), 0.05, ()),
        (on_gpu(1000), on_gpu(1051), 0.1, ()),
        (on_gpu(1000, 1), on_gpu(1100, 1), 0.05, ("memory",)),
        (on_gpu(0), on_gpu(512), 0.05, ("memory",)),
        (on_gpu(1000), on_gpu(500), 0.05, ()),
        (on_gpu(1000), ODD, 0.05, ()),
        (on_gpu(1000), on_gpu(2000, factor=1.5), 0.05, ("time", "memory")),
        (on_gpu(1000), UNKNOWN_ON_GPU, 0.05, ()),
        # The host's has grown where its rounds rank higher by more than the threshold, and by more than a MiB.
        (HOST, on_host(60, 61, 58, 59, 70, 60, 60), 0.05, ("memory",)),
        (HOST, on_host(60, 61, 50, 59, 70, 36, 60), 0.05, ("memory",)),  # two rounds among those of base
        (HOST, on_host(60, 34, 50, 35, 70, 36, 34), 0.05, ()),
        (on_host(1, 1, 1, 1), on_host(2.1, 2.1, 2.1, 2.1), 0.05, ("memory",)),
        (on_host(1, 1, 1, 1), on_host(2, 2, 2, 2), 0.05, ()),
        (on_host(10, 10, 10), on_host(20, 20, 20), 0.05, ()),  # three against three are apart by accident in one of ten
    ],
)
def test_memory_that_has_grown_is_a_regression(base: Rounds, new: Rounds, threshold: float, regressed: tuple[str, ...]) -> None:
    assert verdict(base, new, Thresholds(memory=threshold)).regressed == regressed


def test_the_note_on_memory() -> None:
    assert verdict(on_gpu(1000), on_gpu(1051)).note == "memory worse: 1000 B to 1.03 KiB (+5.1 %); by time same"
    assert verdict(on_gpu(1000), ODD).note == ""
    few = "memory: 10.0 MiB to 20.0 MiB (+100.0 %), 3 rounds a side are too few, 4 would do"
    assert few in verdict(on_host(10, 10, 10), on_host(20, 20, 20)).note
    assert not any(each.is_memory for each in verdict(on_gpu(1000), UNKNOWN_ON_GPU).values)


def test_other_machines_have_other_names_and_threads() -> None:
    comparison = compare(run(timed()), run(timed(2, device_name="Intel Xeon", threads=56)), across_machines=True)
    assert ([case.verdict.value for case in comparison.cases], comparison.report_only) == (["slower"], True)
    assert verdict(timed(), timed(2, threads=56, math={"tf32": True}), across_machines=True).verdict.value == "incomparable"


def test_the_worst_stands_first() -> None:
    base, new = (
        run([each for n, factor in enumerate(factors) for each in timed(factor, case=made_up.case(n=n))])
        for factors in ([1] * 5, [1, 1.5, 0.5, 2, 1])
    )
    assert [(each.case, each.verdict.value) for each in compare(base, new).cases] == [
        (f"train_step[n={n}]@cpu", expected) for n, expected in ((3, "slower"), (1, "slower"), (2, "faster"), (0, "same"), (4, "same"))
    ]


def test_within_a_file_rows_pair_as_ratios_do_and_an_implausible_one_is_named() -> None:
    comparison = compare_by(run(made_up.both_kinds()), "dtype", {})
    assert comparison.title == "run: each dtype against fp32"
    assert [(each.case, each.verdict.value) for each in comparison.cases] == [
        (f"train_step[model=resnet18,batch={batch},dtype=bf16]@{device}", expected)
        for device, expected in (("cuda:0", "faster"), ("cpu", "same"))
        for batch in (8, 64)
    ]
    narrow = made_up.case(model="resnet18", batch=8, dtype="bf16")
    doubted = compare_by(run([*timed(case=CASE), *timed(case=narrow, flops=0)]), "dtype", {})
    reasons = {each.case: each.reason for each in doubted.unmatched}
    assert (doubted.cases, reasons[narrow.id]) == ((), "implausible: it states 0 operations; leave a count out where it means nothing")


def noisy(chance: random.Random, factor: float, rounds: int = 10) -> list[list[float]]:
    """Blocks of rounds as a shared machine gives them: processes differ by 4 %, now and then one by much more, blocks by 1 %."""
    out = []
    for _ in range(rounds):
        process = chance.lognormvariate(0, 0.04) * (1.3 if chance.random() < 0.05 else 1.0)
        out.append([factor * process * chance.lognormvariate(0, 0.01) for _ in range(10)])
    return out


def comparisons(chance: random.Random, factors: Sequence[float], times: int, threshold: float) -> Iterator[Comparison]:
    """Compare a suite with itself, in one case that many times as slow, so often; all rows in one table, which takes a while to make."""

    def suite(factors: Sequence[float]) -> Rounds:
        return [each for n, factor in enumerate(factors) for each in made_up.rounds_of(made_up.case(n=n), noisy(chance, factor))]

    sides = [("base", [1.0] * len(factors)), ("new", factors)]
    both = runs({f"{side}{number}": suite(of_side) for number in range(times) for side, of_side in sides})
    for number in range(times):
        yield compare(both.of_run(f"base{number}"), both.of_run(f"new{number}"), Thresholds(time=threshold))


def test_equal_programs_are_called_different_no_more_often_than_stated() -> None:
    found = comparisons(random.Random(2026), [1] * 6, 100, 0.03)
    assert sum(any(case.verdict.is_change for case in each.cases) for each in found) <= 5


def test_a_fifth_more_is_found_at_ten_rounds() -> None:
    for each in comparisons(random.Random(2027), [1, 1, 1.2, 1, 1, 1], 25, 0.1):
        assert [case.case for case in each.cases if case.verdict.value == "slower"] == ["train_step[n=2]@cpu"]


ROUNDS = st.lists(st.floats(1e-300, 1e100), min_size=1, max_size=6)


@given(ROUNDS, ROUNDS, st.floats(1e-4, 10))
def test_whatever_the_times_there_is_a_verdict(base: list[float], new: list[float], threshold: float) -> None:
    tests = rank_tests(*[per_round(made_up.rounds_of(CASE, made_up.flat(side))) for side in (base, new)], threshold)
    (changes,) = judge_family([tests])
    assert combined_verdict(changes) is changes["median"].verdict is changes["p10"].verdict
    least = power.detectable(tests, 2)
    assert least is None or least >= threshold
    ends = [end for change in changes.values() if (interval := change.change_interval) for end in (interval.low, interval.high)]
    assert all(math.isfinite(value) for change in changes.values() for value in (change.change, change.p_holm, *ends))
