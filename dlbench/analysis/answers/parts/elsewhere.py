"""Same hardware elsewhere: each case against that of the nearest reference run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.presentation.fields import RATIO, WORK_OF_ROW, Fields, device_column, of_row, own, whole_row
from dlbench.analysis.presentation.names import hardware, several_runs
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.presentation.wording import few, middle_of, plural, short
from dlbench.analysis.ratios.pairing import RUN, grouped, pair_of
from dlbench.analysis.ratios.ratio import Ratio, least_and_most, middle
from dlbench.analysis.read.references import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Row
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
    row: Row
    """Here."""
    there: Row
    is_same: bool
    """Whether both devices are called the same and, on a CPU, have as many threads and the same units."""

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast it is here."""
        return pair_of(self.there, self.row, RUN).ratio

    @property
    def is_off(self) -> bool:
        """Whether it is beyond what is normal on the same hardware, all of its interval."""
        ratio = self.ratio
        return self.is_same and ((ratio.high or ratio.speedup) < 1 / NORMAL or (ratio.low or ratio.speedup) > NORMAL)


_OFF = f"whether it is beyond a factor of {NORMAL:g}, all of its interval, on hardware of that name"
_FIELDS: Fields[SameCase] = (
    ("case", WORK_OF_ROW),
    device_column(),
    ("here", of_row(lambda row: row.time.median_s)),
    own("there", "reference.median_s", Unit.SECONDS, "one call in the reference run", lambda case: case.there.time.median_s),
    *RATIO,
    own("off", "reference.off", Unit.TEXT, _OFF, lambda case: "off" if case.is_off else None),
)


class Elsewhere(NamedTuple):
    """A device against the nearest reference run of another machine."""

    device: str
    """That of the reference."""
    cases: Sequence[SameCase]

    @property
    def typical(self) -> SameCase:
        """The case whose ratio is in the middle."""
        return middle(self.cases)

    @property
    def off(self) -> list[SameCase]:
        """Cases beyond what is normal, the farthest first."""
        return sorted((case for case in self.cases if case.is_off), key=lambda case: -abs(math.log(case.ratio.speedup)))

    def sentences(self) -> tuple[str, ...]:
        """Say how the device compares with that of the reference, in the case in the middle, and what is off."""
        case = self.typical
        which = f"the reference run on the same {self.device}" if case.is_same else f"the nearest reference run, on {self.device}"
        ends = dict.fromkeys(each.times for each in least_and_most(self.cases))
        told = [
            f"{case.place} is compared with {which}.",
            f"It runs {short(case.row.key)} {case.ratio} as fast, {middle_of(len(self.cases))}.",
            *([f"They reach from {' to '.join(ends)}."] if len(ends) > 1 else []),
        ]
        if not case.is_same:
            return tuple(told)
        if not self.off:
            return (*told, f"None is shown to be off by more than {NORMAL:g} ×, its whole interval counted.")
        farthest = self.off[0]
        count = f"{len(self.off)} of {plural(len(self.cases), 'case')}"
        most = f"most {short(farthest.row.key)}: {farthest.ratio.times}"
        return (*told, f"Off by more than {NORMAL:g} × {'is' if len(self.off) == 1 else 'are'} {count}, {most}.")


def against_references(results: Results, devices: Mapping[str, Sequence[Row]]) -> tuple[dict[str, Elsewhere], AnswerPart]:
    """Return each of these devices that a reference run has cases of with these, and the table of all these cases.

    Of several reference runs the nearest counts. Weaknesses say why other devices are not compared.
    """
    if len(results.environments) > _MOST_MACHINES:
        return {}, AnswerPart()
    own = {origin(environment) for environment in results.files.environments.values()} - {None}
    runs = reference_runs()
    themselves = {run.machine for run in runs if origin(run.environment) in own}
    others = [run for run in runs if run.machine not in themselves]
    found, notes, alone = dict[str, Elsewhere](), dict[str, None](), list[Row]()
    for place, rows in devices.items():
        if not (mine := [row for row in rows if row.has_times]):
            continue
        device, of_device, about = _nearest(place, mine, others, results)
        if of_device:
            found[place] = Elsewhere(device, of_device)
            notes |= dict.fromkeys(about)
        else:
            alone.append(mine[0])
    title = "Beside reference runs: how many times as fast"
    cases = [case for each in found.values() for case in each.cases]
    of_cases = table(title, _FIELDS, cases, tuple(notes), whole=lambda case: whole_row(case) | of_ratio(case))
    return found, AnswerPart(tables=[of_cases], weaknesses=_alone(alone, bool(themselves)))


def _nearest(place: str, mine: Sequence[Row], runs: Sequence[ReferenceRun], results: Results) -> tuple[str, list[SameCase], list[str]]:
    """Return the nearest machine that measured any of these cases: its device, the cases, and notes on it; empty where there is none."""
    kind, environment = kind_of(mine[0].case.device), results.environments[mine[0].case.run]
    threads = max(row.case.threads or 1 for row in mine)
    workloads = frozenset(row.case.workload for row in mine)
    machines = grouped(
        [run for run in runs if run.name_of(kind) and run.has_any(workloads)], lambda run: (run.machine, run.name_of(kind), run.threads)
    )
    distances = ((_distance(machine[0], mine[0], threads, environment), machine) for machine in machines.values())
    for distance, machine in sorted(distances, key=itemgetter(0)):
        same = distance[:2] == (False, False)
        # Of a case that the reference has several times its last.
        theirs = {row.key: row for row in rows_of(tuple(machine)).rows if row.has_times and kind_of(row.case.device) == kind}
        cases = [SameCase(place, row, there, same) for row in mine if (there := theirs.get(row.key)) and there.case.found == row.case.found]
        if cases:
            words = [machine[0].name_of(kind)]
            if kind == "cpu":
                words += [plural(machine[0].threads or 1, "thread"), None if same else _isa(machine[0].environment)]
            device = ", ".join(filter(None, words))
            return device, cases, _notes(device, machine, environment)
    return "", [], []


def _distance(run: ReferenceRun, here: Row, threads: int, environment: object) -> tuple[bool, bool, int, float]:
    """Return how far a reference is from a device: another name, on a CPU other units or threads, fewer words in common, their ratio."""
    theirs, words = name_words(run.name_of(kind_of(here.case.device)) or ""), name_words(here.case.device_name or "")
    apart = abs(math.log((run.threads or 1) / threads)) if here.is_on_cpu else 0.0
    other_units = here.is_on_cpu and _isa(run.environment) != _isa(environment)
    return theirs != words, apart > 0 or other_units, -len(set(theirs) & set(words)), apart


def _isa(environment: object) -> str | None:
    """Return the vector and matrix units of a CPU; hypervisors give different processors the same name."""
    found = part(environment, "identity", "cpu", "isa")
    return found if isinstance(found, str) else None


def _notes(device: str, machine: Sequence[ReferenceRun], environment: object) -> list[str]:
    """Say which reference it is and of when, and where torch or dlbench is another."""
    names = ", ".join(each.path.stem for each in machine)
    days = sorted({began[1][:10] for each in machine if (began := origin(each.environment))})
    apart = []
    for path in (("stack", "versions", "torch"), ("provenance", "dlbench")):
        there, here = (part(each, *path) or "unknown" for each in (machine[0].environment, environment))
        apart += [f"{path[-1]} {there} there and {here} here"] if there != here else []
    notes = [f"there: {device}, {machine[0].machine} ({names}), measured {' and '.join(days) or 'on a day that it does not tell'}"]
    notes += [f"another version: {'; '.join(apart)}"] if apart else []
    return list(map(one_line, notes))


def _alone(rows: Sequence[Row], is_reference: bool) -> list[str]:
    """Say why these devices are compared with no reference."""
    if not rows:
        return []
    several = several_runs(rows)
    what = one_line(few((f"{row.case.device} ({hardware(row, several)})" for row in rows), 1))
    itself = f"the reference run is shown here itself, and no other has a case of {what}"
    return [itself if is_reference else f"no reference run has a case of {what}; dlbench contribute makes one"]
