"""Names of cases, devices and machines, for tables and sentences."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.matching import STANDARD, chosen, grouped, plain_value
from dlbench.core.model import kind_of, value_text
from dlbench.core.rows.row import Row
from dlbench.core.units import one_line


class HasRow(Protocol):
    """A row, or a record of one."""

    @property
    def row(self) -> Row:
        """The row."""


T = TypeVar("T", bound=HasRow)

_QUOTED, _BARE = r"(?:(?!\1)[^/])+", r"[^\s/'\"]+"
"""Part of a path between quotes, whichever these are, and of one without."""
_HOME = re.compile(rf"(?<![\w./~])(?:(?<=(['\"]))/(?:home|Users)/{_QUOTED}|/(?:home|Users)/[^\s/'\",;:)]+|/root(?![\w.-]))")
_FOLDERS = re.compile(
    r"(?<![\w./~])(?!/(?:proc|sys|dev|etc)/)"
    rf"(?:(?<=(['\"]))(?:~|/{_QUOTED})/(?:{_QUOTED}/)*(?={_QUOTED})|(?:~|/{_BARE})/(?:{_BARE}/)*(?={_BARE}))"
)
"""Folders of an absolute path, in quotes with any spaces in them; what the system has of itself, such as ``/proc/stat``, is nobody's."""


def several_runs(found: Iterable[HasRow]) -> bool:
    """Whether rows are of more than one place; see `header.place_names`, without which each file is one."""
    return len({each.row.case.run for each in found}) > 1


def device_label(record: HasRow, with_run: bool) -> str:
    """Return where a row was measured: ``cuda:0``, or with its place ``cuda:0 (torch 2.13.0)``."""
    case = record.row.case
    return f"{case.device} ({case.run})" if with_run else case.device


def noun(row: Row) -> str:
    """Return a short noun for an accelerator: ``GPU``, or ``device`` for a kind that a plugin has added."""
    return "GPU" if kind_of(row.case.device) in ("cuda", "xpu", "mps") else "device"


def hardware(row: Row, with_run: bool = False) -> str:
    """Return the hardware of a row: a CPU with its threads, an accelerator by its maker's name or else its id.

    ``with_run``: with its place, unless that is the name: ``NVIDIA H200 (torch 2.13.0)``.
    """
    on_cpu = row.is_on_cpu
    name = name_and_threads(row) if on_cpu else row.case.device_name or row.case.device
    if not with_run or row.case.run == row.case.device_name:
        return name
    return f"{name}, {row.case.run}" if on_cpu else f"{name} ({row.case.run})"


def name_and_threads(row: Row) -> str:
    """Return the maker's name of a row's device and, of a CPU, the number of threads."""
    name, threads = row.case.device_name or "unnamed", row.case.threads
    return name if threads is None else f"{name}, {plural(threads, 'thread')}"


def status(row: Row) -> str:
    """Return the status of a case as text; ``unfinished`` for a search that was cut short after it had found something."""
    return "unfinished" if row.case.unfinished else str(row.case.status)


def most_threads_last(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of named devices, those with most threads last, as each rank on a CPU has only a share of them.

    Unmeasured rows come first: they may ask for more threads than there are.
    """
    return sorted((row for row in rows if row.case.device_name), key=lambda row: 0 if row.is_unmeasured else row.case.threads or 0)


def choice(row: Row) -> str:
    """Return batch, precision, and those other settings of a row that are not plain: ``batch=64 bf16 channels_last``."""
    words = []
    for name in dict.fromkeys(("batch", *STANDARD, *chosen(row))):
        value = row.setting(name)
        if value is not None and (name in ("batch", "dtype") or value_text(value) != plain_value(row, name)):
            words.append(value if isinstance(value, str) else f"{name}={value_text(value)}")
    return " ".join(words)


def by_device(found: Sequence[T]) -> dict[str, list[T]]:
    """Return records by where their rows ran; accelerators first."""
    several = several_runs(found)
    return grouped(sorted(found, key=lambda each: each.row.is_on_cpu), lambda each: device_label(each, several))


def flat(groups: Mapping[str, list[T]]) -> list[T]:
    """Return all records of groups."""
    return list(chain.from_iterable(groups.values()))


def by_workload(found: Sequence[T], *, by_place: bool = False) -> dict[str, list[T]]:
    """Return records by workload, whose name has the place if all ran in one: ``matmul on cpu``; ``by_place``: each place apart."""
    several = several_runs(found)
    groups = grouped(found, lambda each: (each.row.case.workload, device_label(each, several) if by_place else ""))
    places = {key: {device_label(each, several) for each in alike} for key, alike in groups.items()}
    return {f"{key[0]} on {places[key].pop()}" if len(places[key]) == 1 else key[0]: alike for key, alike in groups.items()}


def without_folders(text: str, files: Iterable[Path] = ()) -> str:
    """Return a text for other readers: of absolute paths and of ``files`` only the last part is left, and ``~`` replaces a home."""
    for path in sorted(files, key=lambda path: -len(str(path))):
        text = text.replace(shlex.quote(str(path)), shlex.quote(path.name)).replace(str(path), path.name)
    return _FOLDERS.sub("", _HOME.sub("~", text.replace("file:///", "/"))) if "/" in text else text


def paths_of(files: Mapping[str, Path]) -> list[str]:
    """Return a line for each result file whose name another has, too: ``quick 2 is b/quick.jsonl``. For screens, never for pages."""
    times = Counter(path.stem for path in {*files.values()})
    return [one_line(f"{run} is {path}") for run, path in files.items() if times[path.stem] > 1]
