"""Results and comparisons as one self-contained page of HTML. The door to Jinja2.

Nothing is loaded, and no script runs. All text of files goes through autoescaping and `one_line`.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import jinja2

from dlbench import __version__
from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.engine.question import EXPLANATIONS, Answer, Missing, Table
from dlbench.analysis.claims import claims_table
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import case_table, compare_terminal, ending, machines, sentences
from dlbench.analysis.report.chart import STYLE, Chart, brief, chart
from dlbench.analysis.report.figures import forest, samples
from dlbench.analysis.report.screen import ScreenColumn, columns_of
from dlbench.core.schema import Unit
from dlbench.core.stats import known
from dlbench.core.units import one_line

_NAMED = 4
"""Devices and suites that the title names, and lines on devices."""
_MOST_FORESTS = 20
"""Comparisons whose changes are drawn."""
_FEW_FORESTS = f"Of the first {_MOST_FORESTS} comparisons the changes are drawn; of all the verdicts stand in tables."


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and what is drawn on it."""

    html: str
    charts: Mapping[str, Chart]
    """By name, such as ``speed-up``."""

    def files(self) -> dict[str, str]:
        """Return each plot as SVG on white by the name of its file, such as ``speed-up.svg``."""
        files = {f"{name}.svg": chart.standalone() for name, chart in self.charts.items()}
        return {name: content for name, content in files.items() if content}


def report(results: Results, notes: Sequence[str] = (), made_from: str = "") -> Page:
    """Return the page on result files: answers, plots, every case with the command that measures it again, environment and warnings.

    ``made_from``: the names of the files, which the page says for the next one to replace it.
    """
    results = merged(results)
    found, marks = every_answer(results), sentences.marks(results.rows, results)
    drawn = [(each.question.topic, figure) for each in found if isinstance(each, Answer) for figure in each.figures]
    drawn += [("samples", figure) for figure in samples(results, found)]
    charts = {name: chart(figure) for name, (_, figure) in zip(_plot_names([topic for topic, _ in drawn]), drawn, strict=True)}
    views = iter([_plot(name, drawing) for name, drawing in charts.items()])
    html = _rendered(
        made_from=made_from,
        head=_head((row.case.suite for row in results.rows), (row.case.device_name for row in results.rows), results),
        lead=[" · ".join(ending.run_in_words(results)), sentences.count(results.rows), *sentences.devices(results.rows, _NAMED)],
        tiles=_tiles(found),
        left_open=_left_open(found),
        answers=[_answer(each, views, marks) for each in found],
        claims=_view(claims_table(results)),
        samples=list(views),
        cases=_cases(results),
        warnings=[*_for_others(notes, results), *results.circumstances, *sentences.reasons(results.rows), *sentences.unstated(results)],
        **_measured(results),
    )
    return Page(html, charts)


def comparison(comparisons: Sequence[Comparison], conclusion: str, notes: Sequence[str], results: Results) -> Page:
    """Return the page on comparisons of these results: for each the verdicts, the worst first, and a forest plot."""
    measured = _measured(results)
    plot_names = _plot_names(["comparison"] * len(comparisons))
    forests = zip(plot_names, map(forest, comparisons[:_MOST_FORESTS]), strict=False)
    charts = {name: chart(figure) for name, figure in forests if figure.rows}
    sides = (side for each in comparisons for case in each.cases for side in (case.base, case.new) if side)
    views = [
        {
            "name": f"{name}-verdicts",
            "title": each.title,
            "summary": compare_terminal.count(each.cases) if len(comparisons) > 1 else None,
            "doubts": known([each.doubt]),
            "plot": _plot(name, charts[name]) if name in charts else None,
            "table": _verdicts(each),
        }
        for name, each in zip(plot_names, comparisons, strict=True)
    ]
    html = _rendered(
        head=_head((each.title for each in comparisons), (side.case.device_name for side in sides), results),
        lead=[conclusion, *([_FEW_FORESTS] if comparisons[_MOST_FORESTS:] else [])],
        comparisons=views,
        warnings=_for_others((note for note in notes if note not in measured["not_usable"]), results),
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
    """Return what stands on the page for a value: text without control characters and without folders of the user's, nothing for None."""
    if isinstance(value, str) and not hasattr(value, "__html__"):  # which what is escaped already has
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
"""What a page may consist of, apart from comparisons: of each part its id and its heading."""


def _rendered(**content: Any) -> str:
    content = {**dict.fromkeys((*_PARTS, "comparisons", "made_from", "tiles", "left_open"), ()), **content}
    parts = [(each["name"], each["title"]) for each in content["comparisons"]]
    parts += [part for name, part in _PARTS.items() if content[name] or name == "warnings"]
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = ["default-src 'none'", f"style-src 'sha256-{style}'", "base-uri 'none'", "form-action 'none'"]
    return _template().render(**content, version=__version__, parts=parts, policy="; ".join(policy), style=STYLE)


def _plot_names(topics: Sequence[str]) -> list[str]:
    """Return a name for each plot: ``speed-up``, and for the next of the same topic ``speed-up-2``."""
    return [f"{topic}-{before + 1}" if (before := topics[:at].count(topic)) else topic for at, topic in enumerate(topics)]


def _head(what: Iterable[str], device_names: Iterable[str | None], results: Results) -> dict[str, Any]:
    """Return what tells a page from others: suites, or sides of a comparison, and devices; then when and with what it was measured."""
    shown = wording.few(dict.fromkeys(map(brief, what)), _NAMED)
    devices = wording.few(dict.fromkeys(brief(name) for name in device_names if name), _NAMED, "device")
    return {"title": " on ".join(filter(None, (shown, devices))) or "Results", "facts": machines.measured(results.files.environments)}


def _measured(results: Results) -> dict[str, Any]:
    """Return what stands on the page of the runs themselves: which is not usable, where each was measured, and its machine's state."""
    return {
        "not_usable": sentences.not_usable(results),
        "environments": [view for table in machines.tables(results.files.environments) if (view := _view(table))],
    }


def _for_others(notes: Iterable[str], results: Results) -> list[str]:
    return [names.without_folders(note, results.files.paths.values()) for note in notes]


def _view(table: Table) -> dict[str, Any] | None:
    """Return a table of data as words; None where it has no rows."""
    return _of_columns(table.title, columns_of(table), table.notes)


def _of_columns(title: str, columns: Sequence[ScreenColumn], notes: Sequence[str] = ()) -> dict[str, Any] | None:
    rows = list(zip(*(each.texts for each in columns), strict=True))
    return {"title": title, "headings": [(each.heading, each.number) for each in columns], "rows": rows, "notes": notes} if rows else None


def _plot(name: str, drawn: Chart) -> dict[str, Any]:
    figure = drawn.figure
    columns = [(axis.title, axis.column) for axis in sorted(figure.axes, key=lambda axis: axis.column.unit is not Unit.TEXT)]
    ends = [(heading, column) for heading, pair in ((wording.INTERVAL, figure.interval), ("band", figure.band)) for column in pair or ()]
    return {
        "name": name,
        "figure": figure,
        "left_out": drawn.left_out,
        "svg": drawn.svg(),
        "table": _view(Table(figure.title, (*columns, *ends), figure.rows)),  # the ends of an interval, or of a band, share a column
    }


def _tiles(found: Sequence[Answer | Missing]) -> list[dict[str, Any]]:
    """Return the lines of a screen, a tile each: of an answer the headline, and below it what has a line of its own."""
    shown = [each for each in found if isinstance(each, Answer) and each.lines]
    return [{"label": each.label or each.question.topic, "found": each, "more": [line[0] for line in each.lines[1:]]} for each in shown]


def _left_open(found: Sequence[Answer | Missing]) -> tuple[str, str] | None:
    """Return what was not asked, and the command for it; None where all is told."""
    topics, command = ending.left_open(found)
    return (topics, command) if topics else None


def _answer(found: Answer | Missing, views: Iterator[dict[str, Any]], marks: Mapping[str, str]) -> dict[str, Any]:
    """Return an answer for the page, which takes as many of the views of plots as it has figures; ``marks`` as cases have them."""
    if isinstance(found, Missing):
        return {"missing": True, "found": found, "tags": []}
    return {
        "missing": False,
        "found": found,
        "tags": [(tag, marks.get(tag, EXPLANATIONS[tag])) for tag in found.tags],
        "cases": found.cases,
        "rests_on": f"{wording.plural(len(found.cases), 'case')} it rests on",
        "plots": list(islice(views, len(found.figures))),
        "tables": [view for table in found.tables if (view := _view(table))],
    }


def _cases(results: Results) -> dict[str, Any] | None:
    rows = case_table.ordered(results.rows)
    table = _of_columns(f"{wording.plural(len(rows), 'case')} as a table", case_table.columns(rows))
    environments = results.files.environments
    return table and {
        **table,
        "unmeasured": not any(row.is_ok for row in rows),
        "trouble": list(map(case_table.trouble, rows)),
        "marks": (sentences.marks(rows, results) | sentences.legends(rows)).items(),
        "commands": [sentences.measuring_command([row], environments.get(row.file, {}), row.case.id) for row in rows],
    }


def _verdicts(comparison: Comparison) -> dict[str, Any] | None:
    return _of_columns(comparison.title, compare_terminal.columns(comparison), compare_terminal.reasons(comparison))
