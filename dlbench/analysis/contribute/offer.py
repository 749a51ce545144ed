"""Fitness of a run to be a reference, and the commands that offer it to the project."""

import shlex
from collections.abc import Sequence
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
    """Return a sentence for each reason why a run can't be a reference; ``results``: its rows."""
    ok = [row for row in results.rows if row.is_ok]
    failed = [row for row in results.rows if row.is_failure]
    lost = [row for row in results.rows if row.case.id in results.lost.get(row.case.run, ())]
    timed = [row for row in ok if not row.case.found or row.time.median_s is not None]  # the result of a search may have no time
    few_rounds = [row for row in timed if (row.time.rounds or 0) < LEAST_ROUNDS]
    implausible = [row for row in ok if row.flag.implausible]
    restless = [row for row in ok if _is_restless(row)]
    unusable = not_usable(results)
    resume = f"dlbench run --resume {shlex.quote(str(run.path))}"
    spent = header.spent_budget(run, results.rows)
    more = spent.option(spent.enough) if spent else f"--rounds {header.ENOUGH_ROUNDS}"
    found = [note.removeprefix(f"{run.path}: ") for note in header.incomplete(run, len(results.rows))]
    if run.header.get("sides") or any(each.side for each in run.measurements):
        found.append("it is an A/B, whose sides differ on purpose; measure one alone: dlbench run")
    if run.header.get("machines"):
        found.append("it was measured on several machines; measure one alone: dlbench run")
    if run.header.get("plugins"):
        found.append("it has workloads of a plugin, which others do not have; measure built-in suites alone")
    if not ok:
        found.append("none of its cases went well")
    if lost:
        found.append(f"{_cases(lost)} may have lost a round with a damaged line; measure it again: {resume}")
    if failed:
        found.append(f"{_cases(failed)} failed or crashed; find out why, and measure again")
    if few_rounds:
        found.append(f"{_cases(few_rounds)} had fewer than {LEAST_ROUNDS} rounds; add some: {resume} {more}")
    if implausible:
        found.append(f"{_cases(implausible)} can't have done what it says in that time; dlbench show gives the reason")
    found += [f"it is {line}" for line in unusable]
    if not unusable and len(restless) > TOLERATED * len(ok):
        how = f"throttled, disturbed, or noisy, with an interval wider than a factor of {WIDE:g}"
        share = f"{len(restless)} of {plural(len(ok), 'case')}"
        found.append(f"{share} are {how}; quieten the machine (dlbench doctor), and measure again")
    return [one_line(each) for each in (*found, *unpublishable_names([*run.measurements, *run.discarded]))]


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
