"""Noisy cases through ab's own loop: a slowdown of 25 % is called or excluded, and identical code passes

Rounds are made up as they are asked for: a case's rounds differ by its standard deviation, both sides of a round share a tenth of its
variance, and twelve blocks a round lie 3 % around it. No process is started and nothing is written.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from typing import cast

from benchmarks.simulated import Finding
from dlbench.analysis.compare.ab import compare_sides
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.read.table import Results, named
from dlbench.cli.commands.ab import gate_rounds
from dlbench.cli.gate import measure_until_seen
from dlbench.cli.recording import Recording
from dlbench.cli.session import Session
from dlbench.cli.verdicts import exit_code
from dlbench.core.declarations import Declaration, Value
from dlbench.core.errors import ExitCode
from dlbench.core.measurement import Measurement, Memory, Samples
from dlbench.core.model import Case, Policy, Status
from dlbench.core.rows.summary import summarise
from dlbench.core.schema import Unit
from dlbench.core.writer import ResultWriter
from dlbench.harness.runner import RunSettings
from dlbench.harness.schedule import Side, Task

SLOWDOWN = 0.25
_BLOCKS, _WITHIN, _SHARED, _QUIET = 12, 0.03, 0.1, 0.03
_VALUES = (Value("late_s", Unit.SECONDS, "lower", "made up"), Value("rate", Unit.PER_S, "higher", "made up"))
_DECLARED = Declaration(values=_VALUES)


@dataclass
class _MadeUp:
    """An A/B of made-up rounds, which is measured as `Recording` measures."""

    chance: random.Random
    spreads: Mapping[str, float]
    """Of each case the standard deviation of the logarithms of its rounds."""
    slower: Mapping[str, float] = field(default_factory=dict)
    """Of cases whose side b takes longer, by how much."""
    values: bool = False
    """Whether each case has memory and two declared values as noisy as its times."""
    rounds: int = 0
    seconds: float = 0.0
    stopped: bool = False
    measured: dict[tuple[str, str], list[Measurement]] = field(default_factory=dict)

    def results(self) -> Results:
        """Return the rows of both sides."""
        rows = tuple(named(summarise(each), side, _DECLARED) for (side, _), each in self.measured.items())
        return Results(rows, (), {"a": {}, "b": {}})

    def measure(self, session: Session, workers: object) -> None:
        """Add a round after the other of each task of the session, both sides of a case together."""
        for number in range(session.first_round, session.first_round + session.settings.policy.rounds):
            for case in {task.case.id: task.case for task in session.tasks}.values():
                self._round(case, number)
        self.rounds = session.first_round + session.settings.policy.rounds

    def _round(self, case: Case, number: int) -> None:
        sd, shared = self.spreads[case.id], self.chance.gauss(0, 1)
        for side in "ab":
            of_code = math.log1p(self.slower.get(case.id, 0.0)) if side == "b" else 0.0
            level, memory, *values = (
                math.exp(sd * (math.sqrt(_SHARED) * shared + math.sqrt(1 - _SHARED) * self.chance.gauss(0, 1))) for _ in range(4)
            )
            blocks = tuple(level * math.exp(of_code + self.chance.gauss(0, _WITHIN)) for _ in range(_BLOCKS))
            samples = Samples(1, blocks, 9.0, 0.5, True)
            more = {
                "memory": Memory(host_peak_bytes=round(memory * (1 << 27))),
                "values": dict(zip((each.name for each in _VALUES), values, strict=True)),
            }
            done = Measurement(case, number, Status.OK, samples=samples, device_name="made up", threads=1, **(more if self.values else {}))
            self.measured.setdefault((side, case.id), []).append(done)


@dataclass(frozen=True)
class _Ended:
    """An A/B that came to its end."""

    code: ExitCode
    verdicts: Mapping[str, Verdict]
    rounds: int
    """Of its noisiest case, a side."""


def _nowhere() -> ResultWriter:
    raise AssertionError("what is made up goes to no file")


def ab(chance: random.Random, spreads: Sequence[float], slower: Mapping[int, float], values: bool = False) -> _Ended:
    """Run an A/B of so many cases as `dlbench ab` does, and return how it ended."""
    cases = [Case(f"made_up[n={n}]@cpu", "made up", "made_up", {"n": n}, "cpu") for n in range(len(spreads))]
    tasks = tuple(Task(case, Side({"cpu": None}, name=side)) for case in cases for side in "ab")
    settings = RunSettings(Policy(rounds=gate_rounds(len(cases))), 1, "none", 1)
    session = Session(tasks, settings, (), {}, _nowhere)
    of_cases = dict(zip((case.id for case in cases), spreads, strict=True))
    made_up = _MadeUp(chance, of_cases, {cases[n].id: by for n, by in slower.items()}, values)
    made_up.measure(session, {})
    with redirect_stderr(StringIO()):  # what it says of each step
        measure_until_seen(cast(Recording, made_up), session, compare_sides)
    found = compare_sides(made_up.results())
    verdicts = {case.case: case.verdict for case in found.cases}
    return _Ended(exit_code([found], strict=False), verdicts, max(map(len, made_up.measured.values())))


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often a slowdown of one noisy case is called and passes in silence, and how often identical code does not pass."""
    for cases in (2, 10):
        for sd in (0.12, 0.18, 0.24, 0.30):
            ended = [ab(chance, [sd, *[_QUIET] * (cases - 1)], {0: SLOWDOWN}) for _ in range(deals)]
            what = f"+25 % in one case of {cases}, sd {100 * sd:.0f} %"
            called = sum(next(iter(each.verdicts.values())) is Verdict.SLOWER for each in ended)
            yield Finding(f"{what}: called", called, deals, at_least=0.75)
            yield Finding(f"{what}: passes in silence", sum(each.code is ExitCode.OK for each in ended), deals, at_most=0.05)
    for cases in (2, 10, 50):
        ended = [ab(chance, [chance.uniform(0.05, 0.15) for _ in range(cases)], {}, values=True) for _ in range(deals)]
        undecided = sum(each.code is ExitCode.UNDECIDABLE for each in ended)
        yield Finding(f"identical code, {cases} cases of sd 5 to 15 %: ends with 4", undecided, deals, at_most=0.1)
        called = sum(each.code is ExitCode.REGRESSION for each in ended)
        yield Finding(f"identical code, {cases} cases of sd 5 to 15 %: ends with 3", called, deals, at_most=0.05)
    ended = [ab(chance, [_QUIET] * 2, {}) for _ in range(deals)]
    first = gate_rounds(2)
    yield Finding(
        f"two quiet cases: rounds beyond the first {first}, as a share of those",
        sum(each.rounds - first for each in ended),
        first * deals,
        at_most=0.1,
    )
