"""Words that a shell offers while one types: suites, devices, columns and topics. Paths it completes itself."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from dlbench.core.model import DEVICE_KINDS

_PARAMETERS = ("batch", "layout", "ranks", "n")
"""Of the standard names of parameters those that rows are most often paired by; a suite may have any."""


def suites(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the built-in suites that begin so, or have the shell complete a path."""
    from dlbench.harness.plan.suite import builtin_names

    return [CompletionItem(name) for name in _starting(incomplete, builtin_names())] or [CompletionItem(incomplete, type="file")]


def devices(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of devices; which there are here only a process with torch could say."""
    return _starting(incomplete, [*DEVICE_KINDS, "gpu"])


def columns(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return what rows can be paired by: what identifies a case."""
    from dlbench.core.rows.row import MACHINE, WORK

    return _starting(incomplete, [*(setting.name for setting in (*MACHINE, *WORK)), *_PARAMETERS])


def topics(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the eleven questions."""
    from dlbench.analysis import answers

    return _starting(incomplete, answers.topics())


def _starting(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
