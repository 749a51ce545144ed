"""Conditions of a measurement: facts on throttling and disturbances in, flags and sentences out."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.conditions import UNDISTURBED, Circumstances, RoundState, Throttling, summarise_conditions, undisturbed
from dlbench.core.decoding import convert
from dlbench.core.measurement import Samples
from dlbench.core.store import load
from dlbench.core.writer import as_line

QUIET = RoundState(0, 10.0, 0.02, 0.0, {"cpu": {}}, {"cpu": {}})


def flags(throttlings, states, device, threads):
    return summarise_conditions(list(enumerate(throttlings)), states, device, threads)


def on_card(number, before, after=None):
    """A round with so many processes of others on cuda:0 before and after it; None where nothing tells."""
    states = [{"accelerators": {"cuda:0": {} if count is None else {"other_processes": count}}} for count in (before, after)]
    return RoundState(number, 10.0, 0.0, 0.0, *states)


@pytest.mark.parametrize(
    ("throttling", "throttled", "capped", "causes"),
    [
        (Throttling(), None, None, ""),
        (Throttling(thermal=0.0), False, None, ""),
        (Throttling(thermal=0.01, power_cap=0.01), False, False, ""),
        (Throttling(thermal=0.123), True, None, "too hot for 12.3 % of its time"),
        (Throttling(quota=0.5, thermal=0.0), True, None, "stopped by the CPU quota for 50.0 % of its time"),
        (Throttling(power_cap=0.9, thermal=0.0, reasons=()), False, True, ""),
        (Throttling(reasons=()), False, False, ""),
        (Throttling(reasons=("sw_power_cap",)), False, True, ""),
        (Throttling(reasons=("hw_slowdown", "sw_power_cap")), True, True, "slowed down (hw_slowdown)"),
        (
            Throttling(thermal=1.0, quota=0.02, reasons=("sw_thermal_slowdown",)),
            True,
            False,
            "too hot for 100.0 % of its time and slowed down (sw_thermal_slowdown) and stopped by the CPU quota for 2.0 % of its time",
        ),
    ],
)
def test_what_counts_as_throttled(throttling, throttled, capped, causes):
    assert (throttling.throttled, throttling.power_capped, throttling.causes()) == (throttled, capped, causes)


@pytest.mark.parametrize(
    ("throttling", "lost", "disturbed", "said"),
    [
        (Throttling(), None, None, ""),
        (Throttling(stolen=0.5), 0.5, True, "a hypervisor took a CPU for 50.0 % of its time"),
        (Throttling(waiting=0.05), 0.05, False, ""),
        (Throttling(waiting=0.05, stolen=0.0), 0.05, False, ""),
        (Throttling(waiting=0.051), 0.051, True, "waited for a CPU for 5.1 % of its time"),
        (Throttling(waiting=0.0, stolen=0.125), 0.125, True, "a hypervisor took a CPU for 12.5 % of its time"),
        (
            Throttling(waiting=0.75, stolen=0.5),
            1.0,
            True,
            "waited for a CPU for 75.0 % of its time and a hypervisor took a CPU for 50.0 % of its time",
        ),
        (Throttling(waiting=0.5, quota=0.01), 0.5, True, "waited for a CPU for 50.0 % of its time"),
        (Throttling(waiting=0.5, quota=0.2), None, None, ""),
    ],
)
def test_what_counts_as_disturbed(throttling, lost, disturbed, said):
    assert (throttling.lost, throttling.disturbed, throttling.disturbances()) == (lost, disturbed, said)
    assert throttling.held_back is bool(throttling.throttled or disturbed)


def test_it_is_told_how_a_case_was_held_back():
    assert Throttling(waiting=0.0, thermal=0.0).explanation() == ""
    assert Throttling(waiting=0.25).explanation() == "disturbed: waited for a CPU for 25.0 % of its time"
    both = Throttling(waiting=0.25, thermal=0.5)
    assert both.explanation() == "throttled: too hot for 50.0 % of its time; disturbed: waited for a CPU for 25.0 % of its time"


def test_lost_cpu_time_disturbs_by_the_case_and_by_the_round():
    lost = [Throttling(waiting=share) for share in (0.0, 0.125, 0.0625)]
    found = flags(lost, [QUIET], "cpu", 2)
    assert (found.disturbed, found.lost_share, found.throttled) == (True, 0.125, None)
    assert found.reason == "disturbed in 2 of 3 rounds: waited for a CPU for 12.5 % of its time"
    quiet = flags([Throttling(waiting=0.0, tries=2), None], [], "cpu", 2)
    assert (quiet.disturbed, quiet.lost_share) == (False, 0.0)
    assert quiet.reason == "measured again in 1 of 2 rounds, as an earlier try was throttled or disturbed"
    busy = flags([Throttling(waiting=0.0)], [RoundState(0, 10.0, 1.0, 0.0, {}, {})], "cpu", 2)
    assert (busy.disturbed, busy.reason) == (True, "other processes took up to 1 CPUs' time in 1 of 1 round")


def test_a_file_that_tells_nothing_flags_nothing():
    assert flags([None, None], [], "cpu", 2) == Circumstances()


def test_quiet_rounds_are_told_from_unknown_ones():
    assert flags([Throttling(thermal=0.0)] * 2, [QUIET], "cpu", 2) == Circumstances(throttled=False, disturbed=False, rounds=0)


def test_the_worst_round_is_told_and_how_many_there_were():
    found = flags([Throttling(thermal=0.0), Throttling(thermal=0.2, tries=3), Throttling(thermal=0.3), None], [], "cuda:0", 2)
    assert found.throttled is True
    assert found.reason == "throttled in 2 of 4 rounds: too hot for 30.0 % of its time"
    helped = flags([Throttling(thermal=0.0, tries=2), Throttling(thermal=0.0)], [], "cuda:0", 2)
    assert (helped.throttled, helped.reason) == (
        False,
        "measured again in 1 of 2 rounds, as an earlier try was throttled or disturbed",
    )
    capped = flags([Throttling(power_cap=0.25), Throttling(reasons=("sw_power_cap",))], [], "cuda:0", 2)
    assert (capped.throttled, capped.power_capped) == (False, True)
    assert capped.reason == "at its power limit in 2 of 2 rounds, for up to 25.0 % of the time"


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
    found = flags([None, None], [QUIET, RoundState(1, 10.0, other, stolen, {}, {})], "cpu", threads)
    assert (found.disturbed, found.reason) == (reason is not None, reason)


def test_others_on_a_device_disturb_its_cases_and_no_others():
    rounds = [on_card(0, 0, 0), on_card(1, 2, 0), on_card(2, 0, 1), on_card(3, None)]
    assert flags([None] * 4, rounds, "cuda:0", 2).reason == "2 other processes on cuda:0 in 2 of 3 rounds"
    assert flags([None] * 4, rounds[2:3], "cuda:0", 2).reason == "1 other process on cuda:0 in 1 of 1 round"
    assert flags([None] * 4, rounds, "cuda:1", 2).disturbed is False  # by the CPUs, which tell


shares = st.none() | st.floats(0, 1)
states = st.fixed_dictionaries({}, optional={"cpu": st.dictionaries(st.sampled_from(["load_1min", "clock_hz"]), st.floats(0, 1e10))})


@given(
    st.builds(
        Throttling,
        shares,
        shares,
        shares,
        st.none() | st.tuples(st.sampled_from(["hw_slowdown", "sw_power_cap"])),
        st.integers(1, 3),
        shares,
        shares,
    )
)
def test_throttling_survives_the_file(throttling):
    assert convert(Throttling, json.loads(json.dumps(throttling.to_json()))) == throttling


@given(st.builds(RoundState, st.integers(0, 100), st.floats(0, 1e6), shares, shares, states, states))
def test_a_round_survives_the_file(state):
    assert convert(RoundState, json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"round": 1.5}, "`$.round`"),
        ({"seconds": -1}, "`$.seconds`"),
        ({"other_cpus": "many"}, "`$.other_cpus`"),
        ({"before": []}, "`$.before`"),
        ({"after": {"cpu": []}}, "`$.cpu`"),
        ({"after": {"cpu": {"governor": 1}}}, "`$.cpu.governor`"),
        ({"after": {"accelerators": 1}}, "`$.accelerators`"),
        ({"after": {"accelerators": {"cuda:0": {"other_processes": "two"}}}}, "`$.accelerators[...].other_processes`"),
    ],
)
def test_a_round_that_was_edited_is_left_out(tmp_path, change, why):
    path = tmp_path / "f.jsonl"
    path.write_bytes(as_line({"kind": "header", "schema": 1}) + as_line({**QUIET.to_json(), **change}))
    run = load(path)
    ((number, said),) = run.left_out
    assert (number, why in said, run.states) == (2, True, ()), said


def test_a_block_is_undisturbed_where_no_thread_waited_for_a_fiftieth_of_it():
    # Ten calls of 0.5 s: 2 % of a block are 0.1 s.
    assert undisturbed([0.5] * 4, [0.0, 0.0999, 0.1, 3.0], 10) == [0, 1]
    assert undisturbed([0.5, 0.5], None, 10) == range(2)
    assert undisturbed([0.0, 0.0], [0.0, 0.1], 1) == [0]  # no time is a doubt of its own


@given(
    st.lists(st.tuples(st.floats(1e-6, 10), st.floats(0, 1)), min_size=1, max_size=40), st.integers(1, 1000), st.integers(1, 12) | st.none()
)
def test_the_blocks_that_count_are_some_of_the_round_in_their_order(blocks, calls, least):
    block_s = tuple(seconds for seconds, _ in blocks)
    wait_s = tuple(share * calls * seconds for seconds, share in blocks)
    samples = Samples(calls, block_s, 0.0, 0.0, None if least else True, wait_s=wait_s, min_blocks=least)
    places = undisturbed(block_s, wait_s, calls)
    assert list(places) == sorted(set(places))
    if len(places) < (least or 10):
        assert (samples.undisturbed, samples.counted_s, samples.waiting) == (None, block_s, None)
    else:
        assert samples.counted_s == [block_s[at] for at in places]
        assert samples.waiting is not None
        assert samples.waiting <= UNDISTURBED


def test_a_file_with_fewer_waits_than_blocks_is_named():
    data = {"calls": 1, "block_s": [1.0, 2.0], "first_call_s": None, "warmup_s": None, "steady": None, "wait_s": [0.5]}
    with pytest.raises(ValueError, match=re.escape("wait_s must have a number for each of the 2 blocks, and has 1")):
        convert(Samples, data)


def test_what_else_ran_disturbs_no_round_that_rests_on_undisturbed_blocks():
    states = [RoundState(number, 10.0, 0.9, 0.0) for number in range(3)]
    rounds = list(enumerate([Throttling(waiting=0.01, stolen=0.0)] * 3))
    all_alone = summarise_conditions(rounds, states, "cpu", 2, frozenset(range(3)))
    assert (all_alone.disturbed, all_alone.reason, all_alone.rounds) == (False, None, 0)
    one_not = summarise_conditions(rounds, states, "cpu", 2, frozenset((0, 2)))
    assert (one_not.disturbed, one_not.reason) == (True, "other processes took up to 0.9 CPUs' time in 1 of 1 round")
    stolen = summarise_conditions(rounds, [RoundState(0, 10.0, 0.9, 0.5)], "cpu", 2, frozenset(range(3)))
    assert (stolen.disturbed, stolen.reason) == (True, "the hypervisor took up to 0.5 CPUs' time in 1 of 1 round")
