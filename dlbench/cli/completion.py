"""Words that a shell offers while one types: suites, devices, columns, topics and result files."""

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from dlbench.core.model import DEVICE_KINDS

_PARAMETERS = ("batch", "layout", "ranks", "n")
"""Of the standard names of parameters those that rows are most often paired by; a suite may have any."""


def suites(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the built-in suites and the suite files here."""
    from dlbench.harness.plan.suite import builtin_names

    return _or_any_path(incomplete, [*builtin_names(), *_files(incomplete, "toml")])


def devices(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of devices; which there are here only a process with torch could say."""
    return _starting(incomplete, [*DEVICE_KINDS, "gpu"])


def columns(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return what rows can be paired by: what identifies a case."""
    from dlbench.core.rows.row import MACHINE, WORK

    return _starting(incomplete, [*(setting.name for setting in (*MACHINE, *WORK)), *_PARAMETERS])


def topics(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the ten questions."""
    from dlbench.analysis import answers

    return _starting(incomplete, answers.topics())


def result_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the result files here and one folder down, which is where runs leave them."""
    return _or_any_path(incomplete, _files(incomplete, "jsonl"))


def _starting(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _or_any_path(incomplete: str, words: Iterable[str]) -> list[CompletionItem]:
    """Return the words that begin so, or have the shell complete a path, as the way may lead through folders."""
    return [CompletionItem(word) for word in _starting(incomplete, words)] or [CompletionItem(incomplete, type="file")]


def _files(incomplete: str, ending: str) -> list[str]:
    typed = incomplete.rpartition("/")[0]
    folder = Path(f"{typed}/") if typed or incomplete.startswith("/") else Path()
    try:
        return [str(path) for pattern in (f"*.{ending}", f"*/*.{ending}") for path in sorted(folder.glob(pattern))]
    except OSError:  # a folder that may not be read has nothing to offer
        return []
