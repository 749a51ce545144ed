"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Sequence

from dlbench.analysis.answers import elsewhere
from dlbench.analysis.answers.base import DEVICE, Answer, Missing, Question, Table, answered, by_device, not_usable, resting_on
from dlbench.analysis.answers.published import beside_published
from dlbench.analysis.outliers import kinds, sentences
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import key, number, plural, short
from dlbench.core.model import Status
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent

QUESTION = Question("health", "Is this machine healthy: against its peak, against the same hardware elsewhere, against itself?")
_SIGNS = {
    None: "failed or crashed",
    "flag.implausible": "implausible",
    "flag.throttled": "throttled",
    "flag.disturbed": "disturbed",
    "flag.not_steady": "not steady",
    "flag.noisy": "noisy",
}
_TROUBLE = (
    DEVICE,
    ("sign", Column("sign", Unit.TEXT, "what was the matter")),
    ("cases", Column("cases", Unit.COUNT, "cases with it", "lower")),
    ("measured", Column("measured", Unit.COUNT, "cases that were measured")),
)
_PEAKS = (
    DEVICE,
    ("reached by", Column("case.id", Unit.TEXT, "the case nearest to a published peak")),
    ("peak", BY_NAME["rate.peak_fraction"]),
    ("of", BY_NAME["rate.peak"]),
)


def answer(results: Results, *, references: bool) -> Answer | Missing:
    """Return how many cases show a sign of trouble, what share of its published peak each device reaches, and if it is as fast as others.

    ``references``: whether to hold it against reference runs, which are read for it.
    """
    tried = [row for row in results.rows if row["case.status"] == Status.OK or Status(str(row["case.status"])).is_failure]
    if not tried:
        return Missing(QUESTION, "no case was measured", "dlbench run")
    devices = by_device(tried, "case")
    trouble: list[Row] = [
        {"place": where, "sign": words, "cases": count, "measured": len(found)}
        for where, found in devices.items()
        for sign, words in _SIGNS.items()
        if (count := sum(bool(row["case.status"] != Status.OK if sign is None else row[sign]) for row in found))
    ]
    counts = {words: sum(int(number(row["cases"])) for row in trouble if row["sign"] == words) for words in _SIGNS.values()}
    signs = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    measured = plural(len(tried), "case")
    summary = f"Signs of trouble among {measured}: {signs}" if signs else f"No sign of trouble in {measured}"
    peaks = [{**nearest, "place": where, "case.id": key(nearest)} for where, found in devices.items() if (nearest := _nearest_peak(found))]
    several = len(results.files.environments) > 1
    beside, alone = elsewhere.beside_references(results) if references else ([], [])
    others = sentences(kinds(results.files)) if several else []
    weaknesses = [*not_usable(tried), *results.circumstances, *others[1:]]
    weaknesses += [] if peaks else ["no published peak of these devices is known for what was measured"]
    weaknesses += alone
    weaknesses += [] if several else ["one file says nothing of other days: dlbench compare"]
    tables = (
        Table("Signs of trouble", _TROUBLE, tuple(trouble) if len(devices) > 1 else ()),
        Table("Shares of published peaks", _PEAKS, tuple(peaks)),
        *([elsewhere.table(beside)] if beside else []),
        *beside_published(results),
    )
    clauses = {where: [_peak(row) for row in peaks if row["place"] == where] for where in devices}
    for each in beside:
        clauses[each.place].append(each.clause())
    told = [f"{where} {', and '.join(said)}." for where, said in clauses.items() if said]
    found = answered(QUESTION, ["; ".join([summary, *others[:1]]) + ".", *told], (), weaknesses, *tables)
    return resting_on(found, tried)  # their flags are what it tells


def _nearest_peak(rows: Sequence[Row]) -> Row | None:
    """Return the row that comes nearest to a published peak; None where there is none, or only rows that can't be true."""
    sound = [row for row in rows if row["rate.peak_fraction"] is not None and not row["flag.implausible"]]
    return max(sound, key=lambda row: number(row["rate.peak_fraction"]), default=None)


def _peak(row: Row) -> str:
    share = percent(number(row["rate.peak_fraction"]))
    return f"reaches {share} of its published peak in {short(row['case.id'])} ({row['rate.peak']})"
