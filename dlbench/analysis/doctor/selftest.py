"""Self-test: error rates of dlbench's verdicts on this machine, from programs of known cost, held against limits."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from dlbench.analysis.compare.judge import LEVEL, Tests, Verdict, combined_verdict, judge_family, rank_tests, statistic_name
from dlbench.analysis.compare.power import POWER
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.matching import grouped
from dlbench.core.machine import Finding, Fitness
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.core.rank_test import PAIRED_SHARES, rounds_for_gate
from dlbench.core.rows.columns import CaseRounds
from dlbench.core.rows.summary import per_round
from dlbench.core.stats import proportion_interval
from dlbench.core.thresholds import WITHIN_A_RUN
from dlbench.core.units import percent, seconds

COMPARISONS = 200
NOOP_S = 150e-9
THRESHOLD = WITHIN_A_RUN.time
CASE_LIMIT, SUITE_LIMIT = 0.01, LEVEL
COVERAGE = (0.93, 0.98)
SLOWDOWN = 0.1
"""Slowdown of the programs that are slower on purpose, as in `harness.plan.cases`."""


_Suite = Mapping[str, Tests]
"""Tests of each program of a comparison."""


def verdicts(cases: Sequence[Tests]) -> list[Verdict]:
    """Judge the tests of all cases of a suite together, as `compare` does."""
    return [combined_verdict(tests) for tests in judge_family(cases)]


def _called_slower(suite: _Suite) -> set[str]:
    """Return the programs of a suite that are called slower, all of them judged together."""
    called = zip(suite, verdicts([*suite.values()]), strict=True)
    return {program for program, verdict in called if verdict is Verdict.SLOWER}


def judge_selftest(measurements: Sequence[Measurement]) -> list[Finding]:
    """Return the findings of a self-test from all its measurements; `harness.plan.cases` has the cases."""
    cases = grouped(measurements, lambda each: each.case.id).values()
    measured = [(every[0].case, per_round(every)) for every in cases]
    bad = [f"{each.case.id} is {each.status}" for each in measurements if each.status is not Status.OK]
    well = f"{len(measurements) - len(bad):,} of {len(measurements):,} measurements went well"
    return [
        _finding("measurements", not bad, f"{well}{': ' if bad else ''}{', '.join(bad)}", "all have to", {"failed": len(bad)}),
        *_known_costs(measured),
        *_error_rates(measured),
    ]


def _finding(check: str, passed: bool, found: str, limit: str, values: Mapping[str, float], case: str = "") -> Finding:
    sentence = f"{'passed' if passed else 'not passed'}: {found}; {limit}"
    advice = "" if passed else "don't trust verdicts from here: see what dlbench doctor finds, and look again on a quieter machine"
    return Finding(check, "cpu", Fitness.FIT if passed else Fitness.UNFIT, sentence, advice, values, case)


def _known_costs(measured: Iterable[tuple[Case, CaseRounds]]) -> Iterator[Finding]:
    """Yield a finding for each case of known duration: how far its measured time is from the true one."""
    for case, rounds in measured:
        if "program" in case.params or not rounds.median_s:
            continue
        read_s = statistics.median(rounds.median_s)
        true_s = float(case.params.get("seconds", 0))
        allowed_s = 0.01 * true_s + 0.5e-6 if true_s else NOOP_S
        call = f"a call of {seconds(true_s)}" if true_s else "a call that does nothing"
        found = f"{call} reads {seconds(read_s)}, median of {len(rounds.median_s)} rounds"
        limit = f"{seconds(allowed_s)} off at most"
        yield _finding("known cost", abs(read_s - true_s) <= allowed_s, found, limit, {"true_s": true_s, "read_s": read_s}, case.id)


class _Share(list[bool]):
    """Whether something happened in each of several comparisons."""

    @property
    def value(self) -> float:
        return sum(self) / len(self)

    @property
    def values(self) -> dict[str, float]:
        return {"share": self.value, "of": len(self)}

    def __str__(self) -> str:
        return f"{percent(self.value)} ({sum(self)} of {len(self)})"


def _error_rates(measured: Sequence[tuple[Case, CaseRounds]]) -> Iterator[Finding]:
    """Yield the findings on how often identical copies of programs are called different, and slower variants of them slower."""
    copies = defaultdict[str, list[CaseRounds]](list)
    slower: dict[str, CaseRounds] = {}
    slow_tail: dict[str, CaseRounds] = {}
    programs = [(str(case.params["program"]), case.params, rounds) for case, rounds in measured if "program" in case.params]
    for program, params, rounds in programs:
        if params["percent"]:
            slower[program] = rounds
        elif params["tail"]:
            slow_tail[program] = rounds
        else:
            copies[program].append(rounds)
    fewest = min((len(rounds.median_s) for _, _, rounds in programs), default=0)
    least = rounds_for_gate(PAIRED_SHARES * len(copies), LEVEL, least=1, paired=True)
    if fewest < least:
        found = f"none could be made of {plural(fewest, 'round')}"
        yield _finding("comparisons", False, found, f"they take {least} rounds of every program", {"of": 0})
        return
    count = min(map(len, copies.values()))
    suites = {
        (base, new): {program: rank_tests(sides[base], sides[new], THRESHOLD, paired=True) for program, sides in copies.items()}
        for base, new in combinations(range(count), 2)
    }
    false_alarms = _Share()
    failed_suites = _Share()
    covered = defaultdict[str, _Share](_Share)  # by statistic: whether the interval holds the true change, which is none
    for suite in suites.values():
        called = _called_slower(suite)
        failed_suites.append(bool(called))
        for program, tests in suite.items():
            false_alarms.append(program in called)
            for name, test in tests.items():
                covered[name].append(test.interval is not None and test.interval.low <= 0 <= test.interval.high)
    suites_by_base = [suites[base, base + 1] for base in range(count - 1)]  # each copy, but the last, is the base once
    slowdowns_called = _share_called(slower, copies, suites_by_base)
    tails_called = _share_called(slow_tail, copies, suites_by_base)
    yield _finding(
        "comparisons",
        len(false_alarms) >= COMPARISONS,
        f"{len(false_alarms)} of identical code, with {fewest} rounds a side",
        f"at least {COMPARISONS}",
        {"of": len(false_alarms)},
    )
    yield _at_most("identical code", "of comparisons call it slower", false_alarms, CASE_LIMIT)
    yield _at_most("identical suites", "of them fail", failed_suites, SUITE_LIMIT)
    independent = sum(len(sides) - 1 for sides in copies.values())
    yield from (_coverage(name, share, independent) for name, share in covered.items())
    found = f"{percent(SLOWDOWN)} more time is called slower in {slowdowns_called} of comparisons"
    passed = slowdowns_called.value >= POWER
    yield _finding("real slowdown", passed, found, f"at least {percent(POWER)}", slowdowns_called.values)
    found = f"one call of ten at twice its time is called slower in {tails_called} of comparisons; without a limit"
    yield Finding("slow tail", "cpu", Fitness.NOTE, found, values=tails_called.values)


def _share_called(variants: Mapping[str, CaseRounds], copies: Mapping[str, Sequence[CaseRounds]], suites: Sequence[_Suite]) -> _Share:
    """Return how often a variant is called slower than a copy of its program, in a suite whose other programs are identical.

    ``suites``: by the number of that copy.
    """
    share = _Share()
    for base, suite in enumerate(suites):
        for program, variant in variants.items():
            tests = rank_tests(copies[program][base], variant, THRESHOLD, paired=True)
            share.append(program in _called_slower({**suite, program: tests}))
    return share


def _at_most(check: str, what: str, share: _Share, limit: float) -> Finding:
    bound = proportion_interval(sum(share), len(share))
    values = {**share.values, "high": bound.high}
    allowed = f"at most {percent(limit)}; were all independent, it is {percent(bound.high)} at most, with 97.5 % confidence"
    return _finding(check, share.value <= limit, f"{share} {what}", allowed, values)


def _coverage(name: str, share: _Share, independent: int) -> Finding:
    """Return the finding on the share of intervals that hold the true change; the limits allow for chance in so few comparisons."""
    low, high = COVERAGE
    likely = proportion_interval(round(share.value * independent), independent)
    possible = f"{percent(likely.low)} to {percent(likely.high)} is, by {independent} that are independent"
    limit = f"{percent(low)} to {percent(high)} has to be possible: {possible}"
    passed = likely.low <= high and likely.high >= low
    return _finding(
        "interval", passed, f"the 95 % interval of the change by its {statistic_name(name)} holds the truth in {share}", limit, share.values
    )
