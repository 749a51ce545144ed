"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts import elsewhere
from dlbench.analysis.answers.parts.base import Answer, Findings, Missing, Question, answered, table
from dlbench.analysis.answers.parts.published import beside_published
from dlbench.analysis.compare.outliers import kinds, sentences
from dlbench.analysis.presentation.fields import KEY, PLACE, Field, Fields, of_row, own, whole_row
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import percent

ORDER = 100
QUESTION = Question("health", "Is this machine healthy: against its peak, against the same hardware elsewhere, against itself?")
_SIGNS: Mapping[str, Callable[[Row], bool | None]] = {
    "failed or crashed": lambda row: not row.is_ok,
    "implausible": lambda row: row.flag.implausible,
    "throttled": lambda row: row.flag.throttled,
    "disturbed": lambda row: row.flag.disturbed,
    "not steady": lambda row: row.flag.not_steady,
    "noisy": lambda row: row.flag.noisy,
}


class Trouble(NamedTuple):
    """A sign of trouble, and how many cases of a device show it."""

    place: str
    sign: str
    cases: int
    measured: int
    """Cases of that device."""


class Peak(NamedTuple):
    """The case of a device that comes nearest to a published peak."""

    place: str
    row: Row
    share: float

    def __str__(self) -> str:
        return f"reaches {percent(self.share)} of its published peak in {short(self.row.key)} ({self.row.rate.peak})"


_TROUBLE: Fields[Trouble] = (
    ("device", Field(PLACE, lambda trouble: trouble.place)),
    own("sign", "sign", Unit.TEXT, "what was the matter", lambda trouble: trouble.sign),
    own("cases", "cases", Unit.COUNT, "cases with it", lambda trouble: trouble.cases, "lower"),
    own("measured", "measured", Unit.COUNT, "cases that were measured", lambda trouble: trouble.measured),
)
_PEAKS: Fields[Peak] = (
    ("device", Field(PLACE, lambda peak: peak.place)),
    ("reached by", KEY),
    ("peak", of_row(lambda row: row.rate.peak_fraction)),
    ("of", of_row(lambda row: row.rate.peak)),
)


def answer(results: Results) -> Answer | Missing:
    """Return how many cases show a sign of trouble, the share of its published peak that each device reaches, and how others do."""
    tried = [row for row in results.rows if row.is_ok or row.is_failure]
    if not tried:
        return Missing(QUESTION, "no case was measured", "dlbench run")
    devices = by_device(tried)
    trouble = [Trouble(where, sign, count, len(found)) for where, found in devices.items() for sign, count in _signs(found).items()]
    signs = ", ".join(f"{count} {sign}" for sign, count in _signs(tried).items())
    measured = plural(len(tried), "case")
    summary = f"Signs of trouble among {measured}: {signs}" if signs else f"No sign of trouble in {measured}"
    peaks = [peak for where, found in devices.items() if (peak := _nearest_peak(where, found))]
    several = len(results.files.environments) > 1
    beside, alone = elsewhere.beside_references(results) if results.references else ([], [])
    others = sentences(kinds(results.files)) if several else []
    weaknesses = [*results.circumstances, *others[1:]]
    weaknesses += [] if peaks else ["no published peak of these devices is known for what was measured"]
    weaknesses += alone if several else [*alone, "one file says nothing of other days: dlbench compare"]
    tables = [
        table("Signs of trouble", _TROUBLE, trouble if len(devices) > 1 else ()),
        table("Shares of published peaks", _PEAKS, peaks, whole=whole_row),
        *elsewhere.tables(beside),
        *beside_published(results),
    ]
    clauses = {where: [str(peak) for peak in peaks if peak.place == where] for where in devices}
    for each in beside:
        clauses[each.cases[0].place].append(each.clause())
    told = [f"{where} {', and '.join(said)}." for where, said in clauses.items() if said]
    found = Findings(["; ".join([summary, *others[:1]]) + ".", *told], tried, tables, weaknesses=weaknesses)
    return answered(QUESTION, found, flags_told=True)


def _signs(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows show each sign of trouble, of those that any shows."""
    return {sign: count for sign, shows in _SIGNS.items() if (count := sum(bool(shows(row)) for row in rows))}


def _nearest_peak(where: str, rows: Sequence[Row]) -> Peak | None:
    """Return the row that comes nearest to a published peak; None where there is none, or only rows that can't be true."""
    peaks = [Peak(where, row, share) for row in rows if not row.flag.implausible and (share := row.rate.peak_fraction) is not None]
    return max(peaks, key=lambda peak: peak.share, default=None)
