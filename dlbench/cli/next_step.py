"""The last line of a screen: its files, and what to type next."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.answers.parts.base import Answer, Missing


def after(
    files: Sequence[Path], found: Iterable["Answer | Missing"], width: int | None, *, saved: bool = False, first: str | None = None
) -> str:
    """Return the last line of a screen so wide: the files, and the command that would answer most of what ``found`` leaves open.

    Where no command would, that is the one for a page. ``first``: the command that goes before all these. ``saved``: the files were written
    just now.
    """
    from dlbench.analysis.answers.parts.base import Missing

    named = one_line(", ".join(map(str, files)))
    command = one_line(shlex.join(["dlbench", "show", *map(str, files), "--answers"]))
    most = Counter(command for each in found if isinstance(each, Missing) for command in each.commands).most_common(1)
    page = one_line(shlex.join(["dlbench", "report", *map(str, files)]))
    if first:
        following = one_line(first)
    elif most:
        following = most[0][0]
    else:
        following = page if width is None or len(page) <= width else "dlbench report, with the same files"
    short = named if len(files) == 1 else f"{len(files)} files"
    start = "saved in " if saved else ""
    texts = [
        f"{start}{named} · next: {following} · why: {command}",
        f"{start}{named} · next: {following}",
        f"{start}{short} · next: {following}",
        f"next: {following}",
    ]
    return next((text for text in texts if width is None or len(text) <= width), following)
