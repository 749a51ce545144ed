"""Conditions of a measurement: facts on throttling and disturbances in, flags and sentences out."""

import json
import re
from dataclasses import asdict

import pytest

from dlbench.core.conditions import Circumstances, RoundState, Throttling, summarise_conditions, undisturbed
from dlbench.core.decoding import convert
from dlbench.core.measurement import Samples

QUIET = RoundState(0, 10.0, 0.02, 0.0, {"cpu": {}}, {"cpu": {}})


def on_card(number, before, after=None):
    """A round with so many processes of others on cuda:0 before and after it; None where nothing tells."""
    states = [{"accelerators": {"cuda:0": {} if count is None else {"other_processes": count}}} for count in (before, after)]
    return RoundState(number, 10.0, 0.0, 0.0, *states)


def on_cpus(*others, stolen=0.0):
    """Rounds in which others took so many CPUs."""
    return [RoundState(number, 10.0, each, stolen) for number, each in enumerate(others)]


def test_what_counts_as_throttled_and_what_as_disturbed(transcript):
    def judged(title):
        found = Throttling(**json.loads(title))
        lines = [f"throttled: {found.throttled} ({found.causes()}), at its power limit: {found.power_capped}"]
        lines += [f"disturbed: {found.disturbed} ({found.disturbances()}), lost: {found.lost}, held back: {found.held_back}"]
        return "\n".join([*lines, found.explanation()])

    transcript("throttled-and-disturbed", 19, judged)


WAITED = "waited for a CPU for {} % of its time"
AGAIN = "measured again in 1 of 2 rounds, as an earlier try was throttled or disturbed"
WAITING, TOO_HOT = f"disturbed in 2 of 3 rounds: {WAITED.format('12.5')}", "throttled in 2 of 4 rounds: too hot for 30.0 % of its time"
CAPPED = "at its power limit in 2 of 2 rounds, for up to 25.0 % of the time"
BUSY = "other processes took up to 1 CPUs' time in 1 of 1 round"
CALM, AGAIN_CALM, COLD, AGAIN_COLD = (Throttling(**{name: 0.0}, tries=tries) for name in ("waiting", "thermal") for tries in (1, 2))
HOT, LOST = [Throttling(thermal=0.2, tries=3), Throttling(thermal=0.3)], [Throttling(waiting=0.125), Throttling(waiting=0.0625)]
AT_LIMIT = [Throttling(power_cap=0.25), Throttling(reasons=("sw_power_cap",))]
SHARED = [on_card(0, 0, 0), on_card(1, 2, 0), on_card(2, 0, 1), on_card(3, None)]


@pytest.mark.parametrize(
    ("throttlings", "states", "device", "found"),  # throttled, at its power limit, disturbed, why, lost and in how many rounds
    [
        ([None, None], [], "cpu", Circumstances()),
        ([COLD] * 2, [QUIET], "cpu", Circumstances(False, None, False, None, None, 0)),
        ([CALM, *LOST], [QUIET], "cpu", Circumstances(None, None, True, WAITING, 0.125, 2)),
        ([AGAIN_CALM, None], [], "cpu", Circumstances(None, None, False, AGAIN, 0.0, 0)),
        ([CALM], on_cpus(1.0), "cpu", Circumstances(None, None, True, BUSY, 0.0, 0)),
        ([COLD, *HOT, None], [], "cuda:0", Circumstances(True, None, None, TOO_HOT, None, 2)),
        ([AGAIN_COLD, COLD], [], "cuda:0", Circumstances(False, None, None, AGAIN, None, 0)),
        (AT_LIMIT, [], "cuda:0", Circumstances(False, True, None, CAPPED, None, 0)),
        # Others on a device disturb its cases and no others.
        ([None] * 4, SHARED, "cuda:0", Circumstances(None, None, True, "2 other processes on cuda:0 in 2 of 3 rounds", None, 2)),
        ([None], [on_card(0, 0, 1)], "cuda:0", Circumstances(None, None, True, "1 other process on cuda:0 in 1 of 1 round", None, 1)),
        ([None], [on_card(0, 0, 1)], "cuda:1", Circumstances(None, None, False, None, None, 0)),  # by the CPUs, which tell
    ],
)
def test_the_worst_round_and_how_many_there_were(throttlings, states, device, found):
    assert summarise_conditions(list(enumerate(throttlings)), states, device, 2) == found


@pytest.mark.parametrize(
    ("other", "stolen", "threads", "reason"),
    [
        (0.1, 0.1, 2, None),
        (0.11, 0.0, 2, "other processes took up to 0.11 CPUs' time in 1 of 2 rounds"),
        (0.11, 0.0, 4, None),
        (0.0, 1.0, 2, "the hypervisor took up to 1 CPUs' time in 1 of 2 rounds"),
        (None, None, 2, None),
    ],
)
def test_cpu_time_that_went_to_others_counts_by_the_threads_of_the_case(other, stolen, threads, reason):
    found = summarise_conditions([(0, None), (1, None)], [QUIET, RoundState(1, 10.0, other, stolen)], "cpu", threads)
    assert (found.disturbed, found.reason) == (reason is not None, reason)


@pytest.mark.parametrize(
    ("states", "undisturbed_rounds", "reason"),
    [
        (on_cpus(0.9, 0.9, 0.9), (0, 1, 2), None),
        (on_cpus(0.9, 0.9, 0.9), (0, 2), "other processes took up to 0.9 CPUs' time in 1 of 1 round"),
        (on_cpus(0.9, stolen=0.5), (0, 1, 2), "the hypervisor took up to 0.5 CPUs' time in 1 of 1 round"),
    ],
)
def test_what_else_ran_disturbs_no_round_that_rests_on_undisturbed_blocks(states, undisturbed_rounds, reason):
    rounds = list(enumerate([Throttling(waiting=0.01, stolen=0.0)] * 3))
    found = summarise_conditions(rounds, states, "cpu", 2, frozenset(undisturbed_rounds))
    assert (found.disturbed, found.reason, found.rounds) == (reason is not None, reason, 0)


def test_a_block_is_undisturbed_where_no_thread_waited_for_a_fiftieth_of_it():
    # Ten calls of 0.5 s: 2 % of a block are 0.1 s.
    assert undisturbed([0.5] * 4, [0.0, 0.0999, 0.1, 3.0], 10) == [0, 1]
    assert undisturbed([0.5, 0.5], None, 10) == range(2)
    assert undisturbed([0.0, 0.0], [0.0, 0.1], 1) == [0]  # no time is a doubt of its own


def test_a_file_with_fewer_waits_than_blocks_is_named():
    data = asdict(Samples(1, [1.0, 2.0], None, None, None)) | {"wait_s": [0.5]}
    with pytest.raises(ValueError, match=re.escape("wait_s must have a number for each of the 2 blocks, and has 1")):
        convert(Samples, data)
