"""Proposal of what to type next, by what lies in the current folder: the answer to a bare ``dlbench``."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.analysis.report.text_table import padded
from dlbench.cli.output_files import is_page_of, page_of
from dlbench.core.errors import ResultFileError
from dlbench.core.quantities import Json
from dlbench.core.store import ends_with_footer, read_header
from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.answers.parts.base import Answer, Missing

_RESULTS = Path("results")


def lines() -> Iterator[str]:
    """Yield what a newcomer would type in this folder: to measure, or to look at the newest results.

    Of files it reads the first line, from the newest one on until one is a result file, and of that one the end.
    """
    newest = _newest()
    if newest is None:
        yield "No results here yet. To measure this machine, and answer ten questions:"
        yield from _examples(("dlbench run", "every device; answers from the first round on"))
        yield "Before that:"
        yield from _examples(("dlbench devices", "what is in this machine"), ("dlbench doctor", "whether it is fit to measure on now"))
    else:
        path, header = newest
        file = one_line(shlex.quote(str(path)))
        yield f"The newest results here are {file}. To see what they say:"
        yield from _examples(
            (f"dlbench show {file}", "cases, and ten answers in a line each"),
            (f"dlbench report {file}{_page(path)}", "the same as a page to send"),
        )
        yield "To go on:"
        resume = (f"dlbench run --resume {file}", "it was interrupted, or is still going on")
        ended = "sides" in header or _is_finished(path)  # an A/B can't be resumed
        yield from _examples(("dlbench run", "measure again") if ended else resume, ("dlbench list", "other suites"))
    yield "All commands: dlbench --help; of one: dlbench run --help"


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


def _examples(*examples: tuple[str, str]) -> Iterator[str]:
    yield from (f"  {line}" for line in padded((command, f"# {about}") for command, about in examples))


def _newest() -> tuple[Path, Json] | None:
    """Return the newest result file in this folder or in its results, with its header; None where there is none that can be read."""
    found: list[tuple[float, Path]] = []
    for path in (*Path().glob("*.jsonl"), *_RESULTS.glob("*.jsonl")):
        with suppress(OSError):  # it went away, or may not be looked at
            if path.is_file():
                found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True):
        with suppress(ResultFileError):  # such as a data set
            return path, read_header(path)
    return None


def _page(path: Path) -> str:
    """Return the option for a page that does not exist yet; none where the default will do."""
    page = page_of([path])
    if not os.path.lexists(page) or is_page_of(page, [path]):
        return ""
    names = (f"{page.stem}-{number}.html" for number in count(2))
    return f" -o {one_line(shlex.quote(next(name for name in names if not os.path.lexists(name))))}"


def _is_finished(path: Path) -> bool:
    try:
        return ends_with_footer(path)
    except ResultFileError:  # it went away, so there is nothing to go on with
        return True
