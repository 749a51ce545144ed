"""Commands that offer a reference run to the project: a branch, the file in its place, a pull request."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from dlbench.analysis.contribute.public import refused
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.read import header
from dlbench.analysis.read.table import Results
from dlbench.analysis.report.sentences import not_usable
from dlbench.core.rows.row import Row
from dlbench.core.store import RunFile
from dlbench.core.units import one_line, percent

LEAST_ROUNDS = 6
"""Fewer carry no 95 % interval."""
WIDE = 1.5
"""Upper over lower end of an interval from which on a case says little: others could not tell whether theirs is as fast."""
TOLERATED = 0.25
"""Share of the cases that may be throttled, disturbed or wide: on a shared machine some always are."""


def doubts(run: RunFile, results: Results) -> list[str]:
    """Return a sentence for each thing that keeps a run from being a reference; ``results`` are its rows."""
    kinds = {
        "sides": "it is an A/B, whose sides differ on purpose; measure one alone: dlbench run",
        "machines": "it was measured on several machines; measure one alone: dlbench run",
        "plugins": "it has workloads of a plugin, which others do not have; measure built-in suites alone",
    }
    sides = any(each.side is not None for each in run.measurements)
    found = [sentence for name, sentence in kinds.items() if run.header.get(name) or (sides and name == "sides")]
    found += [note.removeprefix(f"{run.path}: ") for note in header.incomplete(run, len(results.rows))]
    resume = f"dlbench run --resume {shlex.quote(str(run.path))}"
    if lost := [row for row in results.rows if row.case.id in results.lost.get(row.case.run, ())]:
        found.append(f"{_cases(lost)} may have lost a round with a damaged line; measure it again: {resume}")
    ok = [row for row in results.rows if row.is_ok]
    failed = [row for row in results.rows if row.is_failure]
    if not ok:
        found.append("none of its cases went well")
    if failed:
        found.append(f"{_cases(failed)} failed or crashed; find out why, and measure again")
    once = [row for row in ok if row.case.found and row.time.median_s is None]  # a search that is made once a run
    if few := [row for row in ok if (row.time.rounds or 0) < LEAST_ROUNDS and row not in once]:
        spent = header.spent_budget(run, results.rows)
        more = spent.option(spent.enough) if spent else f"--rounds {header.ENOUGH_ROUNDS}"
        found.append(f"{_cases(few)} had fewer than {LEAST_ROUNDS} rounds; add some: {resume} {more}")
    if implausible := [row for row in ok if row.flag.implausible]:
        found.append(f"{_cases(implausible)} can't have done what it says in that time; dlbench show gives the reason")
    unusable = not_usable(results)
    found += [f"it is {line}" for line in unusable]
    found += _restless(ok, known=bool(unusable))
    found += refused([*run.measurements, *run.discarded])
    return [one_line(each) for each in found]


def _restless(rows: Sequence[Row], *, known: bool) -> list[str]:
    """Say what more than a few of the cases show of a machine that was not at rest; ``known``: that it throttled or disturbed most."""
    wide = [row for row in rows if (row.time.ci_high_s or 0.0) > WIDE * (row.time.ci_low_s or 0.0)]
    throttled = [row for row in rows if row.flag.throttled and not row.declared.is_sustained]
    signs = {
        "throttled": ([] if known else throttled, "cool the machine or raise its quota"),
        "disturbed": ([row for row in rows if row.flag.disturbed and not known], "stop what else runs, look with dlbench doctor"),
        f"noisy, with an interval wider than a factor of {WIDE:g}": (wide, "quieten the machine"),
    }
    return [
        f"{len(found)} of {plural(len(rows), 'case')} are {sign}, which is more than {percent(TOLERATED)}; {advice}, and measure again"
        for sign, (found, advice) in signs.items()
        if len(found) > TOLERATED * len(rows)
    ]


def _cases(rows: Sequence[Row]) -> str:
    return few([row.case.id for row in rows], 3)


REFERENCES = Path("results", "reference")
"""Folder of a checkout that has the reference runs, those of each machine in one of their own."""


def offer(path: Path, machine: str, name: str) -> tuple[str, str, str]:
    """Return three commands, to be typed in the top folder of a checkout, that offer the file at this path.

    ``machine`` and ``name`` are the folder and the file that it is to be there; where another machine's file is called so already, it goes
    on with a number. A file that lies in its place is not copied.
    """
    checkout = _checkout(path)
    place = _place(checkout, path, machine, name)
    copied = [] if checkout and path.resolve() == (checkout / place).resolve() else _copy(checkout, path, place)
    branch, file = f"reference-{machine}-{place.stem}", shlex.quote(str(place))
    adding = [*copied, f"git add {file}", f"git commit -m {shlex.quote(f'Add the reference run {place.stem} of {machine}')}"]
    return f"git checkout -b {branch}", " && ".join(adding), f"git push -u origin {branch} && gh pr create --fill"


def _checkout(path: Path) -> Path | None:
    """Return the checkout that one stands in, or else that the file lies in; None without one."""
    starts = Path.cwd(), path.resolve().parent
    folders = (folder for start in starts for folder in (start, *start.parents))
    return next((folder for folder in folders if (folder / ".git").exists() and (folder / REFERENCES).is_dir()), None)


def _place(checkout: Path | None, path: Path, machine: str, name: str) -> Path:
    places = (REFERENCES / machine / f"{name}{number}.jsonl" for number in ("", *(f"-{each}" for each in range(2, 100))))
    first, *others = places
    if checkout is None:
        return first
    return next((each for each in (first, *others) if not (checkout / each).exists() or (checkout / each).samefile(path)), first)


def _copy(checkout: Path | None, path: Path, place: Path) -> list[str]:
    """Return the commands that put a copy there; the file by its whole path, unless that begins where they are typed."""
    source, home = path.resolve(), _home()
    if checkout and checkout == Path.cwd() and source.is_relative_to(checkout):
        typed = shlex.quote(str(source.relative_to(checkout)))
    elif source.is_relative_to(home):
        typed = f"~/{shlex.quote(str(source.relative_to(home)))}"
    else:
        typed = shlex.quote(str(source))
    return [f"mkdir -p {shlex.quote(str(place.parent))}", f"cp {typed} {shlex.quote(str(place))}"]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # nobody knows it
        return Path("~")
