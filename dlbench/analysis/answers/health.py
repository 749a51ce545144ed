"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import Sustained, series, sustained_steps
from dlbench.analysis.answers.engine.pairs import by_kind
from dlbench.analysis.answers.engine.question import Question, Section, Tag
from dlbench.analysis.presentation.columns import CASE, KEY, PLACE, RATIO, Figure, figure, of_ratio, of_row, over_rounds, place
from dlbench.analysis.presentation.names import by_device, hardware, several_runs
from dlbench.analysis.presentation.wording import brief, few, plural
from dlbench.analysis.ratios.matching import RUN, grouped, match
from dlbench.analysis.ratios.ratio import Ratio, middle, speedup_of
from dlbench.analysis.read.runs import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.read.usability import is_noisy, is_set_aside, mostly_disturbed
from dlbench.analysis.scaling.outliers import Kind, Outlier, kinds, sentences
from dlbench.core import units
from dlbench.core.model import as_count, kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.reference.published import PublishedFigure, published_figures
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit, one_line, percent, ratio


class Point(NamedTuple):
    """One point of a series of a sustained step, over its beginning."""

    row: Row
    line: str
    at_s: float
    """Seconds of the window that had passed in its middle."""
    share: float


def _sustained_figures(found: Sequence[Sustained]) -> Iterator[Figure]:
    """Yield throughput and, where the machine tells it, the clock of these over their windows."""
    yield figure(
        "Sustained throughput and clock",
        "Throughput over that of the first second, and the device's clock over its first reading, in the course of the window.",
        "line",
        [*chain.from_iterable(_points(each.row) for each in found)],
        Column("sustained.at_s", Unit.SECONDS, "of the window that had passed", heading="time"),
        Column("sustained.share", Unit.RATIO, "over the burst, or the first clock", heading="over its beginning"),
        Column("sustained.line", Unit.TEXT, "which step, and of it what", heading="what"),
        place(found),
        reference=1.0,
    )


def _points(row: Row) -> Iterator[Point]:
    window_s, pace, clock = row.energy.window_s or 0.0, series(row, "pace"), series(row, "clock")
    for what, points, beginning in (("", pace, row.in_role("burst")), (": clock", clock, next(iter(clock), None))):
        if beginning and window_s:
            yield from (
                Point(row, brief(row.key) + what, (at + 0.5) * window_s / len(points), p / beginning) for at, p in enumerate(points)
            )


SUSTAINED = Section(
    records="bursts",
    title="Burst against steady throughput",
    columns=[
        KEY.headed("step"),
        place,
        Column("sustained.burst", Unit.ITEMS_PER_S, "throughput at the beginning", "higher", heading="burst").by(
            lambda each: each.row.in_role("burst")
        ),
        of_row(lambda row: row.rate.items_per_s, "steady"),
        over_rounds(
            Column("sustained.kept", Unit.FRACTION, "steady over burst: median over rounds", "higher", heading="kept", priority=0),
            lambda each: each.rounds,
            "sustained.",
        ),
        Column("sustained.onset_s", Unit.SECONDS, "time after which it stayed more than 3 % below its burst", priority=0).by(
            lambda each: each.onset_s, "fell after"
        ),
        of_row(lambda row: row.energy.watts, "power"),
    ],
    whole=lambda each: cells(each.row),
    headline={"": "{kept} kept of the burst"},
    figures=[_sustained_figures],
)


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


_SAME_HARDWARE: Section[SameCase] = Section(
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


_QUANTITIES: Mapping[str, Callable[[Row], float | None]] = {
    "items a second": lambda row: row.rate.items_per_s,
    "bus bandwidth": lambda row: row.rate.bus_bytes_per_s,
    "copies to the device": lambda row: row.transfer.pinned_h2d_bytes_per_s,
    "copies from the device": lambda row: row.transfer.pinned_d2h_bytes_per_s,
}
"""What there are figures of."""
_NOT_THE_SAME = "figures of others, by other programs on other software: for the order of magnitude, and never a verdict"


class Counterpart(NamedTuple):
    """A published figure, and the measured row that is nearest to it."""

    figure: PublishedFigure
    row: Row
    quantity: str
    here: float

    def shown(self, value: float) -> str:
        """Return one of the two in their unit."""
        return units.text(value, BY_NAME[self.figure.column].unit)


def beside_published(rows: Sequence[Row]) -> list[Counterpart]:
    """Return published figures, each with the nearest case of the same work in the same precision.

    Of the figures of one work and precision each device is set against the nearest: of a device of its name, else of the most alike name.
    """
    found = list[Counterpart]()
    for (quantity, of), on_device in product(_QUANTITIES.items(), by_device([row for row in rows if row.is_sound]).values()):
        column = of_row(of).name
        figures = [each for each in published_figures() if each.on_cpu is on_device[0].is_on_cpu and each.column == column]
        for of_work in grouped(figures, lambda each: (each.tags, str(each.params), each.dtype)).values():
            if measured := {row: value for row in on_device if _is_same_work(row, of_work[0]) and (value := of(row))}:
                name = on_device[0].case.device_name or ""
                figure = max(of_work, key=lambda each: _alike(name, each.device))
                # Of the nearest batch the best.
                nearest = min(measured, key=lambda row: (_apart(row, figure.batch), -measured[row]))
                found.append(Counterpart(figure, nearest, quantity, measured[nearest]))
    return found


def _is_same_work(row: Row, figure: PublishedFigure) -> bool:
    same = all(row.params.get(name) == value for name, value in figure.params.items())
    one_rank = "ranks" in figure.params or row.is_single_rank
    return same and one_rank and figure.tags.issubset(row.declared.tags) and figure.dtype in (None, row.case.dtype)


def _alike(name: str, other: str) -> tuple[bool, int]:
    mine, theirs = name_words(name), name_words(other)
    return mine == theirs, len(set(mine) & set(theirs))


def _apart(row: Row, batch: int | None) -> float:
    """Return how far the batch of a row, of a search the one it found, is from another, on logarithms; zero where there is no other."""
    return abs(math.log((as_count(row.setting("batch")) or 1) / batch)) if batch else 0.0


def _configuration(found: Counterpart) -> str:
    figure = found.figure
    batch = f"batch={figure.batch}" if figure.batch else "batch not stated" if "training" in figure.tags else ""
    return ", ".join(filter(None, (figure.device, batch, "without the update" if figure.update is False else "")))


_PUBLISHED: Section[Counterpart] = Section(
    records="published",
    title="Against published figures",
    columns=[
        KEY.headed("measured"),
        place,
        Column("published.quantity", Unit.TEXT, "what the figure is of", heading="of"),
        Column("published.measured", Unit.TEXT, "that here", heading="here").by(lambda each: each.shown(each.here)),
        Column("published.value", Unit.TEXT, "what others published", heading="there").by(lambda each: each.shown(each.figure.value)),
        Column("published.ratio", Unit.RATIO, "measured here over published", heading="ratio", priority=0).by(
            lambda each: each.here / each.figure.value
        ),
        Column(
            "published.configuration",
            Unit.TEXT,
            "device and batch of the figure, and whether it leaves out the update; its precision is that of the case",
        ).by(_configuration, "figure of"),
        Column("published.source", Unit.TEXT, "who published it, and when", heading="source").by(
            lambda each: f"{each.figure.source}, {each.figure.date}"
        ),
    ],
    notes=lambda found: dict.fromkeys(
        (_NOT_THE_SAME, *(f"{each.figure.source}: {each.figure.caution}" for each in found if each.figure.caution))
    ),
    whole=lambda each: cells(each.row),
)


_SIGNS: Mapping[str, Callable[[Row], bool | None]] = {
    "not usable": lambda row: row.flag.not_usable and mostly_disturbed(row),
    "failed": lambda row: not row.is_ok,
    "implausible": lambda row: row.flag.implausible,
    "throttled": lambda row: row.flag.throttled,
    "disturbed": lambda row: row.flag.disturbed,
    "unexpected": lambda row: row.flag.unexpected,
    "noisy": is_noisy,
}
"""Signs of trouble by the words behind a number of cases, the gravest first; the first is of all cases of a run."""
_GRAVE = ("failed", "implausible", "throttled")
_MINOR = ("throttled", "disturbed", "noisy")
"""Signs that the numbers of a run survive where at most half of its cases show them."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A sign of trouble, and the cases that show it, of all or of a device."""

    sign: str
    rows: Sequence[Row]
    """Those that show it."""
    tried: Sequence[Row]
    """Cases there."""
    place: str = "all"
    verdict: str = ""
    """Of the first what is said of the machine, in one line, and of what that is."""
    about: str = ""
    is_standing: bool = False
    """Whether that is its `standing` alone, with which a screen begins."""

    @property
    def row(self) -> Row:
        """The first of these."""
        return (*self.rows, *self.tried)[0]

    @property
    def sides(self) -> tuple[Row, ...]:
        """None, as flags are what it tells."""
        return ()


class Health(NamedTuple):
    """What rows say of a machine."""

    trouble: Sequence[Trouble]
    outliers: Sequence[Outlier]
    peaks: Sequence[Row]
    """Of each device the case with the largest share of its published peak, the lowest first."""
    bursts: Sequence[Sustained]
    same: Sequence[SameCase]
    alone: Sequence[Row]
    """A row of each device that no reference run has a case of."""
    kinds: Sequence[Kind]
    published: Sequence[Counterpart]


def _read(results: Results) -> Health:
    tried = [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]
    devices = by_device(tried)
    held = ([row for row in found if not (is_set_aside(row) or row.flag.implausible)] for found in devices.values())
    shares = ([row for row in found if row.rate.peak_fraction is not None] for found in held)
    peaks = sorted((max(found, key=_share) for found in shares if found), key=_share)
    machines = kinds(results.files) if len(results.files.environments) > 1 else []
    same, alone = against_references(results)
    of_all = _trouble(tried) or [Trouble("no trouble", (), tried)]
    by_place = [each for where, found in devices.items() for each in _trouble(found, where)] if len(devices) > 1 else []
    outliers = [each for kind in machines for each in kind.outliers]
    bursts = sustained_steps(results.rows)
    found = Health([*of_all, *by_place] if tried else [], outliers, peaks, bursts, same, alone, machines, beside_published(results.rows))
    return found._replace(trouble=[_judged(found, results), *found.trouble[1:]]) if tried else found


def _share(row: Row) -> float:
    return row.rate.peak_fraction or 0.0


def _trouble(rows: Sequence[Row], where: str = "all") -> list[Trouble]:
    """Return the signs of trouble that any of these rows show, the gravest first."""
    showing = {sign: list(filter(shows, rows)) for sign, shows in _SIGNS.items()}
    return [Trouble(sign, found, rows, where) for sign, found in showing.items() if found]


def standing(results: Results) -> str:
    """Return whether the numbers of results are usable, and what most of the doubtful cases are: ``usable; 4 of 17 cases noisy``."""
    tried = [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]
    counts, measured = {sign: sum(map(bool, map(shows, tried))) for sign, shows in _SIGNS.items()}, plural(len(tried), "case")
    if unusable := counts["not usable"]:
        whole = all(row.flag.not_usable for row in tried)
        most = max(("disturbed", "throttled"), key=counts.__getitem__)
        return f"not usable: {unusable} of {f'{len(tried)} {most}' if whole else measured}"
    if len(tried) == counts["failed"]:
        return "nothing measured"
    minor = max(_MINOR, key=counts.__getitem__)
    but = ";" if 2 * counts[minor] <= len(tried) else ", but"
    return f"usable{but} {counts[minor]} of {measured} {minor}" if counts[minor] else "usable"


def _judged(found: Health, results: Results) -> Trouble:
    """Return the first sign with the gravest trouble of all, how many cases show it, and its worst case where there is one."""
    first, showing = found.trouble[0], {each.sign: each.rows for each in found.trouble if each.place == "all"}
    measured, of_machine = plural(len(first.tried), "case"), _of_machine(found)
    off = sorted((each for each in found.same if each.is_off), key=speedup_of)
    if unusable := showing.get("not usable"):
        whole = all(row.flag.not_usable for row in first.tried)
        about = of_machine if whole else few(dict.fromkeys(row.file for row in unusable), 1)
        return replace(first, verdict=standing(results), about=about, is_standing=True)
    if grave := next(filter(showing.get, _GRAVE), None):
        worst = showing[grave][0]
        reason = f": {worst.case.reason}" if worst.is_failure and worst.case.reason else ""
        return replace(first, verdict=f"{len(showing[grave])} of {measured} {grave}", about=f"{brief(worst.key)}{reason}")
    if off and off[0].ratio.speedup < 1:
        return replace(first, verdict=f"{off[0].ratio.brief} as fast as this hardware elsewhere", about=brief(off[0].row.key))
    if slow := next((each for each in found.outliers if each.change > 0), None):
        return replace(first, verdict=f"{ratio(1 + slow.change).replace(' ', '')} the time of others of its kind", about=slow.row.case.run)
    usable = standing(results)
    return replace(first, verdict=f"usable; no trouble in {measured}" if usable == "usable" else usable, about=of_machine, is_standing=True)


def _of_machine(found: Health) -> str:
    """Return the lowest share of a published peak, or else the kind of work that is slowest beside a reference run."""
    if found.peaks:
        where = f"{found.peaks[0].case.device}: " if len(found.peaks) > 1 else ""
        return f"{where}{percent(_share(found.peaks[0]))} of the published peak"
    middles = {kind: middle(cases).ratio for kind, cases in by_kind(found.same).items()}
    if not middles:
        return ""
    kind = min(middles, key=lambda kind: middles[kind].speedup)
    return "no difference shown to the reference" if middles[kind].is_undecided else f"{kind} {middles[kind].brief} the reference"


def _cautions(results: Results) -> Iterator[str]:
    found = _read(results)
    yield from results.circumstances
    yield from sentences(found.kinds)
    if not found.peaks:
        yield "no published peak of these devices is known for what was measured"
    yield from unpaired(found.alone, results)
    if not found.kinds:
        yield "one file says nothing of other days: dlbench compare"


ORDER = 100
QUESTION = Question(
    "health",
    "Is this machine healthy: against its peak, against the same hardware elsewhere, against itself?",
    command="dlbench run",
    missing=["no case was measured"],
    read=_read,
    cautions=_cautions,
    tells_flags=True,
    tags={Tag.UNFINISHED: lambda results: bool(results.files.missing)},
    sections=[
        Section(
            records="trouble",
            title="Signs of trouble",
            columns=[
                Column("sign", Unit.TEXT, "what was the matter", heading="sign", priority=0),
                PLACE,
                Column("cases", Unit.COUNT, "cases with it", "lower", of=lambda each: len(each.rows), heading="cases", priority=0),
                Column("measured", Unit.COUNT, "cases that were measured", of=lambda each: len(each.tried), heading="measured", priority=0),
                KEY.by(lambda each: each.rows[0].key if each.rows else None, "such as"),
            ],
            rows=lambda each: each.tried,
            foremost=lambda found: [each for each in found if each.place == "all"],
            headline={"": "{verdict}"},
            lines=lambda found: 0 if found[0].is_standing else 1,
            qualifier=("{about:38}", ""),
        ),
        Section(
            records="outliers",
            title="Files that stand out among their kind",
            columns=[
                Column("outlier.file", Unit.TEXT, "the file", of=lambda each: each.row.case.run, heading="file"),
                KEY.by(lambda each: each.row.case.id),
                Column("outlier.times", Unit.RATIO, "its time over the median of its kind of machine", "lower", heading="time").by(
                    lambda each: 1 + each.change
                ),
            ],
        ),
        Section(
            records="peaks",
            title="Shares of published peaks",
            columns=[
                place,
                KEY.headed("reached by"),
                of_row(lambda row: row.rate.peak_fraction, "peak", 0),
                of_row(lambda row: row.rate.peak, "of", 0),
            ],
            whole=cells,
            headline={"": "{peak_fraction} of the published peak"},
        ),
        SUSTAINED,
        _SAME_HARDWARE,
        _PUBLISHED,
    ],
)
