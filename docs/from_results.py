"""The parts of pages that show committed result files: ``make docs`` makes them anew, a test holds that they are up to date.

A part stands between two comments, of which the first names it. Blocks that begin with ``$ dlbench show results/reference/…`` have what
that command prints, on any page.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dlbench.analysis.export.tabular import markdown_table
from dlbench.analysis.read.references import ReferenceRun, reference_runs
from dlbench.core.precision import PRECISIONS

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "docs/pictures/precision.svg"
WIDTH = 120
"""Columns of a line of prose."""
_ACCELERATORS = ("cuda", "xpu", "mps")
_SHOWN = frozenset(("cnn", "quick"))
"""Suites of which pages show a table."""
_PART = re.compile(r"(<!-- Made by `make docs` from results/reference: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWS = re.compile(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n.*?```", re.DOTALL)


def pages() -> dict[str, str]:
    """Return the text of every page that shows committed files, by its path in the checkout."""
    found = {path: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
    made = {path: _with_blocks(_with_parts(text)) for path, text in found.items() if _PART.search(text) or _SHOWS.search(text)}
    return {path.relative_to(ROOT).as_posix(): text for path, text in made.items()}


def picture() -> str:
    """Return the picture of README.md, as ``dlbench report`` draws it of the file of its table."""
    with tempfile.TemporaryDirectory() as folder:
        _dlbench("report", _place(shown()["cnn"].path), "-o", f"{folder}/page.html", "--figures", f"{folder}/figures")
        return (Path(folder) / "figures" / Path(PICTURE).name).read_text()


@cache
def shown() -> Mapping[str, ReferenceRun]:
    """Return the reference runs of the machine that pages show, by suite: of those with all that they show the one measured last.

    Raises ValueError where there is none.
    """
    machines: dict[str, dict[str, ReferenceRun]] = {}
    for run in reference_runs():
        machines.setdefault(run.machine, {})[run.path.stem] = run
    whole = [runs for runs in machines.values() if runs.keys() >= _SHOWN]
    if not whole:
        raise ValueError(f"no machine in results/reference has runs of {' and '.join(sorted(_SHOWN))}; make them with: make references")
    return max(whole, key=lambda runs: max(map(_began, runs.values())))


def precision() -> Iterator[str]:
    """Yield the paragraphs on what a narrow precision brings: of README.md. Raises ValueError where none was measured."""
    run = shown()["cnn"]
    rows = json.loads(_dlbench("show", _place(run.path), "--by", "dtype", "--format", "json"))
    half = {row["pair.case"]: row["ratio.speedup"] for row in rows if row["ratio.speedup"] and _is_half(row["other.value"])}
    networks = [ratio for case, ratio in half.items() if "model=" in case]
    if not networks:
        raise ValueError(f"{_place(run.path)} has no case in fp32 and in half the bits; let make references go on with it")
    low, high = min(half.values()), max(half.values())
    yield _wrapped(f"On {_device(run)} {_compared(min(networks), max(networks))}:")
    yield _wrapped(
        f"![The cases of the table as bars: with half the bits they run {low:.2f} to {high:.2f} times as fast as in fp32.]({PICTURE})"
    )
    yield _block(run.path, "--by dtype")
    yield from _without_gpu()


def _is_half(dtype: str) -> bool:
    """Whether products are computed in numbers of half the bits of fp32."""
    return 2 * PRECISIONS[PRECISIONS[dtype].arithmetic].bytes == PRECISIONS["fp32"].bytes


def _compared(low: float, high: float) -> str:
    if high < 1:
        return f"half the bits make a network {1 / high:.1f} to {1 / low:.1f} times as slow"
    return f"half the bits make a network {f'{low:.1f} to' if low < 1 else 'up to'} {high:.1f} times as fast"


def lines() -> Iterator[str]:
    """Yield the ten lines on all files of one machine: of README.md."""
    run, found = _answered()
    gpu = "" if any(run.name_of(kind) for kind in _ACCELERATORS) else ", which has no GPU"
    yield _wrapped(f"A run ends with ten lines, a question each. On {_device(run)}{gpu}:")
    yield _ten_lines(found)


def answers() -> Iterator[str]:
    """Yield the ten lines on all files of one machine, and the reasoning: of answers.md."""
    run, found = _answered()
    yield f"```sh\ndlbench show {_place(run.path.parent)} --answers\n```"
    yield _wrapped(f"says of {_device(run)}:")
    yield _ten_lines(found)
    yield "and reasons:"
    given = [each for each in found if each["kind"] == "answer"]
    yield "\n".join(_wrapped(f"- **{each['question']['topic']}**: {' '.join(each['sentences'])}", "  ") for each in given)


@cache
def _answered() -> tuple[ReferenceRun, list[dict[str, Any]]]:
    """Return the run of the machine that pages show which was measured last, and what all its files answer."""
    run = max(shown().values(), key=_began)
    found: list[dict[str, Any]] = json.loads(_dlbench("show", _place(run.path.parent), "--answers", "--format", "json"))["answers"]
    return run, found


def _ten_lines(found: list[dict[str, Any]]) -> str:
    texts = (f"{each['question']['topic']:<12}{each['headline']:<48}  {each['qualifier']}".rstrip() for each in found)
    return "\n".join(("```text", *texts, "```"))


def pairs() -> Iterator[str]:
    """Yield the paragraphs with a table of pairs: of tutorial.md."""
    run = shown()["quick"]
    yield _wrapped(f"On {_device(run)}:")
    yield _block(run.path, "--by dtype")


def runs() -> Iterator[str]:
    """Yield the paragraphs that list all reference runs: of reference-runs.md."""
    header = ("run", "device", "cases", "measured on", "torch", "dlbench")
    yield "".join(markdown_table(header, map(_listed, reference_runs()))).rstrip("\n")
    yield from _without_gpu()


def _without_gpu() -> Iterator[str]:
    if not any(run.name_of(kind) for run in reference_runs() for kind in _ACCELERATORS):
        yield "No reference run from a GPU is committed yet."


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {each.__name__: each for each in (lines, precision, answers, pairs, runs)}


def _listed(run: ReferenceRun) -> tuple[str, ...]:
    kinds = dict.fromkeys(device["kind"] for device in run.header["devices"])
    names = [f"{run.name_of(kind)}{f', {run.threads} threads' if kind == 'cpu' else ''}" for kind in kinds]
    versions = run.environment["stack"]["versions"]["torch"], run.header["dlbench"]
    return f"`{run.machine}/{run.path.stem}`", "; ".join(names), str(run.header["planned"]["count"]), _began(run)[:10], *versions


def _device(run: ReferenceRun) -> str:
    """Return the device that it was measured on, with the units of a CPU: clouds call different ones alike."""
    (kind, *_) = [device["kind"] for device in run.header["devices"] if device["kind"] != "cpu"] or ["cpu"]
    isa = run.environment["identity"]["cpu"].get("isa")
    return f"{run.name_of(kind)}{f' ({run.threads} threads; {isa})' if kind == 'cpu' else ''}"


def _began(run: ReferenceRun) -> str:
    return str(run.environment["provenance"]["utc"])


def _with_parts(text: str) -> str:
    def made(match: re.Match[str]) -> str:
        return match[1] + "\n" + "\n\n".join(PARTS[match[2]]()) + "\n\n" + match[3]

    return _PART.sub(made, text)


def _with_blocks(text: str) -> str:
    return _SHOWS.sub(lambda match: f"```console\n$ dlbench {match[1]}\n{_printed(match[1])}\n```", text)


def _block(path: Path, words: str) -> str:
    """Return a block that `_with_blocks` fills."""
    return f"```console\n$ dlbench show {_place(path)} {words}\n```"


def _printed(command: str) -> str:
    return "\n".join(line.rstrip() for line in _dlbench(*shlex.split(command)).strip("\n").rstrip().splitlines())


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _dlbench(*words: str) -> str:
    """Return what a command prints, in the checkout and on no terminal. Raises CalledProcessError where it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES")}
    command, variables = [sys.executable, "-m", "dlbench", *words], kept | {"NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout


def _wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(paragraph, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write every page anew, and the picture."""
    for name, text in pages().items():
        (ROOT / name).write_text(text)
    (ROOT / PICTURE).write_text(picture())


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"make docs: {error}")
