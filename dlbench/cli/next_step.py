"""What follows a screen: all that was not asked with one command, and the last line with the files and what to type next."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.answers.parts.base import Answer, Missing

_RUN = "dlbench run"
_PLAIN = "quick"
"""The suite of a run that names none."""


def left_open(found: Iterable["Answer | Missing"]) -> str:
    """Return the topics that no case was measured for and one command for all of them, with its minutes where suites have a budget.

    ``batch, default: dlbench run batch modes, 20 min``
    """
    from dlbench.analysis.answers.parts.base import Missing
    from dlbench.harness.plan.suite import builtin_names, load

    lacking = [each for each in found if isinstance(each, Missing) and each.commands]
    suites, left = list[str](), list(lacking)
    while left:
        command = _most_wanted(left)
        suites.append(command.removeprefix(_RUN).strip() or _PLAIN)
        left = [each for each in left if command not in each.commands]
    if not suites:
        return ""
    budgets = [load(name).policy.budget_s if name in builtin_names() else None for name in suites]
    known = [each for each in budgets if each is not None]
    minutes = f", {round(sum(known) / 60)} min" if len(known) == len(budgets) else ""
    named = " ".join(suites) if suites != [_PLAIN] else ""
    return f"{', '.join(each.question.topic for each in lacking)}: {f'{_RUN} {named}'.rstrip()}{minutes}"


def _most_wanted(lacking: Sequence["Missing"]) -> str:
    """Return the command that would answer the most."""
    return Counter(command for each in lacking for command in each.commands).most_common(1)[0][0]


def after(
    files: Sequence[Path], found: Iterable["Answer | Missing"], width: int | None, *, saved: bool = False, first: str | None = None
) -> str:
    """Return the last line of a screen so wide: the command that would answer most of what ``found`` leaves open, and the files.

    Where no command would, that is the one for a page. ``first``: what goes before all these. ``saved``: the files were written just now.
    """
    from dlbench.analysis.answers.parts.base import Missing
    from dlbench.analysis.report.ending import LABEL

    named = one_line(", ".join(map(str, files)))
    command = one_line(shlex.join(["dlbench", "show", *map(str, files), "--answers"]))
    page = one_line(shlex.join(["dlbench", "report", *map(str, files)]))
    lacking = [each for each in found if isinstance(each, Missing) and each.commands]
    if first:
        following = one_line(first)
    elif lacking:
        following = _most_wanted(lacking)
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
