"""Results and comparisons as one self-contained page of HTML. The door to Jinja2.

Nothing is loaded, and no script runs. All text of files goes through autoescaping and `one_line`.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import jinja2

from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.engine.question import EXPLANATIONS, Answer, Missing, Table, detail
from dlbench.analysis.claims import claims_table
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.presentation.columns import Figure, figure, spanned
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import compare_terminal, sentences, tables, terminal
from dlbench.analysis.report.chart import STYLE, Chart, chart, shorten
from dlbench.analysis.report.screen import ScreenColumn, columns_of
from dlbench.core.files import __version__
from dlbench.core.rows.row import Row
from dlbench.core.stats import known
from dlbench.core.units import Column, Unit, one_line

MOST_CASES = 20
"""Cases whose samples are drawn."""
_ABOUT = (
    "Each dot is the median of one fresh process, over that of all; the line is the 95 % interval, where rounds are enough for one. "
    "A time far beyond the others is an arrow at the end of the axis."
)
_FAR = 2
"""Times over the median, or below it, from which on a round would flatten all others."""
_RELATIVE = Column("sample.relative", Unit.RATIO, "time over the median of the case", "lower", heading="time over the median")
_ROUNDS = (
    spanned(_RELATIVE.by(itemgetter(1)), itemgetter(2, 3), "sample.time_"),
    detail("sample.case", "text", "case", "the case, and where it ran", itemgetter(0)),
)
"""Columns of a round, which is a name, the time over the median of the case, and the ends of its interval."""
_CHANGE = Column("compare.times", Unit.RATIO, "1.1 is 10 % more", "lower", heading="time over that of base")


def _ends_of_times(case: CaseVerdict) -> tuple[float, float] | None:
    """Return the ends of the interval of a case's time over that of base."""
    change = case.shown and case.shown.change_interval
    return (1 + change.low, 1 + change.high) if change else None


_CHANGES = (
    spanned(_CHANGE.by(lambda case: 1 + case.shown.change), _ends_of_times),
    detail("compare.case", "text", "case", "the case", lambda case: wording.short(case.case)),
    detail("compare.verdict", "text", "verdict", "slower, faster, same or undecided", lambda case: case.verdict.value),
)
_BAND = (
    detail("compare.band_low", "ratio", "", "low end", lambda case: 1 / (1 + case.thresholds.time)),
    detail("compare.band_high", "ratio", "", "high end", lambda case: 1 + case.thresholds.time),
)


def rounds_figures(results: Results, answers: Iterable[Answer | Missing]) -> list[Figure]:
    """Return the figure of the rounds of the cases that most answers use, `MOST_CASES` at most; none where nothing was timed."""
    answers_by_case = Counter(case for each in answers if isinstance(each, Answer) for case in each.cases)
    timed = [row for row in results.rows if row.rounds.median_s and (row.time.median_s or 0) > 0]
    if not timed:
        return []
    drawn = sorted(timed, key=lambda row: -answers_by_case[row.case.id])[:MOST_CASES]
    several = names.several_runs(timed)
    points = list(chain.from_iterable(_round_points(row, several) for row in drawn))
    about = _ABOUT
    if len(timed) > len(drawn):
        about += f" Drawn are the {len(drawn)} of {len(timed)} cases that most answers rest on."
    near = [relative for _, relative, _, _ in points if 1 / _FAR < relative < _FAR] or [1.0]
    return [figure("Rounds and their interval", about, "dot", points, *_ROUNDS, reference=1.0, clip=(min(near), max(near)))]


def _round_points(row: Row, several: bool) -> list[tuple[str, float, float | None, float | None]]:
    """Return the rounds of a row as `_ROUNDS` reads them; ``several``: rows are of several runs, so that names need them."""
    name = f"{wording.short(row.key)} on {names.device_label(row, several)}"
    median_s = wording.number(row.time.median_s)
    low, high = (end_s and end_s / median_s for end_s in (row.time.ci_low_s, row.time.ci_high_s))
    return [(name, seconds / median_s, low, high) for seconds in row.rounds.median_s]


def forest(comparison: Comparison) -> Figure:
    """Return the figure of the changes of the cases whose times were tested, the worst first."""
    return figure(
        "Change of each case",
        "Right of 1 takes more time than the base. A line is a 95 % interval; in the band a change is smaller than the threshold.",
        "dot",
        [case for case in comparison.cases if case.shown and case.thresholds],
        *_CHANGES,
        band=_BAND,
        reference=1.0,
        log="x",
    )


_NAMED = 4
"""Devices and suites that the title names, and lines on devices."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and what is drawn on it."""

    html: str
    charts: Mapping[str, Chart]
    """By name, such as ``speed-up``."""

    def files(self) -> dict[str, str]:
        """Return each plot as SVG on white by the name of its file, such as ``speed-up.svg``."""
        return {f"{name}.svg": chart.standalone() for name, chart in self.charts.items() if chart.specs}


def report(results: Results, notes: Sequence[str] = (), made_from: str = "") -> Page:
    """Return the page on result files: answers, plots, every case with the command that measures it again, environment and warnings.

    ``notes``: warnings of the command. ``made_from``: a key of the files, which the page keeps. A later page on the same files may replace
    this one, as it has the same key.
    """
    results = merged(results)
    answers = every_answer(results)
    marks = sentences.marks(results.rows, results)
    figures_of_answers = [(each.question.topic, figure) for each in answers if isinstance(each, Answer) for figure in each.figures]
    figures_of_rounds = [("samples", each) for each in rounds_figures(results, answers)]
    charts = _charts([*figures_of_answers, *figures_of_rounds])
    # The charts of the answers come first. Each answer takes its plots from this iterator, so those of the rounds remain for ``samples``.
    plots = iter([_plot(name, drawing) for name, drawing in charts.items()])
    answer_views = [_answer(each, plots, marks) for each in answers]
    warnings = [
        *_without_folders(notes, results),
        *results.circumstances,
        *sentences.flag_reasons(results.rows),
        *sentences.missing_rates(results),
    ]
    html = _render(
        made_from=made_from,
        head=_head((row.case.suite for row in results.rows), (row.case.device_name for row in results.rows), results),
        lead=[" · ".join(terminal.run_in_words(results)), *sentences.devices(results.rows, _NAMED)],
        left_open=terminal.left_open(answers),
        answers=answer_views,
        claims=_view(claims_table(results)),
        samples=list(plots),
        cases=_cases(results),
        warnings=warnings,
        **_measured(results),
    )
    return Page(html, charts)


def comparison(comparisons: Sequence[Comparison], conclusion: str, notes: Sequence[str], results: Results) -> Page:
    """Return the page on comparisons of these results: for each the verdicts, the worst first, and a forest plot.

    ``conclusion`` is the sentence on all of them, and ``notes`` are the warnings of the command.
    """
    measured = _measured(results)
    charts = _charts(("comparison", forest(each)) for each in comparisons)
    numbers = range(1, len(comparisons) + 1)
    # There is a chart for each comparison, in the order of the comparisons: `_charts` numbers those with the same name.
    views = [
        {
            "name": f"verdicts-{number}",
            "title": each.title,
            "summary": compare_terminal.count(each.cases) if len(comparisons) > 1 else None,
            "doubts": known([each.doubt]),
            "plot": _plot(name, drawn) if drawn.figure.rows else None,
            "table": _verdicts(each),
        }
        for number, each, (name, drawn) in zip(numbers, comparisons, charts.items(), strict=True)
    ]
    sides = [side for each in comparisons for case in each.cases for side in case.sides]
    other_notes = (note for note in notes if note not in measured["not_usable"])  # the page has those at its top
    html = _render(
        head=_head((each.title for each in comparisons), (side.case.device_name for side in sides), results),
        lead=[conclusion],
        comparisons=views,
        warnings=_without_folders(other_notes, results),
        **measured,
    )
    return Page(html, charts)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_harmless
    )
    return environment.from_string((Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8"))


def _harmless(value: object) -> object:
    """Return a value as the page shows it: text without control characters and the user's folders, nothing for None."""
    if isinstance(value, str) and not hasattr(value, "__html__"):  # escaped text has it
        return names.without_folders(one_line(value))
    return "" if value is None else value


_PARTS = {
    "answers": ("answers", "Answers"),
    "claims": ("claims", "What others claim"),
    "samples": ("rounds", "Every round"),
    "cases": ("cases", "All cases and their commands"),
    "environments": ("environment", "Environment"),
    "warnings": ("warnings", "Warnings"),
}
"""Parts of a page, apart from comparisons: the id and the heading of each."""


def _render(**content: Any) -> str:
    content = {**dict.fromkeys((*_PARTS, "comparisons", "made_from", "left_open"), ()), **content}
    parts = [(each["name"], each["title"]) for each in content["comparisons"]]
    parts += [part for name, part in _PARTS.items() if content[name] or name == "warnings"]
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = ["default-src 'none'", f"style-src 'sha256-{style}'", "base-uri 'none'", "form-action 'none'"]
    return _template().render(**content, version=__version__, parts=parts, policy="; ".join(policy), style=STYLE)


def _charts(figures: Iterable[tuple[str, Figure]]) -> dict[str, Chart]:
    """Return each figure as a chart by its name: ``speed-up``, and the next of the same topic ``speed-up-2``."""
    charts, counted = dict[str, Chart](), Counter[str]()
    for topic, each in figures:
        counted[topic] += 1
        charts[f"{topic}-{counted[topic]}" if counted[topic] > 1 else topic] = chart(each)
    return charts


def _head(subjects: Iterable[str], device_names: Iterable[str | None], results: Results) -> dict[str, Any]:
    """Return the title of a page, from its suites or comparisons and its devices, and the facts below: dates and versions."""
    shown = wording.few(dict.fromkeys(map(shorten, subjects)), _NAMED)
    devices = wording.few(dict.fromkeys(shorten(name) for name in device_names if name), _NAMED, "device")
    return {
        "title": " on ".join(filter(None, (shown, devices))) or "Results",
        "facts": sentences.dates_and_versions(results.files.environments),
    }


def _measured(results: Results) -> dict[str, Any]:
    """Return the lines on runs that are not usable, and a table of each run's machine and its state."""
    return {
        "not_usable": sentences.not_usable(results),
        "environments": list(filter(None, map(_view, sentences.environment_tables(results.files.environments)))),
    }


def _without_folders(notes: Iterable[str], results: Results) -> list[str]:
    return [names.without_folders(note, results.files.paths.values()) for note in notes]


def _view(table: Table) -> dict[str, Any] | None:
    """Return a table of data as words; None where it has no rows."""
    return _columns_view(table.title, columns_of(table), table.notes)


def _columns_view(title: str, columns: Sequence[ScreenColumn], notes: Sequence[str] = ()) -> dict[str, Any] | None:
    rows = list(zip(*(each.texts for each in columns), strict=True))
    return {"title": title, "headings": [(each.heading, each.number) for each in columns], "rows": rows, "notes": notes} if rows else None


def _plot(name: str, drawn: Chart) -> dict[str, Any]:
    figure = drawn.figure
    columns = [(each.heading, each) for each in sorted(figure.axes, key=lambda each: each.unit is not Unit.TEXT)]
    ends = [(heading, each) for heading, pair in ((wording.INTERVAL, figure.interval), ("band", figure.band)) for each in pair]
    return {
        "name": name,
        "figure": figure,
        "left_out": drawn.left_out,
        "svg": drawn.svg(),
        "table": _view(Table(figure.title, (*columns, *ends), figure.rows)),  # the ends of an interval, or of a band, share a column
    }


def _answer(found: Answer | Missing, views: Iterator[dict[str, Any]], marks: Mapping[str, str]) -> dict[str, Any]:
    """Return an answer for the page, with the next views of plots for its figures; ``marks``: the meanings that cases give its tags."""
    if isinstance(found, Missing):
        return {"missing": True, "found": found}
    return {
        "missing": False,
        "found": found,
        "tags": [(tag, marks.get(tag, EXPLANATIONS[tag])) for tag in found.tags],
        "plots": list(islice(views, len(found.figures))),
        "tables": list(filter(None, map(_view, found.tables))),
    }


def _cases(results: Results) -> dict[str, Any] | None:
    rows = tables.order_rows(results.rows)
    table = _columns_view(f"{wording.plural(len(rows), 'case')} as a table", tables.case_columns(rows))
    environments = results.files.environments
    return table and {
        **table,
        "unmeasured": not any(row.is_ok for row in rows),
        "trouble": list(map(tables.trouble, rows)),
        "marks": (sentences.marks(rows, results) | sentences.legends(rows)).items(),
        "commands": [sentences.measuring_command([row], environments.get(row.file, {}), row.case.id) for row in rows],
    }


def _verdicts(comparison: Comparison) -> dict[str, Any] | None:
    return _columns_view(comparison.title, compare_terminal.columns(comparison), compare_terminal.reasons(comparison))
