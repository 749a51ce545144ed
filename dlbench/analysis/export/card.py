"""Card to paste into a discussion: machine, versions, five figures, and the command that makes them again, in a few lines of Markdown."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlbench.analysis.answers.parts.headline import cut
from dlbench.analysis.answers.parts.memory import memory_gib
from dlbench.analysis.export.card_figures import BLOCKS_SPREAD, ROUNDS_SPREAD, CardFigure, figures
from dlbench.analysis.export.tabular import markdown
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.references import part
from dlbench.analysis.read.table import Results
from dlbench.analysis.report.sentences import common_rounds, measuring_command
from dlbench.core.errors import UsageError
from dlbench.core.rows.row import Row
from dlbench.core.units import one_line

MOST_LINES = 12
MOST_CHARACTERS = 1200
_WIDTH, _LEAST_WIDTH = 150, 40
"""Characters of a line: as many as the card has room for."""
_COMMANDS = 2
"""Commands that are told in full."""
_MACHINES = 2
_SPREADS = {
    ROUNDS_SPREAD: f"{ROUNDS_SPREAD}, the spread of rounds, as fewer than six carry no 95 % interval",
    BLOCKS_SPREAD: f"{BLOCKS_SPREAD}, the spread within one process, which hides how processes differ",
}
_NOT_USABLE = "Not usable: most of its cases were throttled or disturbed."
_FOLDERS = re.compile(r"[^=,@:]*[/\\]|(?<![^=,])[A-Za-z]:(?=[/\\])")
"""What stands in front of the name of a file, at the beginning of a word or behind ``=``."""


def card(results: Results) -> str:
    """Return at most 12 lines of Markdown and 1,200 characters, without the user's folders. Raises UsageError where no case went well."""
    results = merged(results)
    usable = results.usable
    if not (found := figures(usable)) and not usable.set_aside:
        ended = Counter(str(row.case.status) for row in results.rows)
        outcomes = ", ".join(f"{count} {status}" for status, count in ended.items()) or "no cases"
        raise UsageError(f"no figure for a card: none of the cases went well ({outcomes}); dlbench show has the reasons")
    widths = range(_WIDTH, _LEAST_WIDTH - 1, -10)
    made = (_card(results, found, width) for width in widths)
    return next((each for each in made if len(each) <= MOST_CHARACTERS), _card(results, found[:1], _LEAST_WIDTH))


def _card(results: Results, found: Sequence[CardFigure], width: int) -> str:
    rows, environments = results.rows, results.environments
    spreads = [_SPREADS[kind] for kind in dict.fromkeys(each.spread for each in found) if kind]
    intervals = ["95 % intervals"] if any(each.spread == "" for each in found) else []
    brackets = [_line(f"In brackets: {'; '.join([*intervals, *spreads])}.", 2 * width)] if intervals or spreads else []
    return "\n".join(
        [
            *_not_usable(rows, 2 * width),
            f"**{_line(_machines(rows, environments), 2 * width)}**",
            _line(_versions(rows, environments), 2 * width),
            "",
            *(f"- {_line(each.text, width)}" for each in found),
            "",
            *brackets,
            _made_by(results, 2 * width),
            "",
        ]
    )


def _not_usable(rows: Sequence[Row], most: int) -> list[str]:
    """Return the line that says of which files most cases are spoiled; none where no file is."""
    files, spoiled = (list(dict.fromkeys(row.file for row in found)) for found in (rows, [row for row in rows if row.flag.not_usable]))
    if not spoiled:
        return []
    if len(files) == 1:
        return [_NOT_USABLE]
    return [_line(f"Not usable: {few(spoiled, 2)} ({len(spoiled)} of {len(files)} files): most cases were throttled or disturbed.", most)]


def _line(text: str, most: int) -> str:
    """Return a text as a line of Markdown, cut so that it has at most so many characters, or one word."""
    lengths = range(most, 0, -10)
    return next((line for length in lengths if len(line := markdown(cut(one_line(text), length))) <= most), "…")


def _machines(rows: Sequence[Row], environments: Mapping[str, Mapping[str, Any]]) -> str:
    runs = grouped((row for row in rows if row.has_device), lambda row: row.case.run)
    machines = [_machine(of_run, environments.get(run, {})) for run, of_run in runs.items()]
    return "; ".join(_first(dict.fromkeys(machines), _MACHINES, "machine"))


def _first(texts: Iterable[str], most: int, noun: str) -> list[str]:
    """Return the first of these texts, and how many more there are."""
    known = list(texts)
    return [*known[:most], *([f"and {plural(len(known) - most, f'more {noun}')}"] if len(known) > most else [])]


def _machine(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """Return what a machine is: ``2 NVIDIA H200 (141 GiB), AMD EPYC 7B13 (16 cores, 128 GiB)``."""
    devices = {row.case.device: row.case.device_name or row.case.device for row in rows}
    cards = Counter(name for device, name in devices.items() if device != "cpu")
    named = [_with(f"{count} {name}" if count > 1 else name, _gib(memory_gib(environment, name))) for name, count in cards.items()]
    cpu = part(environment, "identity", "cpu") or {}
    if (processor := devices.get("cpu") or part(cpu, "name")) is not None:
        cores = part(cpu, "physical_cores")
        named.append(_with(str(processor), plural(cores, "core") if isinstance(cores, int) else "", _gib(memory_gib(environment))))
    return ", ".join(named)


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size} GiB"


def _with(name: str, *about: str) -> str:
    known = ", ".join(filter(None, about))
    return f"{name} ({known})" if known else name


def _versions(rows: Sequence[Row], environments: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what was measured, when and with what: ``suite quick, 2026-11-23, 7 rounds; dlbench 0.2.0, torch 2.13.0, Python 3.11.7``."""

    def every(*path: str) -> str:
        found = (part(each, *path) for each in environments.values())
        return few(dict.fromkeys(text for text in found if isinstance(text, str)), 2)

    dates = sorted({date[:10] for each in environments.values() if isinstance(date := part(each, "provenance", "utc"), str)})
    suites = list(dict.fromkeys(row.case.suite for row in rows if row.is_ok))
    rounds = common_rounds(rows)
    when = "…".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    measured = [f"{'suites' if len(suites) > 1 else 'suite'} {few(suites, 3)}", when, "" if rounds is None else plural(rounds, "round")]
    paths = {name: ("stack", "versions", name.lower()) for name in ("torch", "Python", "CUDA")} | {"driver": ("stack", "driver")}
    software = {"dlbench": every("provenance", "dlbench"), **{name: every(*path) for name, path in paths.items()}}
    return "; ".join(
        filter(None, [", ".join(filter(None, measured)), ", ".join(f"{name} {text}" for name, text in software.items() if text)])
    )


def _made_by(results: Results, most: int) -> str:
    """Return the commands that measure the same again, as code, or that the files do not tell them."""
    files = results.files
    of_files = grouped((row for row in files.rows if row.case.suite), lambda row: row.file)
    known = {run: rows for run, rows in of_files.items() if part(files.environments.get(run, {}), "provenance", "dlbench")}
    commands = dict.fromkeys(_public(measuring_command(rows, files.environments[run])) for run, rows in known.items())
    if not commands:
        return "What makes them again is not in the file."
    shown = [code for each in list(commands)[:_COMMANDS] if len(code := _code(each)) <= most // _COMMANDS or len(commands) == 1]
    more = len(commands) - len(shown)
    whole = ", ".join([*shown, *([f"{plural(more, 'more command')}"] if more else [])])
    return f"Made again by: {whole}" if len(whole) <= most else f"Made again by: {_code(cut(next(iter(commands)), most - 4))}"


def _public(command: str) -> str:
    """Return a command with the names of files and without the folders that they are in."""
    return shlex.join(_FOLDERS.sub("", word) for word in shlex.split(command))


def _code(text: str) -> str:
    """Return a text as Markdown's code, fenced by more backticks than it has in a row."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    gap = " " if "`" in text else ""
    return f"{fence}{gap}{text}{gap}{fence}"
