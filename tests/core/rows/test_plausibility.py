"""Share of the published peak, and signs that a row can't be true; every number is made up."""

import made_up
import pytest

from dlbench.core.errors import Unknown
from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Work
from dlbench.core.rows.columns import Checks
from dlbench.core.rows.summary import summarise


def row(device="cuda:0", seconds=1.0, params=None, **fields):
    """The row of seven rounds in which each call took so long; by default nothing is stated."""
    params = {"n": 8, "dtype": "fp32"} if params is None else params
    stated = {"items": None, "flops": None, "bytes": None, **fields}
    return summarise(made_up.rounds_of(made_up.case("matmul", device, **params), made_up.flat([seconds] * 7), **stated))


@pytest.mark.parametrize(
    ("options", "peak"),
    [
        ({"flops": 33.5e12, "bytes": 0.48e12}, "arithmetic: 67.0 TFLOP/s, dense fp32 on the ordinary cores"),
        ({"flops": 6.7e12, "bytes": 2.4e12}, "memory: 4.80 TB/s, the bandwidth"),
        ({"flops": 989.5e12, "params": {"dtype": "int8"}}, "arithmetic: 1.98 POP/s, dense int8 on the matrix units"),
        ({"flops": 989.5e12, "params": {"dtype": "fp8"}}, "arithmetic: 1.98 PFLOP/s, dense fp8 on the matrix units"),
        ({"flops": 989.5e12, "params": {"dtype": "fp8_e4m3"}}, "arithmetic: 1.98 PFLOP/s, dense fp8 on the matrix units"),
        ({"flops": 989.5e12, "params": {"dtype": "fp8_e5m2"}}, "arithmetic: 1.98 PFLOP/s, dense fp8 on the matrix units"),
    ],
)
def test_the_share_is_of_whichever_peak_is_nearer(options, peak):
    rate, flag = row(**options).rate, row(**options).flag
    assert (rate.peak_fraction, rate.reason, flag.implausible) == (pytest.approx(0.5), None, False)
    assert str(rate.peak) == f"{peak} of NVIDIA H200"


NO_PEAK = "a CPU's peak takes its multiply-add units and its highest clock, which no file has"
NO_FORMULA = {"bytes": [Unknown.BYTES_NOT_COUNTED.reason(text="no formula for Layer")]}
BOTH = {name: [each.reason(text="not on shapes alone")] for name, each in
        (("flops", Unknown.OPERATIONS_NOT_COUNTED), ("bytes", Unknown.BYTES_NOT_COUNTED))}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"flops": 1e9, "device": "cpu"}, NO_PEAK),
        (
            {"flops": 1e9, "device_name": "NVIDIA B300"},
            "NVIDIA B300 is not in dlbench's table of published peaks; add it with its source to dlbench/core/reference/peaks.toml",
        ),
        ({"flops": 1e9, "device_name": None}, "an unnamed device is not in dlbench's table of published peaks"),
        ({"flops": 1e9, "params": {"dtype": "int4"}}, "no published int4 peak of NVIDIA H200 is known"),
        (
            {"flops": 1e9, "params": {"dtype": "int8"}, "device_name": "Tesla V100-SXM2-16GB"},
            "no published int8 peak of Tesla V100-SXM2-16GB is known",
        ),
        ({"flops": 1e9, "params": {}}, "the case names no precision"),
        ({"bytes": 1e6}, "what a call moves may come from a cache, so the bandwidth of memory does not bound it"),
        ({}, "the workload states neither operations nor bytes"),
        # A workload may say why it does not state a count; one reason for both counts is told once.
        ({"flops": 1e9, "device": "cpu", "missing_reasons": NO_FORMULA}, f"{NO_PEAK}; also, its bytes are unknown: no formula for Layer"),
        ({"missing_reasons": NO_FORMULA}, "its bytes are unknown: no formula for Layer"),
        ({"missing_reasons": BOTH}, "its operations and bytes are unknown: not on shapes alone"),
    ],
)
def test_where_there_is_no_share_the_row_says_why(options, reason):
    found = row(**options)
    assert (found.rate.peak_fraction, found.rate.peak, found.rate.reason, found.flag.implausible) == (None, None, reason, False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"flops": 84e12},
            "it reaches 1.25 times the published peak of arithmetic (67.0 TFLOP/s, dense fp32 on the ordinary cores of NVIDIA H200); "
            "see what its flops count, or state least_flops where an algorithm needs fewer",
        ),
        (
            {"bytes": 12e12},
            "it reaches 2.50 times the published peak of memory (4.80 TB/s, the bandwidth of NVIDIA H200); see what its bytes count, "
            "or state least_bytes where caches hold some of them meanwhile",
        ),
        ({"flops": 1e9, "seconds": 0.0}, "its time reads as zero; give it more to do"),
        ({"flops": 0, "bytes": 0}, "it states 0 operations and 0 bytes; leave a count out where it means nothing"),
        ({"items": 0}, "it states 0 items; leave a count out where it means nothing"),
        (
            {"items": 3, "flops": 9, "seconds": 70e-9, "check": SpotCheck(empty_call_s=40e-9)},
            "it states items and operations, and 70.0 ns is no more than 2 times what an empty call takes (40.0 ns); "
            "see that its call does the work and does not only prepare it",
        ),
        (
            {"items": 0, "check": SpotCheck(follows_input=False)},
            "it states 0 items; leave a count out where it means nothing; also, its output stayed the same on other inputs; "
            "see that its call computes, and that Work.inputs are the tensors it reads",
        ),
    ],
)
def test_what_cannot_be_true_is_flagged_with_what_to_do(options, reason):
    found = row(**options)
    assert (found.flag.implausible, found.flag.implausible_reason) == (True, reason)


@pytest.mark.parametrize(
    "options",
    [
        {"flops": 83e12},  # within what a card may run above its rated clock
        {"flops": 250e12, "least_flops": 62.5e12},  # Winograd's algorithm
        {"bytes": 12e12, "least_bytes": 4.8e12},  # from layer to layer through a cache
        {"bytes": 80e6, "seconds": 1e-6},  # 80 TB/s, out of a cache
        {"flops": 1e20, "device": "cpu"},  # no peak is known
        {"flops": 268e12, "params": {"ranks": 4, "dtype": "fp32"}},  # at the peak of four devices
        {"flops": 67e12, "params": {"ranks": 10**400, "dtype": "fp32"}},
        {"flops": 67e12, "params": {"ranks": "many", "dtype": "fp32"}},
        {"seconds": 10e-9, "check": SpotCheck(empty_call_s=40e-9)},  # an empty call that states nothing
        {"flops": 9, "seconds": 90e-9, "check": SpotCheck(empty_call_s=40e-9)},
        {"check": SpotCheck(follows_input=None)},
    ],
)
def test_what_may_be_true_is_not_flagged(options):
    found = row(**options)
    assert (found.flag.implausible, found.flag.implausible_reason) == (False, None)


def test_published_times_of_a_titan_x_pass_its_peak_and_are_believed():
    # jcjohnson/cnn-benchmarks: VGG-16, batch 16, forward and backward in 128.62 ms. Winograd's algorithm makes it 1.05 times 11 TFLOP/s.
    flops = 16 * 3 * 30.96e9
    found = row(seconds=0.12862, flops=flops, least_flops=flops / 4, device_name="NVIDIA TITAN X (Pascal)")
    assert (found.rate.peak_fraction, found.flag.implausible) == (pytest.approx(1.05, abs=0.005), False)


def test_what_was_not_timed_has_no_flag_and_no_share():
    found = summarise([made_up.with_values(made_up.without_rounds(each), loss=1.0) for each in made_up.rounds_of(made_up.case(), [[1.0]])])
    assert (found.rate.peak_fraction, found.rate.reason, found.flag.implausible, found.flag.implausible_reason) == (None,) * 4


def test_checks_are_read_from_the_round_that_made_them():
    rounds = made_up.rounds_of(made_up.case(), made_up.flat([1.0] * 3))
    first = made_up.checked(rounds[0], SpotCheck(True, 1e-7, 1e-5, 4e-8), "fp64: because")
    assert summarise([first, *rounds[1:]]).check == Checks(True, 1e-7, 1e-5, 4e-8, reason="fp64: because")


def test_instances_handle_what_one_does_as_many_times():
    three = made_up.case("w", instances=3, threads=2)
    assert (three.ranks, three.instances, three.threads) == (3, 3, 2)
    found = Work(call=list, items=4, flops=10.0, bytes=0).counts(three)
    assert found == {"items": 12, "flops": 30.0, "least_flops": None, "bytes": 0, "least_bytes": None}
