"""The fastest of many settings that are all alike: how often it is said to be faster than the default."""

import math
import random
from collections.abc import Iterator

from benchmarks.simulated import Finding
from dlbench.analysis.answers import default, precision
from dlbench.analysis.answers.parts.base import Answer, Missing
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.read import table
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status
from dlbench.core.rows.summary import summarise

SD = 0.03
MOST = 0.05
_DECLARED = {"step": Declaration(parameters={"setting": {"switch": "plain"}})}


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often the answers on the default and on precision name a winner among settings that take the same time."""
    for settings in (2, 16):
        for rounds in (4, 7, 14):
            found = sum(_has_winner(default.answer(_switched(settings, rounds, chance))) for _ in range(deals))
            yield Finding(f"the fastest of {settings} settings beside the default, {rounds} rounds", found, deals, at_most=MOST)
    found = sum(_has_winner(precision.answer(_in_precisions(7, chance))) for _ in range(deals))
    yield Finding("the fastest of five precisions beside fp32, 7 rounds", found, deals, at_most=MOST)
    steady = sum(_has_winner(default.answer(_switched(16, 7, chance, spread=3))) for _ in range(deals))
    yield Finding("the same of 16 that spread three times as much as the default, 7 rounds: no aim", steady, deals)


def _has_winner(answer: Answer | Missing) -> bool:
    """Whether the headline of an answer says that something is faster, and not only that it was the fastest measured."""
    if isinstance(answer, Missing):
        raise ValueError(answer.reason)
    none = any(words in answer.headline for words in ("no gain shown", "none beats", "nothing left"))
    return not (none or Tag.FEW_ROUNDS in answer.tags)


def _switched(settings: int, rounds: int, chance: random.Random, spread: float = 1) -> Results:
    others = [_case("step", f"s{number}", rounds, SD * spread, chance, setting=f"s{number}", dtype="fp32") for number in range(settings)]
    return _results([_case("step", "plain", rounds, SD, chance, setting="plain", dtype="fp32"), *others])


def _in_precisions(rounds: int, chance: random.Random) -> Results:
    names = ("fp32", "tf32", "bf16", "fp16", "amp_bf16", "fp64")
    return _results([_case("matmul", name, rounds, SD, chance, dtype=name) for name in names])


def _case(workload: str, name: str, rounds: int, sd: float, chance: random.Random, **params: str) -> list[Measurement]:
    case = Case(f"{workload}[{name}]@cpu", "simulated", workload, params, "cpu")
    times = [math.exp(sd * chance.gauss(0, 1)) for _ in range(rounds)]
    samples = [Samples(1, (seconds,), first_call_s=None, warmup_s=None, steady=True) for seconds in times]
    return [Measurement(case, number, Status.OK, samples=each, items=1.0) for number, each in enumerate(samples)]


def _results(cases: list[list[Measurement]]) -> Results:
    return table.of_rows(list(map(summarise, cases)), "simulated", _DECLARED, {})
