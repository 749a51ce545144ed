"""When, with which software and on which machines files were measured."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from dlbench.analysis.answers.engine.question import Table, table
from dlbench.analysis.presentation.wording import entry, few
from dlbench.analysis.read.header import Environments, began
from dlbench.analysis.read.runs import part
from dlbench.core.machine import leaves
from dlbench.core.units import Column, Unit

_ENTRIES = (
    Column("entry", Unit.TEXT, "what it is", of=itemgetter(0), heading="entry"),
    Column("value", Unit.TEXT, "as recorded before the first case", of=itemgetter(1), heading="value"),
    Column("after", Unit.TEXT, "the same after the last case", of=itemgetter(2), heading="after the run"),
)
_PROVENANCE = ("dlbench", "utc", "git")


def measured(environments: Environments) -> list[str]:
    """Return when files were measured, by UTC, and with which versions: ``2026-11-24 23:10 UTC``, ``torch 2.13.0``, ``dlbench 0.2.0``.

    Of files of several days the first day and the last; what no file says is left out.
    """
    times = sorted(filter(None, map(began, environments.values())))
    days = dict.fromkeys(time[:10] for time in (*times[:1], *times[-1:]))
    found = [f"{times[0][:10]} {times[0][11:16]} UTC" if len({*times}) == 1 else " to ".join(days)] if times else []
    for name, path in (("torch", ("stack", "versions", "torch")), ("dlbench", ("provenance", "dlbench"))):
        versions = dict.fromkeys(str(version) for each in environments.values() if (version := part(each, *path)))
        found += [f"{name} {few(versions, 3)}"] if versions else []
    return found


def tables(environments: Environments) -> list[Table]:
    """Return a table for each file: its machine and software, when it was measured, and the machine's state before and after."""
    found = []
    for run, each in environments.items():
        provenance = {name: part(each, "provenance", name) for name in _PROVENANCE}
        before = _entries({**each, "provenance": provenance}, "identity", "stack", "side", "provenance", "state")
        after = _entries(each, "state_after")
        found.append(table(run, _ENTRIES, [(name, value, after.get(name, "")) for name, value in before.items()]))
    return found


def _entries(environment: Mapping[str, Any], *blocks: str) -> dict[str, str]:
    """Return what each leaf of some blocks says, by its name; what is unknown is left out."""
    found = {name: end for block in blocks for name, end in leaves(block, environment.get(block) or {}).items()}
    return dict(entry(name.partition(".")[2], end) for name, end in found.items() if end not in (None, {}, []))
