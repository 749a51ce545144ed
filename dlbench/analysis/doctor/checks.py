"""Checks of a machine by a short A/A, the same cases on two sides measured alternately, and findings as a table."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from dlbench.analysis.compare.judge import LEVEL, statistic_name
from dlbench.analysis.compare.power import detectable
from dlbench.analysis.compare.sides import compare
from dlbench.analysis.compare.verdict import CaseVerdict
from dlbench.analysis.presentation.columns import cells
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.read.table import Results, as_frame, collect
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.core.conditions import BUSY, Throttling
from dlbench.core.machine import Finding, Fitness
from dlbench.core.rank_test import PAIRED_SHARES
from dlbench.core.stats import known
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ACROSS_RUNS, WITHIN_A_RUN
from dlbench.core.units import Column, Unit, percent


def judge(run: RunFile, threads: int) -> list[Finding]:
    """Return all findings in the file of an A/A that computed with so many threads."""
    results = collect((run.path,))
    return [*load(run, threads), *throttling(run), *same_code(*map(results.of_run, results.environments))]


def load(run: RunFile, threads: int) -> list[Finding]:
    """Return two findings: how much CPU time other processes, and other guests of the hypervisor, took while rounds were measured."""
    by_processes = [each.other_cpus for each in run.states]
    by_guests = [each.stolen_cpus for each in run.states]
    return [
        _judge_load("load", "other processes", by_processes, threads, "stop them; top shows which"),
        _judge_load(
            "stolen time",
            "the hypervisor's other guests",
            by_guests,
            threads,
            "measure at another time, or on a machine that is not shared",
        ),
    ]


def _judge_load(check: str, who: str, cpus: Sequence[float | None], threads: int, advice: str) -> Finding:
    """Return the finding on the CPUs that others took in each round: unfit where it mattered in more than half of the rounds."""
    counted = known(cpus)
    if not counted:
        return Finding(check, "cpu", Fitness.UNKNOWN, "the operating system does not count it", "look yourself: top")
    matters = [each for each in counted if each / threads > BUSY]
    median, most = statistics.median(counted), max(counted)
    found = f"{who} took {median:.2f} CPUs' time on average, and {most:.2f} at most, next to the {threads} that dlbench computes with"
    values = {"cpus": median, "cpus_most": most}
    if not matters:
        return Finding(check, "cpu", Fitness.FIT, found, values=values)
    usually = 2 * len(matters) > len(counted)
    found += "" if usually else f"; that mattered in {len(matters)} of {len(counted)} rounds"
    return Finding(check, "cpu", Fitness.UNFIT if usually else Fitness.NOTE, found, advice, values)


def throttling(run: RunFile) -> Iterator[Finding]:
    """Yield a finding for each device: whether its measurements were throttled, or were discarded for that and made again."""
    for device in dict.fromkeys(each.case.device for each in run.measurements):
        kept = known(each.throttling for each in run.measurements if each.case.device == device)
        discarded = known(each.throttling for each in run.discarded if each.case.device == device)
        yield _judge_throttling(device, kept, [each for each in discarded if each.throttled])


def _judge_throttling(device: str, kept: Sequence[Throttling], retried: Sequence[Throttling]) -> Finding:
    """Return the finding on one device: unfit if measurements that count were throttled, a note if throttled ones were made again.

    ``kept`` has the throttling of each measurement that counts. ``retried`` has that of each measurement that was throttled, discarded and
    made again.
    """
    throttled = [each for each in kept if each.throttled]
    advice = "cool it, or have a larger CPU quota granted" if device == "cpu" else "cool it better: nvidia-smi -q -d PERFORMANCE"
    if throttled:
        found = f"{len(throttled)} of {len(kept)} measurements were held back, and pauses did not help: {throttled[-1].causes()}"
        return Finding("throttling", device, Fitness.UNFIT, found, advice)
    if retried:
        was = "was" if len(retried) == 1 else "were"
        found = f"{plural(len(retried), 'measurement')} {was} held back and made again: {retried[-1].causes()}"
        return Finding("throttling", device, Fitness.NOTE, found, advice)
    # The keys are the fields of `Throttling` that its `throttled` reads. A field is None where nothing on the machine counts it.
    sources = {"thermal": "heat", "reasons": "the driver's reasons", "quota": "the CPU quota"}
    sources_here = [words for field, words in sources.items() if any(getattr(each, field) is not None for each in kept)]
    if not sources_here:
        return Finding("throttling", device, Fitness.UNKNOWN, "nothing here counts it", "watch temperature and clock yourself")
    found = f"none while measuring, by {' or '.join(sources_here)}; nothing else is counted here"
    return Finding("throttling", device, Fitness.FIT, found)


_ROUNDS = (7, 10)
"""Rounds a side to predict detectable changes for: those of a run by default, and those by which a machine is judged."""


def same_code(one: Results, other: Results) -> Iterator[Finding]:
    """Yield a finding for each case of two sides that ran the same code alternately.

    It says which change would be seen at the least, and whether one was seen although the code is the same.
    """
    comparison = compare(one, other, WITHIN_A_RUN, paired=True)
    # All tests of all cases share the level of a verdict by their weights. The weights of one case add up to `PAIRED_SHARES`. The more
    # cases are tested, the larger a change has to be.
    tested_cases = sum(bool(case.tests) for case in comparison.cases)
    weight_of_all_tests = PAIRED_SHARES * tested_cases
    for case in comparison.cases:
        if case.shown is None:  # its times could not be tested
            yield _finding(case, Fitness.UNFIT, case.note, "see what goes wrong: dlbench run noise")
            continue
        detectable_changes = {}
        for statistic, test in case.tests.items():
            # The margin is the threshold. `_with_rounds` applies it later, after converting to other numbers of rounds.
            without_threshold = test._replace(margin=0.0)
            smallest = detectable({statistic: without_threshold}, weight_of_all_tests)
            if smallest is not None:
                detectable_changes[statistic] = smallest
        rounds = min(test.rounds for test in case.tests.values())
        yield _judge_same_code(case, detectable_changes, rounds)


def _judge_same_code(case: CaseVerdict, detectable_changes: Mapping[str, float], rounds: int) -> Finding:
    """Return the finding on one case, by the statistic that shows the smallest change; unfit if the same code was called different.

    ``detectable_changes`` has the smallest change that each statistic would show with these rounds a side, without a threshold.
    """
    if not detectable_changes:
        found = f"{plural(rounds, 'round')} a side are too few to say how much the same code differs"
        return _finding(case, Fitness.UNKNOWN, found, "leave --rounds out")
    statistic = min(detectable_changes, key=detectable_changes.__getitem__)
    smallest_by_rounds = {planned: _with_rounds(detectable_changes[statistic], rounds, planned) for planned in _ROUNDS}
    test = case.tests[statistic]
    interval = test.change_interval
    # Rounds that are enough to see a change are enough for an interval, so the zeros are never shown.
    low, high = (interval.low, interval.high) if interval else (0.0, 0.0)
    seen = " or ".join(f"{percent(change)} with {planned} rounds a side" for planned, change in smallest_by_rounds.items())
    found = (
        f"twice the same code differs by {100 * test.change:+.1f} % ({100 * low:+.1f} … {100 * high:+.1f} %, "
        f"by its {statistic_name(statistic)}); to be seen a change takes {seen}"
    )
    values = {"change": test.change, "ci_low": low, "ci_high": high, "p_holm": test.p_holm}
    values |= {f"detectable_{planned}": change for planned, change in smallest_by_rounds.items()}
    if case.verdict.is_change:
        advice = f"look again: dlbench doctor; by chance it happens in {percent(LEVEL)} of looks at most, so twice is hardly chance"
        return _finding(case, Fitness.UNFIT, f"the same code was called {case.verdict}: {found}", advice, values)
    rounds_to_judge_by = _ROUNDS[-1]
    fitness, advice = _fitness_for(smallest_by_rounds[rounds_to_judge_by])
    return _finding(case, fitness, found, advice, values)


def _with_rounds(change: float, rounds: int, planned: int) -> float:
    """Return the smallest change that so many ``planned`` rounds a side would show, at least the threshold.

    ``change`` is the smallest that ``rounds`` would show without a threshold. An interval narrows with the square root of the rounds,
    so the logarithm of a change is multiplied by sqrt(rounds / planned).
    """
    return max(WITHIN_A_RUN.time, math.expm1(math.log1p(change) * math.sqrt(rounds / planned)))


def _fitness_for(least_seen: float) -> tuple[Fitness, str]:
    """Return how fit a machine is on which this is the smallest change to be seen, and what to do about it."""
    if least_seen > ACROSS_RUNS.time:
        return Fitness.UNFIT, "quieten the machine: what else is found here may say why"
    if least_seen > WITHIN_A_RUN.time:
        return Fitness.NOTE, "quieten the machine, or give more --rounds, to see smaller ones"
    return Fitness.FIT, ""


def _finding(case: CaseVerdict, fitness: Fitness, found: str, advice: str = "", values: dict[str, float] | None = None) -> Finding:
    row = case.new or case.base
    device = row.case.device if row else ""
    sentence = f"{short(case.case, device=False)}: {found}"
    return Finding("same code", device, fitness, sentence, advice, values or {}, case.case)


FINDING_COLUMNS = (
    Column("doctor.check", Unit.TEXT, "what was looked at"),
    Column("doctor.device", Unit.TEXT, "where"),
    Column("doctor.case", Unit.TEXT, "the case that was measured for it; null where none was", of=lambda found: found.case or None),
    Column("doctor.fitness", Unit.TEXT, "unfit, note, unknown or fit", of=lambda found: found.fitness.value),
    Column("doctor.found", Unit.TEXT, "what was found"),
    Column("doctor.advice", Unit.TEXT, "what to do next; null where there is nothing to do", of=lambda found: found.advice or None),
)


def as_table(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return a row a finding, columns as in `FINDING_COLUMNS`, then ``value.*`` with the figures in base units."""
    values = [{f"value.{name}": float(value) for name, value in each.values.items()} for each in findings]
    return as_frame([row | more for row, more in zip(cells(FINDING_COLUMNS, findings), values, strict=True)], FINDING_COLUMNS)


def table(findings: Sequence[Finding]) -> ScreenTable:
    """Return a row a finding, with what to do; its columns need no headings."""
    rows = ((each.fitness.value, each.check, each.device, "; ".join(filter(None, (each.found, each.advice)))) for each in findings)
    columns = zip(zip(*rows, strict=True), (0, 1, 2, 0), strict=False)
    return ScreenTable([ScreenColumn("", texts, priority=priority) for texts, priority in columns])
