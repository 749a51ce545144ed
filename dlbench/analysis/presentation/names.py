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
    """Return what an accelerator is called in a line with little room: ``GPU``, or ``device`` of a kind that others have added."""
    return "GPU" if kind_of(row.case.device) in ("cuda", "xpu", "mps") else "device"


def hardware(row: Row, with_run: bool = False) -> str:
    """Return what a row was measured on: a CPU with its threads, an accelerator by its maker's name or else as torch calls it.

    With its place, where the name does not say that already: ``NVIDIA H200 (torch 2.13.0)``.
    """
    on_cpu = row.is_on_cpu
    name = described(row) if on_cpu else row.case.device_name or row.case.device
    if not with_run or row.case.run == row.case.device_name:
        return name
    return f"{name}, {row.case.run}" if on_cpu else f"{name} ({row.case.run})"


def described(row: Row) -> str:
    """Return the maker's name and, on a CPU, the threads."""
    name, threads = row.case.device_name or "unnamed", row.case.threads
    return name if threads is None else f"{name}, {plural(threads, 'thread')}"


def status(row: Row) -> str:
    """Return how a case ended: its status, or of a search that was cut short with something found that it is unfinished."""
    return "unfinished" if row.case.unfinished else str(row.case.status)


def most_threads_last(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of named devices, last those of most threads: each rank on a CPU has a share, and what was refused asks for more."""
    return sorted((row for row in rows if row.case.device_name), key=lambda row: 0 if row.is_unmeasured else row.case.threads or 0)


def choice(row: Row) -> str:
    """Return batch, precision, and the other settings that a side chooses, and the optimizer, where they are not plain.

    ``batch=64 bf16 channels_last``; of numbers and flags with their names.
    """
    found = {name: row.setting(name) for name in ("batch", *STANDARD, *chosen(row))}
    shown = {name: value for name, value in found.items() if value is not None}
    unusual = [name for name in shown if name in ("batch", "dtype") or value_text(shown[name]) != plain_value(row, name)]
    return " ".join(str(shown[name]) if isinstance(shown[name], str) else f"{name}={value_text(shown[name])}" for name in unusual)


def by_device(found: Sequence[T]) -> dict[str, list[T]]:
    """Return records by where their rows ran; accelerators first."""
    several = several_runs(found)
    return grouped(sorted(found, key=lambda each: each.row.is_on_cpu), lambda each: device_label(each, several))


def flat(groups: Mapping[str, list[T]]) -> list[T]:
    """Return all records of groups."""
    return list(chain.from_iterable(groups.values()))


def by_workload(found: Sequence[T], *, by_place: bool = False) -> dict[str, list[T]]:
    """Return records by the workload of their rows, also ``by_place``, with where those ran where that is one place: ``matmul on cpu``."""
    several = several_runs(found)
    groups = grouped(found, lambda each: (each.row.case.workload, device_label(each, several) if by_place else ""))
    places = {key: {device_label(each, several) for each in alike} for key, alike in groups.items()}
    return {f"{key[0]} on {places[key].pop()}" if len(places[key]) == 1 else key[0]: alike for key, alike in groups.items()}


def without_folders(text: str, files: Iterable[Path] = ()) -> str:
    """Return a text for others to read: of an absolute path, and of these files, the last part stays, and ``~`` stands for a home."""
    for path in sorted(files, key=lambda path: -len(str(path))):
        text = text.replace(shlex.quote(str(path)), shlex.quote(path.name)).replace(str(path), path.name)
    return _FOLDERS.sub("", _HOME.sub("~", text.replace("file:///", "/"))) if "/" in text else text


def paths_of(files: Mapping[str, Path]) -> list[str]:
    """Return the path of each result file that another has the name of: ``quick 2 is b/quick.jsonl``; for a screen, never for a page."""
    times = Counter(path.stem for path in {*files.values()})
    return [one_line(f"{run} is {path}") for run, path in files.items() if times[path.stem] > 1]
