"""How long a round best measures, on made-up noise: rounds of fixed lengths against those that `SeriesRounds` decides."""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.alternate import report
from dlbench.core.model import Policy
from dlbench.harness.progress import SeriesRounds

SET_UP_S, BLOCK_S, ROUNDS = 0.6, 0.01, 10
"""As a case of quick has them."""
POLICY = Policy(round_s=0.3, budget_s=1e9)
LENGTHS_S = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithms of block times: of each process, of bursts, and of each block."""

    processes: float = 0.0
    bursts: float = 0.0
    lasting_s: float = 0.1
    """After which bursts correlate by 1 / e."""
    blocks: float = 0.02

    def blocks_of(self, seconds: float, chance: random.Random) -> list[float]:
        """Return the blocks of a process that measures for so long; the truth is 1."""
        kept, of_process, burst = math.exp(-BLOCK_S / self.lasting_s), chance.gauss(0, self.processes), chance.gauss(0, self.bursts)
        times = []
        for _ in range(max(POLICY.min_blocks, round(seconds / BLOCK_S))):
            burst = kept * burst + chance.gauss(0, self.bursts * math.sqrt(1 - kept**2))
            times.append(math.exp(of_process + burst + chance.gauss(0, self.blocks)))
        return times


NOISES: Mapping[str, Noise] = {
    "each block by itself, 5 %": Noise(blocks=0.05),
    "bursts of 0.03 s, 8 %": Noise(bursts=0.08, lasting_s=0.03),
    "bursts of 0.1 s, 8 %": Noise(bursts=0.08),
    "bursts of 0.3 s, 8 %": Noise(bursts=0.08, lasting_s=0.3),
    "bursts of 0.1 s, 8 %; processes, 3 %": Noise(processes=0.03, bursts=0.08),
    "processes, 5 %": Noise(processes=0.05),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate runs with each noise and length, and print what each takes to the same width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deals", type=int, default=600, help="runs to simulate for each figure")
    options = parser.parse_args(arguments)
    rules: list[Callable[[SeriesRounds], float]] = [lambda _, fixed=fixed: fixed for fixed in LENGTHS_S]
    rows, worst = [], [0.0] * (len(rules) + 1)
    for name, noise in NOISES.items():
        taken = [_taken(noise, rule, options.deals) for rule in (*rules, SeriesRounds.best_length_s)]
        least = min(cost for cost, _ in taken[:-1])
        ratios = [cost / least for cost, _ in taken]
        worst = list(map(max, worst, ratios))
        rows.append((name, *(f"{ratio:.2f}" for ratio in ratios), f"{taken[-1][1]:.1f} s"))
    rows.append(("at worst", *(f"{ratio:.2f}" for ratio in worst), ""))
    report(
        f"Time to the same width over that of the best fixed length, {ROUNDS} rounds with {SET_UP_S} s of set-up",
        ("what scatters", *(f"{fixed:g} s" for fixed in LENGTHS_S), "decided", "its length"),
        rows,
        "what is decided is at worst closer to the best than any fixed length",
        worst[-1] < min(worst[:-1]),
    )


def _taken(noise: Noise, rule: Callable[[SeriesRounds], float], deals: int) -> tuple[float, float]:
    """Return seconds x variance of the median of rounds, and how long rounds from the fourth on measure."""
    chance, found, seconds, lengths = random.Random(1), [], 0.0, []
    for _ in range(deals):
        series, medians = SeriesRounds(POLICY), []
        for number in range(ROUNDS):
            length_s = rule(series)
            blocks = noise.blocks_of(length_s, chance)
            series.took_s = SET_UP_S + length_s
            series.add(blocks, length_s)
            medians.append(statistics.median(blocks))
            seconds += series.took_s
            lengths += [length_s] * (number >= 3)
        found.append(math.log(statistics.median(medians)))
    return seconds / deals * statistics.fmean(each**2 for each in found), statistics.fmean(lengths)


if __name__ == "__main__":
    main()
