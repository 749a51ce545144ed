"""Stopping rules are fed lists of floats; they know no clock."""

import random
from itertools import combinations

import pytest

from dlbench.core.model import Policy
from dlbench.core.stats import median_interval
from dlbench.harness.progress import SeriesRounds
from dlbench.harness.worker.measuring import measure
from dlbench.harness.worker.measuring.measure import has_enough_blocks, is_steady


def first(rule, values):
    """Return the first number of values that a rule holds for; None if it holds for none."""
    return next((count for count in range(1, len(values) + 1) if rule(values[:count])), None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 20, 10),
        ([1.0] * 9, None),
        ([2.0] * 5 + [1.0] * 10, 13),  # a step down: steady once both medians are behind it
        ([1.0 + 0.001 * i for i in range(50)], None),  # within 2 %, but a trend
        ([1.05**i for i in range(50)], None),
    ],
)
def test_steadiness(values, expected):
    assert first(is_steady, values) == expected


@pytest.mark.parametrize(("window", "blocks"), [(measure.WINDOW, 10), (measure.SHORT_WINDOW, 6)])
def test_chance_makes_a_trend_as_seldom_of_six_blocks_as_of_ten(window, blocks):
    assert first(lambda times: is_steady(times, window), [1.0] * 20) == blocks
    noise = random.Random(3)
    orders = [noise.sample(range(blocks), blocks) for _ in range(10000)]

    def trend(order):
        return abs(sum((b > a) - (b < a) for a, b in combinations(order, 2))) / (blocks * (blocks - 1) / 2)

    assert sum(trend(order) >= measure.STEADY_TREND[window] for order in orders) / 10000 == pytest.approx(0.017, abs=0.004)


@pytest.mark.parametrize(
    ("calls", "values", "count"),
    [
        pytest.param(1, [0.001] * 99, 50, id="blocks that agree end no round"),
        pytest.param(1, [0.001, 0.002] * 99, 50, id="the most blocks"),
        pytest.param(10, [0.005, 0.015] * 99, 10, id="a second"),
        pytest.param(1, [0.5, 0.7] * 99, 3, id="the least blocks"),
        pytest.param(1000, [1.0] * 99, 3, id="never fewer"),
        pytest.param(1, [0.001] * 49, None, id="too few"),
    ],
)
def test_a_round_ends_after_one_second_with_between_the_least_and_the_most_blocks(calls, values, count):
    assert first(lambda times: has_enough_blocks(times, None, calls, Policy()), values) == count


@pytest.mark.parametrize(
    ("policy", "medians", "rounds"),
    [
        pytest.param(Policy(rounds=7), [1.0, 2.0] * 20, 7, id="without a budget all have the same"),
        pytest.param(Policy(rounds=7, budget_s=60), [1.0] * 40, 7, id="a narrow interval"),
        pytest.param(Policy(rounds=7, budget_s=60, max_rounds=20), [1.0, 2.0] * 40, 20, id="a wide interval"),
        pytest.param(Policy(rounds=7, budget_s=60), [1.0, 1.5, *[1.0] * 8], 9, id="until it is narrow"),
        pytest.param(Policy(rounds=7, budget_s=60), [None] * 40, 7, id="an experiment has no medians"),
    ],
)
def test_a_budget_buys_more_rounds_only_where_the_interval_is_wide(policy, medians, rounds):
    rule = SeriesRounds(policy)
    for count, median in enumerate(medians):
        if rule.done():
            assert count == rounds
            return
        rule.add([median] if median else ())
    assert (rule.done(), len(medians)) == (True, rounds)


def simulated_run(noise, sd, policy):
    """Round medians around one, as many as the rule takes."""
    rule, medians = SeriesRounds(policy), []
    while not rule.done():
        medians.append(noise.lognormvariate(0, sd))
        rule.add(medians[-1:])
    return medians


@pytest.mark.parametrize(
    ("policy", "covered"),
    [
        pytest.param(Policy(), 0.984, id="seven rounds"),
        pytest.param(Policy(rounds=20), 0.959, id="twenty rounds"),
        pytest.param(Policy(budget_s=60), 0.94, id="a budget"),
    ],
)
def test_stopping_on_precision_costs_a_percent_of_coverage(policy, covered):
    """Where rounds differ by 3.5 %, the worst for it; docs/protocol.md tells the share."""
    noise, runs = random.Random(1), 2000
    intervals = [median_interval(simulated_run(noise, 0.035, policy)) for _ in range(runs)]
    assert sum(each.low <= 1 <= each.high for each in intervals) / runs == pytest.approx(covered, abs=0.008)
