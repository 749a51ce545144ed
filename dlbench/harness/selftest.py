"""What the self-test measures: calls of known cost, several copies of the same programs, and the same programs made slower on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dlbench.core.model import Case, Policy, Signature

ROUNDS = 40
COPIES = 5
"""Of each program, in every round: each two of them are one comparison of identical code."""
BUDGET_S = 360.0
"""No round starts that would not end by then; where too few were made, too few comparisons are the finding."""
POLICY = Policy(rounds=ROUNDS, max_rounds=ROUNDS, budget_s=BUDGET_S, min_blocks=10, max_blocks=10, warmup_s=0.05, max_warmup_s=0.15)
"""Many short rounds, as rounds carry the weight."""
SPINS_S = (50e-6, 500e-6, 5e-3)
SLOWER = 10
"""Percent of the time, wasted for real in each call."""


def cases(signatures: Mapping[str, Signature]) -> list[Case]:
    """Return the cases of the self-test, all on the CPU."""
    return [*_known_costs(signatures), *_programs(signatures["slowed"])]


def _known_costs(signatures: Mapping[str, Signature]) -> Iterator[Case]:
    yield Case.of("self", signatures["noop"], {}, "cpu")
    for seconds in SPINS_S:
        yield Case.of("self", signatures["spin"], {"seconds": seconds}, "cpu")


def _programs(slowed: Signature) -> Iterator[Case]:
    program = slowed.parameter("program")
    for name in program.choices if program else ():
        copy = Case.of("self", slowed, {"program": name}, "cpu")
        # The same work under another name is another case: a process, inputs and a place in the order of its own.
        yield from (replace(copy, id=f"{copy.key}#{number}@{copy.device}") for number in range(1, COPIES + 1))
        yield Case.of("self", slowed, {"program": name, "percent": SLOWER}, "cpu")
        yield Case.of("self", slowed, {"program": name, "tail": True}, "cpu")
