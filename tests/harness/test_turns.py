"""Whose turn it is: throttled cases come again, as long as that helps and fits."""

import math

from dlbench.core.conditions import Throttling
from dlbench.core.model import Case
from dlbench.harness.side import Side, Task
from dlbench.harness.turns import PAUSES_S, Turns

HOT, COOL = Throttling(thermal=0.5), Throttling(thermal=0.0)


def case(name, device="cpu"):
    return Task(Case(f"{name}@{device}", "s", name, {}, device), Side({device: None}))


def played(turns, cases, throttled, left_s=math.inf):
    """Play a round in which the tries (name, number) in ``throttled`` are; return the tries with their pauses."""
    seen = []
    for turn in turns.of_round(cases):
        seen.append((turn.task.case.workload, turn.tries, turn.pause_s))
        turns.again(turn, HOT if (turn.task.case.workload, turn.tries) in throttled else COOL, left_s)
    return seen


def test_a_throttled_case_comes_again_at_the_end_after_growing_pauses():
    first, second = PAUSES_S
    assert second > first > 0
    cases = [case("a"), case("b"), case("c")]
    assert played(Turns(), cases, {("a", 1), ("a", 2), ("b", 1)}) == [
        ("a", 1, 0.0),
        ("b", 1, 0.0),
        ("c", 1, 0.0),
        ("a", 2, first),
        ("b", 2, first),
        ("a", 3, second),
    ]


def test_nothing_that_tells_nothing_comes_again():
    turns = Turns()
    (turn,) = turns.of_round([case("a")])
    assert not turns.again(turn, None, math.inf)
    assert not turns.again(turn, Throttling(), math.inf)
    assert not turns.again(turn, Throttling(power_cap=1.0), math.inf)


def test_a_pause_that_does_not_fit_is_not_made():
    assert len(played(Turns(), [case("a")], {("a", 1)}, left_s=PAUSES_S[0] / 2)) == 1
    assert len(played(Turns(), [case("a")], {("a", 1), ("a", 2)}, left_s=PAUSES_S[0])) == 2


def test_a_device_that_no_pause_helps_is_left_alone_until_a_case_is_not_throttled():
    turns, cases = Turns(), [case(name) for name in "abcd"]
    hot = {(name, tries) for name in "abcd" for tries in (1, 2, 3)}
    assert len(played(turns, cases[:3], hot)) == 9
    assert len(played(turns, cases, hot)) == 4
    other = [case("a", "cuda:0")]
    assert len(played(turns, other, hot)) == 3
    assert len(played(turns, cases, hot - {("b", 1)})) == 1 + 1 + 3 + 3
