"""Cases of the self-test: calls of known cost, several copies of the same programs, and the same programs made slower on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dlbench.core.model import Case, Policy, Signature

ROUNDS = 14
"""As many as ``dlbench ab`` takes at least, since it is its rule that is tested."""
COPIES = 10
"""Of each program, in every round: each two of them are one comparison of identical code."""
BUDGET_S = 360.0
"""No round starts that would not end by then; where too few were made, that is the finding."""
POLICY = Policy(
    rounds=ROUNDS, max_rounds=ROUNDS, budget_s=BUDGET_S, min_blocks=40, max_blocks=40, warmup_s=0.05, max_warmup_s=0.15, tries=1
)
"""Forty blocks, which cost 0.1 s: of ten the p10 differs by more between processes, and a real 10 % is seen less often. One try, as how
often a verdict is wrong on a disturbed machine is what is asked."""
SPINS_S = (50e-6, 500e-6, 5e-3)
SLOWER = 10
"""Percent of the time, wasted for real in each call."""


def cases(signatures: Mapping[str, Signature]) -> list[Case]:
    """Return the cases of the self-test, all on the CPU; all of one program are copies, so each round measures them in a row."""
    spins = (Case.of("self", signatures["spin"], {"seconds": seconds}, "cpu") for seconds in SPINS_S)
    return [Case.of("self", signatures["noop"], {}, "cpu"), *spins, *_programs(signatures["slowed"])]


def _programs(slowed: Signature) -> Iterator[Case]:
    program = slowed.parameter("program")
    for name in program.choices if program else ():
        copy = Case.of("self", slowed, {"program": name}, "cpu")
        # The same work under another name is another case: a process and inputs of its own.
        yield from (replace(copy, id=f"{copy.key}#{number}@{copy.device}") for number in range(1, COPIES + 1))
        for variant, changed in (("slower", {"percent": SLOWER}), ("tail", {"tail": True})):
            yield replace(Case.of("self", slowed, {"program": name, **changed}, "cpu"), id=f"{copy.key}#{variant}@{copy.device}")
