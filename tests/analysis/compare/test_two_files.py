"""Verdicts on made-up rounds: what decides them, how often they are wrong, and how often they find what is there."""

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.judge import Verdict, judge_family, rank_tests, together
from dlbench.analysis.compare.power import detectable
from dlbench.analysis.compare.sides import compare, compare_by
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.read.table import Results, by_case, named
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.rows.summary import per_round, summarise
from dlbench.core.thresholds import Thresholds

CASE = made_up.case(model="resnet18", batch=8, dtype="fp32")
ON_GPU = made_up.case(device="cuda:0", model="resnet18", batch=8, dtype="fp32")
TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
"""Ten rounds around one second, 2 % to either side."""


def several(runs: Mapping[str, Sequence[Measurement]]) -> Results:
    cases = [(name, each) for name, measurements in runs.items() for each in by_case(measurements)]
    return Results(tuple(named(summarise(each), name) for name, each in cases), (), {name: {} for name in runs})


def results(measurements: Sequence[Measurement], name: str = "run") -> Results:
    return several({name: measurements})


def scaled(factor: float, rounds: Sequence[float] = TEN, **fields: object) -> list[Measurement]:
    return made_up.rounds_of(CASE, made_up.flat([factor * each for each in rounds]), **fields)


def only(comparison: Comparison) -> CaseVerdict:
    assert len(comparison.cases) == 1
    return comparison.cases[0]


def verdict(base: Sequence[Measurement], new: Sequence[Measurement], thresholds: Thresholds = Thresholds()) -> CaseVerdict:  # noqa: B008  # frozen
    return only(compare(results(base, "base"), results(new, "new"), thresholds))


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.2, Verdict.SLOWER), (0.8, Verdict.FASTER), (1.0, Verdict.SAME), (1.05, Verdict.SAME), (1.095, Verdict.INCONCLUSIVE)],
)
def test_a_change_is_judged_by_its_size(factor: float, expected: Verdict) -> None:
    case = verdict(scaled(1), scaled(factor))
    assert (case.verdict, case.statistic) == (expected, "median")
    assert case.shown is not None
    assert case.shown.change == pytest.approx(factor - 1)
    assert case.regressed == (("time",) if expected is Verdict.SLOWER else ())


def test_the_numbers_of_a_change() -> None:
    change = verdict(scaled(1, (1, 2, 3, 4)), scaled(10, (1, 2, 3, 4))).shown
    assert change is not None
    assert (change.p, change.p_holm) == (2 / 70, 4 / 70)
    assert change.change == pytest.approx(9)
    interval = change.change_interval
    assert interval is not None
    assert (interval.low, interval.high, interval.confidence) == (pytest.approx(1.5), pytest.approx(39), pytest.approx(1 - 2 / 70))


def test_the_threshold_is_the_users() -> None:
    assert verdict(scaled(1), scaled(1.05), Thresholds(time=0.03)).verdict is Verdict.SLOWER
    assert verdict(scaled(1), scaled(1.2), Thresholds(time=0.5)).verdict is Verdict.SAME


def test_throughput_says_nothing_that_time_does_not() -> None:
    assert verdict(scaled(1, items=8), scaled(1, items=4)).verdict is Verdict.SAME


def blocks(rounds: Sequence[float], p10: float, median: float) -> list[Measurement]:
    return made_up.rounds_of(CASE, [[p10 * each] * 4 + [median * each] * 6 for each in rounds])


def test_what_makes_only_some_calls_slow_shows_in_the_median() -> None:
    case = verdict(blocks(TEN, 1, 1), blocks(TEN, 1, 1.5))
    assert (case.verdict, case.statistic, case.tests["p10"].verdict) == (Verdict.SLOWER, "median", Verdict.SAME)


def test_the_p10_alone_can_decide_and_says_so() -> None:
    noisy = [each * factor for each, factor in zip(TEN, (1, 1.6, 0.7, 1.3, 0.8, 1.5, 1, 0.6, 1.4, 0.9), strict=True)]
    one = made_up.rounds_of(CASE, [[each] * 4 + [wild] * 6 for each, wild in zip(TEN, [3 * each for each in noisy], strict=True)])
    other = made_up.rounds_of(CASE, [[1.3 * each] * 4 + [wild] * 6 for each, wild in zip(TEN, [3 * each for each in noisy], strict=True)])
    case = verdict(one, other)
    assert (case.verdict, case.statistic) == (Verdict.SLOWER, "p10")
    assert case.note == "inconclusive by its median, slower by its p10"


def test_opposite_statistics_decide_nothing() -> None:
    case = verdict(blocks(TEN, 1, 2), blocks(TEN, 0.5, 3))
    assert case.verdict is Verdict.INCONCLUSIVE
    assert case.note.startswith("slower by its median, faster by its p10, slower by its mean; ")


def test_an_undecided_case_says_what_would_decide_it() -> None:
    wide = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)
    case = verdict(scaled(1, wide), scaled(1.05, wide))
    assert case.verdict is Verdict.INCONCLUSIVE
    assert case.detectable == pytest.approx(1.3 ** (1 + 0.8416 / 2.2414) - 1, rel=1e-3)  # 80 % power at 2.5 %, two-sided
    assert (case.note, case.rounds_to_see) == ("up to +26.0 % is possible", 27)


def test_rounds_that_would_exclude_a_slowdown_are_planned_whether_or_not_it_is_excluded() -> None:
    wide = (0.7, 1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 0.75, 1.25, 1.05)
    case = verdict(scaled(1, wide), scaled(0.9, wide))
    assert case.possible == pytest.approx(1.26 * 0.9 / 1.05 - 1, abs=0.001)
    assert (case.unseen, case.rounds_to_see) == (None, 27)


def test_what_is_detectable_is_called_in_four_of_five_although_the_threshold_is_near() -> None:
    chance, called, least = random.Random(31), 0, []
    for _ in range(100):
        base, new = ([factor * chance.lognormvariate(0, 0.03) for _ in range(14)] for factor in (1.0, 1.111))
        case = verdict(scaled(1, base), scaled(1, new))
        least.append(case.detectable)
        called += case.verdict is Verdict.SLOWER
    assert statistics.median(each for each in least if each) == pytest.approx(0.111, abs=0.002)
    assert 70 <= called <= 95


def test_a_change_at_the_threshold_says_so() -> None:
    case = verdict(scaled(1), scaled(1.095))
    assert (case.verdict, case.note) == (Verdict.INCONCLUSIVE, "a slowdown of 25.0 % or more is excluded")


def test_rounds_too_few_for_any_call_say_how_many_would_do() -> None:
    comparison = compare(results(scaled(1, TEN[:3]), "base"), results(scaled(2, TEN[:3]), "new"))
    assert only(comparison).note == "up to +104.0 % is possible"
    assert comparison.powerless == ("too few rounds: in 3 tests none could have been called slower; 10 rounds a side would do: --rounds 10")


def test_the_rounds_that_carry_a_gate_depend_on_its_size() -> None:
    def many(cases: int, rounds: int) -> list[Measurement]:
        return [each for n in range(cases) for each in made_up.rounds_of(made_up.case(n=n), made_up.flat(TEN[:rounds]))]

    for cases, rounds, powerless in [(3, 5, False), (4, 5, True), (42, 7, False), (43, 7, True)]:
        comparison = compare(results(many(cases, rounds), "base"), results(many(cases, rounds), "new"))
        assert (comparison.powerless is not None) is powerless


def test_one_case_with_rounds_enough_lets_the_gate_fail() -> None:
    few = made_up.rounds_of(made_up.case(n=1), [[1.0]])
    assert compare(results(scaled(1) + few, "base"), results(scaled(1) + few, "new")).powerless is None


def test_unequal_rounds_are_no_difference() -> None:
    for base, new in [(7, 10), (10, 7), (1, 10), (10, 1)]:
        assert verdict(scaled(1, TEN[:base]), scaled(1, TEN[:new])).verdict is (
            Verdict.SAME if min(base, new) > 1 else Verdict.INCONCLUSIVE
        )
    assert verdict(scaled(1, TEN[:7]), scaled(1.3)).verdict is Verdict.SLOWER


def test_times_without_any_spread() -> None:
    assert verdict(scaled(1, [1.0] * 7), scaled(1, [1.0] * 7)).verdict is Verdict.SAME
    assert verdict(scaled(1, [1.0] * 7), scaled(1.2, [1.0] * 7)).verdict is Verdict.SLOWER


@pytest.mark.parametrize("side", ["the base", "the new file"])
def test_a_time_of_zero_is_not_judged(side: str) -> None:
    zero, one = scaled(0), scaled(1)
    case = verdict(zero, one) if side == "the base" else verdict(one, zero)
    assert (case.verdict, case.note) == (Verdict.INCONCLUSIVE, f"its time reads as zero in {side}; give it more to do")
    assert case.tests == {}


def test_a_p10_of_zero_is_not_judged() -> None:
    assert verdict(blocks(TEN, 0, 1), blocks(TEN, 0, 1)).note == "its time reads as zero in the base; give it more to do"


def test_values_of_which_nothing_is_declared_are_not_judged() -> None:
    values = [made_up.with_values(made_up.without_rounds(each), accuracy=0.5) for each in scaled(1)]
    comparison = compare(results(values, "base"), results(values, "new"))
    assert only(comparison).verdict is Verdict.INCONCLUSIVE
    assert only(comparison).note == "the base has values, not times; accuracy: 0.500"
    assert comparison.powerless == "no case has times that can be compared, so nothing could have been called slower"


@pytest.mark.parametrize(("factor", "alone"), [(2.0, "slower"), (0.5, "faster"), (1.0, "same")])
def test_an_unsteady_row_is_inconclusive_at_most(factor: float, alone: str) -> None:
    comparison = compare(results(scaled(1), "base"), results(scaled(factor, steady=False), "new"))
    case = only(comparison)
    assert (case.verdict, case.regressed) == (Verdict.INCONCLUSIVE, ())
    assert case.note == f"unsteady in the new file; its times alone would say {alone}; measure again on a quieter machine"
    assert comparison.undecidable == ("a slowdown of 25.0 % or more is not excluded in 1 of 1 case; measure again on a quieter machine")


def test_a_flag_is_compared_as_it_is_and_not_as_its_text_reads() -> None:
    base, new = (scaled(1, math={"blas": f"mkl, threads={count}"}) for count in (1, 2))
    assert verdict(base, new).note == "blas: mkl, threads=1 against mkl, threads=2"


def test_a_throttled_row_is_inconclusive_at_most() -> None:
    base, new = results(scaled(1), "base"), results(scaled(2), "new")
    throttled = replace(new, rows=tuple(replace(row, flag=replace(row.flag, throttled=True)) for row in new.rows))
    assert only(compare(base, throttled)).note.startswith("throttled in the new file; ")


def on_gpu(peak_bytes: int, rounds: int = 10) -> list[Measurement]:
    return made_up.rounds_of(ON_GPU, made_up.flat(TEN[:rounds]), memory=Memory(peak_bytes, peak_bytes, 1 << 30))


def test_an_accelerators_memory_is_judged_by_the_threshold_alone() -> None:
    grown = verdict(on_gpu(1000), on_gpu(1051))
    assert (grown.verdict, grown.regressed) == (Verdict.SLOWER, ("memory",))
    assert grown.note == "memory worse: 1000 B to 1.03 KiB (+5.1 %); by time same"
    assert verdict(on_gpu(1000), on_gpu(1050)).verdict is Verdict.SAME
    assert verdict(on_gpu(1000), on_gpu(1051), Thresholds(memory=0.1)).verdict is Verdict.SAME
    assert verdict(on_gpu(1000, 1), on_gpu(1100, 1)).verdict is Verdict.SLOWER
    assert verdict(on_gpu(0), on_gpu(512)).verdict is Verdict.SLOWER
    assert verdict(on_gpu(1000), on_gpu(500)).verdict is Verdict.SAME


def test_one_odd_round_of_an_accelerator_is_no_regression() -> None:
    odd = [*on_gpu(1000)[:9], replace(on_gpu(1)[0], round=9, memory=Memory(1 << 20, 1 << 20))]
    case = verdict(on_gpu(1000), odd)
    assert (case.verdict, case.note) == (Verdict.SAME, "")


def test_slower_and_larger_are_both_named() -> None:
    larger = [replace(each, memory=Memory(2000, 2000)) for each in on_gpu(1)]
    larger = [made_up.scaled(each, 1.5) for each in larger]
    assert verdict(on_gpu(1000), larger).regressed == ("time", "memory")


def on_host(*mib: float) -> list[Measurement]:
    rounds = [
        made_up.rounds_of(CASE, [[each]], memory=Memory(host_peak_bytes=round(size * 2**20)))[0]
        for each, size in zip(TEN, mib, strict=False)
    ]
    return [replace(each, round=number) for number, each in enumerate(rounds)]


def test_memory_of_the_host_has_grown_where_its_rounds_rank_higher_by_more_than_the_threshold() -> None:
    base = on_host(34, 35, 35, 42, 51, 55, 34)
    assert verdict(base, on_host(60, 61, 58, 59, 70, 60, 60)).regressed == ("memory",)
    assert verdict(base, on_host(60, 61, 50, 59, 70, 36, 60)).regressed == ("memory",)  # two rounds among those of base
    assert verdict(base, on_host(60, 34, 50, 35, 70, 36, 34)).regressed == ()
    assert verdict(on_host(1, 1, 1, 1), on_host(2.1, 2.1, 2.1, 2.1)).regressed == ("memory",)
    assert verdict(on_host(1, 1, 1, 1), on_host(2, 2, 2, 2)).regressed == ()  # no more than a MiB
    assert verdict(on_host(10, 10, 10), on_host(20, 20, 20)).regressed == ()  # three against three are apart by accident in one of ten
    doubtful = verdict(on_host(10, 10, 10), on_host(20, 20, 20))
    assert "memory: 10.0 MiB to 20.0 MiB (+100.0 %), 3 rounds a side are too few, 4 would do" in doubtful.note


def test_memory_of_different_kinds_is_not_compared() -> None:
    unknown = made_up.rounds_of(ON_GPU, made_up.flat(TEN), memory=Memory(host_peak_bytes=1 << 40))
    assert not any(each.is_memory for each in verdict(on_gpu(1000), unknown).values)


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"threads": 4}, "case.threads: 2 against 4"),
        ({"device_name": "Intel Xeon"}, "case.device_name: AMD EPYC 7B13 against Intel Xeon"),
        ({"math": {"tf32": True, "cudnn": "auto"}}, "tf32: false against true"),
    ],
)
def test_what_differs_is_named(fields: dict[str, object], difference: str) -> None:
    case = verdict(scaled(1), scaled(1, **fields))
    assert (case.verdict, case.note) == (Verdict.INCOMPARABLE, difference)


def test_a_default_that_changed_is_named_and_one_that_came_is_not() -> None:
    def with_params(**params: float) -> list[Measurement]:
        return [replace(each, case=replace(each.case, params={**each.case.params, **params})) for each in scaled(1)]

    assert verdict(with_params(momentum=0.9), with_params(momentum=0.8)).note == "param.momentum: 0.9 against 0.8"
    assert verdict(with_params(), with_params(momentum=0.8)).verdict is Verdict.SAME


def test_other_machines_have_other_names_and_threads() -> None:
    base, new = results(scaled(1), "base"), results(scaled(2, device_name="Intel Xeon", threads=56), "new")
    comparison = compare(base, new, across_machines=True)
    assert (only(comparison).verdict, comparison.report_only) == (Verdict.SLOWER, True)
    flags = results(scaled(2, threads=56, math={"tf32": True}), "new")
    assert only(compare(base, flags, across_machines=True)).verdict is Verdict.INCOMPARABLE


def test_the_worst_stands_first() -> None:
    def run(factors: Sequence[float]) -> list[Measurement]:
        return [each for n, f in enumerate(factors) for each in made_up.rounds_of(made_up.case(n=n), made_up.flat([f * t for t in TEN]))]

    comparison = compare(results(run([1, 1, 1, 1, 1]), "base"), results(run([1, 1.5, 0.5, 2, 1]), "new"))
    assert [(each.case, each.verdict.value) for each in comparison.cases] == [
        ("train_step[n=3]@cpu", "slower"),
        ("train_step[n=1]@cpu", "slower"),
        ("train_step[n=2]@cpu", "faster"),
        ("train_step[n=0]@cpu", "same"),
        ("train_step[n=4]@cpu", "same"),
    ]


def test_within_a_file_rows_pair_as_ratios_do() -> None:
    comparison = compare_by(results(made_up.both_kinds()), "dtype", {})
    assert comparison.title == "run: each dtype against fp32"
    assert [(each.case, each.verdict.value) for each in comparison.cases] == [
        (f"train_step[model=resnet18,batch={batch},dtype=bf16]@{device}", said)
        for device, said in (("cuda:0", "faster"), ("cpu", "same"))
        for batch in (8, 64)
    ]


def noise(chance: random.Random, case_factor: float = 1.0, rounds: int = 10) -> list[list[float]]:
    """Blocks of rounds as a shared machine gives them: processes differ by 4 %, now and then one by much more, blocks by 1 %."""
    out = []
    for _ in range(rounds):
        process = chance.lognormvariate(0, 0.04) * (1.3 if chance.random() < 0.05 else 1.0)
        out.append([case_factor * process * chance.lognormvariate(0, 0.01) for _ in range(10)])
    return out


def suite(chance: random.Random, factors: Sequence[float]) -> list[Measurement]:
    return [each for n, factor in enumerate(factors) for each in made_up.rounds_of(made_up.case(n=n), noise(chance, factor))]


def comparisons(chance: random.Random, factors: Sequence[float], times: int, threshold: float) -> Iterator[Comparison]:
    """Compare a suite with itself, in one case that many times as slow, so often; all rows in one table, which takes a while to make."""
    sides = [("base", [1.0] * len(factors)), ("new", factors)]
    both = several({f"{side}{number}": suite(chance, each) for number in range(times) for side, each in sides})
    for number in range(times):
        yield compare(both.of_run(f"base{number}"), both.of_run(f"new{number}"), Thresholds(time=threshold))


def test_equal_programs_are_called_different_no_more_often_than_stated() -> None:
    verdicts = [{case.verdict for case in each.cases} for each in comparisons(random.Random(2026), [1] * 6, 100, 0.03)]
    assert sum(bool(each & {Verdict.SLOWER, Verdict.FASTER}) for each in verdicts) <= 5


def test_a_fifth_more_is_found_at_ten_rounds() -> None:
    for each in comparisons(random.Random(2027), [1, 1, 1.2, 1, 1, 1], 25, 0.1):
        assert [case.case for case in each.cases if case.verdict is Verdict.SLOWER] == ["train_step[n=2]@cpu"]


seconds = st.floats(1e-300, 1e100)
ROUNDS = st.lists(seconds, min_size=1, max_size=6)


@given(ROUNDS, ROUNDS, st.floats(1e-4, 10))
def test_whatever_the_times_there_is_a_verdict(base: list[float], new: list[float], threshold: float) -> None:
    tests = rank_tests(*[per_round(made_up.rounds_of(CASE, made_up.flat(side))) for side in (base, new)], threshold)
    (changes,) = judge_family([tests])
    assert together(changes) is changes["median"].verdict is changes["p10"].verdict
    least = detectable(tests, 2)
    assert least is None or least >= threshold
    values = [value for change in changes.values() for value in (change.change, change.p_holm)]
    values += [end for change in changes.values() if (ends := change.change_interval) for end in (ends.low, ends.high)]
    assert all(map(math.isfinite, values))


@pytest.mark.parametrize(("factor", "alone"), [(2.0, "slower"), (0.5, "faster"), (1.0, "same")])
def test_an_implausible_row_is_inconclusive_at_most(factor: float, alone: str) -> None:
    doubted = [replace(each, flops=0) for each in scaled(factor)]
    case = only(compare(results(scaled(1), "base"), results(doubted, "new")))
    assert (case.verdict, case.regressed) == (Verdict.INCONCLUSIVE, ())
    assert case.note == f"implausible in the new file; its times alone would say {alone}; dlbench show says why"


def test_within_a_file_an_implausible_row_stands_in_no_pair_and_is_named() -> None:
    narrow = made_up.case(model="resnet18", batch=8, dtype="bf16")
    doubted = made_up.rounds_of(narrow, made_up.flat(TEN), flops=0)
    comparison = compare_by(results([*scaled(1), *doubted]), "dtype", {})
    assert comparison.cases == ()
    reasons = {each.case: each.reason for each in comparison.unmatched}
    assert reasons[narrow.id] == "implausible: it states 0 operations; leave a count out where it means nothing"
