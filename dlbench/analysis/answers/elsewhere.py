"""Same hardware elsewhere: each case beside that of the nearest reference run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from dlbench.analysis.answers.base import DEVICE, RATIO, Columns, Table, by_device
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, speed_ratio
from dlbench.analysis.read.references import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, hardware, key, middle, number, plural, ratio, several_runs, short, times
from dlbench.core.model import Status, kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import one_line

NORMAL = 1.25
"""Factor within which a case is as on the same hardware elsewhere: room, memory and drivers of two machines of one kind make 10 % often,
and a wrong setting costs more than a quarter, as a rule."""
_MOST_MACHINES = 4
"""Machines that are held against references; more are a fleet, which is held against itself."""
_COLUMNS: Columns = (
    ("case", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("here", Column("time.median_s", Unit.SECONDS, "one call")),
    ("there", Column("reference.median_s", Unit.SECONDS, "one call in the reference run")),
    *RATIO,
    (
        "off",
        Column("reference.off", Unit.TEXT, f"whether it is beyond a factor of {NORMAL:g}, all of its interval, on hardware of that name"),
    ),
)


@dataclass(frozen=True)
class Beside:
    """The cases of one device beside those of the nearest reference run."""

    place: str
    device: str
    """The name of the reference's device, on a CPU with its threads."""
    same: bool
    """Whether both devices are called the same and, on a CPU, have as many threads and the same units."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """What reference it is, and where its software is another."""

    @cached_property
    def off(self) -> list[Row]:
        """Cases beyond what is normal, the farthest first."""
        found = [row for row in self.rows if row["reference.off"]]
        return sorted(found, key=lambda row: -abs(math.log(number(row["ratio.speedup"]))))

    def clause(self) -> str:
        """Say how it compares, in the case in the middle, and what is off."""
        row = middle(self.rows)
        which = f"the reference run on the same {self.device}" if self.same else f"the nearest reference run, on {self.device}"
        text = f"runs {short(key(row))} {ratio(row)} as fast as {which}{among(self.rows)}"
        if not self.same:
            return text
        if not self.off:
            return f"{text}, and no case is off by more than {NORMAL:g} ×"
        return f"{text}; off by more than {NORMAL:g} × {'is' if len(self.off) == 1 else 'are'} {len(self.off)} of " + (
            f"{plural(len(self.rows), 'case')}, most {short(key(self.off[0]))}: {times(self.off[0])}"
        )


def beside_references(results: Results) -> tuple[list[Beside], list[str]]:
    """Return each device beside the nearest reference run that has cases of it, and why others stand beside none."""
    if len(results.environments) > _MOST_MACHINES:
        return [], []
    own = {origin(environment) for environment in results.files.environments.values()} - {None}
    runs = reference_runs()
    themselves = {run.machine for run in runs if origin(run.environment) in own}
    others = [run for run in runs if run.machine not in themselves]
    fit = {(str(each.row["case.run"]), str(each.row["case.id"])): each for each in entries(results) if _is_fit(each)}
    found, alone = [], list[Row]()
    for place, rows in by_device([each.row for each in fit.values()], "case").items():
        mine = [fit[str(row["case.run"]), str(row["case.id"])] for row in rows]
        beside = _nearest(place, mine, others, results)
        found += [beside] if beside else []
        alone += [] if beside else rows[:1]
    return found, [_alone(alone, bool(themselves))] if alone else []


def table(found: Sequence[Beside]) -> Table:
    """Return all cases of them as a table."""
    notes = dict.fromkeys(note for each in found for note in each.notes)
    return Table("Beside reference runs: how many times as fast", _COLUMNS, tuple(row for each in found for row in each.rows), tuple(notes))


def _is_fit(entry: Entry) -> bool:
    sound = entry.row["case.status"] == Status.OK and not entry.row["flag.implausible"]
    return bool(sound) and min(entry.rounds.median_s, default=0) > 0


def _nearest(place: str, mine: Sequence[Entry], runs: Sequence[ReferenceRun], results: Results) -> Beside | None:
    """Return the entries of one device beside those of the nearest machine that measured any of them."""
    row = mine[0].row
    kind, name = kind_of(str(row["case.device"])), str(row["case.device_name"] or "")
    isa = _isa(results.environments[str(row["case.run"])])
    threads = max(int(number(each.row["case.threads"] or 1)) for each in mine)
    workloads = frozenset(str(each.row["case.workload"]) for each in mine)
    machines = grouped(
        [run for run in runs if run.name_of(kind) and run.has_any(workloads)], lambda run: (run.machine, run.name_of(kind), run.threads)
    )
    distances = ((_distance(machine[0], kind, name, threads, isa), machine) for machine in machines.values())
    for distance, machine in sorted(distances, key=itemgetter(0)):
        rows = _pairs(place, mine, [each for each in entries(rows_of(tuple(machine))) if _is_fit(each)], kind)
        if rows:
            same = distance[:2] == (False, False)
            there = [{**each, "reference.off": "off" if same and _is_off(each) else None} for each in rows]
            told = [machine[0].name_of(kind)]
            if kind == "cpu":
                told += [plural(machine[0].threads or 1, "thread"), None if same else _isa(machine[0].environment)]
            device = ", ".join(filter(None, told))
            return Beside(place, device, same, tuple(there), _notes(device, machine, results, str(row["case.run"])))
    return None


def _distance(run: ReferenceRun, kind: str, name: str, threads: int, isa: str | None) -> tuple[bool, bool, int, float]:
    """Return how far a reference is from a device: another name, on a CPU other units or threads, fewer words in common, their ratio."""
    theirs, words = name_words(run.name_of(kind) or ""), name_words(name)
    apart = abs(math.log((run.threads or 1) / threads)) if kind == "cpu" else 0.0
    other_units = kind == "cpu" and _isa(run.environment) != isa
    return theirs != words, apart > 0 or other_units, -len(set(theirs) & set(words)), apart


def _isa(environment: Mapping[str, Any]) -> str | None:
    """Return the vector and matrix units of a CPU; hypervisors give different processors the same name."""
    found = part(environment, "identity", "cpu", "isa")
    return found if isinstance(found, str) else None


def _pairs(place: str, mine: Sequence[Entry], theirs: Sequence[Entry], kind: str) -> list[Row]:
    """Return a row for each case of both; of one that the reference has several times its last."""
    known = {key(each.row): each for each in theirs if kind_of(str(each.row["case.device"])) == kind}
    return [
        {
            **{name: each.row[name] for name in ("case.id", "case.run", "case.device", "time.median_s")},
            "place": place,
            "pair.case": key(each.row),
            "reference.median_s": there.row["time.median_s"],
            **speed_ratio(*([1 / seconds for seconds in side.rounds.median_s] for side in (there, each))),
        }
        for each in mine
        if (there := known.get(key(each.row))) and there.row["case.found"] == each.row["case.found"]
    ]


def _is_off(row: Row) -> bool:
    low, high = (row["ratio.speedup"] if row[name] is None else row[name] for name in ("ratio.ci_low", "ratio.ci_high"))
    return number(high) < 1 / NORMAL or number(low) > NORMAL


def _notes(device: str, machine: Sequence[ReferenceRun], results: Results, run: str) -> tuple[str, ...]:
    """Say which reference it is and of when, and where torch or dlbench is another."""
    names = ", ".join(each.path.stem for each in machine)
    days = sorted({began[1][:10] for each in machine if (began := origin(each.environment))})
    versions = [_versions(each) for each in (machine[0].environment, results.environments[run])]
    apart = [
        f"{what} {there} there and {here} here" for what, there, here in zip(("torch", "dlbench"), *versions, strict=True) if there != here
    ]
    notes = [f"there: {device}, {machine[0].machine} ({names}), measured {' and '.join(days) or 'on a day that it does not tell'}"]
    return tuple(map(one_line, [*notes, *([f"another version: {'; '.join(apart)}"] if apart else [])]))


def _versions(environment: object) -> tuple[str, str]:
    torch, ours = part(environment, "stack", "versions", "torch"), part(environment, "provenance", "dlbench")
    return str(torch or "unknown"), str(ours or "unknown")


def _alone(rows: Sequence[Row], is_reference: bool) -> str:
    several = several_runs(rows, "case")
    what = one_line(" or ".join(f"{row['case.device']} ({hardware(row, with_run=several)})" for row in rows))
    if is_reference:
        return f"the reference run is shown here itself, and no other has a case of {what}"
    return f"no reference run has a case of {what}; dlbench contribute makes one"
