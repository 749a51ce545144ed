"""Health of a machine: against its published peak, against others like it, and by what disturbed it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import CurvePoint, Sustained, curve, series, sustained
from dlbench.analysis.answers.engine.pairs import by_kind
from dlbench.analysis.answers.engine.question import Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, KEY, PLACE, RATIO, Figure, figure, of_row, over_rounds, place
from dlbench.analysis.presentation.names import by_device, hardware, several_runs
from dlbench.analysis.presentation.wording import brief, few, plural
from dlbench.analysis.ratios.matching import RUN, grouped, match
from dlbench.analysis.ratios.ratio import Ratio, median_by_ratio, speedup_of
from dlbench.analysis.read.runs import ReferenceRun, origin, part, reference_runs, rows_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.outliers import Kind, kinds, sentences
from dlbench.core.declarations import ValueRole
from dlbench.core.model import kind_of
from dlbench.core.reference.peaks import name_words
from dlbench.core.rows.row import Row
from dlbench.core.stats import known
from dlbench.core.units import one_line, percent, ratio


def _sustained_figures(records: Sequence[Sustained]) -> Iterator[Figure]:
    """Yield one figure: throughput and clock of each step in the course of its window, each over its first value."""
    roles: Sequence[ValueRole] = ("pace", "clock")  # the pace is the throughput in each part of the window
    points = list[CurvePoint]()
    for step, role in product(records, roles):
        values = series(step.row, role)
        name = brief(step.row.key) + (": clock" if role == "clock" else "")
        points += curve(step.row, name, [value / values[0] for value in values if values[0]])  # some drivers tell a clock of zero
    yield figure(
        "Sustained throughput and clock",
        "Throughput and the device's clock over their first values, in the course of the window.",
        "line",
        points,
        x=detail("sustained.at", "fraction", "of the window", "of the window that had passed", attrgetter("share")),
        y=detail("sustained.share", "ratio", "over its beginning", "over the first value", attrgetter("value")),
        series=detail("sustained.line", "text", "what", "which step, and of it what", attrgetter("name")),
        place=place(records),
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
            attrgetter("rounds"),
            "sustained.",
        ),
        shown("sustained.onset_s", "s", "fell after", "time after which it stayed more than 3 % below its burst"),
        of_row(lambda row: row.energy.watts, "power"),
    ],
    headline={"": "{kept} kept of the burst"},
    figures=_sustained_figures,
)


NORMAL = 1.25
"""Factor within which a case is normal for the same hardware: two machines of a kind often differ by 10 % in cooling, memory and drivers,
while a wrong setting costs more than a quarter, as a rule."""
_ISA = ("identity", "cpu", "isa")
"""Path in an environment to the vector and matrix units of a CPU; hypervisors give different processors the same name."""
_MOST_MACHINES = 4
"""Most machines to compare with references; more are a fleet, whose machines are compared with each other."""


class SameCase(NamedTuple):
    """A case here and in a reference run."""

    place: str
    row: Row
    """Row measured here."""
    there: Row
    """Row of the reference run."""
    about: Sequence[str]
    """Notes on the reference run."""
    ratio: Ratio
    """Speed here over that of the reference."""

    @property
    def case(self) -> str:
        """Key of the case."""
        return self.row.key

    @property
    def is_off(self) -> bool:
        """Whether the whole interval of the ratio is beyond `NORMAL`."""
        ratio = self.ratio
        return (ratio.high or ratio.speedup) < 1 / NORMAL or (ratio.low or ratio.speedup) > NORMAL


def match_references(results: Results) -> tuple[list[SameCase], list[Row]]:
    """Return two lists: the cases that a reference run on the same device has, too, and the first row of each device without such a case.

    Both are empty if references are not wanted, or for a fleet of more than `_MOST_MACHINES`, which is compared with itself alone.
    """
    if len(results.environments) > _MOST_MACHINES or not results.references:
        return [], []
    # The files, merged ones too, may be reference runs themselves; their origin shows it. No machine is compared with itself.
    own_origins = {origin(environment) for environment in results.files.environments.values()} - {None}
    own_machines = {run.machine for run in reference_runs() if origin(run.environment) in own_origins}
    other_runs = [run for run in reference_runs() if run.machine not in own_machines]
    matched, first_unmatched = list[SameCase](), list[Row]()
    for device, rows in by_device(results.rows).items():
        timed = [row for row in rows if row.has_times]
        if not timed:
            continue
        matched_here = _match_device(device, timed, other_runs, results)
        matched += matched_here
        if not matched_here:
            first_unmatched.append(timed[0])
    return matched, first_unmatched


def _match_device(device: str, here: Sequence[Row], runs: Sequence[ReferenceRun], results: Results) -> list[SameCase]:
    """Return the cases of one device that a reference machine has, too, each with its row there.

    ``here`` are the rows of the device. The reference machine is the first with the same device and any of these cases. Without such a
    machine there are none.
    """
    kind = kind_of(here[0].case.device)  # all rows are of one device, so the first tells
    environment = results.environments[here[0].case.run]
    threads = max(row.case.threads or 1 for row in here)
    workloads = frozenset(row.case.workload for row in here)
    candidates = [run for run in runs if run.has_any(workloads) and _has_same_device(run, here[0], threads, environment)]
    for runs_there in grouped(candidates, lambda run: run.machine).values():
        timed_there = [row for row in rows_of(tuple(runs_there)).rows if row.has_times and kind_of(row.case.device) == kind]
        there_by_key = {row.key: row for row in timed_there}  # of several rows of a case the last counts
        pairs = [(row, there_by_key[row.key]) for row in here if row.key in there_by_key]
        # A search that found something else here than there did other work.
        same = [(row, there) for row, there in pairs if row.case.found == there.case.found]
        if same:
            name = runs_there[0].name_of(kind) or ""
            device_there = f"{name}, {plural(threads, 'thread')}" if kind == "cpu" else name
            about = _notes(device_there, runs_there, environment)
            return [SameCase(device, row, there, about, match(there, row, RUN).ratio) for row, there in same]
    return []


def _has_same_device(run: ReferenceRun, here: Row, threads: int, environment: object) -> bool:
    """Whether a reference was measured on a device of the same name; on a CPU with as many threads and the same units, too."""
    name = run.name_of(kind_of(here.case.device))
    if name is None or name_words(name) != name_words(here.case.device_name or ""):
        return False
    return not here.is_on_cpu or ((run.threads or 1) == threads and part(run.environment, *_ISA) == part(environment, *_ISA))


def _notes(device: str, machine: Sequence[ReferenceRun], environment: object) -> list[str]:
    """Return notes on a reference machine: its device, files and days, and the versions of torch and dlbench that differ from here."""
    names, first = ", ".join(each.path.stem for each in machine), machine[0]
    days = " and ".join(sorted({began[1][:10] for each in machine if (began := origin(each.environment))}))
    notes = [f"there: {device}, {first.machine} ({names}), measured {days or 'on an unknown day'}"]
    different = []
    for path in (("stack", "versions", "torch"), ("provenance", "dlbench")):
        there, here = (part(each, *path) or "unknown" for each in (first.environment, environment))
        if there != here:
            different.append(f"{path[-1]} {there} there and {here} here")
    if different:
        notes.append(f"another version: {'; '.join(different)}")
    return [one_line(note) for note in notes]


_SAME_HARDWARE: Section[SameCase] = Section(
    records="same",
    title="Beside reference runs: how many times as fast",
    columns=[
        CASE,
        PLACE,
        of_row(lambda row: row.time.median_s, "here"),
        detail("reference.median_s", "s", "there", "one call in the reference run", attrgetter("there.time.median_s")),
        RATIO,
    ],
    notes=lambda found: dict.fromkeys(note for case in found for note in case.about),
    # The median over all kinds of work would depend on the suites that ran.
    foremost=lambda found: [median_by_ratio(kind) for kind in by_kind(found).values()],
    headline={"": "{speedup} as fast as the reference{span}"},
)


_SIGNS: Mapping[str, Callable[[Row], bool | None]] = {
    "not usable": lambda row: row.flag.not_usable and row.is_mostly_disturbed,
    "failed": lambda row: not row.is_ok,
    "implausible": lambda row: row.flag.implausible,
    "throttled": lambda row: row.flag.throttled,
    "disturbed": lambda row: row.flag.disturbed,
    "noisy": lambda row: row.is_noisy,
}
"""Signs of trouble and their conditions, the gravest first; the first holds for whole runs."""
_GRAVE = ("failed", "implausible", "throttled")
_MINOR = ("throttled", "disturbed", "noisy")
"""Signs that leave the numbers of a run usable; they are a reservation where more than half of its cases show them."""


class Trouble(NamedTuple):
    """A sign of trouble, and the cases that show it."""

    sign: str
    rows: Sequence[Row]
    """Cases that show it."""
    tried: Sequence[Row]
    """All cases."""
    verdict: str = ""
    """Verdict on the machine, of the first sign only."""
    about: str = ""
    """What stands beside the verdict: the case or file that it is about, or else the share of a peak or the ratio to a reference."""
    is_usability: bool = False
    """Whether the verdict is the `usability`, which a screen shows elsewhere."""

    @property
    def row(self) -> Row:
        """The first case that shows it, or else the first of all."""
        return (*self.rows, *self.tried)[0]

    @property
    def sides(self) -> tuple[Row, ...]:
        """No rows: their flags are the verdict itself, and no limit of it."""
        return ()


class Health(NamedTuple):
    """Records of the sections, and what verdict and cautions need."""

    trouble: Sequence[Trouble] = ()
    peaks: Sequence[Row] = ()
    """For each device the case with the largest share of its published peak; the device with the lowest share first."""
    bursts: Sequence[Sustained] = ()
    same: Sequence[SameCase] = ()
    alone: Sequence[Row] = ()
    """A row of each device that no reference run has a case of."""
    kinds: Sequence[Kind] = ()


def _read(results: Results) -> Health:
    """Return the health of the machines of these results.

    The verdict is a field of the first sign of trouble. It rests on all other parts of the health, so `_judge` adds it at the end.
    """
    tried = _tried(results)
    if not tried:
        return Health()
    rows_by_sign = {sign: [row for row in tried if shows(row)] for sign, shows in _SIGNS.items()}
    signs_shown = [Trouble(sign, rows, tried) for sign, rows in rows_by_sign.items() if rows]
    trouble = signs_shown or [Trouble("no trouble", (), tried)]
    # A rate that can't be true, or that was disturbed in an unusable run, is no share of a peak.
    with_peak = [row for row in tried if not (row.is_set_aside or row.flag.implausible) and row.rate.peak_fraction is not None]
    highest_shares = [max(rows, key=_share) for rows in by_device(with_peak).values()]
    bursts = known(sustained(row) for row in results.rows if row.is_sound)
    same, alone = match_references(results)
    health = Health(
        trouble,
        peaks=sorted(highest_shares, key=_share),
        bursts=sorted(bursts, key=lambda each: each.kept),
        same=same,
        alone=alone,
        kinds=kinds(results.files) if len(results.files.environments) > 1 else (),  # a single file has no others of its kind
    )
    return health._replace(trouble=[_judge(health, results), *trouble[1:]])


def _share(row: Row) -> float:
    """Return the share of its published peak that a row reaches; zero if no peak is known."""
    return row.rate.peak_fraction or 0.0


def usability(results: Results) -> str:
    """Return whether the numbers of results are usable, with the sign that most cases show: ``usable; 4 of 17 cases noisy``."""
    tried = _tried(results)
    counts = {sign: sum(bool(shows(row)) for row in tried) for sign, shows in _SIGNS.items()}
    measured = plural(len(tried), "case")
    if unusable := counts["not usable"]:
        is_every_run_unusable = all(row.flag.not_usable for row in tried)
        if is_every_run_unusable:
            cause = max(("disturbed", "throttled"), key=counts.__getitem__)
            return f"not usable: {unusable} of {len(tried)} {cause}"
        return f"not usable: {unusable} of {measured}"  # the counts include usable runs, so they tell no cause
    if len(tried) == counts["failed"]:
        return "nothing measured"
    commonest = max(_MINOR, key=counts.__getitem__)
    count = counts[commonest]
    if not count:
        return "usable"
    separator = ", but" if 2 * count > len(tried) else ";"
    return f"usable{separator} {count} of {measured} {commonest}"


def _tried(results: Results) -> list[Row]:
    """Return the rows of all cases that a device was tried on, also of those that are not usable."""
    return [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]


def _judge(health: Health, results: Results) -> Trouble:
    """Return the first sign of trouble of ``health``, with the verdict on the machine and what the verdict is about.

    The gravest verdict that applies is taken. From grave to light: not usable, a grave sign, slower than the same hardware elsewhere,
    slower than others of its kind, usable.
    """
    rows_by_sign = {each.sign: each.rows for each in health.trouble}
    first = health.trouble[0]
    measured = plural(len(first.tried), "case")
    if unusable := rows_by_sign.get("not usable"):
        if all(row.flag.not_usable for row in first.tried):
            about = _peak_or_reference(health)  # where it is all files, none needs to be named
        else:
            about = few(dict.fromkeys(row.file for row in unusable), 1)
        return first._replace(verdict=usability(results), about=about, is_usability=True)
    for sign in _GRAVE:
        if rows := rows_by_sign.get(sign):
            return first._replace(verdict=f"{len(rows)} of {measured} {sign}", about=_case_and_reason(rows[0]))
    slowest = min((each for each in health.same if each.is_off), key=speedup_of, default=None)
    if slowest and slowest.ratio.speedup < 1:
        return first._replace(verdict=f"{slowest.ratio.brief} as fast as this hardware elsewhere", about=brief(slowest.row.key))
    slow_outliers = [outlier for kind in health.kinds for outlier in kind.outliers if outlier.change > 0]  # they take more time
    if slow_outliers:
        outlier = slow_outliers[0]  # the outliers of a kind are in order, the farthest first
        times_as_long = ratio(1 + outlier.change).replace(" ", "")
        return first._replace(verdict=f"{times_as_long} the time of others of its kind", about=outlier.row.case.run)
    verdict = usability(results)
    if verdict == "usable":
        verdict = f"usable; no trouble in {measured}"
    return first._replace(verdict=verdict, about=_peak_or_reference(health), is_usability=True)


def _case_and_reason(row: Row) -> str:
    """Return the short name of a case, and why it failed if it did."""
    reason = f": {row.case.reason}" if row.is_failure and row.case.reason else ""
    return f"{brief(row.key)}{reason}"


def _peak_or_reference(health: Health) -> str:
    """Return the lowest share of a published peak, or else the kind of work that is slowest against a reference run, as text."""
    if health.peaks:
        where = f"{health.peaks[0].case.device}: " if len(health.peaks) > 1 else ""
        return f"{where}{percent(_share(health.peaks[0]))} of the published peak"
    medians = {kind: median_by_ratio(cases).ratio for kind, cases in by_kind(health.same).items()}
    if not medians:
        return ""
    kind = min(medians, key=lambda kind: medians[kind].speedup)
    return "no difference shown to the reference" if medians[kind].is_undecided else f"{kind} {medians[kind].brief} the reference"


def _cautions(results: Results) -> Iterator[str]:
    """Yield what disturbed the machine, the files that differ from their kind, and what the results cannot be compared with."""
    found = _read(results)
    yield from results.circumstances
    yield from sentences(found.kinds)
    if not found.peaks:
        yield "no published peak of these devices is known for what was measured"
    if found.alone:
        several = several_runs(found.alone)
        devices = few((f"{row.case.device} ({hardware(row, several)})" for row in found.alone), 1)
        yield one_line(f"no other reference run has a case of {devices}; dlbench contribute makes one")
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
            lines=lambda found: 0 if found[0].is_usability else 1,
            qualifier=("{about:38}", ""),
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
