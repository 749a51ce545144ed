"""Declared values and the host's memory: a real worsening is called, and identical code is not

Rounds are made up around one level, with normal noise of the same standard deviation on both sides. A case has no times, its memory
lies around 1 GiB, and it has a value that is better lower and one that is better higher.
"""

import random
from collections.abc import Iterator, Mapping

from benchmarks.simulated import Finding
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.pairs import compare
from dlbench.analysis.compare.verdict import CaseVerdict
from dlbench.analysis.read.table import Results, named
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Case, Status
from dlbench.core.rows.summary import summarise
from dlbench.core.schema import Unit

_LOWER, _HIGHER = "late_s", "rate"
_DECLARED = Declaration(values=(Value(_LOWER, Unit.SECONDS, "lower", "made up"), Value(_HIGHER, Unit.PER_S, "higher", "made up")))
_GIB = 1 << 30


def _side(run: str, chance: random.Random, rounds: int, spreads: list[float], levels: Mapping[str, float]) -> Results:
    """Return a file of a case for each standard deviation; ``levels`` are those of its quantities, 1 where none is given."""
    found = []
    for n, sd in enumerate(spreads):
        case = Case(f"made_up[n={n}]@cpu", "made up", "made_up", {"n": n}, "cpu")
        measured = []
        for number in range(rounds):
            memory, late, rate = (levels.get(name, 1.0) * max(chance.gauss(1, sd), 0.01) for name in ("memory", _LOWER, _HIGHER))
            peak = Memory(host_peak_bytes=round(memory * _GIB))
            measured.append(Measurement(case, number, Status.OK, memory=peak, values={_LOWER: late, _HIGHER: rate}))
        found.append(named(summarise(measured), run, _DECLARED))
    return Results(tuple(found), (), {run: {}})


def _judged(chance: random.Random, rounds: int, spreads: list[float], levels: Mapping[str, float] | None = None) -> tuple[CaseVerdict, ...]:
    return compare(_side("base", chance, rounds, spreads, {}), _side("new", chance, rounds, spreads, levels or {})).cases


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often half as much more is called in one quantity of one case, and how often anything is in identical code."""
    for rounds in (7, 14, 30):
        for name, level in (("memory", 1.5), (_LOWER, 1.5), (_HIGHER, 1 / 1.5)):
            called = sum(bool(_judged(chance, rounds, [0.15], {name: level})[0].regressed) for _ in range(deals))
            what = f"{name} {'+50 %' if level > 1 else '1/1.5'} at sd 15 %, {rounds} rounds"
            yield Finding(f"{what}: called worse", called, deals, at_least=0.8 if rounds >= 14 else None)
    for cases in (2, 10, 50):
        called = 0
        for _ in range(deals):
            found = _judged(chance, 14, [chance.uniform(0.05, 0.15) for _ in range(cases)])
            called += any(each.verdict in (Verdict.SLOWER, Verdict.FASTER) for each in found)
        yield Finding(f"identical code, {cases} cases of sd 5 to 15 %, 14 rounds: any called", called, deals, at_most=0.05)
