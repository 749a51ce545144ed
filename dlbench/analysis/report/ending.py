"""The end of a screen, of any width: the run in one line, what it answers a line each, and what its words of trouble mean."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from dlbench.analysis.answers.engine.question import DOUBTS, EXPLANATIONS, GAIN, Answer, Missing, Tag, cut
from dlbench.analysis.answers.health import standing
from dlbench.analysis.presentation import names
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.units import clock_time, fold, one_line

LABEL = 11
"""Columns of a label, with the gap behind it."""
MOST = 24
"""Lines of a small screen, which an ending does not exceed."""
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
_DOT = " · "


def run_in_words(results: Results) -> list[str]:
    """Return what was measured on, what and for how long, and whether the numbers are usable: a part each of one line."""
    rows = results.rows
    ended = Counter(names.status(row) for row in rows if row.case.status and row.case.status is not Status.OK)
    outcomes = f" ({', '.join(f'{count} {status}' for status, count in ended.items())})" if ended else ""
    files = results.files
    took = clock_time(sum(files.seconds.values())) if len(files.seconds) == len({*files.paths.values()}) > 0 else ""
    suites = few(dict.fromkeys(row.case.suite for row in rows), _NAMED, "suite")
    asked = ", ".join(filter(None, (suites, f"{plural(len(rows), 'case')}{outcomes}", took)))
    return [one_line(each) for each in (_machines(results), asked, standing(results)) if each]


def _machines(results: Results) -> str:
    """Return what was measured on, with the reason where there is no accelerator: ``RTX 4090 against Ryzen 7950X, 16 threads``."""
    devices = {(row.case.run, row.case.device): row for row in names.most_threads_last(results.rows)}
    cpus, accelerators = (
        Counter(names.described(row) if on_cpu else str(row.case.device_name) for row in devices.values() if row.is_on_cpu is on_cpu)
        for on_cpu in (True, False)
    )
    if cpus and accelerators:
        return f"{_counted(accelerators)} against {_counted(cpus)}"
    environments = [*results.environments.values()]
    why = "" if accelerators or len(environments) != 1 else _no_accelerator(environments[0])
    return f"{_counted(accelerators or cpus)}{f', no GPU: {why}' if why else ''}"


def _counted(devices: Counter[str]) -> str:
    return few([name if count == 1 else f"{count} × {name}" for name, count in devices.items()], _NAMED)


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


def packed(parts: Sequence[str], width: int) -> list[str]:
    """Return parts with a dot between them, on as few lines as they fit on."""
    lines = [""]
    for each in parts:
        longer = f"{lines[-1]}{_DOT}{each}" if lines[-1] else each
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(each)
    return [folded for line in lines for folded in fold(line, width, cell=True)]


def hanging(label: str, text: str, width: int) -> list[str]:
    """Return a text behind its label, folded below itself where that leaves most of the screen."""
    if width < 3 * LABEL:
        return fold(f"{label}: {text}", width)
    folded = fold(text, max(1, width - LABEL), cell=True)
    return [f"{'' if number else label:<{LABEL}}{line}" for number, line in enumerate(folded)]


def left_open(found: Sequence[Answer | Missing]) -> tuple[str, str]:
    """Return the topics that nothing was measured for, and the command that measures most of them; both empty where all is told."""
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
    room, told = max(1, width - LABEL), list[tuple[str, str]]()
    before = ""
    for each in found:
        if not isinstance(each, Answer):
            continue
        label = each.label or each.question.topic
        for number, texts in enumerate(each.lines):
            tags = [] if number else [tag for tag in each.tags if tag in DOUBTS or (tag not in shared and width >= _WITH_TAGS)]
            text = _fitting(texts, tags, room)
            if told and label == before and not number and len(joined := f"{told[-1][1]}; {text}") <= room:
                told[-1] = told[-1][0], joined
            else:
                told.append(("" if label == before else label, text))
            before = label
    return told


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
    told: dict[str, str] = gain | {tag: EXPLANATIONS[tag] for tag in Tag if tag in marks or tag in used} | dict(marks)
    return [f"{mark}{' (all cases)' if mark in shared else ''}: {meaning}" for mark, meaning in told.items()]
