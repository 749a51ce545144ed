"""Screens of result files: cases, the end, answers and details, on a terminal or in a pipe."""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from dlbench.analysis.ratios.matching import DEVICE, Matches
from dlbench.analysis.read.runs import merged, part
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import sentences, tables
from dlbench.analysis.report.screen import Note, ScreenTable, columns_of, fitting, lines_of
from dlbench.analysis.scaling.projection import project_steps
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
"""Topics and suites that are named as open: nobody asks twelve questions at once."""
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def run_in_words(results: Results) -> list[str]:
    """Return the parts of the line on a run: its machines, its extent, and whether its numbers are usable."""
    return [one_line(each) for each in (_machines(results), sentences.extent(results), usability(results)) if each]


def join_parts(parts: Sequence[str], width: int) -> list[str]:
    """Return parts with a dot between them, on as few lines of this width as possible."""
    lines = list[str]()
    for each in parts:
        if lines and len(longer := f"{lines[-1]} · {each}") <= width:
            lines[-1] = longer
        else:
            lines.append(each)
    return [folded for line in lines for folded in fold(line, width, cell=True)]


def _machines(results: Results) -> str:
    """Return the devices of a run, with the reason where there is no accelerator: ``RTX 4090 against Ryzen 7950X, 16 threads``."""
    devices = {(row.case.run, row.case.device): row for row in names.most_threads_last(results.rows)}
    cpus = Counter(names.name_and_threads(row) for row in devices.values() if row.is_on_cpu)
    accelerators = Counter(str(row.case.device_name) for row in devices.values() if not row.is_on_cpu)
    counted = [
        wording.few([name if count == 1 else f"{count} × {name}" for name, count in alike.items()], _NAMED)
        for alike in (accelerators, cpus)
    ]
    if cpus and accelerators:
        return " against ".join(counted)
    environments = [*results.environments.values()]
    why = "" if accelerators or len(environments) != 1 else _no_accelerator(environments[0])
    return ", ".join(filter(None, (*counted, why and f"no GPU: {why}")))


def _no_accelerator(environment: Mapping[str, Any]) -> str:
    """Return why torch had no accelerator; empty where the environment does not say, or the machine has one that was not measured."""
    versions = part(environment, "stack", "versions")
    variables = part(environment, "stack", "environ") or {}
    if not versions or part(environment, "identity", "accelerators"):
        return ""
    if name := next((name for name in _HIDING if variables.get(name) in ("", "-1")), ""):
        return f"hidden by {name}"
    if not any(versions.get(each) for each in ("cuda", "hip", "xpu")):
        return "a CPU build of torch"
    return "torch finds none" if part(environment, "stack", "driver") else "no driver"


def _open_lines(text: str, width: int) -> list[str]:
    """Return the lines on what is left open: ``text`` behind its label, or on a narrow screen behind ``open:``."""
    if text and width < 3 * LABEL:
        return fold(f"open: {text}", width)
    return [f"{'' if number else 'open':<{LABEL}}{line}" for number, line in enumerate(fold(text, width - LABEL, cell=True))]


def left_open(answers: Sequence[Answer | Missing]) -> tuple[str, str]:
    """Return the topics that nothing was measured for, and the command that measures most of them; both empty where nothing is missing."""
    missing = [each for each in answers if isinstance(each, Missing) and each.commands]
    if not missing:
        return "", ""
    suites = list[str]()
    unanswered = missing
    while unanswered:
        command = most_wanted(unanswered)
        suites.append(command.removeprefix(_RUN).strip() or _PLAIN)
        unanswered = [each for each in unanswered if command not in each.commands]
    command = _RUN if suites == [_PLAIN] else " ".join((_RUN, *suites[:_MOST_SUITES]))
    return wording.few((each.question.topic for each in missing), _MOST_TOPICS), command


def most_wanted(missing: Sequence[Missing]) -> str:
    """Return the command that would answer most of the missing answers."""
    return Counter(command for each in missing for command in each.commands).most_common(1)[0][0]


def lines(answers: Sequence[Answer | Missing], width: int, shared: Container[str] = ()) -> list[tuple[str, str]]:
    """Return the label and the text of each line of the answers, on a screen ``width`` columns wide.

    The first line of an answer has its tags. It always has those that are doubts. It has the others only on a wide screen, and only if not
    all cases share them (``shared``). A label is shown once: further lines with it have an empty one. If two answers in a row have one
    label, the first line of the second continues the line above where there is room.
    """
    room = max(1, width - LABEL)
    labels_and_texts = list[tuple[str, str]]()
    label_before = ""
    for answer in answers:
        if not isinstance(answer, Answer):
            continue
        label = answer.label or answer.question.topic
        tags = [tag for tag in answer.tags if tag in DOUBTS or (tag not in shared and width >= _WITH_TAGS)]
        for number, texts in enumerate(answer.lines):
            text = _longest_fitting(texts, tags if number == 0 else [], room)
            if label != label_before:
                labels_and_texts.append((label, text))
            elif number == 0 and len(joined := f"{labels_and_texts[-1][1]}; {text}") <= room:
                labels_and_texts[-1] = labels_and_texts[-1][0], joined
            else:
                labels_and_texts.append(("", text))
            label_before = label
    return labels_and_texts


def _longest_fitting(texts: Sequence[str], tags: Sequence[Tag], room: int) -> str:
    """Return the first of some ever shorter texts that has room with its tags; if none has, the last one, cut and without tags.

    Tags are left out from the last, but never doubts, or the worst run would have the cleanest lines. Doubts come first among tags.
    """
    doubts = sum(tag in DOUBTS for tag in tags)
    endings = [", ".join(tags[:count]) for count in range(len(tags), doubts - 1, -1)]
    lines = [*("  ".join(filter(None, (text, ending))) for text in texts for ending in endings), texts[-1]]
    return next((line for line in lines if len(line) <= room), cut(lines[-1], room))


def explanations(used: Container[str], marks: Mapping[str, str], shared: Container[str] = ()) -> list[str]:
    """Return a line for each tag that is ``used`` and for each of the ``marks`` of cases: its meaning, and what to do about it.

    ``marks``: meanings by mark. ``shared``: marks that all cases have, which the tables don't repeat.
    """
    gain = {"gain": GAIN} if "(gain " in used or "gain: " in used else {}
    meanings: dict[str, str] = gain | {tag: EXPLANATIONS[tag] for tag in Tag if tag in marks or tag in used} | dict(marks)
    return [f"{mark}{' (all cases)' if mark in shared else ''}: {meaning}" for mark, meaning in meanings.items()]


_TABLE_LINES = 6
"""Lines that the table of cases has on a screen that is too small for all."""


def overview(
    results: Results,
    answers: Sequence[Answer | Missing] | None = None,
    *,
    details: bool = False,
    height: int | None = None,
    more: str = "--topic details",
    left_open: str = "",
) -> RenderableType:
    """Return the screen of result files: the table of cases, then the run in one line and a line for each answer.

    ``answers``: those of the results, if they are known already. ``details``: with all other tables, too. ``left_open``: what was not
    measured, and the command for it. ``height``: lines of the screen, on which the end has to stay. Cases and notes that have no room are
    counted on a line, which ends with ``more``, the command that shows them.
    """
    results = merged(results)
    answers = every_answer(results) if answers is None else answers
    rows = results.rows
    most_lines = None if details else height  # None: nothing is left out, however long the screen becomes
    # Cases that could not be measured here for one reason have a line instead of their rows.
    endings = sentences.common_endings(rows)
    shown = tables.order_rows([row for row in rows if row.ending not in endings])
    # Cases that failed alike keep their rows, and share a line for the reason.
    failures = sentences.common_endings(shown, failed=True)
    shared = sentences.shared_marks(rows)
    notes = [*sentences.flag_reasons(rows), *sentences.missing_rates(results), *results.circumstances]

    above = _notes(sentences.not_usable(results), "bold red")
    below = _notes([*failures.values(), *endings.values()], "yellow")
    if not most_lines:
        # There is room for each device and each note. With limited room the end names the devices, and `_hidden` counts the notes.
        above += _notes(sentences.devices(rows))
        below += _notes(notes)
    if details:
        below += _drawn(_detail_tables(results, answers))
    end = End(results, answers, sentences.marks(shown, results), shared, left_open, most_lines)
    below.append(end if rows else Note("No cases.", ""))

    if not shown:
        return Group(*above, *below)
    # Rows do not repeat the reasons that stand below the table. The legends of columns take lines, so they are there only without a limit.
    cases_table = partial(tables.cases_table, shared=shared, reasons_below=failures, with_legends=not most_lines)
    if not most_lines:
        return Group(*above, cases_table(shown), *below)
    console = Console()
    lines_of_others = sum(lines_of(console, part) for part in (*above, *below))
    room = max(_TABLE_LINES, most_lines - lines_of_others - 1)  # one line counts what is hidden
    count, table = _fitting_cases(console, cases_table, shown, room)
    hidden = _hidden(len(shown) - count, len(notes))
    return Group(*above, table, *_notes([f"{hidden}: {more}"] if hidden else []), *below)


def _hidden(cases: int, notes: int) -> str:
    """Return how many cases and notes have no room on the screen: ``12 more, 3 notes``; empty for none."""
    counts = (f"{cases} more" if cases else "", wording.plural(notes, "note") if notes else "")
    return ", ".join(filter(None, counts))


def _fitting_cases(
    console: Console, cases_table: Callable[[Sequence[Row]], ScreenTable], rows: Sequence[Row], room: int
) -> tuple[int, ScreenTable]:
    """Return how many cases have room, and their table in its own order: those in trouble, and then the first of the others."""
    trouble_first = sorted(rows, key=lambda row: not tables.trouble(row))

    def table_of(count: int) -> ScreenTable:
        return cases_table([row for row in rows if row in trouble_first[:count]])

    return fitting(console, table_of, len(rows), room)


def _detail_tables(results: Results, answers: Sequence[Answer | Missing]) -> list[Table]:
    """Return the tables of all answers, and those that belong to none."""
    return [
        *(table for each in answers if isinstance(each, Answer) for table in each.tables),
        tables.slowest_layers(results),
        tables.projection(project_steps(scaling(results), results)),
        *tables.values(results),
    ]


def reasoning(results: Results, topic: str | None = None) -> RenderableType:
    """Return the screen of the reasoning of all answers with the devices, or of the answer on one topic with its tables, too."""
    results = merged(results)
    found = [each for each in every_answer(results) if topic in (None, each.question.topic)]
    tables = [table for each in found if topic and isinstance(each, Answer) for table in each.tables]
    return _screen(results, [*_notes(sentences.devices(results.rows)), *_reasons(results, *found)], tables)


def more_devices(results: Results) -> RenderableType:
    """Return the screen on scaling: the answer, its table, and the projection to more devices than were measured."""
    found = answer_to(devices, results.usable)
    steps = scaling(results)
    answer = _reasons(results, found) if isinstance(found, Answer) else []
    projection = tables.projection(project_steps(steps, results))
    return _screen(results, answer, [devices.table(steps), projection])


def pairs_screen(results: Results, pairs: Matches, values: Table) -> RenderableType:
    """Return the screen of pairs of rows that differ in one column; by device it is that of the answer on speed-up.

    ``values``: the table of pairs whose rows report values and no times.
    """
    where = _notes(sentences.devices(results.rows))
    if not (pairs.rows or values.rows):
        return Group(*where, Note("No two ok rows differ in that column alone.", ""))
    found = answer_to(speedup, results.usable) if pairs.by == DEVICE else None
    answer, tables = (_reasons(results, found), found.tables) if isinstance(found, Answer) else ([], (same_case(pairs), values))
    return _screen(results, [*answer, *where], tables)


def claims(results: Results) -> RenderableType:
    """Return the screen of claims of others, with the measured rows that test them."""
    return _screen(results, [], [claims_table(results)])


def verdicts(comparison: "Comparison", several: bool) -> RenderableType:
    """Return the verdicts of a comparison with their reasons; of one of ``several`` also the number of cases by verdict."""
    from dlbench.analysis.report import compare_terminal  # other screens need not wait for it

    table = ScreenTable(compare_terminal.columns(comparison))
    reasons = _notes(compare_terminal.reasons(comparison), "")
    summary = [*_notes([compare_terminal.count(comparison.cases)], ""), Text()]
    return Group(table, *reasons, *(summary if several else []))


def _screen(results: Results, parts: Sequence[RenderableType], tables: Iterable[Table]) -> RenderableType:
    """Return a line for each run that is not usable, then the parts and the tables."""
    return Group(*_notes(sentences.not_usable(results), "bold red"), *parts, *_drawn(tables))


def answer_lines(answers: Sequence[Answer | Missing], width: int, shared: Container[str] = ()) -> Iterator[Text]:
    """Yield the lines of the answers on a screen of this width."""
    for label, text in lines(answers, width, shared):
        yield Text(f"{label:<{LABEL}}{text}", no_wrap=True, overflow="crop")


@dataclass(frozen=True)
class End:
    """The end of a screen: the run in one line, the answers, what is open, and the meaning of tags as far as there is room."""

    results: Results
    answers: Sequence[Answer | Missing]
    marks: Mapping[str, str] | None = None
    """Meanings of the marks of the cases above; None where none is explained."""
    shared: Container[str] = ()
    left_open: str = ""
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the run, the answers and what is open; then the meanings of the tags and marks used, as many as have room."""
        width = options.max_width
        lines = [
            *(Text(each, style="bold") for each in join_parts(run_in_words(self.results), width)),
            *answer_lines(self.answers, width, self.shared),
            *map(Text, _open_lines(self.left_open, width)),
        ]
        yield from lines
        if self.marks is None:
            return
        most = math.inf if self.height is None else min(self.height, MOST)
        room = most - len(lines)
        shown_text = "\n".join(line.plain for line in lines)
        for explanation in explanations(shown_text, self.marks, self.shared):
            room -= len(fold(explanation, width))
            if room < 0:
                break
            yield Note(explanation)


def _reasons(results: Results, *answers: Answer | Missing) -> list[RenderableType]:
    """Return each answer's headline, sentences and weaknesses, or why it is missing, and at the end the meaning of all tags."""
    parts = list[RenderableType]()
    for each in answers:
        tags = ", ".join(each.tags) if isinstance(each, Answer) else ""
        qualifier_and_tags = "".join(f"  {part}" for part in (each.qualifier, tags) if part)
        parts.append(Text(f"{each.question.topic}: {each.headline}", style="bold").append(qualifier_and_tags, style="not bold"))
        if isinstance(each, Missing):
            command = f"; measure it with: {each.command}" if each.command else ""
            parts.append(Note(f"{each.reason}{command}", "", 2))
        else:
            parts += [*_notes(each.sentences, "", 2), *_notes(each.weaknesses, indent=2)]
        parts.append(Text())
    used = {tag for each in answers if isinstance(each, Answer) for tag in each.tags}
    # The cases may give a tag a meaning of their own, such as a remedy that fits their budget. It is shown in place of the usual one.
    meanings_by_cases = {mark: meaning for mark, meaning in sentences.marks(results.rows, results).items() if mark in used}
    return [*parts, *_notes(explanations(used, meanings_by_cases))]


def _drawn(tables: Iterable[Table]) -> Iterator[RenderableType]:
    """Yield an empty line, title, rows and notes of each table that has rows."""
    for table in tables:
        if columns := columns_of(table):
            yield from (Text(), Note(table.title, "bold"), ScreenTable(columns), *_notes(table.notes))


def _notes(lines: Iterable[str], style: str = "dim", indent: int = 0) -> list[RenderableType]:
    return [Note(line, style, indent) for line in lines]
