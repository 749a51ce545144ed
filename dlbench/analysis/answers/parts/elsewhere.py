"""Same hardware elsewhere: each case against that of a reference run on a device of the same name."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import by_kind
from dlbench.analysis.presentation.columns import CASE, PLACE, RATIO, of_ratio, of_row
from dlbench.analysis.presentation.names import by_device, hardware, several_runs
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.ratios.matching import RUN, grouped, match
from dlbench.analysis.ratios.ratio import Ratio, middle
from dlbench.analysis.read.runs import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit, one_line

NORMAL = 1.25
"""Factor within which a case is as on the same hardware elsewhere: room, memory and drivers of two machines of one kind make 10 % often,
and a wrong setting costs more than a quarter, as a rule."""
_ISA = ("identity", "cpu", "isa")
"""Where an environment tells the vector and matrix units of a CPU; hypervisors give different processors the same name."""
_MOST_MACHINES = 4
"""Machines that are held against references; more are a fleet, which is held against itself."""


@dataclass(frozen=True)
class SameCase:
    """A case here and in a reference run."""

    place: str
    row: Row
    """Here."""
    there: Row
    about: Sequence[str]
    """Which reference it is."""

    @property
    def case(self) -> str:
        """The case."""
        return self.row.key

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast it is here."""
        return match(self.there, self.row, RUN).ratio

    @property
    def is_off(self) -> bool:
        """Whether it is beyond what is normal on the same hardware, all of its interval."""
        ratio = self.ratio
        return (ratio.high or ratio.speedup) < 1 / NORMAL or (ratio.low or ratio.speedup) > NORMAL


def against_references(results: Results) -> tuple[list[SameCase], list[Row]]:
    """Return the cases that a reference run on a device of the same name has, too, and a row of each device that none has a case of."""
    if len(results.environments) > _MOST_MACHINES or not results.references:
        return [], []
    others = [run for run in reference_runs() if run.machine not in _themselves(results)]
    found, alone = list[SameCase](), list[Row]()
    for where, rows in by_device(results.rows).items():
        if mine := [row for row in rows if row.has_times]:
            same = _of_same(where, mine, others, results)
            found += same
            alone += [] if same else mine[:1]
    return found, alone


def _themselves(results: Results) -> set[str]:
    """Return the machines of the reference runs that these are."""
    own = {origin(environment) for environment in results.files.environments.values()} - {None}
    return {run.machine for run in reference_runs() if origin(run.environment) in own}


def _of_same(where: str, mine: Sequence[Row], runs: Sequence[ReferenceRun], results: Results) -> list[SameCase]:
    """Return the cases of the first machine with the same device that has any of these."""
    kind, environment = kind_of(mine[0].case.device), results.environments[mine[0].case.run]
    threads = max(row.case.threads or 1 for row in mine)
    workloads = frozenset(row.case.workload for row in mine)
    alike = [run for run in runs if run.has_any(workloads) and _is_same(run, mine[0], threads, environment)]
    for machine in grouped(alike, lambda run: run.machine).values():
        # Of a case that the reference has several times its last.
        theirs = {row.key: row for row in rows_of(tuple(machine)).rows if row.has_times and kind_of(row.case.device) == kind}
        device = ", ".join([machine[0].name_of(kind) or "", *([plural(threads, "thread")] if kind == "cpu" else [])])
        about = _notes(device, machine, environment)
        both = [(row, there) for row in mine if (there := theirs.get(row.key)) and there.case.found == row.case.found]
        if both:
            return [SameCase(where, row, there, about) for row, there in both]
    return []


def _is_same(run: ReferenceRun, here: Row, threads: int, environment: object) -> bool:
    """Whether a reference was measured on a device of that name, on a CPU with as many threads and the same units."""
    name = run.name_of(kind_of(here.case.device))
    is_cpu_like = not here.is_on_cpu or ((run.threads or 1) == threads and part(run.environment, *_ISA) == part(environment, *_ISA))
    return name is not None and is_cpu_like and name_words(name) == name_words(here.case.device_name or "")


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


def unpaired(rows: Sequence[Row], results: Results) -> list[str]:
    """Say why these devices are compared with no reference."""
    if not rows:
        return []
    several = several_runs(rows)
    what = one_line(few((f"{row.case.device} ({hardware(row, several)})" for row in rows), 1))
    itself = f"the reference run is shown here itself, and no other has a case of {what}"
    return [itself if _themselves(results) else f"no reference run has a case of {what}; dlbench contribute makes one"]


SECTION: Section[SameCase] = Section(
    records="same",
    title="Beside reference runs: how many times as fast",
    columns=[
        CASE,
        PLACE,
        of_row(lambda row: row.time.median_s, "here"),
        Column("reference.median_s", Unit.SECONDS, "one call in the reference run").by(lambda case: case.there.time.median_s, "there"),
        RATIO,
        Column("reference.off", Unit.TEXT, f"whether it is beyond a factor of {NORMAL:g}, all of its interval", heading="off").by(
            lambda case: "off" if case.is_off else None
        ),
    ],
    notes=lambda found: dict.fromkeys(note for case in found for note in case.about),
    whole=lambda case: {**cells(case.row), **of_ratio(case)},
    # A middle of all would depend on the suites that ran.
    foremost=lambda found: [middle(kind) for kind in by_kind(found).values()],
    headline={"": "{speedup} as fast as the reference{span}"},
)
