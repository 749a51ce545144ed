"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import Answer, Missing, Question, Table, answered
from dlbench.analysis.fleet import kinds, sentences
from dlbench.analysis.table import Results
from dlbench.analysis.wording import key, number, place, plural, several_runs, short
from dlbench.core.model import Status
from dlbench.core.schema import BY_NAME, Column, Unit
from dlbench.core.summary import Row
from dlbench.core.units import percent

QUESTION = Question("health", "Is this machine healthy: against its peak, against the same hardware elsewhere, against itself?")
_SIGNS = {
    "failed": "failed or crashed",
    "implausible": "implausible",
    "throttled": "throttled",
    "disturbed": "disturbed",
    "not_steady": "not steady",
    "noisy": "noisy",
}
_COLUMNS = (
    ("device", Column("health.place", Unit.TEXT, "where it is")),
    ("name", BY_NAME["case.device_name"]),
    ("cases", Column("health.cases", Unit.COUNT, "cases that were measured")),
    *((words, Column(f"health.{sign}", Unit.COUNT, f"of them {words}", "lower")) for sign, words in _SIGNS.items()),
    ("peak", BY_NAME["rate.peak_fraction"]),
    ("reached by", Column("health.case", Unit.TEXT, "the case nearest to a published peak")),
    ("of", BY_NAME["rate.peak"]),
)


def answer(results: Results) -> Answer | Missing:
    """Return how many cases show a sign of trouble, and what share of its published peak each device reaches."""
    tried = [row for row in results.rows if row["case.status"] == Status.OK or Status(str(row["case.status"])).is_failure]
    if not tried:
        return Missing(QUESTION, "no case was measured", "dlbench run")
    several = several_runs(results.rows, "case")
    places: dict[str, list[Row]] = {}
    for row in tried:
        places.setdefault(place(row, "case", several), []).append(row)
    rows = [_row(name, found) for name, found in places.items()]
    counts = {words: sum(int(number(row[f"health.{sign}"])) for row in rows) for sign, words in _SIGNS.items()}
    signs = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    measured = plural(len(tried), "case")
    told = f"Signs of trouble in {measured}: {signs}" if signs else f"No sign of trouble in {measured}"
    others = sentences(kinds(results)) if several else []
    told = "; ".join([told, *others[:1]])
    peaks = [_peak(row) for row in rows if row["rate.peak_fraction"] is not None]
    more = [] if peaks else ["no published peak of these devices is known for what was measured"]
    more += [] if several else ["one file says nothing of other days: dlbench compare"]
    weaknesses = (*results.circumstances, *others[1:], *more)
    return answered(QUESTION, [f"{told}.", *peaks], tried, weaknesses, Table("Signs of trouble", _COLUMNS, tuple(rows)))


def _row(where: str, rows: Sequence[Row]) -> Row:
    sound = [row for row in rows if row["case.status"] == Status.OK and not row["flag.implausible"]]
    nearest = max(sound, key=lambda row: number(row["rate.peak_fraction"] or 0), default=rows[0])
    known = nearest in sound and nearest["rate.peak_fraction"] is not None
    return {
        "health.place": where,
        "case.device_name": rows[0]["case.device_name"],
        "health.cases": len(rows),
        "health.failed": sum(row["case.status"] != Status.OK for row in rows),
        **{f"health.{sign}": sum(bool(row[f"flag.{sign}"]) for row in rows) for sign in _SIGNS if sign != "failed"},
        "rate.peak_fraction": nearest["rate.peak_fraction"] if known else None,
        "health.case": short(key(nearest)) if known else None,
        "rate.peak": nearest["rate.peak"] if known else None,
    }


def _peak(row: Row) -> str:
    share = percent(number(row["rate.peak_fraction"]))
    return f"{row['health.place']} reaches {share} of its published peak in {row['health.case']} ({row['rate.peak']})."
