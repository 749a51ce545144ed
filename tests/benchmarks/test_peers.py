"""The rules of other tools: known answers, and where a tool is installed, its own code's."""

import random
import statistics

import pytest

from benchmarks import peers
from benchmarks.recordings import Process
from dlbench.analysis.compare.judge import Verdict

pytestmark = pytest.mark.real


def process(*blocks):
    return Process(tuple(blocks), statistics.median(blocks), min(blocks), statistics.fmean(blocks))


def noisy(level, spread=0.001, blocks=40):
    """A process whose blocks lie evenly around a level, in a shuffled order that is always the same."""
    values = [level + spread * (number - (blocks - 1) / 2) / blocks for number in range(blocks)]
    random.Random(3).shuffle(values)
    return process(*values)


SLOWER, FASTER = Verdict.SLOWER, Verdict.FASTER
MARGINS = {
    "pytest-benchmark mean:5%": {1.04: None, 1.06: SLOWER, 0.5: None},
    "pytest-benchmark min:5%": {1.06: SLOWER},
    "BenchmarkTools.jl judge": {0.94: FASTER, 1.04: None},
    "github-action-benchmark 110 %": {1.09: None, 1.11: SLOWER},
    "github-action-benchmark 200 %": {1.99: None},
    "nvbench_compare (legacy)": {1.001: SLOWER, 0.999: FASTER},
    "nvbench-compare (robust)": {1.005: None, 1.01: SLOWER},
    "google-benchmark compare.py": {1.01: SLOWER},
    "criterion.rs": {1.005: None, 1.02: SLOWER, 0.98: FASTER},
    "tango": {1.009: None, 1.02: SLOWER},
    "asv continuous": {1.09: None, 1.11: SLOWER, 0.9: FASTER},
    "hyperfine welch_ttest.py": {1.01: SLOWER},
    "pyperf compare_to": {1.01: SLOWER, 0.99: FASTER},
}


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_each_rule_has_its_margin_and_calls_what_is_twice_as_slow_and_not_what_is_equal(peer):
    base = [noisy(1.0 + 0.0001 * number) for number in range(peer.processes)]
    expected = MARGINS.get(peer.name, {}) | {1.0: None, 2.1: SLOWER}
    assert {factor: peer.decide(base, [each.scaled(factor) for each in base]) for factor in expected} == expected
    assert MARGINS.keys() <= {peer.name for peer in peers.PEERS}


def test_blocks_are_averaged_in_equal_groups_and_ten_samples_have_their_range_as_interval():
    assert peers.grouped([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0], 3) == [1.5, 3.5, 5.5]
    # 1 - 2 / 2^10 is above 99 %, 1 - 2 / 2^7 is not.
    assert peers.asv_interval([float(n) for n in range(10)]) == (0.0, 9.0)
    assert peers.asv_interval([1.0] * 7) == (float("-inf"), float("inf"))


def test_known_p_values():
    # Computed with scipy 1.17.
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2]
    assert peers.welch_p(a, b) == pytest.approx(0.059253737007745, abs=1e-9)
    assert peers.mann_whitney_p(a, b) == pytest.approx(0.06382218419183608)
