"""Words that a shell offers while one types: suites, devices, columns and topics. Paths it completes itself."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from dlbench.core.model import DEVICE_KINDS

_PARAMETERS = ("batch", "layout", "ranks", "n")
"""Of the standard names of parameters those that rows are most often paired by; a suite may have any."""


def _offering(
    words: Callable[[], Iterable[str]], otherwise: str = ""
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes a word by these; ``otherwise``: what kind of word the shell completes where none begins so."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(word) for word in dict.fromkeys(words()) if word.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type=otherwise)] if otherwise else [])

    return complete


def _suites() -> Iterable[str]:
    from dlbench.harness.plan.suite import builtin_names

    return builtin_names()


def _columns() -> Iterable[str]:
    from dlbench.core.rows.row import MACHINE, WORK

    return (*(setting.name for setting in (*MACHINE, *WORK)), *_PARAMETERS)


def _topics() -> Iterable[str]:
    from dlbench.analysis import answers

    return answers.topics()


suites = _offering(_suites, "file")
devices = _offering(lambda: (*DEVICE_KINDS, "gpu"))  # which there are here only a process with torch could say
columns = _offering(_columns)  # that identify a case
topics = _offering(_topics)
