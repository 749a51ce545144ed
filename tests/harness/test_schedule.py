"""Retries: cases that were held back come again, as long as that helps and fits."""

import math

import pytest

from dlbench.core.conditions import Throttling
from dlbench.core.model import Case
from dlbench.harness.schedule import PAUSES_S, Retries, Side, Task

HOT, COOL, DISTURBED = Throttling(thermal=0.5), Throttling(thermal=0.0), Throttling(thermal=0.0, waiting=0.051)


def case(name, device="cpu", side=None):
    return Task(Case(f"{name}@{device}", "s", name, {}, device), Side({device: None}, name=side))


def played(retries, cases, held_back, left_s=math.inf, how=HOT):
    """Play a round in which the tries (name, number) in ``held_back`` are; return the tries with their pauses."""
    seen = []
    for attempt in retries.of_round(cases):
        name = attempt.tasks[0].case.workload
        seen.append((name, attempt.tries, attempt.pause_s))
        retries.grant(attempt, [how if (name, attempt.tries) in held_back else COOL], left_s)
    return seen


def test_a_throttled_case_comes_again_at_the_end_after_growing_pauses():
    first, second = PAUSES_S
    assert second > first > 0
    cases = [case("a"), case("b"), case("c")]
    assert played(Retries(3), cases, {("a", 1), ("a", 2), ("b", 1)}) == [
        ("a", 1, 0.0),
        ("b", 1, 0.0),
        ("c", 1, 0.0),
        ("a", 2, first),
        ("b", 2, first),
        ("a", 3, second),
    ]


def test_nothing_that_tells_nothing_comes_again():
    retries = Retries(3)
    (attempt,) = retries.of_round([case("a")])
    assert not retries.grant(attempt, [None], math.inf)
    assert not retries.grant(attempt, [Throttling()], math.inf)
    assert not retries.grant(attempt, [Throttling(power_cap=1.0)], math.inf)


def test_a_disturbed_case_comes_again_as_often_without_a_pause():
    hit = {("a", 1), ("a", 2), ("a", 3), ("b", 1)}
    assert played(Retries(3), [case("a"), case("b")], hit, how=DISTURBED) == [
        (name, tries, 0.0) for name, tries in zip("ababa", (1, 1, 2, 2, 3), strict=True)
    ]
    assert len(played(Retries(3), [case("a")], {("a", 1)}, left_s=-0.1, how=DISTURBED)) == 1


@pytest.mark.parametrize(("most", "pauses"), [(1, [0.0]), (2, [0.0, *PAUSES_S[:1]]), (5, [0.0, *PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]])])
def test_a_policy_says_how_many_tries_there_are(most, pauses):
    assert [pause_s for _, _, pause_s in played(Retries(most), [case("a")], {("a", tries) for tries in range(9)})] == pauses


def test_the_sides_of_a_case_come_again_together_whichever_was_held_back():
    retries = Retries(3)
    tasks = [case(name, side=side) for name in "ab" for side in ("x", "y")]
    seen = []
    for attempt in retries.of_round(tasks):
        seen.append("".join(task.case.workload + task.side.name for task in attempt.tasks))
        retries.grant(
            attempt, [COOL, DISTURBED] if attempt.tasks[0].case.workload == "a" and attempt.tries == 1 else [COOL, None], math.inf
        )
    assert seen == ["axay", "bxby", "axay"]


def test_a_pause_that_does_not_fit_is_not_made():
    assert len(played(Retries(3), [case("a")], {("a", 1)}, left_s=PAUSES_S[0] / 2)) == 1
    assert len(played(Retries(3), [case("a")], {("a", 1), ("a", 2)}, left_s=PAUSES_S[0])) == 2


def test_a_device_that_no_pause_helps_is_left_alone_until_a_case_is_not_throttled():
    retries, cases = Retries(3), [case(name) for name in "abcd"]
    hot = {(name, tries) for name in "abcd" for tries in (1, 2, 3)}
    assert len(played(retries, cases[:3], hot)) == 9
    assert len(played(retries, cases, hot)) == 4
    other = [case("a", "cuda:0")]
    assert len(played(retries, other, hot)) == 3
    assert len(played(retries, cases, hot - {("b", 1)})) == 1 + 1 + 3 + 3


def test_sides_of_which_no_further_turn_helped_either_are_left_alone():
    retries = Retries(3)
    tasks = [case(name, side=side) for name in "abcd" for side in ("x", "y")]

    def tries():
        count = 0
        for attempt in retries.of_round(tasks):
            count += 1
            retries.grant(attempt, [COOL, DISTURBED], math.inf)
        return count

    assert (tries(), tries()) == (4 * 3, 4)
