"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import Sustained, series, sustained
from dlbench.analysis.answers.engine.pairs import by_kind
from dlbench.analysis.answers.engine.question import Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, KEY, PLACE, RATIO, Figure, figure, of_row, over_rounds, place
from dlbench.analysis.presentation.names import by_device, hardware, several_runs
from dlbench.analysis.presentation.wording import brief, few, plural
from dlbench.analysis.ratios.matching import RUN, grouped, match
from dlbench.analysis.ratios.ratio import Ratio, median_by_ratio, speedup_of
from dlbench.analysis.read.runs import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.outliers import Kind, Outlier, kinds, sentences
from dlbench.core.declarations import ValueRole
from dlbench.core.model import kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Row
from dlbench.core.units import one_line, percent, ratio


def _sustained_figures(found: Sequence[Sustained]) -> Iterator[Figure]:
    """Yield throughput and, where the machine tells it, the clock of these over their windows, each over its beginning."""
    roles: Sequence[ValueRole] = ("pace", "clock")
    yield figure(
        "Sustained throughput and clock",
        "Throughput and the device's clock over their first values, in the course of the window.",
        "line",
        [
            (each, brief(each.row.key) + ": clock" * (role == "clock"), at / len(points), point / points[0])
            for each, role in product(found, roles)
            for points in [series(each.row, role)]
            for at, point in enumerate(points, 1)
        ],
        detail("sustained.at", "fraction", "of the window", "of the window that had passed", itemgetter(2)),
        detail("sustained.share", "ratio", "over its beginning", "over the first value", itemgetter(3)),
        detail("sustained.line", "text", "what", "which step, and of it what", itemgetter(1)),
        place(found).on(itemgetter(0)),
        reference=1.0,
    )


SUSTAINED = Section(
    records="bursts",
    title="Burst against steady throughput",
    columns=[
        KEY.headed("step"),
        place,
        detail("sustained.burst", "items/s", "burst", "throughput at the beginning", lambda each: each.row.in_role("burst")),
        of_row(lambda row: row.rate.items_per_s, "steady"),
        over_rounds(
            shown("sustained.kept", "fraction", "kept", "steady over burst: median over rounds"),
            lambda each: each.rounds,
            "sustained.",
        ),
        shown("sustained.onset_s", "s", "fell after", "time after which it stayed more than 3 % below its burst"),
        of_row(lambda row: row.energy.watts, "power"),
    ],
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
    own = {origin(environment) for environment in results.files.environments.values()} - {None}
    themselves = {run.machine for run in reference_runs() if origin(run.environment) in own}
    others = [run for run in reference_runs() if run.machine not in themselves]
    found, alone = list[SameCase](), list[Row]()
    for where, alike in by_device(results.rows).items():
        if rows := [row for row in alike if row.has_times]:
            same = _of_same(where, rows, others, results)
            found += same
            alone += [] if same else rows[:1]
    return found, alone


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
    names, first = ", ".join(each.path.stem for each in machine), machine[0]
    days = " and ".join(sorted({began[1][:10] for each in machine if (began := origin(each.environment))}))
    versions = {
        path[-1]: [part(each, *path) or "unknown" for each in (first.environment, environment)]
        for path in (("stack", "versions", "torch"), ("provenance", "dlbench"))
    }
    apart = "; ".join(f"{name} {there} there and {here} here" for name, (there, here) in versions.items() if there != here)
    notes = (f"there: {device}, {first.machine} ({names}), measured {days or 'on an unknown day'}", apart and f"another version: {apart}")
    return [one_line(note) for note in notes if note]


_SAME_HARDWARE: Section[SameCase] = Section(
    records="same",
    title="Beside reference runs: how many times as fast",
    columns=[
        CASE,
        PLACE,
        of_row(lambda row: row.time.median_s, "here"),
        detail("reference.median_s", "s", "there", "one call in the reference run", lambda case: case.there.time.median_s),
        RATIO,
        detail(
            "reference.off",
            "text",
            "off",
            f"whether it is beyond a factor of {NORMAL:g}, all of its interval",
            lambda case: "off" if case.is_off else None,
        ),
    ],
    notes=lambda found: dict.fromkeys(note for case in found for note in case.about),
    # A middle of all would depend on the suites that ran.
    foremost=lambda found: [median_by_ratio(kind) for kind in by_kind(found).values()],
    headline={"": "{speedup} as fast as the reference{span}"},
)


_SIGNS: Mapping[str, Callable[[Row], bool | None]] = {
    "not usable": lambda row: row.flag.not_usable and row.is_mostly_disturbed,
    "failed": lambda row: not row.is_ok,
    "implausible": lambda row: row.flag.implausible,
    "throttled": lambda row: row.flag.throttled,
    "disturbed": lambda row: row.flag.disturbed,
    "unexpected": lambda row: row.flag.unexpected,
    "noisy": lambda row: row.is_noisy,
}
"""Signs of trouble by the words behind a number of cases, the gravest first; the first is of all cases of a run."""
_GRAVE = ("failed", "implausible", "throttled")
_MINOR = ("throttled", "disturbed", "noisy")
"""Signs that the numbers of a run survive where at most half of its cases show them."""


class Trouble(NamedTuple):
    """A sign of trouble, and the cases that show it, of all or of a device."""

    sign: str
    rows: Sequence[Row]
    """Those that show it."""
    tried: Sequence[Row]
    """Cases there."""
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


def _read(results: Results) -> Health:
    tried, machines = _tried(results), kinds(results.files) if len(results.files.environments) > 1 else []
    held = (row for row in tried if not (row.is_set_aside or row.flag.implausible) and row.rate.peak_fraction is not None)
    peaks = sorted((max(found, key=_share) for found in by_device([*held]).values()), key=_share)
    same, alone = against_references(results)
    trouble = [Trouble(sign, showing, tried) for sign, shows in _SIGNS.items() if (showing := list(filter(shows, tried)))]
    outliers = [each for kind in machines for each in kind.outliers]
    bursts = sorted(filter(None, (sustained(row) for row in results.rows if row.is_sound)), key=lambda each: each.kept)
    found = Health(trouble or [Trouble("no trouble", (), tried)], outliers, peaks, bursts, same, alone, machines)
    return found._replace(trouble=[_judged(found, results), *found.trouble[1:]] if tried else [])


def _share(row: Row) -> float:
    return row.rate.peak_fraction or 0.0


def standing(results: Results) -> str:
    """Return whether the numbers of results are usable, and what most of the doubtful cases are: ``usable; 4 of 17 cases noisy``."""
    tried = _tried(results)
    counts, measured = {sign: sum(map(bool, map(shows, tried))) for sign, shows in _SIGNS.items()}, plural(len(tried), "case")
    if unusable := counts["not usable"]:
        most = max(("disturbed", "throttled"), key=counts.__getitem__)
        return f"not usable: {unusable} of {f'{len(tried)} {most}' if all(row.flag.not_usable for row in tried) else measured}"
    if len(tried) == counts["failed"]:
        return "nothing measured"
    minor = max(_MINOR, key=counts.__getitem__)
    but = ";" if 2 * counts[minor] <= len(tried) else ", but"
    return f"usable{but} {counts[minor]} of {measured} {minor}" if counts[minor] else "usable"


def _tried(results: Results) -> list[Row]:
    return [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]


def _judged(found: Health, results: Results) -> Trouble:
    """Return the first sign with the gravest trouble of all, how many cases show it, and its worst case where there is one."""
    first, showing = found.trouble[0], {each.sign: each.rows for each in found.trouble}
    measured, of_machine = plural(len(first.tried), "case"), _of_machine(found)
    off = sorted((each for each in found.same if each.is_off), key=speedup_of)
    if unusable := showing.get("not usable"):
        whole = all(row.flag.not_usable for row in first.tried)
        about = of_machine if whole else few(dict.fromkeys(row.file for row in unusable), 1)
        return first._replace(verdict=standing(results), about=about, is_standing=True)
    if grave := next(filter(showing.get, _GRAVE), None):
        worst = showing[grave][0]
        reason = f": {worst.case.reason}" if worst.is_failure and worst.case.reason else ""
        return first._replace(verdict=f"{len(showing[grave])} of {measured} {grave}", about=f"{brief(worst.key)}{reason}")
    if off and off[0].ratio.speedup < 1:
        return first._replace(verdict=f"{off[0].ratio.brief} as fast as this hardware elsewhere", about=brief(off[0].row.key))
    if slow := next((each for each in found.outliers if each.change > 0), None):
        return first._replace(verdict=f"{ratio(1 + slow.change).replace(' ', '')} the time of others of its kind", about=slow.row.case.run)
    usable = standing(results)
    return first._replace(verdict=f"usable; no trouble in {measured}" if usable == "usable" else usable, about=of_machine, is_standing=True)


def _of_machine(found: Health) -> str:
    """Return the lowest share of a published peak, or else the kind of work that is slowest beside a reference run."""
    if found.peaks:
        where = f"{found.peaks[0].case.device}: " if len(found.peaks) > 1 else ""
        return f"{where}{percent(_share(found.peaks[0]))} of the published peak"
    middles = {kind: median_by_ratio(cases).ratio for kind, cases in by_kind(found.same).items()}
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
    if found.alone:
        several = several_runs(found.alone)
        which = few((f"{row.case.device} ({hardware(row, several)})" for row in found.alone), 1)
        yield one_line(f"no other reference run has a case of {which}; dlbench contribute makes one")
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
                shown("sign", "text", "sign", "what was the matter"),
                shown("cases", "count", "cases", "cases with it", lambda each: len(each.rows)),
                shown("measured", "count", "measured", "cases that were measured", lambda each: len(each.tried)),
                KEY.by(lambda each: each.rows[0].key if each.rows else None, "such as"),
            ],
            rows=lambda each: each.tried,
            foremost=list,
            headline={"": "{verdict}"},
            lines=lambda found: 0 if found[0].is_standing else 1,
            qualifier=("{about:38}", ""),
        ),
        Section(
            records="outliers",
            title="Files that stand out among their kind",
            columns=[
                detail("outlier.file", "text", "file", "the file", lambda each: each.row.case.run),
                KEY.by(lambda each: each.row.case.id),
                detail(
                    "outlier.times",
                    "ratio",
                    "time",
                    "its time over the median of its kind of machine",
                    lambda each: 1 + each.change,
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
            headline={"": "{peak_fraction} of the published peak"},
        ),
        SUSTAINED,
        _SAME_HARDWARE,
    ],
)
