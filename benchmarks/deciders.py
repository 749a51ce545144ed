"""Deciders that `benchmarks.replay` asks: a plan of sampling and a rule each, of other tools and of dlbench's own settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import recordings
from benchmarks.peers import PEERS, Called, Peer
from benchmarks.recordings import BACK_TO_BACK, INTERLEAVED, Placement, Side
from dlbench.analysis.compare.judge import RankTest, Verdict, rank_tests
from dlbench.analysis.doctor.selftest import verdicts
from dlbench.core.rows.columns import CaseRounds

GATE = "dlbench ab, 14 rounds"
BY_RANKS = "dlbench, 14 rounds, by ranks alone"
FEWER_BLOCKS = (3, 5, 10)
"""To which each round of `GATE` is cut, as calls that take long have no more."""


@dataclass(frozen=True)
class Decider:
    """A plan of sampling and a rule: a test of each case, and what becomes of a suite's tests together."""

    name: str
    rule: str
    processes: int
    layout: Placement
    test: Callable[[Side, Side], Any]
    conclude: Callable[[Sequence[Any]], list[Called]]
    blocks: int = 1


def _of_dlbench(name: str, rounds: int, layout: Placement, threshold: float, paired: bool = False, blocks: int | None = None) -> Decider:
    def conclude(cases: Sequence[Mapping[str, RankTest]]) -> list[Called]:
        return [verdict if verdict in (Verdict.SLOWER, Verdict.FASTER) else None for verdict in verdicts(cases)]

    def test(base: Side, new: Side) -> Mapping[str, RankTest]:
        return rank_tests(as_rounds(base, blocks), as_rounds(new, blocks), threshold, paired=paired)

    rule = f"ranks{' and pairs' if paired else ''}, beyond {threshold:.0%}"
    return Decider(name, rule, rounds, layout, test, conclude, blocks or 1)


def as_rounds(side: Side, blocks: int | None = None) -> CaseRounds:
    """Return the rounds of a side, each cut to its first blocks where a number of them is given."""
    if blocks:
        side = [recordings.process(each.blocks[:blocks]) for each in side]
    return CaseRounds(
        median_s=tuple([each.median_s for each in side]),
        p10_s=tuple([each.p10_s for each in side]),
        mean_s=tuple([each.mean_s for each in side]),
        blocks=[each.blocks for each in side],
        numbers=tuple(range(len(side))),  # a layout deals the rounds in pairs
    )


def _of_peer(peer: Peer) -> Decider:
    return Decider(peer.name, peer.rule, peer.processes, peer.layout, peer.decide, list, peer.blocks)


DECIDERS = (
    *map(_of_peer, PEERS),
    _of_dlbench("dlbench compare --by, 7 rounds", 7, INTERLEAVED, 0.03),
    _of_dlbench("dlbench compare --by, 10 rounds", 10, INTERLEAVED, 0.03),
    _of_dlbench("dlbench ab --rounds 10", 10, INTERLEAVED, 0.03, paired=True),
    _of_dlbench(BY_RANKS, 14, INTERLEAVED, 0.03),
    _of_dlbench(GATE, 14, INTERLEAVED, 0.03, paired=True),
    *(_of_dlbench(f"{GATE} of {blocks} blocks", 14, INTERLEAVED, 0.03, paired=True, blocks=blocks) for blocks in FEWER_BLOCKS),
    _of_dlbench("dlbench ab --rounds 20", 20, INTERLEAVED, 0.03, paired=True),
    _of_dlbench("dlbench, 10 rounds, not interleaved", 10, BACK_TO_BACK, 0.03),
    _of_dlbench("dlbench, 14 rounds, not interleaved", 14, BACK_TO_BACK, 0.03),
    _of_dlbench("dlbench compare of two files, 10 rounds", 10, BACK_TO_BACK, 0.1),
    _of_dlbench("dlbench compare of two files, 14 rounds", 14, BACK_TO_BACK, 0.1),
)
