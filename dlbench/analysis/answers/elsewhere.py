"""Same hardware elsewhere: each case beside that of the nearest reference run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from dlbench.analysis.answers.base import Table, table
from dlbench.analysis.fields import PLACE, RATIO, Field, Fields, of_row, own
from dlbench.analysis.names import by_device, hardware, several_runs
from dlbench.analysis.pair_columns import CASE, of_ratio
from dlbench.analysis.pairing import RUN, grouped, pair_of
from dlbench.analysis.ratio import Ratio, among, middle
from dlbench.analysis.read.references import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import plural, short
from dlbench.core.model import kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Unit
from dlbench.core.units import one_line

NORMAL = 1.25
"""Factor within which a case is as on the same hardware elsewhere: room, memory and drivers of two machines of one kind make 10 % often,
and a wrong setting costs more than a quarter, as a rule."""
_MOST_MACHINES = 4
"""Machines that are held against references; more are a fleet, which is held against itself."""


@dataclass(frozen=True)
class SameCase:
    """A case here and in a reference run."""

    place: str
    here: Row
    there: Row
    is_same: bool
    """Whether that was measured on the same hardware."""

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast it is here."""
        return pair_of(self.there, self.here, RUN).ratio

    @property
    def is_off(self) -> bool:
        """Whether it is beyond what is normal on the same hardware, all of its interval."""
        ratio = self.ratio
        return self.is_same and ((ratio.high or ratio.speedup) < 1 / NORMAL or (ratio.low or ratio.speedup) > NORMAL)


_OFF = f"whether it is beyond a factor of {NORMAL:g}, all of its interval, on hardware of that name"
_FIELDS: Fields[SameCase] = (
    ("case", Field(CASE, lambda case: case.here.key)),
    ("device", Field(PLACE, lambda case: case.place)),
    ("here", of_row(lambda row: row.time.median_s).on(lambda case: case.here)),
    own("there", "reference.median_s", Unit.SECONDS, "one call in the reference run", lambda case: case.there.time.median_s),
    *RATIO,
    own("off", "reference.off", Unit.TEXT, _OFF, lambda case: "off" if case.is_off else None),
)


@dataclass(frozen=True)
class Beside:
    """The cases of one device beside those of the nearest reference run."""

    place: str
    device: str
    """The name of the reference's device, on a CPU with its threads."""
    same: bool
    """Whether both devices are called the same and, on a CPU, have as many threads and the same units."""
    cases: tuple[SameCase, ...]
    notes: tuple[str, ...]
    """What reference it is, and where its software is another."""

    def clause(self) -> str:
        """Say how it compares, in the case in the middle, and what is off."""
        case = middle(self.cases)
        which = f"the reference run on the same {self.device}" if self.same else f"the nearest reference run, on {self.device}"
        text = f"runs {short(case.here.key)} {case.ratio} as fast as {which}{among(self.cases)}"
        if not self.same:
            return text
        off = [case for case in self.cases if case.is_off]
        if not off:
            return f"{text}, and no case is off by more than {NORMAL:g} ×"
        farthest = max(off, key=lambda case: abs(math.log(case.ratio.speedup)))
        return f"{text}; off by more than {NORMAL:g} × {'is' if len(off) == 1 else 'are'} {len(off)} of " + (
            f"{plural(len(self.cases), 'case')}, most {short(farthest.here.key)}: {farthest.ratio.times}"
        )


def beside_references(results: Results) -> tuple[list[Beside], list[str]]:
    """Return each device beside the nearest reference run that has cases of it, and why others stand beside none."""
    if len(results.environments) > _MOST_MACHINES:
        return [], []
    own = {origin(environment) for environment in results.files.environments.values()} - {None}
    runs = reference_runs()
    themselves = {run.machine for run in runs if origin(run.environment) in own}
    others = [run for run in runs if run.machine not in themselves]
    found, alone = [], list[Row]()
    for place, mine in by_device([row for row in results.rows if row.has_times], lambda row: row).items():
        nearest = _nearest(place, mine, others, results)
        found += [nearest] if nearest else []
        alone += [] if nearest else mine[:1]
    return found, [_alone(alone, bool(themselves))] if alone else []


def table_of(found: Sequence[Beside]) -> Table:
    """Return all cases of them as a table."""
    notes = dict.fromkeys(note for each in found for note in each.notes)
    cases = [case for each in found for case in each.cases]
    return table(
        "Beside reference runs: how many times as fast",
        _FIELDS,
        cases,
        tuple(notes),
        whole=lambda case: cells(case.here) | of_ratio(case.ratio),
    )


def _nearest(place: str, mine: Sequence[Row], runs: Sequence[ReferenceRun], results: Results) -> Beside | None:
    """Return the rows of one device beside those of the nearest machine that measured any of them."""
    identity = mine[0].case
    kind, name = kind_of(identity.device), identity.device_name or ""
    isa = _isa(results.environments[identity.run])
    threads = max(row.case.threads or 1 for row in mine)
    workloads = frozenset(row.case.workload for row in mine)
    machines = grouped(
        [run for run in runs if run.name_of(kind) and run.has_any(workloads)], lambda run: (run.machine, run.name_of(kind), run.threads)
    )
    distances = ((_distance(machine[0], kind, name, threads, isa), machine) for machine in machines.values())
    for distance, machine in sorted(distances, key=itemgetter(0)):
        same = distance[:2] == (False, False)
        # Of a case that the reference has several times its last.
        theirs = {row.key: row for row in rows_of(tuple(machine)).rows if row.has_times and kind_of(row.case.device) == kind}
        both = [(row, there) for row in mine if (there := theirs.get(row.key)) and there.case.found == row.case.found]
        if both:
            told = [machine[0].name_of(kind)]
            if kind == "cpu":
                told += [plural(machine[0].threads or 1, "thread"), None if same else _isa(machine[0].environment)]
            device = ", ".join(filter(None, told))
            cases = tuple(SameCase(place, *sides, same) for sides in both)
            return Beside(place, device, same, cases, _notes(device, machine, results, identity.run))
    return None


def _distance(run: ReferenceRun, kind: str, name: str, threads: int, isa: str | None) -> tuple[bool, bool, int, float]:
    """Return how far a reference is from a device: another name, on a CPU other units or threads, fewer words in common, their ratio."""
    theirs, words = name_words(run.name_of(kind) or ""), name_words(name)
    apart = abs(math.log((run.threads or 1) / threads)) if kind == "cpu" else 0.0
    other_units = kind == "cpu" and _isa(run.environment) != isa
    return theirs != words, apart > 0 or other_units, -len(set(theirs) & set(words)), apart


def _isa(environment: object) -> str | None:
    """Return the vector and matrix units of a CPU; hypervisors give different processors the same name."""
    found = part(environment, "identity", "cpu", "isa")
    return found if isinstance(found, str) else None


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
    several = several_runs(rows)
    what = one_line(" or ".join(f"{row.case.device} ({hardware(row, several)})" for row in rows))
    if is_reference:
        return f"the reference run is shown here itself, and no other has a case of {what}"
    return f"no reference run has a case of {what}; dlbench contribute makes one"
