"""Folder of files of another tool, each of one session, as one side of many rounds."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from dlbench.analysis.read import foreign, pyperf, pytest_benchmark
from dlbench.analysis.read.order import by_case
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement
from dlbench.core.store import RunFile


def are_in(folder: Path) -> bool:
    """Whether a folder holds files of one other tool, and no result files, so that it is one side.

    Raises UsageError for a mixture, ResultFileError for a file that is damaged.
    """
    files = _files(folder)
    tools = {path: foreign.tool_of(foreign.content(path) or {}) for path in files}
    known = sorted({tool for tool in tools.values() if tool})
    if not known:
        return False
    if ours := next(folder.glob("*.jsonl"), None):
        raise UsageError(f"{folder} holds {ours.name}, of dlbench, and files of {known[0]}; give a folder that holds those of one tool")
    if other := next((path for path, tool in tools.items() if not tool), None):
        raise UsageError(f"{other} is of another kind than the files of {known[0]} in the same folder; give a folder that holds only those")
    if len(known) > 1:
        raise UsageError(f"{folder} holds files of {' and of '.join(known)}; give a folder that holds those of one tool")
    return True


def load(path: Path) -> RunFile | None:
    """Read a file that another tool wrote, or a folder of such files, each of which is a round; None where it is dlbench's own.

    Raises ResultFileError where one is damaged.
    """
    if not path.is_dir():
        data = foreign.content(path)
        tool = pyperf if data and foreign.tool_of(data) == pyperf.TOOL else pytest_benchmark
        return tool.run_of(path, data) if data else None
    _refuse_copies(path)
    runs = [run for each in _files(path) if (run := load(each))]
    measurements = (_round(number, of_case) for number, run in enumerate(runs) for of_case in by_case(run.measurements))
    machines = chain.from_iterable(foreign.machines(run.header["environment"]) for run in runs)
    started = (each.started for run in runs for each in run.measurements)
    return RunFile(path, foreign.header(machines, started), tuple(measurements), footer={}, torn=False)


def _refuse_copies(folder: Path) -> None:
    """Raise UsageError where two files of a folder are the same session: a round that counts twice makes chance look like a change."""
    first: dict[bytes, Path] = {}
    for each in _files(folder):
        if (one := first.setdefault(each.read_bytes(), each)) is not each:
            raise UsageError(
                f"{one} and {each.name} hold the same session; leave one of them out, as each file counts as a round of its own"
            )


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _round(number: int, runs: Sequence[Measurement]) -> Measurement:
    """Return the runs of a session as one round, whose blocks are those of all: the processes of a session share its occasion."""
    first, *_ = runs
    blocks = tuple(chain.from_iterable(each.samples.block_s for each in runs if each.samples))
    return replace(first, round=number, samples=replace(first.samples, block_s=blocks) if first.samples else None)
