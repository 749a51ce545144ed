"""Same hardware elsewhere: each case against that of a reference run on a device of the same name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.answers.parts.headline import by_kind
from dlbench.analysis.presentation.fields import RATIO, WORK_OF_ROW, Fields, device_column, of_row, own, whole_row
from dlbench.analysis.presentation.names import hardware, several_runs
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.presentation.wording import few, middle_of, plural, short
from dlbench.analysis.ratios.pairing import RUN, grouped, pair_of
from dlbench.analysis.ratios.ratio import Ratio, middle
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
_KINDS = 2
"""Kinds of work that sentences tell; the table has all."""
_MOST_MACHINES = 4
"""Machines that are held against references; more are a fleet, which is held against itself."""


@dataclass(frozen=True)
class SameCase:
    """A case here and in a reference run."""

    place: str
    row: Row
    """Here."""
    there: Row

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast it is here."""
        return pair_of(self.there, self.row, RUN).ratio

    @property
    def is_off(self) -> bool:
        """Whether it is beyond what is normal on the same hardware, all of its interval."""
        ratio = self.ratio
        return (ratio.high or ratio.speedup) < 1 / NORMAL or (ratio.low or ratio.speedup) > NORMAL


_OFF = f"whether it is beyond a factor of {NORMAL:g}, all of its interval"
_FIELDS: Fields[SameCase] = (
    ("case", WORK_OF_ROW),
    device_column(),
    ("here", of_row(lambda row: row.time.median_s)),
    own("there", "reference.median_s", Unit.SECONDS, "one call in the reference run", lambda case: case.there.time.median_s),
    *RATIO,
    own("off", "reference.off", Unit.TEXT, _OFF, lambda case: "off" if case.is_off else None),
)


class Elsewhere(NamedTuple):
    """A device against a reference run of another machine with the same."""

    device: str
    """That of the reference."""
    cases: Sequence[SameCase]

    @property
    def kinds(self) -> dict[str, list[SameCase]]:
        """The cases of each kind of work: a middle of all would depend on the suites that ran."""
        return by_kind(self.cases)

    @property
    def off(self) -> list[SameCase]:
        """Cases beyond what is normal, the farthest first."""
        return sorted((case for case in self.cases if case.is_off), key=lambda case: -abs(math.log(case.ratio.speedup)))

    def sentences(self) -> tuple[str, ...]:
        """Say how the device compares with that of the reference, in the middle of each of its first kinds of work, and what is off."""
        told = [f"{self.cases[0].place} is compared with the reference run on the same {self.device}."]
        for kind, found in list(self.kinds.items())[:_KINDS]:
            case = middle(found)
            told.append(f"It runs {kind} {case.ratio} as fast: {short(case.row.key)}, {middle_of(len(found))}.")
        if not self.off:
            return (*told, f"None is shown to be off by more than {NORMAL:g} ×, its whole interval counted.")
        farthest = self.off[0]
        count = f"{len(self.off)} of {plural(len(self.cases), 'case')}"
        most = f"most {short(farthest.row.key)}: {farthest.ratio.times}"
        return (*told, f"Off by more than {NORMAL:g} × {'is' if len(self.off) == 1 else 'are'} {count}, {most}.")


def against_references(results: Results, devices: Mapping[str, Sequence[Row]]) -> tuple[dict[str, Elsewhere], AnswerPart]:
    """Return each of these devices that a reference run has cases of with these, and the table of all these cases.

    Those are of a device of the same name. Weaknesses say why other devices are not compared.
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
        device, of_device, about = _of_same(place, mine, others, results)
        if of_device:
            found[place] = Elsewhere(device, of_device)
            notes |= dict.fromkeys(about)
        else:
            alone.append(mine[0])
    title = "Beside reference runs: how many times as fast"
    cases = [case for each in found.values() for case in each.cases]
    of_cases = table(title, _FIELDS, cases, tuple(notes), whole=lambda case: whole_row(case) | of_ratio(case))
    return found, AnswerPart(tables=[of_cases], weaknesses=_alone(alone, bool(themselves)))


def _of_same(place: str, mine: Sequence[Row], runs: Sequence[ReferenceRun], results: Results) -> tuple[str, list[SameCase], list[str]]:
    """Return the first machine with the same device that has any of these cases: the device, the cases, and notes; empty without one."""
    kind, environment = kind_of(mine[0].case.device), results.environments[mine[0].case.run]
    threads = max(row.case.threads or 1 for row in mine)
    workloads = frozenset(row.case.workload for row in mine)
    alike = [run for run in runs if run.has_any(workloads) and _is_same(run, mine[0], threads, environment)]
    for machine in grouped(alike, lambda run: run.machine).values():
        # Of a case that the reference has several times its last.
        theirs = {row.key: row for row in rows_of(tuple(machine)).rows if row.has_times and kind_of(row.case.device) == kind}
        cases = [SameCase(place, row, there) for row in mine if (there := theirs.get(row.key)) and there.case.found == row.case.found]
        if cases:
            device = ", ".join([machine[0].name_of(kind) or "", *([plural(threads, "thread")] if kind == "cpu" else [])])
            return device, cases, _notes(device, machine, environment)
    return "", [], []


def _is_same(run: ReferenceRun, here: Row, threads: int, environment: object) -> bool:
    """Whether a reference was measured on a device of that name, on a CPU with as many threads and the same units."""
    name = run.name_of(kind_of(here.case.device))
    is_cpu_like = not here.is_on_cpu or ((run.threads or 1) == threads and _isa(run.environment) == _isa(environment))
    return name is not None and is_cpu_like and name_words(name) == name_words(here.case.device_name or "")


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
