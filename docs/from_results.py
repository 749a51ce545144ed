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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dlbench.analysis.answers import answers as answers_of
from dlbench.analysis.export.tabular import markdown_table
from dlbench.analysis.read.runs import ReferenceRun, merged, reference_runs
from dlbench.analysis.read.table import Results, collect
from dlbench.analysis.report import terminal
from dlbench.core import units

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "docs/pictures/bottleneck.svg"
WIDTH = 120
"""Columns of a line of prose, and of the screen that shows how a run ends."""
_SGD = ("tower", "ddp", "async", "hogwild")
_PARALLEL = ("ddp", "tensor", "layers", "gpipe", "1f1b")
_ACCELERATORS = ("cuda", "xpu", "mps")
_SHOWN = frozenset(("cnn", "quick"))
"""Suites of which pages show a table."""
_PART = re.compile(r"(<!-- Made by `make docs` from results/reference: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWS = re.compile(r"```console\n\$ dlbench (show results/reference/[^\n]+)\n.*?```", re.DOTALL)


def pages() -> dict[str, str]:
    """Return the text of every page that shows committed files, by its path in the checkout."""
    found = {path: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    made = {path: _with_blocks(_with_parts(text)) for path, text in found.items() if _PART.search(text) or _SHOWS.search(text)}
    return {path.relative_to(ROOT).as_posix(): text for path, text in made.items()}


def picture() -> str:
    """Return the picture of README.md, as ``dlbench report`` draws it of the file that it shows."""
    with tempfile.TemporaryDirectory() as folder:
        _dlbench("report", _place(first_shown().path), "-o", f"{folder}/page.html", "--figures", f"{folder}/figures")
        return (Path(folder) / "figures" / Path(PICTURE).name).read_text()


@cache
def shown() -> Mapping[str, ReferenceRun]:
    """Return the reference runs of the machine that pages show, by suite: of those with all that they show the one with most suites.

    Raises ValueError where there is none.
    """
    machines: dict[str, dict[str, ReferenceRun]] = {}
    for run in reference_runs():
        machines.setdefault(run.machine, {})[run.path.stem] = run
    whole = [runs for runs in machines.values() if runs.keys() >= _SHOWN]
    if not whole:
        raise ValueError(f"no machine in results/reference has runs of {' and '.join(sorted(_SHOWN))}; make them with: make references")
    return max(whole, key=len)


@cache
def first_shown() -> ReferenceRun:
    """Return the run of quick that README.md shows: the one measured last on an accelerator, else that of `shown`."""
    runs = [run for run in reference_runs() if run.path.stem == "quick" and any(run.name_of(kind) for kind in _ACCELERATORS)]
    return max(runs, key=_began, default=shown()["quick"])


def steps() -> Iterator[str]:
    """Yield the paragraphs on where the time of a step goes: of README.md. Raises ValueError where no step was measured."""
    run = first_shown()
    (answer,) = json.loads(_dlbench("show", _place(run.path), "--topic", "bottleneck", "--format", "json"))["answers"]
    drawn = next((figure for figure in answer.get("figures", ()) if figure["mark"] == "stack"), None)
    if not drawn:
        raise ValueError(f"{_place(run.path)} has no step with a profile; let make references go on with it")
    yield _wrapped(f"Where the time of a step goes on {_device(run)}:")
    yield _wrapped(
        f"![{drawn['title']}, as bars that are filled to what the ceilings alone would take: "
        f"{units.percent(_gain_of(drawn['rows']))} of it to gain.]({PICTURE})"
    )
    yield from _without_gpu()


def _gain_of(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of a step that would go if each kind of operation ran at its ceiling."""
    return sum(part["kind.part_s"] for part in parts if part["kind.part"] == "to gain") / sum(part["kind.part_s"] for part in parts)


def lines() -> Iterator[str]:
    """Yield how a run of quick ends: of README.md."""
    run = first_shown()
    gpu = "" if any(run.name_of(kind) for kind in _ACCELERATORS) else ", which has no GPU"
    yield _wrapped(f"`dlbench run` ends with what it can say. On {_device(run)}{gpu}:")
    yield _end(collect([run.path]))


def cpu() -> Iterator[str]:
    """Yield the end on all files of a machine without an accelerator: of cpu-only.md."""
    yield f"```sh\ndlbench show {_place(_folder())}\n```"
    yield _wrapped(f"ends, on {_device(max(shown().values(), key=_began))}, with:")
    yield _end(collect([_folder()]))


def cost() -> Iterator[str]:
    """Yield the first line of an answer on cost: of cost.md."""
    command = f"show {_place(_folder() / 'sustained.jsonl')} --topic cost --price 0.50EUR/h"
    yield f"```sh\ndlbench {command}\n```"
    yield "\n".join(("```text", *_printed(command).splitlines()[:2], "```"))


def formats() -> Iterator[str]:
    """Yield the table of gaps to fp32, in points, by format and training: of convergence.md."""
    place = _place(_folder() / "convergence.jsonl")
    (answer,) = json.loads(_dlbench("show", place, "--topic", "precision", "--format", "json"))["answers"]
    rows = [row for table in answer["tables"] for row in table["rows"] if row.get("ladder.gap") is not None]
    trainings = dict.fromkeys((row["param.network"], row["param.rate"]) for row in sorted(rows, key=_training, reverse=True))
    gaps = {(row["param.format"], row["param.network"], row["param.rate"]): _points(row) for row in rows}
    header = ("format", *(f"{network}, rate {rate:g}" for network, rate in trainings))
    lines = [(f"`{name}`", *(gaps.get((name, *each), "") for each in trainings)) for name in dict.fromkeys(name for name, *_ in gaps)]
    yield "".join(markdown_table(header, lines)).rstrip("\n")


def _training(row: Mapping[str, Any]) -> tuple[str, float]:
    return row["param.network"], row["param.rate"]


def _points(row: Mapping[str, Any]) -> str:
    gap, low, high = (row[f"ladder.gap{end}"] for end in ("", "_low", "_high"))
    return f"{gap:.1f} ({low:.1f}…{high:.1f}){'' if row['ladder.converges'] else ' no'}"


def _end(results: Results) -> str:
    texts = (f"{label:<{terminal.LABEL}}{text}" for label, text in terminal.lines(answers_of(results), WIDTH))
    return "\n".join(("```text", *terminal.join_parts(terminal.run_in_words(merged(results)), WIDTH), *texts, "```"))


def pairs() -> Iterator[str]:
    """Yield the paragraphs with a table of pairs: of tutorial.md."""
    run = shown()["quick"]
    yield _wrapped(f"On {_device(run)}:")
    yield _block(run.path, "--by dtype")


def runs() -> Iterator[str]:
    """Yield the list of all reference runs, by machine: of reference-runs.md."""
    machines: dict[str, list[ReferenceRun]] = {}
    for run in reference_runs():
        machines.setdefault(run.machine, []).append(run)
    yield "\n".join(_wrapped(_listed(machine, found), "  ") for machine, found in machines.items())
    yield from _without_gpu()


def course() -> Iterator[str]:
    """Yield the table of a course's questions with what the machine that pages show says to them: of claims.md."""
    yield "".join(markdown_table(("question", "command", "two cores show"), _questions())).rstrip("\n")


def _questions() -> Iterator[tuple[str, str, str]]:
    card = "no GPU here"
    teacher, served = (_items(suite, "infer_step[model=resnet50,batch=8,dtype=fp32]@cpu") for suite in ("cnn", "batch"))
    student = _items("cnn", "train_step[model=resnet18,batch=8,dtype=fp32]@cpu")
    resident, small = (_items("feed", f"feed[batch={batch},source=resident,dtype=fp32]@cpu") for batch in (64, 8))
    loader = _items("feed", "feed[batch=64,source=loader,workers=2,dtype=fp32]@cpu")
    one, many = (_items("storage", f"storage[{way},cache=cold]@cpu") for way in ("files=one,order=sequential", "files=many,order=random"))
    sgd, parallel = (", ".join(f"`{each}` {_gain(each)}" for each in forms) for forms in (_SGD, _PARALLEL))
    watts = next((row["energy.reason"] for (suite, _), row in _rows().items() if suite == "sustained"), "it was not measured")
    yield "Is a GPU 20 or 70 times as fast as a CPU?", "`dlbench run cnn`", card
    yield "Is PCIe the bottleneck?", "`dlbench run transfer crossover`", card
    yield "Keep the data on the GPU, or send each batch?", "`dlbench run feed`", f"resident {resident}, loader of two workers {loader}"
    yield "SSD or disk?", "`dlbench run storage --set path=/mnt/disk`", f"this disk: one file {one}, many at random {many}"
    yield "Does AlexNet train at batch 256 in 3 GB?", "`dlbench run memory`", _here("alexnet-3gb")
    yield "64 to 32 bits?", "`dlbench run crossover`", _here("cast-32")
    yield "32 to 16 bits?", "`dlbench run precision`", _here("half-faster")
    yield "16 to 10 or 12 bits?", "`dlbench run convergence`", _here("10-12-bits")
    yield "Stochastic rounding?", "`dlbench run convergence`", f"{_here('nearest-16')}, {_here('stochastic-16')}"
    yield "A single bit?", "`dlbench run precision`", _here("xnor-58x")
    yield "Batch 8 or 64?", "`dlbench run batch`", f"64 over 8: {_here('batch-8-64')}; a perceptron {small} and {resident}"
    yield "Titan X or a Xeon of 16 cores in serving?", "`dlbench run batch`", f"ResNet-50 infers {served} at batch 8"
    yield "Four GPUs: synchronous or asynchronous SGD?", "`dlbench run scaling`", sgd
    yield "Teacher on the CPU, student on the GPU?", "`dlbench run cnn`", f"ResNet-50 infers {teacher}, ResNet-18 trains at {student}"
    yield "Data, model or pipeline parallelism?", "`dlbench run scaling`", parallel
    yield "How many watts?", "`dlbench run sustained`", f"unknown: {watts}"


def _items(suite: str, case: str) -> str:
    """Return the items a second of a case, a dash where it was not measured."""
    rate = _rows().get((suite, case), {}).get("rate.items_per_s")
    return "–" if rate is None else units.item_rate(rate)


def _gain(form: str) -> str:
    """Return the most that two ranks of a form bring, over one rank with all cores."""
    ranks = [row["scaling.speedup"] for row in _scaling() if (row["scaling.form"], row["scaling.ranks"]) == (form, 2)]
    return _times(max(ranks)) if ranks and all(ranks) else "–"


def _here(claim: str) -> str:
    """Return what the rows say to what others claim, for each kind of work or format that has any, or that they say nothing."""
    of_claim = [each for each in _claims() if each["claim.id"] == claim and each["claim.measured"]]
    found = {_kind(each["claim.case"]): each["claim.measured"] for each in of_claim}
    text = ", ".join(f"`{kind}` {measured}" if len(found) > 1 else measured for kind, measured in found.items())
    return text.replace(" points", "", text.count(" points") - 1) or "unknown: no committed run tells"


def _kind(case: str) -> str:
    """Return the format of a training, or the workload: ``bf16`` of ``convergence mlp rate=0.001: bf16``."""
    work, _, side = case.partition(": ")
    return work.split()[0] if not side or " over " in side else side


def _times(value: float) -> str:
    return f"{units.three_digits(value)}×"


@cache
def _claims() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_dlbench("show", _place(_folder()), "--topic", "claims", "--format", "json"))
    return found


@cache
def _rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of all files of the machine, by file and case."""
    rows = json.loads(_dlbench("show", _place(_folder()), "--format", "json"))
    return {(row["case.run"], row["case.id"]): row for row in rows}


@cache
def _scaling() -> list[dict[str, Any]]:
    path = _folder() / "scaling.jsonl"
    rows: list[dict[str, Any]] = json.loads(_dlbench("show", _place(path), "--by", "ranks", "--format", "json")) if path.exists() else []
    return rows


def _folder() -> Path:
    return max(shown().values(), key=_began).path.parent


def _without_gpu() -> Iterator[str]:
    if not any(run.name_of(kind) for run in reference_runs() for kind in _ACCELERATORS):
        yield "No reference run from a GPU is committed yet."


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {each.__name__: each for each in (lines, steps, cpu, cost, formats, pairs, runs, course)}


def _listed(machine: str, found: list[ReferenceRun]) -> str:
    devices = dict.fromkeys(device["kind"] for run in found for device in run.header["devices"])
    names = {
        run.name_of(kind): f", {run.threads} threads" if kind == "cpu" else "" for kind in devices for run in found if run.name_of(kind)
    }
    torch = dict.fromkeys(run.environment["stack"]["versions"]["torch"] for run in found)
    days = sorted({_began(run)[:10] for run in found})
    facts = "; ".join(
        (
            *(f"{name}{threads}" for name, threads in names.items()),
            f"torch {', '.join(torch)}",
            " to ".join(dict.fromkeys((days[0], days[-1]))),
        )
    )
    return f"- `{machine}` ({facts}): {', '.join(run.path.stem for run in found)}"


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
