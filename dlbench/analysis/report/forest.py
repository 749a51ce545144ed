"""Forest plot of a comparison: the change of each case with its interval, beside the band in which a change does not matter."""

from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation.figures import MOST_DRAWN, Axis, Figure
from dlbench.analysis.presentation.wording import short
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Column, Unit

_CASE = Column("compare.case", Unit.TEXT, "the case")
_VERDICT = Column("compare.verdict", Unit.TEXT, "slower, faster, same, or more than the data can tell")
_TIMES = Column("compare.times", Unit.RATIO, "time over that of base: 1.1 is 10 % more", "lower")
_LOW, _HIGH = (Column(f"compare.times_{end}", Unit.RATIO, f"{end}er end of its 95 % interval") for end in ("low", "high"))
_BAND_LOW, _BAND_HIGH = (
    Column(f"compare.band_{end}", Unit.RATIO, f"{end}er end of the changes that do not matter") for end in ("low", "high")
)
_ABOUT = "Right of 1 takes more time than the base. A line is a 95 % interval; in the band a change is smaller than the threshold."


def forest(comparison: Comparison) -> Figure | None:
    """Return the figure of the changes of the cases whose times were tested, the worst first; None where none was."""
    tested = [row for case in comparison.cases if (row := _row(case))]
    if not tested:
        return None
    few = f" Drawn are the first {MOST_DRAWN} of {len(tested)} cases; the table of verdicts has all." if tested[MOST_DRAWN:] else ""
    return Figure(
        title="Change of each case",
        about=f"{_ABOUT}{few}",
        mark="dot",
        x=Axis("time over that of base", _TIMES, log=True),
        y=Axis("case", _CASE),
        rows=tuple(tested[:MOST_DRAWN]),
        series=Axis("verdict", _VERDICT),
        interval=(_LOW, _HIGH),
        reference=1.0,
        band=(_BAND_LOW, _BAND_HIGH),
    )


def _row(case: CaseVerdict) -> Cells | None:
    change, limits = case.shown, case.thresholds
    if change is None or limits is None:
        return None
    return {
        _CASE.name: short(case.case),
        _VERDICT.name: case.verdict.value,
        _TIMES.name: 1 + change.change,
        _LOW.name: change.interval and 1 + change.interval.low,
        _HIGH.name: change.interval and 1 + change.interval.high,
        _BAND_LOW.name: 1 / (1 + limits.time),
        _BAND_HIGH.name: 1 + limits.time,
    }
