"""What to type next, by what lies in the current folder: the answer to a bare ``dlbench``."""

import os
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from dlbench.core.units import one_line

_RESULTS = Path("results")
_TAIL = 1 << 16
"""Bytes at the end of a file that its last line is looked for in: a footer is far shorter, and a file may be large."""


def lines(commands: Collection[str]) -> Iterator[str]:
    """Yield what a newcomer would type in this folder: to measure, or to look at the newest results. Reads the end of one file at most."""
    newest = _newest()
    if newest is None:
        yield "No results here yet. To measure this machine, and see who wins:"
        yield from _examples(("dlbench run", "every device; answers from the first round on"))
        yield "Before that:"
        yield from _examples(("dlbench devices", "what is in this machine"), ("dlbench doctor", "whether it is fit to measure on now"))
    else:
        file = one_line(shlex.quote(str(newest)))
        yield f"The newest results here are {file}. To see what they say:"
        shown = [(f"dlbench show {file} --answers", "answers, then every case")]
        if "report" in commands:
            shown.append((f"dlbench report {file} -o report.html", "the same as a page to send"))
        yield from _examples(*shown)
        yield "To go on:"
        unfinished = (f"dlbench run --resume {file}", "it was interrupted, or is still going on")
        yield from _examples(("dlbench run", "measure again") if _is_finished(newest) else unfinished, ("dlbench list", "other suites"))
    yield "All commands: dlbench --help; of one: dlbench run --help"


def _examples(*examples: tuple[str, str]) -> Iterator[str]:
    width = max(len(command) for command, _ in examples)
    yield from (f"  {command:<{width}}  # {about}" for command, about in examples)


def _newest() -> Path | None:
    """Return the newest result file in this folder or in its results; None where there is none that can be looked at."""
    found: list[tuple[float, Path]] = []
    for path in (*Path().glob("*.jsonl"), *_RESULTS.glob("*.jsonl")):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:  # it went away, or may not be read
            continue
    return max(found)[1] if found else None


def _is_finished(path: Path) -> bool:
    """Whether a file ends with a footer, as a run that came to its end leaves it."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            last = file.read().rstrip().rpartition(b"\n")[2]
    except OSError:
        return True
    return b'"kind": "footer"' in last or b'"kind":"footer"' in last
