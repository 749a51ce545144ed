"""What dlbench's own rule makes of programs whose truth is known: its error rates on this machine, held against limits."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from dlbench.analysis.compare import WITHIN_A_RUN
from dlbench.analysis.judge import LEVEL, RankTest, Verdict, judge, rank_tests, together
from dlbench.core.model import Case, Measurement, Status
from dlbench.core.stats import Interval, holm, proportion_interval
from dlbench.core.summary import Rounds, per_round
from dlbench.core.units import percent, seconds

WINDOW = 10
"""Rounds a side of each comparison: what ``--gate`` takes at least."""
NOOP_S = 150e-9
CASE_LIMIT, SUITE_LIMIT = 0.01, LEVEL
COVERAGE = (0.93, 0.98)
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of the self-test, what it has to be, and whether it is."""

    check: str
    measured: str
    limit: str
    passed: bool
    basis: str
    """What the figure stands on."""


def verdicts(cases: Sequence[Mapping[str, RankTest]], threshold: float) -> list[Verdict]:
    """Judge the tests of all cases of a suite together, as `compare` does."""
    corrected = iter(holm([test.p for case in cases for test in case.values()]))
    return [together([judge(test, next(corrected), threshold) for test in case.values()]) for case in cases]


def check_all(measurements: Sequence[Measurement]) -> list[Check]:
    """Return the checks of a self-test from all its measurements, some; `harness.selftest` says which cases those are."""
    cases: dict[str, list[Measurement]] = {}
    for each in measurements:
        cases.setdefault(each.case.id, []).append(each)
    measured = [(every[0].case, per_round(every)) for every in cases.values()]
    bad = [f"{each.case.id}: {each.status}" for each in measurements if each.status is not Status.OK]
    well = f"{len(measurements) - len(bad):,} of {len(measurements):,}"
    return [
        Check("measurements that went well", well, "all", not bad, "; ".join(bad) or "every case in every round"),
        *_known_costs(measured),
        *_error_rates(_windows(measured)),
    ]


def _known_costs(measured: Iterable[tuple[Case, Rounds]]) -> Iterator[Check]:
    for case, rounds in measured:
        if case.workload not in ("noop", "spin") or not rounds.median_s:
            continue
        read_s, true_s = statistics.median(rounds.median_s), float(case.params.get("seconds", 0))
        allowed_s = 0.01 * true_s + 0.5e-6 if true_s else NOOP_S
        limit = f"{seconds(true_s)} ± {seconds(allowed_s)}" if true_s else f"at most {seconds(allowed_s)}"
        name = f"reading of a call of {seconds(true_s)}" if true_s else "reading of a call that does nothing"
        yield Check(name, seconds(read_s), limit, abs(read_s - true_s) <= allowed_s, f"median of {len(rounds.median_s)} rounds")


class _Suite(NamedTuple):
    """The programs in one window of rounds, by name."""

    copies: dict[str, list[Rounds]]
    slower: dict[str, Rounds]
    tail: dict[str, Rounds]


def _windows(measured: Sequence[tuple[Case, Rounds]]) -> list[_Suite]:
    """Cut the rounds into windows that share none; rounds that are left over belong to none."""
    ours = [(case, rounds) for case, rounds in measured if case.workload == "slowed"]
    count = min((len(rounds.median_s) for _, rounds in ours), default=0) // WINDOW
    suites = [_Suite({}, {}, {}) for _ in range(count)]
    for number, suite in enumerate(suites):
        part = slice(WINDOW * number, WINDOW * (number + 1))
        for case, rounds in ours:
            program, cut = str(case.params["program"]), Rounds(median_s=rounds.median_s[part], p10_s=rounds.p10_s[part])
            if case.params["tail"]:
                suite.tail[program] = cut
            elif case.params["percent"]:
                suite.slower[program] = cut
            else:
                suite.copies.setdefault(program, []).append(cut)
    return suites


class _Share:
    """How often something happened."""

    def __init__(self) -> None:
        self.seen = self.of = 0

    def add(self, happened: bool) -> None:
        self.seen += happened
        self.of += 1

    @property
    def value(self) -> float:
        return self.seen / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{percent(self.value)} ({self.seen} of {self.of})" if self.of else "nothing"


def _error_rates(windows: Sequence[_Suite]) -> Iterator[Check]:
    """Compare each two copies of every program, and each copy with the slower variants, in every window."""
    wrong, failed, seen, tail = _Share(), _Share(), _Share(), _Share()
    covered = {"median": _Share(), "p10": _Share()}
    threshold = WITHIN_A_RUN.time
    for suite in windows:
        copies = min(map(len, suite.copies.values()))
        for base, new in combinations(range(copies), 2):
            tests = {program: rank_tests(sides[base], sides[new]) for program, sides in suite.copies.items()}
            called = verdicts(list(tests.values()), threshold)
            failed.add(Verdict.SLOWER in called)
            for verdict, case in zip(called, tests.values(), strict=True):
                wrong.add(verdict is Verdict.SLOWER)
                for name, test in case.items():
                    covered[name].add(_holds_zero(test.interval))
            if new != base + 1:
                continue  # each copy but the last is once the base of what is really slower
            for share, variants in ((seen, suite.slower), (tail, suite.tail)):
                for program, variant in variants.items():
                    changed = {**tests, program: rank_tests(suite.copies[program][base], variant)}
                    found = dict(zip(changed, verdicts(list(changed.values()), threshold), strict=True))
                    share.add(found[program] is Verdict.SLOWER)
    independent = sum(len(sides) - 1 for suite in windows for sides in suite.copies.values())
    yield _at_most("identical code called slower, a comparison", wrong, CASE_LIMIT)
    yield _at_most("identical suites that fail", failed, SUITE_LIMIT)
    for name, share in covered.items():
        yield _coverage(name, share, independent)
    yield _at_least("a real 10 % called slower", seen, POWER)
    yield Check("a slow tail called slower", str(tail), "only told", True, "one call of ten takes twice as long")


def _holds_zero(interval: Interval | None) -> bool:
    return interval is not None and interval.low <= 0 <= interval.high


def _at_most(name: str, share: _Share, limit: float) -> Check:
    bound = percent(proportion_interval(share.seen, share.of).high) if share.of else "anything"
    basis = f"at most {bound} with 97.5 % confidence, were all comparisons independent"
    return Check(name, str(share), f"at most {percent(limit)}", share.of > 0 and share.value <= limit, basis)


def _at_least(name: str, share: _Share, limit: float) -> Check:
    basis = "one slower program in a suite of others"
    return Check(name, str(share), f"at least {percent(limit)}", share.of > 0 and share.value >= limit, basis)


def _coverage(name: str, share: _Share, independent: int) -> Check:
    """The intervals of so few comparisons hold zero in a share that varies by itself, so chance is allowed for."""
    low, high = COVERAGE
    limit = f"{percent(low)} to {percent(high)}, or not told apart from that"
    if not share.of:
        return Check(f"95 % interval of the {name} holds the truth", str(share), limit, False, "")
    likely = proportion_interval(round(share.value * independent), independent)
    passed = likely.low <= high and likely.high >= low
    basis = f"{independent} of the comparisons are independent: {percent(likely.low)} to {percent(likely.high)} with 95 % confidence"
    return Check(f"95 % interval of the {name} holds the truth", str(share), limit, passed, basis)
