"""Simulated position effects, in a few deals."""

import random

from benchmarks.simulated import order


def test_a_position_effect_is_no_change_in_balanced_order():
    found = list(order.findings(3, random.Random(1)))
    assert [each.count for each in found if each.at_most is not None] == [0, 0, 0]
    assert sum(each.count for each in found) > 0
