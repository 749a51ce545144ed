"""Card to paste into a discussion: machine, what it was made with, a line for each answer, and the commands that measure it again."""

from collections.abc import Iterator

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.parts.headline import cut
from dlbench.analysis.export.tabular import code, markdown
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import ending, machines, sentences
from dlbench.core.errors import UsageError

_MOST = 300
"""Characters of a line about the files, and of a command."""
_NAMED = 2
"""Suites and commands that are named, and machines of a CPU and an accelerator."""


def card(results: Results) -> str:
    """Return a few lines of Markdown, without the user's folders. Raises UsageError where no case went well."""
    results = merged(results)
    if not any(row.is_ok for row in results.rows):
        counts = sentences.count(results.rows).rstrip(".")
        raise UsageError(f"no case went well, so there is no card ({counts}); dlbench show has the reasons")
    made = [few(dict.fromkeys(row.case.suite for row in results.rows), _NAMED), *machines.measured(results.files.environments)]
    about = [*sentences.not_usable(results)[:1], f"{', '.join(filter(None, made))}; {sentences.count(results.rows)}"]
    lines = [f"**{_line('; '.join(sentences.devices(results.rows, 2 * _NAMED)))}**", *map(_line, about), "", *_lines(results), ""]
    return "\n".join([*lines, f"Measured again by {few(_commands(results.files), _NAMED, 'command')}", ""])


def _line(text: str) -> str:
    return markdown(without_folders(cut(text, _MOST)))


def _lines(results: Results) -> Iterator[str]:
    """Yield the lines of a screen that has room for all of them."""
    label = ""
    for named, text in ending.lines(answers(results), _MOST):
        label = named or label
        yield f"- {label}: {markdown('; '.join(text.split('  ')))}"


def _commands(files: Results) -> dict[str, None]:
    """Return the command of each file, as code."""
    runs = grouped(files.rows, lambda row: row.file).items()
    commands = (sentences.measuring_command(rows, files.environments.get(run, {})) for run, rows in runs)
    return dict.fromkeys(code(cut(without_folders(each), _MOST)) for each in commands)
