"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlbench.analysis.answers.parts import elsewhere, published, sustained
from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.headline import Tag, by_kind
from dlbench.analysis.presentation.columns import KEY, PLACE, of_row, place
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import brief, few, plural
from dlbench.analysis.ratios.ratio import middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.outliers import Kind, Outlier, kinds, sentences
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit, percent, ratio

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
    bursts: Sequence[sustained.Sustained]
    same: Sequence[elsewhere.SameCase]
    alone: Sequence[Row]
    """A row of each device that no reference run has a case of."""
    kinds: Sequence[Kind]
    published: Sequence[published.Counterpart]


def _read(results: Results) -> Health:
    tried = [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]
    devices = by_device(tried)
    held = ([row for row in found if not (row.is_set_aside or row.flag.implausible)] for found in devices.values())
    shares = ([row for row in found if row.rate.peak_fraction is not None] for found in held)
    peaks = sorted((max(found, key=_share) for found in shares if found), key=_share)
    machines = kinds(results.files) if len(results.files.environments) > 1 else []
    same, alone = elsewhere.against_references(results)
    of_all = _trouble(tried) or [Trouble("no trouble", (), tried)]
    by_place = [each for where, found in devices.items() for each in _trouble(found, where)] if len(devices) > 1 else []
    outliers = [each for kind in machines for each in kind.outliers]
    bursts = sustained.sustained_steps(results.rows)
    found = Health(
        [*of_all, *by_place] if tried else [], outliers, peaks, bursts, same, alone, machines, published.beside_published(results.rows)
    )
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
    yield from elsewhere.unpaired(found.alone, results)
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
        sustained.SECTION,
        elsewhere.SECTION,
        published.SECTION,
    ],
)
