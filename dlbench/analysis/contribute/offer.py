"""Fitness of a run to be a reference, and the commands that offer it to the project."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlbench.analysis.contribute.public import unpublishable_names
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.read import header
from dlbench.analysis.read.table import Results
from dlbench.analysis.report.sentences import not_usable
from dlbench.core.rows.row import Row
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

LEAST_ROUNDS = 6
"""Fewer carry no 95 % interval."""
WIDE = 1.5
"""Upper over lower end of an interval from which on a case says little: others could not tell whether theirs is as fast."""
TOLERATED = 0.25
"""Share of the cases that may be throttled, disturbed or wide: on a shared machine some always are."""


def objections(run: RunFile, results: Results) -> list[str]:
    """Return a sentence for each reason why a run can't be a reference, with what to do; ``results`` has its rows."""
    names = unpublishable_names([*run.measurements, *run.discarded])
    found = [*_objections_to_file(run, results), *_objections_to_cases(run, results), *_objections_to_machine(results), *names]
    return [one_line(each) for each in found]


def _objections_to_file(run: RunFile, results: Results) -> Iterator[str]:
    """Yield the objections to a file as a whole: it is incomplete, or others could not measure the like."""
    for note in header.incomplete(run, len(results.rows)):
        yield note.removeprefix(f"{run.path}: ")
    if run.header.get("sides") or any(each.side for each in run.measurements):
        yield "it is an A/B, whose sides differ on purpose; measure one alone: dlbench run"
    if run.header.get("machines"):
        yield "it was measured on several machines; measure one alone: dlbench run"
    if run.header.get("plugins"):
        yield "it has workloads of a plugin, which others do not have; measure built-in suites alone"


def _objections_to_cases(run: RunFile, results: Results) -> Iterator[str]:
    """Yield the objections to cases, a sentence for each fault that some have: failed, a round lost, too few rounds, or implausible."""
    ok = [row for row in results.rows if row.is_ok]
    failed = [row for row in results.rows if row.is_failure]
    # `Results.lost` has, by run, the ids of the cases that may have lost a round.
    short_of_rounds = [row for row in results.rows if row.case.id in results.lost.get(row.case.run, ())]
    timed = [row for row in ok if not row.case.found or row.time.median_s is not None]  # a search may find a size and time nothing
    few_rounds = [row for row in timed if (row.time.rounds or 0) < LEAST_ROUNDS]
    implausible = [row for row in ok if row.flag.implausible]
    resume = f"dlbench run --resume {shlex.quote(str(run.path))}"
    if not ok:
        yield "none of its cases went well"
    if short_of_rounds:
        yield f"{_cases(short_of_rounds)} may have lost a round with a damaged line; measure it again: {resume}"
    if failed:
        yield f"{_cases(failed)} failed or crashed; find out why, and measure again"
    if few_rounds:
        budget = header.spent_budget(run, results.rows)  # None unless a budget ended the run before its planned rounds
        option = budget.option(budget.enough) if budget else f"--rounds {header.ENOUGH_ROUNDS}"
        yield f"{_cases(few_rounds)} had fewer than {LEAST_ROUNDS} rounds; add some: {resume} {option}"
    if implausible:
        yield f"{_cases(implausible)} can't have done what it says in that time; dlbench show gives the reason"


def _objections_to_machine(results: Results) -> Iterator[str]:
    """Yield the objections to a machine that was not at rest: the run is not usable, or else too many of its cases are restless."""
    if unusable := not_usable(results):
        yield from (f"it is {line}" for line in unusable)
        return
    ok = [row for row in results.rows if row.is_ok]
    restless = [row for row in ok if _is_restless(row)]
    if len(restless) > TOLERATED * len(ok):
        how = f"throttled, disturbed, or noisy, with an interval wider than a factor of {WIDE:g}"
        share = f"{len(restless)} of {plural(len(ok), 'case')}"
        yield f"{share} are {how}; quieten the machine (dlbench doctor), and measure again"


def _is_restless(row: Row) -> bool:
    """Whether a case shows a machine that was not at rest: held back, disturbed, or with a wide interval."""
    throttled = row.flag.throttled and not row.declared.is_sustained
    return bool(throttled or row.flag.disturbed or (row.time.ci_high_s or 0.0) > WIDE * (row.time.ci_low_s or 0.0))


def _cases(rows: Sequence[Row]) -> str:
    return few([row.case.id for row in rows], 3)


def offer(path: Path, machine: str, name: str) -> tuple[str, str, str]:
    """Return three commands, to be typed in the top folder of a checkout, that offer the file as that ``name`` of a ``machine``."""
    place = f"results/reference/{machine}/{name}.jsonl"
    copied = f"mkdir -p results/reference/{machine} && cp -n {shlex.quote(str(path.resolve()))} {place}"
    branch = f"reference-{machine}-{name}"
    added = f"git add {place} && git commit -m 'Add the reference run {name} of {machine}'"
    return f"git checkout -b {branch}", f"{copied} && {added}", f"git push -u origin {branch} && gh pr create --fill"
