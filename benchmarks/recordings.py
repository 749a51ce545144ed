"""Recordings: result files of many rounds, read as what each process measured, and cut into the two sides of a comparison."""

import gzip
import lzma
import random
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dlbench.core import store
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Case, Status
from dlbench.core.stats import quantile
from dlbench.core.store import RunFile

UNCHANGED = "as it is"
TAIL = "tail"
APART = timedelta(minutes=6)
_OPENERS: Mapping[str, Callable[[Path], Any]] = {".xz": lzma.open, ".gz": gzip.open}


@dataclass(frozen=True, slots=True)
class Process:
    """What one fresh process measured of one case; seconds a call."""

    blocks: tuple[float, ...]
    """In the order they were taken."""
    median_s: float
    p10_s: float
    mean_s: float

    def scaled(self, factor: float) -> "Process":
        """Return the same with every time so many times as long."""
        return Process(tuple(factor * each for each in self.blocks), factor * self.median_s, factor * self.p10_s, factor * self.mean_s)


def process(blocks: Sequence[float]) -> Process:
    """Reduce what a process measured, seconds a call in the order they were taken."""
    ordered = sorted(blocks)
    return Process(tuple(blocks), statistics.median(ordered), quantile(ordered, 0.1), statistics.fmean(blocks))


Side = Sequence[Process]
"""The processes that one side of a comparison was measured in."""
Suite = Mapping[str, Side]
"""Programs that were measured in the same rounds; every side has a process a round."""


@dataclass(frozen=True)
class Recording:
    """A result file as suites that were recorded together: the programs as they are, and the same ones made slower."""

    path: Path
    suites: Mapping[str, Suite]
    """Suites by the change to their programs: ``as it is``, ``+5 %``, ``tail``."""
    began: tuple[datetime, ...]
    """Start of each round."""
    notes: tuple[str, ...]
    """A sentence for each series that was left out."""

    @property
    def rounds(self) -> int:
        """Rounds in which every program was measured."""
        return len(self.began)

    @property
    def blocks(self) -> int:
        """Fewest blocks that a process has."""
        return min(len(process.blocks) for suite in self.suites.values() for side in suite.values() for process in side)


def read(path: Path, *, all_blocks: bool = False) -> Recording:
    """Read a result file, plain or compressed (.xz, .gz). ``all_blocks``: whether blocks in which a thread waited for a CPU count, too.

    Cases that differ in ``percent`` and ``tail`` only are one program: as it is, slower by so many percent, or with a slow tail. Series
    with times in fewer rounds than usual are left out. Raises ResultFileError where the file can't be read or has no times.
    """
    series: dict[Series, dict[int, Measurement]] = {}
    for measurement in _load(path).measurements:
        by_round = series.setdefault(measurement.series, {})
        if measurement.status is Status.OK and measurement.samples and min(measurement.samples.block_s) > 0:
            by_round[measurement.round] = measurement
    usual_rounds = statistics.median_high([len(by_round) for by_round in series.values() if by_round] or [0])
    if not usual_rounds:
        raise ResultFileError(f"{path}: no case has times; give a file that dlbench run wrote, of at least 14 rounds")
    kept = {name: by_round for name, by_round in series.items() if len(by_round) >= usual_rounds}
    left_out = sorted(map(str, set(series) - set(kept)))
    rounds = sorted(set.intersection(*(set(by_round) for by_round in kept.values())))
    suites: dict[str, dict[str, Side]] = {UNCHANGED: {}}
    for name, by_round in kept.items():
        change = _change(next(iter(by_round.values())).case)
        suites.setdefault(change, {})[_program(name)] = [_process(by_round[number], all_blocks) for number in rounds]
    return Recording(
        path,
        suites,
        tuple(min(_began(by_round[number]) for by_round in kept.values()) for number in rounds),
        tuple(f"{path.name}: {name} is left out, as it has no times in some rounds" for name in left_out),
    )


def _load(path: Path) -> RunFile:
    opener = _OPENERS.get(path.suffix)
    if opener is None:
        return store.load(path)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        try:
            with opener(path) as packed:
                plain.write_bytes(packed.read())
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise ResultFileError(f"cannot read {path}: {error}") from error
        try:
            return replace(store.load(plain), path=path)
        except ResultFileError as error:
            raise ResultFileError(str(error).replace(str(plain), str(path))) from error


def _change(case: Case) -> str:
    percent = case.params.get("percent", 0)
    return TAIL if case.params.get("tail") else f"+{percent} %" if percent else UNCHANGED


def _program(series: Series) -> str:
    """Return the name that all variants of a case have."""
    return re.sub(r",(percent|tail)=[^],]*", "", str(series))


def _process(measurement: Measurement, all_blocks: bool) -> Process:
    assert measurement.samples is not None  # noqa: S101  # chosen so by `read`
    return process(measurement.samples.block_s if all_blocks else measurement.samples.counted_s)


def _began(measurement: Measurement) -> datetime:
    # A file that does not say has no windows that lie minutes apart.
    return datetime.fromisoformat(measurement.started or "1970-01-01")


@dataclass(frozen=True, slots=True)
class Placement:
    """A rule for which rounds of a recording belong to the two sides of a comparison."""

    name: str
    deal: Callable[[int, random.Random], tuple[list[int], list[int]]]
    """Returns the rounds of base and of new, counted from the first of the window, for a number of rounds of each side."""
    apart: timedelta = timedelta()
    """Least time from the start of base's first round to that of new's."""

    def windows(self, recording: Recording, k: int, chance: random.Random) -> Iterator[tuple[bool, list[int], list[int]]]:
        """Yield base's and new's rounds of every window, the first of them at each round in turn.

        The flag says of a window that it shares no round with the flagged one before.
        """
        free = 0
        for start in range(recording.rounds - 2 * k + 1):
            base, new = self.deal(k, chance)
            later = self._wait(recording, start, new[0])
            if start + later + new[-1] - new[0] >= recording.rounds:
                return
            yield start >= free, [start + each for each in base], [start + later + each - new[0] for each in new]
            if start >= free:
                free = start + later + 2 * k - new[0]

    def _wait(self, recording: Recording, start: int, first: int) -> int:
        """Return how many rounds new's first round comes after base's: as dealt, or more if those are not ``apart`` enough."""
        began = recording.began[start:]
        return next((at for at in range(first, len(began)) if began[at] - began[0] >= self.apart), len(began))


def _interleave(k: int, chance: random.Random) -> tuple[list[int], list[int]]:
    """Deal each two rounds in a row at random: one to base, one to new."""
    swapped = [chance.random() < 0.5 for _ in range(k)]
    return [2 * pair + swap for pair, swap in enumerate(swapped)], [2 * pair + 1 - swap for pair, swap in enumerate(swapped)]


def _back_to_back(k: int, chance: random.Random) -> tuple[list[int], list[int]]:
    return list(range(k)), list(range(k, 2 * k))


def _in_turns(k: int, chance: random.Random) -> tuple[list[int], list[int]]:
    return list(range(0, 2 * k, 2)), list(range(1, 2 * k, 2))


INTERLEAVED = Placement("interleaved at random", _interleave)
IN_TURNS = Placement("in turns", _in_turns)
BACK_TO_BACK = Placement("back to back", _back_to_back)
MINUTES_APART = Placement(f"{APART // timedelta(minutes=1)} minutes apart", _back_to_back, APART)
