"""The terminal, or the pipe in its place: who watches, which signs it has, and a pipe that is not read to its end."""

import codecs
import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from dlbench.core.units import fold

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dlbench.harness.probe.programs import OtherPrograms

_PIPE = 100
"""Columns for output that goes to a file or a pipe, as logs of CI wrap what is wider."""
_ALIKE = {"×": "x", "…": "~", "–": "-", "µ": "u", "·": "-"}
_HANDLER = "dlbench.alike"


def on_screen() -> bool:
    """Whether somebody watches stderr on a terminal that can be redrawn."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Write text to stderr, on a terminal broken between words."""
    click.echo(wrapped(text, sys.stderr), err=True)


def say_unbroken(line: str) -> None:
    """Write a line to stderr as it is: a program reads it, or it is to be copied."""
    click.echo(line, err=True)


def busy_line(programs: "OtherPrograms") -> str:
    """Return a line on the programs that use the CPUs and the consequence for times and forecasts; empty where none does."""
    busy = programs.named()
    return f"busy: {busy}; times would be too long, and forecasts are those of a quiet machine" if busy else ""


def write_notes(notes: Iterable[str]) -> None:
    """Write sentences that a reader has to know to stderr, a line each, on a terminal broken between words."""
    for note in notes:
        say(f"note: {note}")


def wrapped(text: str, stream: TextIO) -> str:
    """Return text for a stream: on a terminal in lines that fit it, broken between words alone, so a path stays whole; else as is."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size(os.get_terminal_size(stream.fileno())).columns or 80
    return "\n".join("\n".join(fold(line, width)) for line in text.split("\n"))


def draw(*parts: "RenderableType") -> None:
    """Lay parts out and write them to stdout, as wide as the terminal or COLUMNS, or as a log can hold where there is neither."""
    from rich.console import Console

    console = Console()
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        console.width = _PIPE
    # Through click, because rich answers a closed pipe with exit code 1. What is wider than the screen the terminal breaks.
    with console.capture() as capture:
        for part in parts:
            console.print(part, crop=False)
    click.echo(capture.get(), nl=False)


def make_printable(*streams: TextIO) -> None:
    """Let each stream replace characters that its encoding lacks by similar ones, or by a question mark, instead of failing."""
    codecs.register_error(_HANDLER, _alike)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


@contextmanager
def unread() -> Iterator[None]:
    """Go on behind the block where the reader of stdout has left (`dlbench compare A B | head`): that is no error, and changes no code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()


def drop_stdout() -> None:
    """Discard further output to stdout; else Python's own flush of the buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ALIKE.get(sign, "?") for sign in lacking), error.end
