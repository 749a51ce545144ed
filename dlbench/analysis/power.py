"""Statistical power of a comparison: the smallest change that it could have called, and the sentence where that is too large."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from dlbench.analysis.findings import Entry
from dlbench.analysis.judge import LEVEL, RankTest
from dlbench.core.stats import holm, rounds_for_gate
from dlbench.core.units import percent, three_digits

MUST_SEE = 0.25
"""A change that every case of a gate has to be able to show unless somebody says otherwise: a quarter more time."""
MOST_ROUNDS = 1000
"""As many as --rounds takes."""
_NAMED = 5
"""Cases that a sentence names; it counts the others."""
SIDES = ("the base", "the new file")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Cases in which a change that must be seen could not have been called."""

    cases: tuple[str, ...]
    sentence: str
    """Which they are, what could have been called, why, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""

    @classmethod
    def of_several(cls, parts: "Sequence[Unseen]") -> Self:
        """Return what several say together."""
        return cls(
            tuple(case for each in parts for case in each.cases),
            "; also, ".join(each.sentence for each in parts),
            any(each.decisive for each in parts),
        )


class Blind(NamedTuple):
    """One case in which a change that must be seen could not have been called."""

    case: str
    change: float
    """That must be seen."""
    why: str
    remedy: str = ""
    """Beside more rounds; empty where they are all there is to do."""
    rounds: int | None = None
    """A side, that would probably do; None where no more rounds would."""
    asked: bool = False
    """Whether somebody wants it to be seen."""


def least_rounds(tests: Mapping[str, RankTest], family: float) -> int:
    """Return the rounds a side below which none of a case's tests can fail at all, beside all others of that weight."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in tests.values())


def blindness(case: str, detectable: float | None, rounds: int | None, must_see: float, sides: Sequence[Entry]) -> Blind:
    """Say why a change of ``must_see`` could not have been called in a case that was tested, and what to do about it.

    ``detectable`` is what could have been; ``rounds`` a side would do, and None where occasions alone differ by as much.
    """
    why = "too few rounds for any" if detectable is None else f"a change of {size(detectable)} could"
    if rounds is None:
        return Blind(case, must_see, f"{why}; occasions alone differ by as much", "measure both sides in turn, with dlbench ab")
    if disturbed := disturbances(sides):
        return Blind(case, must_see, f"{why}; {disturbed}", "stop what else is at work, as top shows it", rounds)
    if detectable is not None:
        why += f"; its rounds differ by {percent(max(float(each.row['time.sd_between'] or 0) for each in sides))}"
    return Blind(case, must_see, why, rounds=rounds)


def size(change: float) -> str:
    """Return a change as ``12.3 %``, and from ten times on as ``12.3 ×``."""
    return f"{three_digits(1 + change)} ×" if change >= 9 else percent(change)


def disturbances(sides: Sequence[Entry]) -> str:
    """Say of each side what others took of the machine meanwhile; an empty text where nothing did."""
    base, new = (str(each.row["flag.reason"]) if each.row["flag.disturbed"] else "" for each in sides)
    if base == new:
        return base
    return "; ".join(f"in {side} {said}" for side, said in zip(SIDES, (base, new), strict=True) if said)


def unseen(blind: Sequence[Blind], tested: int) -> Unseen | None:
    """Put what could not be seen into a sentence; None where all could. ``tested``: the cases that have times on both sides."""
    if not blind:
        return None
    changes = " or ".join(dict.fromkeys(percent(each.change) for each in blind))
    named = [f"{each.case} ({each.why})" for each in blind[:_NAMED]]
    if len(blind) > _NAMED:
        named.append(f"and {len(blind) - _NAMED:,} more")
    of = f"{len(blind):,} of {tested:,} case{'' if tested == 1 else 's'}"
    remedies = dict.fromkeys(each.remedy for each in blind if each.remedy)
    rounds = max((each.rounds for each in blind if each.rounds), default=None)
    advice = "; ".join([*remedies, *_more_rounds(rounds)])
    sentence = f"a change of {changes} could not have been called in {of}: {', '.join(named)}; {advice}"
    decisive = any(each.asked for each in blind) or len(blind) >= tested
    if not decisive:
        sentence += f"; with --must-see {100 * blind[0].change:.3g}% that would end with 4"
    return Unseen(tuple(each.case for each in blind), sentence, decisive)


def _more_rounds(rounds: int | None) -> list[str]:
    if rounds is None:
        return []
    if rounds > MOST_ROUNDS:
        return [f"not even {MOST_ROUNDS:,} rounds a side would do: measure on a quieter machine"]
    return [f"{rounds:,} rounds a side would probably do: --rounds {rounds}"]


def powerless(able: Sequence[Mapping[str, RankTest]], of_values: Sequence[float] = ()) -> str | None:
    """Say why no case could have been called slower, if so: with the least p that their rounds allow, Holm's correction spares none.

    Of each case its tests; none of a case without times on both sides. ``of_values``: the least p of each value that is judged, which
    counts where no case has times.
    """
    every = [test for tests in able for test in tests.values()]
    if not every and of_values:
        rounds = rounds_for_gate(len(of_values), LEVEL, least=1)
        few = f"too few rounds: of {len(of_values)} values none could have been called worse"
        return None if min(holm(of_values)) < LEVEL else f"{few}; {rounds} rounds a side would do: --rounds {rounds}"
    if not every:
        return "no case has times that can be compared, so nothing could have been called slower"
    if min(holm([test.least_p for test in every], [test.weight for test in every])) < LEVEL:
        return None
    rounds = rounds_for_gate(sum(test.weight for test in every), paired=any(test.paired for test in every))
    return f"too few rounds: in {len(every)} tests none could have been called slower; {rounds} rounds a side would do: --rounds {rounds}"
