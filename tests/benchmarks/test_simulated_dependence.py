"""Intervals of rounds that depend on each other, simulated: the shares of docs/interval.md in few deals."""

import random

from benchmarks.simulated import dependent


def test_an_interval_holds_less_often_the_more_its_rounds_depend_on_each_other():
    found = list(dependent.findings(100, random.Random(1)))
    assert [each.what for each in found[:3]] == [
        "seven rounds, correlation 0",
        "seven rounds, correlation 0.2",
        "seven rounds, correlation 0.46",
    ]
    assert [each.count for each in found] == [99, 98, 87, 98, 95, 84, 95, 88, 84]
