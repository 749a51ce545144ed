"""Screens of result files: cases, the end, answers and details, on a terminal or in a pipe."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from dlbench.analysis.answers import answer_to, devices, speedup
from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.engine.pairs import same_case
from dlbench.analysis.answers.engine.question import DOUBTS, EXPLANATIONS, GAIN, Answer, Missing, Table, Tag, cut
from dlbench.analysis.answers.health import usability
from dlbench.analysis.claims import claims_table
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import DEVICE, Matches
from dlbench.analysis.read.runs import merged, part
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import sentences, tables
from dlbench.analysis.report.screen import Note, ScreenTable, columns_of, fitting, lines_of
from dlbench.analysis.scaling.projection import projected
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core.rows.row import Row
from dlbench.core.units import fold, one_line

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison

LABEL = 11
"""Columns of a label, with the gap behind it."""
MOST = 24
"""Lines of a small screen: the most that an ending takes."""
_WITH_TAGS = 60
"""Columns of a screen from which on a line has more than doubts behind it."""
_NAMED = 2
"""Devices and suites that are named."""
_RUN = "dlbench run"
_PLAIN = "quick"
"""The suite of a run that names none."""
_MOST_TOPICS, _MOST_SUITES = 4, 3
"""That are named as open: nobody asks twelve questions at once."""
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def run_in_words(results: Results) -> list[str]:
    """Return what was measured on, what and for how long, and whether the numbers are usable: a part each of one line."""
    return [one_line(each) for each in (_machines(results), sentences.extent(results), usability(results)) if each]


def packed(parts: Sequence[str], width: int) -> list[str]:
    """Return parts with a dot between them, on as few lines as they fit on."""
    lines = list[str]()
    for each in parts:
        if lines and len(longer := f"{lines[-1]} · {each}") <= width:
            lines[-1] = longer
        else:
            lines.append(each)
    return [folded for line in lines for folded in fold(line, width, cell=True)]


def _machines(results: Results) -> str:
    """Return what was measured on, with the reason where there is no accelerator: ``RTX 4090 against Ryzen 7950X, 16 threads``."""
    devices = {(row.case.run, row.case.device): row for row in names.most_threads_last(results.rows)}
    cpus, accelerators = (
        Counter(names.described(row) if on_cpu else str(row.case.device_name) for row in devices.values() if row.is_on_cpu is on_cpu)
        for on_cpu in (True, False)
    )
    counted = [few([name if count == 1 else f"{count} × {name}" for name, count in each.items()], _NAMED) for each in (accelerators, cpus)]
    if cpus and accelerators:
        return " against ".join(counted)
    environments = [*results.environments.values()]
    why = "" if accelerators or len(environments) != 1 else _no_accelerator(environments[0])
    return ", ".join(filter(None, (*counted, why and f"no GPU: {why}")))


def _no_accelerator(environment: Mapping[str, Any]) -> str:
    """Return why torch had no accelerator; empty where a file does not say, or there is one that nobody asked for."""
    versions, hidden = part(environment, "stack", "versions"), part(environment, "stack", "environ") or {}
    if not versions or part(environment, "identity", "accelerators"):
        return ""
    if name := next((name for name in _HIDING if hidden.get(name) in ("", "-1")), ""):
        return f"hidden by {name}"
    if not any(versions.get(each) for each in ("cuda", "hip", "xpu")):
        return "a CPU build of torch"
    return "torch finds none" if part(environment, "stack", "driver") else "no driver"


def _hanging(text: str, width: int) -> list[str]:
    """Return what is left open behind its label, folded below itself where that leaves most of the screen."""
    if text and width < 3 * LABEL:
        return fold(f"open: {text}", width)
    return [f"{'' if number else 'open':<{LABEL}}{line}" for number, line in enumerate(fold(text, max(1, width - LABEL), cell=True))]


def left_open(found: Sequence[Answer | Missing]) -> tuple[str, str]:
    """Return the topics that nothing was measured for, and the command that measures most of them; both empty where nothing is missing."""
    lacking = [each for each in found if isinstance(each, Missing) and each.commands]
    suites, left = list[str](), lacking
    while left:
        command = most_wanted(left)
        suites.append(command.removeprefix(_RUN).strip() or _PLAIN)
        left = [each for each in left if command not in each.commands]
    command = " ".join((_RUN, *suites[:_MOST_SUITES])).removesuffix(f" {_PLAIN}" if suites == [_PLAIN] else "")
    return (few((each.question.topic for each in lacking), _MOST_TOPICS), command) if suites else ("", "")


def most_wanted(lacking: Sequence[Missing]) -> str:
    """Return the command that answers most of what is missing."""
    return Counter(command for each in lacking for command in each.commands).most_common(1)[0][0]


def lines(found: Sequence[Answer | Missing], width: int, shared: Container[str] = ()) -> list[tuple[str, str]]:
    """Return label and text of each line that is answered, together at most as wide as the screen where that is wider than a label.

    A line says as much as it has room for with all its tags, but for those that all cases have (``shared``), then without the last of
    them. Its doubts stay at any width, or the worst run would have the cleanest lines. A label stands once; an answer under the label of
    the one before goes on in its line where there is room.
    """
    room, found_lines = max(1, width - LABEL), list[tuple[str, str]]()
    before = ""
    for each in found:
        if not isinstance(each, Answer):
            continue
        label = each.label or each.question.topic
        for number, texts in enumerate(each.lines):
            tags = [] if number else [tag for tag in each.tags if tag in DOUBTS or (tag not in shared and width >= _WITH_TAGS)]
            text = _fitting(texts, tags, room)
            if found_lines and label == before and not number and len(joined := f"{found_lines[-1][1]}; {text}") <= room:
                found_lines[-1] = found_lines[-1][0], joined
            else:
                found_lines.append(("" if label == before else label, text))
            before = label
    return found_lines


def _fitting(texts: Sequence[str], tags: Sequence[Tag], room: int) -> str:
    """Return the text, with the most tags behind it, and its doubts at least, that says the most of those with room; else the last, cut.

    Tags stand in their order, doubts first.
    """
    ends = [", ".join(tags[:most]) for most in range(len(tags), sum(tag in DOUBTS for tag in tags) - 1, -1)]
    made = [*("  ".join(filter(None, (text, end))) for text in texts for end in ends), texts[-1]]
    return next((text for text in made if len(text) <= room), cut(made[-1], room))


def explanations(used: Container[str], marks: Mapping[str, str], shared: Container[str] = ()) -> list[str]:
    """Return a line for each tag that is ``used``, and for each of the ``marks`` of cases: its meaning, and what to do about it.

    ``shared``: marks that all cases have, which no line repeats.
    """
    gain = {"gain": GAIN} if "(gain " in used or "gain: " in used else {}
    meanings: dict[str, str] = gain | {tag: EXPLANATIONS[tag] for tag in Tag if tag in marks or tag in used} | dict(marks)
    return [f"{mark}{' (all cases)' if mark in shared else ''}: {meaning}" for mark, meaning in meanings.items()]


_TABLE_LINES = 6
"""Lines that the table of cases has on a screen that is too small for all."""


def overview(
    results: Results,
    found: Sequence[Answer | Missing] | None = None,
    *,
    details: bool = False,
    height: int | None = None,
    more: str = "--topic details",
    left_open: str = "",
) -> RenderableType:
    """Return what result files say to a person: the cases, and behind them the run in one line with a line for each answer.

    ``found``: the answers, where they are known already. ``left_open``: what was not asked, and the command for it.
    With ``details`` all tables stand between them. On a screen of ``height`` lines there are as many cases as leave the end on it, and
    notes on how they were measured are left to ``more``.
    """
    results = merged(results)
    found = every_answer(results) if found is None else found
    answered = [each for each in found if isinstance(each, Answer)]
    detailed = list[Table]()
    if details:
        detailed = [
            *(table for each in answered for table in each.tables),
            tables.slowest_layers(results),
            tables.projection(projected(scaling(results), results)),
            *tables.values(results),
        ]
    rows, folded = results.rows, None if details else height
    many, shared = sentences.many_alike(rows), sentences.shared_marks(rows)
    shown = tables.ordered([row for row in rows if row.ending not in many])
    failures = sentences.many_alike(shown, failed=True)
    above = [*_notes(sentences.not_usable(results), "bold red"), *([] if folded else _notes(sentences.devices(rows)))]
    notes = [*sentences.reasons(rows), *sentences.unstated(results), *results.circumstances]
    below = [*_notes([*failures.values(), *many.values()], "yellow"), *([] if folded else _notes(notes)), *_drawn(detailed)]
    below += [End(results, found, sentences.marks(shown, results), shared, left_open, folded) if rows else Note("No cases.", "")]

    def chosen(rows: Sequence[Row]) -> ScreenTable:
        return tables.cases_table(rows, shared, failures, explained=not folded)

    if not (folded and shown):
        return Group(*above, *([chosen(shown)] if shown else []), *below)
    console, first = Console(), sorted(shown, key=lambda row: not tables.trouble(row))
    room = max(_TABLE_LINES, folded - sum(lines_of(console, part) for part in (*above, *below)) - 1)
    count, table = fitting(console, lambda count: chosen([row for row in shown if row in first[:count]]), len(first), room)
    hidden = [*([f"{left} more"] if (left := len(first) - count) else []), *([wording.plural(len(notes), "note")] if notes else [])]
    return Group(*above, table, *_notes([f"{', '.join(hidden)}: {more}"] if hidden else []), *below)


def reasoning(results: Results, topic: str | None = None) -> RenderableType:
    """Return the devices and the reasoning of each answer, or of that on one topic with the tables that it stands on."""
    results = merged(results)
    found = [each for each in every_answer(results) if topic in (None, each.question.topic)]
    tables = [table for each in found if topic and isinstance(each, Answer) for table in each.tables]
    return _screen(results, [*_notes(sentences.devices(results.rows)), *_reasons(results, *found)], tables)


def more_devices(results: Results) -> RenderableType:
    """Return what more devices bring, the table behind it, and what it would be on more of them than were measured."""
    found, steps = answer_to(devices, results.usable), scaling(results)
    answer = _reasons(results, found) if isinstance(found, Answer) else []
    projection = tables.projection(projected(steps, results))
    return _screen(results, answer, [devices.table(steps), projection])


def paired(results: Results, pairs: Matches, values: Table) -> RenderableType:
    """Return what pairing the rows by one column says, also of those that report ``values`` alone; by device, each at its own best, too."""
    where = _notes(sentences.devices(results.rows))
    if not (pairs.rows or values.rows):
        return Group(*where, Note("No two ok rows differ in that column alone.", ""))
    found = answer_to(speedup, results.usable) if pairs.by == DEVICE else None
    answer, tables = (_reasons(results, found), found.tables) if isinstance(found, Answer) else ([], (same_case(pairs), values))
    return _screen(results, [*answer, *where], tables)


def claims(results: Results) -> RenderableType:
    """Return what others claim, and the measured rows that test it."""
    return _screen(results, [], [claims_table(results)])


def verdicts(comparison: "Comparison", several: bool) -> RenderableType:
    """Return the verdict on each case, why it is so, and, where it is one of ``several``, what the comparison comes to."""
    from dlbench.analysis.report import compare_terminal  # other screens need not wait for it

    table = ScreenTable(compare_terminal.columns(comparison))
    reasons = _notes(compare_terminal.reasons(comparison), "")
    summary = [*_notes([compare_terminal.count(comparison.cases)], ""), Text()]
    return Group(table, *reasons, *(summary if several else []))


def _screen(results: Results, parts: Sequence[RenderableType], tables: Iterable[Table]) -> RenderableType:
    """Return the parts and the tables behind a line for each run that is not usable."""
    return Group(*_notes(sentences.not_usable(results), "bold red"), *parts, *_drawn(tables))


_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?: ?[×%])?(?!\w)")


def answer_lines(found: Sequence[Answer | Missing], width: int, shared: Container[str] = ()) -> Iterator[Text]:
    """Yield each line that is answered on a screen of this width, with its first number in colour."""
    for label, text in lines(found, width, shared):
        line = Text(f"{label:<{LABEL}}{text}", no_wrap=True, overflow="crop")
        if number := _NUMBER.search(line.plain):
            line.stylize("bold cyan", *number.span())
        yield line


@dataclass(frozen=True)
class End:
    """The end of a screen: the run in one line, what it answers, what is open, and its words of trouble as far as there is room."""

    results: Results
    found: Sequence[Answer | Missing]
    marks: Mapping[str, str] | None = None
    """Those of the cases above; None where no word is explained."""
    shared: Container[str] = ()
    left_open: str = ""
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        lines = [
            *(Text(each, style="bold") for each in packed(run_in_words(self.results), width)),
            *answer_lines(self.found, width, self.shared),
            *map(Text, _hanging(self.left_open, width)),
        ]
        yield from lines
        room = None if self.height is None else min(self.height, MOST) - len(lines)
        used = "\n".join(line.plain for line in lines)
        for each in () if self.marks is None else explanations(used, self.marks, self.shared):
            folded = fold(each, width)
            if room is not None and (room := room - len(folded)) < 0:
                break
            yield Note(each)


def _reasons(results: Results, *found: Answer | Missing) -> list[RenderableType]:
    """Return the headline of each answer, its sentences, and what weakens it, or why there is none; and what their tags mean."""
    parts = list[RenderableType]()
    for each in found:
        limits = [", ".join(each.tags)] if isinstance(each, Answer) else []
        about = "".join(f"  {part}" for part in (each.qualifier, *limits) if part)
        parts.append(Text(f"{each.question.topic}: {each.headline}", style="bold").append(about, style="not bold"))
        if isinstance(each, Missing):
            command = f"; measure it with: {each.command}" if each.command else ""
            parts.append(Note(f"{each.reason}{command}", "", 2))
        else:
            parts += [*_notes(each.sentences, "", 2), *_notes(each.weaknesses, indent=2)]
        parts.append(Text())
    of_answers = {tag for each in found if isinstance(each, Answer) for tag in each.tags}
    marks = {mark: meaning for mark, meaning in sentences.marks(results.rows, results).items() if mark in of_answers}
    return [*parts, *_notes(explanations(of_answers, marks))]


def _drawn(tables: Iterable[Table]) -> Iterator[RenderableType]:
    """Yield each table of data behind an empty line, and what a reader has to know of it."""
    for table in tables:
        if columns := columns_of(table):
            yield from (Text(), Note(table.title, "bold"), ScreenTable(columns), *_notes(table.notes))


def _notes(lines: Iterable[str], style: str = "dim", indent: int = 0) -> list[RenderableType]:
    return [Note(line, style, indent) for line in lines]
