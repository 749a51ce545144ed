"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, table
from dlbench.analysis.answers.parts.elsewhere import against_references
from dlbench.analysis.answers.parts.published import beside_published
from dlbench.analysis.compare.outliers import kinds, sentences
from dlbench.analysis.presentation.fields import KEY, PLACE, Field, Fields, of_row, own, place, whole_row
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


_TROUBLE: Fields[Trouble] = (
    ("device", Field(PLACE, lambda trouble: trouble.place)),
    own("sign", "sign", Unit.TEXT, "what was the matter", lambda trouble: trouble.sign),
    own("cases", "cases", Unit.COUNT, "cases with it", lambda trouble: trouble.cases, "lower"),
    own("measured", "measured", Unit.COUNT, "cases that were measured", lambda trouble: trouble.measured),
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
    peaks = {
        where: max(known, key=lambda row: row.rate.peak_fraction or 0.0)
        for where, found in devices.items()
        if (known := [row for row in found if not row.flag.implausible and row.rate.peak_fraction is not None])
    }
    several = len(results.files.environments) > 1
    elsewhere, of_references = against_references(results, devices) if results.references else ({}, AnswerPart())
    others = sentences(kinds(results.files)) if several else []
    weaknesses = [*results.circumstances, *others[1:]]
    weaknesses += [] if peaks else ["no published peak of these devices is known for what was measured"]
    weaknesses += of_references.weaknesses
    weaknesses += [] if several else ["one file says nothing of other days: dlbench compare"]
    of_peaks = (
        place(tried),
        ("reached by", KEY),
        ("peak", of_row(lambda row: row.rate.peak_fraction)),
        ("of", of_row(lambda row: row.rate.peak)),
    )
    tables = [
        table("Signs of trouble", _TROUBLE, trouble if len(devices) > 1 else ()),
        table("Shares of published peaks", of_peaks, list(peaks.values()), whole=whole_row),
        *of_references.tables,
        *beside_published(results),
    ]
    clauses = {where: list[str]() for where in devices}
    for where, row in peaks.items():
        share = percent(row.rate.peak_fraction or 0.0)
        clauses[where].append(f"reaches {share} of its published peak in {short(row.key)} ({row.rate.peak})")
    for where, clause in elsewhere.items():
        clauses[where].append(clause)
    of_devices = [f"{where} {', and '.join(of_device)}." for where, of_device in clauses.items() if of_device]
    found = AnswerPart(["; ".join([summary, *others[:1]]) + ".", *of_devices], tried, tables, weaknesses=weaknesses)
    return answered(QUESTION, found, flags_told=True)


def _signs(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows show each sign of trouble, of those that any shows."""
    return {sign: count for sign, shows in _SIGNS.items() if (count := sum(bool(shows(row)) for row in rows))}
