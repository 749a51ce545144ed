"""Self-test: error rates of dlbench's verdicts on this machine, from programs of known cost, held against limits."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

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
"""Comparisons of identical code at least, for an error rate of one in a hundred to be read from them."""
NOOP_S = 150e-9
"""Most that a call that does nothing may read."""
_OFF_SHARE, _OFF_S = 0.01, 0.5e-6
"""Most that a call of known duration may be off: this share of it, and so many seconds on top."""
THRESHOLD = WITHIN_A_RUN.time
CASE_LIMIT, SUITE_LIMIT = 0.01, LEVEL
"""Largest shares of comparisons of a case, and of a suite, that may call identical code slower."""
COVERAGE = (0.93, 0.98)
"""Least and largest share of 95 % intervals that may hold the true change."""
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
        allowed_s = _OFF_SHARE * true_s + _OFF_S if true_s else NOOP_S
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


class _Programs(NamedTuple):
    """Rounds of the programs of known cost in a self-test, by program."""

    copies: Mapping[str, Sequence[CaseRounds]]
    """Copies of the same code."""
    slower: Mapping[str, CaseRounds]
    """A variant that takes `SLOWDOWN` more time."""
    slow_tail: Mapping[str, CaseRounds]
    """A variant of which one call of ten takes twice its time."""

    @property
    def fewest_rounds(self) -> int:
        """Rounds of the program that has the fewest; zero without programs."""
        every = (*chain.from_iterable(self.copies.values()), *self.slower.values(), *self.slow_tail.values())
        return min((len(rounds.median_s) for rounds in every), default=0)


def _sort_programs(measured: Iterable[tuple[Case, CaseRounds]]) -> _Programs:
    """Return the rounds of the cases that are programs, as copies, slower variants and variants with a slow tail.

    `harness.plan.cases` gives these cases their parameters. Cases without a program are left out.
    """
    copies = defaultdict[str, list[CaseRounds]](list)
    slower: dict[str, CaseRounds] = {}
    slow_tail: dict[str, CaseRounds] = {}
    for case, rounds in measured:
        if "program" not in case.params:
            continue
        program = str(case.params["program"])
        if case.params["percent"]:  # so many percent more time in each call
            slower[program] = rounds
        elif case.params["tail"]:  # a flag: one call of ten takes twice its time
            slow_tail[program] = rounds
        else:
            copies[program].append(rounds)
    return _Programs(copies, slower, slow_tail)


def _error_rates(measured: Iterable[tuple[Case, CaseRounds]]) -> Iterator[Finding]:
    """Yield the findings on how often identical copies of programs are called slower, and how often slower variants are called slower.

    A suite compares two copies of each program, such as all first copies as the base with all second ones as the new side. There is a suite
    for any two copies. It is judged as `compare` judges one.
    """
    programs = _sort_programs(measured)
    copies = programs.copies
    # All tests of a suite share `LEVEL` by their weights. Those of one program have the weight `PAIRED_SHARES` together, of which its test
    # by pairs has 1. No test needs more rounds than that one: with fewer than these it could not be significant on its own.
    needed = rounds_for_gate(PAIRED_SHARES * len(copies), LEVEL, least=1, paired=True)
    if programs.fewest_rounds < needed:
        found = f"none could be made of {plural(programs.fewest_rounds, 'round')}"
        yield _finding("comparisons", False, found, f"they take {needed} rounds of every program", {"of": 0})
        return
    copies_of_each = min(map(len, copies.values()))
    suites: dict[tuple[int, int], _Suite] = {
        (base, new): {program: rank_tests(sides[base], sides[new], THRESHOLD, paired=True) for program, sides in copies.items()}
        for base, new in combinations(range(copies_of_each), 2)
    }
    # Pairs that share a copy depend on each other. Of all pairs that n copies make, n - 1 count as independent.
    independent = sum(len(sides) - 1 for sides in copies.values())
    yield from _judge_identical_code([*suites.values()], programs.fewest_rounds, independent)
    suites_by_base = [suites[base, base + 1] for base in range(copies_of_each - 1)]  # suite n has copy n as its base
    slowdowns = _share_called(programs.slower, copies, suites_by_base)
    found = f"{percent(SLOWDOWN)} more time is called slower in {slowdowns} of comparisons"
    yield _finding("real slowdown", slowdowns.value >= POWER, found, f"at least {percent(POWER)}", slowdowns.values)
    tails = _share_called(programs.slow_tail, copies, suites_by_base)
    found = f"one call of ten at twice its time is called slower in {tails} of comparisons; without a limit"
    yield Finding("slow tail", "cpu", Fitness.NOTE, found, values=tails.values)


def _judge_identical_code(suites: Sequence[_Suite], rounds: int, independent: int) -> Iterator[Finding]:
    """Yield the findings on suites whose sides are the same code: false alarms, and how often intervals hold the true change of zero.

    ``rounds`` is the number of rounds a side. ``independent`` is the number of comparisons that do not depend on each other.
    """
    false_alarms = _Share()
    failed_suites = _Share()
    intervals_with_zero = defaultdict[str, _Share](_Share)  # by statistic
    for suite in suites:
        called_slower = _called_slower(suite)
        failed_suites.append(bool(called_slower))
        for program, tests in suite.items():
            false_alarms.append(program in called_slower)
            for statistic, test in tests.items():
                holds_zero = test.interval is not None and test.interval.low <= 0 <= test.interval.high
                intervals_with_zero[statistic].append(holds_zero)
    comparisons = len(false_alarms)
    found = f"{comparisons} of identical code, with {rounds} rounds a side"
    yield _finding("comparisons", comparisons >= COMPARISONS, found, f"at least {COMPARISONS}", {"of": comparisons})
    yield _at_most("identical code", "of comparisons call it slower", false_alarms, CASE_LIMIT)
    yield _at_most("identical suites", "of them fail", failed_suites, SUITE_LIMIT)
    yield from (_coverage(statistic, share, independent) for statistic, share in intervals_with_zero.items())


def _share_called(variants: Mapping[str, CaseRounds], copies: Mapping[str, Sequence[CaseRounds]], suites: Sequence[_Suite]) -> _Share:
    """Return how often a variant is called slower than a copy of its program, in a suite whose other programs are identical.

    The copy that is the base in a suite has the number of that suite.
    """
    share = _Share()
    for number, suite in enumerate(suites):
        for program, variant in variants.items():
            tests = rank_tests(copies[program][number], variant, THRESHOLD, paired=True)
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
