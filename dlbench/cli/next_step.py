"""Lines that follow a screen: what was not asked with one command, and the last line with the files and what to type next."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.answers.parts.base import Answer, Missing


def left_open(found: Sequence["Answer | Missing"], *, with_time: bool) -> str:
    """Return what was not asked and one command for most of it: ``batch, default: dlbench run batch modes, 20 min``.

    The time is that of the suites' budgets, where all have one. Reading suites takes the run tower, which showing a file does without.
    """
    from dlbench.analysis.report.terminal import left_open as lacking

    topics, command = lacking(found)
    return f"{topics}: {command}{_minutes(command.split()[2:] or ['quick']) if with_time else ''}" if topics else ""


def _minutes(suites: Sequence[str]) -> str:
    from dlbench.harness.plan.suite import builtin_names, load

    budgets = [load(name).policy.budget_s if name in builtin_names() else None for name in suites]
    known = [each for each in budgets if each is not None]
    return f", {round(sum(known) / 60)} min" if len(known) == len(budgets) else ""


def after(
    files: Sequence[Path], found: Iterable["Answer | Missing"], width: int | None, *, saved: bool = False, first: str | None = None
) -> str:
    """Return the last line of a screen so wide: the command that would answer most of what ``found`` leaves open, and the files.

    Where no command would, that is the one for a page. ``first``: what goes before all these. ``saved``: the files were written just now.
    """
    from dlbench.analysis.answers.parts.base import Missing
    from dlbench.analysis.report.terminal import LABEL, most_wanted

    named = one_line(", ".join(map(str, files)))
    command = one_line(shlex.join(["dlbench", "show", *map(str, files), "--answers"]))
    page = one_line(shlex.join(["dlbench", "report", *map(str, files)]))
    lacking = [each for each in found if isinstance(each, Missing) and each.commands]
    if first:
        following = one_line(first)
    elif lacking:
        following = most_wanted(lacking)
    else:
        following = page if width is None or len(page) + LABEL <= width else "dlbench report, with the same files"
    short = named if len(files) == 1 else f"{len(files)} files"
    of = "saved in " if saved else "of "
    texts = [
        f"{'next':<{LABEL}}{following} · {of}{named} · why: {command}",
        f"{'next':<{LABEL}}{following} · {of}{named}",
        f"{'next':<{LABEL}}{following} · {of}{short}",
        f"{'next':<{LABEL}}{following}",
        f"next: {following}",
    ]
    return next((text for text in texts if width is None or len(text) <= width), following)
