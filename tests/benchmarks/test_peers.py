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


BY_NAME = {peer.name: peer for peer in peers.PEERS}


@pytest.mark.parametrize("name", BY_NAME)
def test_each_rule_calls_what_is_twice_as_slow_and_not_what_is_equal(name):
    peer = BY_NAME[name]
    base = [noisy(1.0 + 0.0001 * number) for number in range(peer.processes)]
    slower = [each.scaled(2.1) for each in base]
    assert peer.decide(base, slower) is Verdict.SLOWER
    assert peer.decide(base, base) is None


@pytest.mark.parametrize(
    ("name", "factor", "called"),
    [
        ("pytest-benchmark mean:5%", 1.04, None),
        ("pytest-benchmark mean:5%", 1.06, Verdict.SLOWER),
        ("pytest-benchmark mean:5%", 0.5, None),
        ("pytest-benchmark min:5%", 1.06, Verdict.SLOWER),
        ("BenchmarkTools.jl judge", 0.94, Verdict.FASTER),
        ("BenchmarkTools.jl judge", 1.04, None),
        ("github-action-benchmark 110 %", 1.09, None),
        ("github-action-benchmark 110 %", 1.11, Verdict.SLOWER),
        ("github-action-benchmark 200 %", 1.99, None),
        ("nvbench_compare (legacy)", 1.001, Verdict.SLOWER),
        ("nvbench_compare (legacy)", 0.999, Verdict.FASTER),
        ("nvbench-compare (robust)", 1.005, None),
        ("nvbench-compare (robust)", 1.01, Verdict.SLOWER),
        ("google-benchmark compare.py", 1.01, Verdict.SLOWER),
        ("criterion.rs", 1.005, None),
        ("criterion.rs", 1.02, Verdict.SLOWER),
        ("criterion.rs", 0.98, Verdict.FASTER),
        ("tango", 1.009, None),
        ("tango", 1.02, Verdict.SLOWER),
        ("asv continuous", 1.09, None),
        ("asv continuous", 1.11, Verdict.SLOWER),
        ("asv continuous", 0.9, Verdict.FASTER),
        ("hyperfine welch_ttest.py", 1.01, Verdict.SLOWER),
        ("pyperf compare_to", 1.01, Verdict.SLOWER),
        ("pyperf compare_to", 0.99, Verdict.FASTER),
    ],
)
def test_each_rule_has_its_margin(name, factor, called):
    peer = BY_NAME[name]
    base = [noisy(1.0 + 0.0001 * number) for number in range(peer.processes)]
    assert peer.decide(base, [each.scaled(factor) for each in base]) is called


def test_blocks_are_averaged_in_equal_groups():
    assert peers.grouped([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0], 3) == [1.5, 3.5, 5.5]


def test_an_interval_of_ten_samples_is_their_range_and_of_few_is_infinite():
    # 1 - 2 / 2^10 is above 99 %, 1 - 2 / 2^7 is not.
    assert peers.asv_interval([float(n) for n in range(10)]) == (0.0, 9.0)
    assert peers.asv_interval([1.0] * 7) == (float("-inf"), float("inf"))


def test_known_p_values():
    # Computed with scipy 1.17.
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2]
    assert peers.welch_p(a, b) == pytest.approx(0.059253737007745, abs=1e-9)
    assert peers.mann_whitney_p(a, b) == pytest.approx(0.06382218419183608)
