"""Share of the published peak, and signs that a row can't be true; every number is made up."""

import front_door
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


NO_FORMULA = {"bytes": [Unknown.BYTES_NOT_COUNTED.reason(text="no formula for Layer")]}
UNCOUNTED = {"flops": Unknown.OPERATIONS_NOT_COUNTED, "bytes": Unknown.BYTES_NOT_COUNTED}
NO_SHAPES = {name: [unknown.reason(text="not on shapes alone")] for name, unknown in UNCOUNTED.items()}
SCENES = [
    {"flops": 33.5e12, "bytes": 0.48e12},
    {"flops": 6.7e12, "bytes": 2.4e12},
    {"flops": 989.5e12, "params": {"dtype": "int8"}},
    {"flops": 989.5e12, "params": {"dtype": "fp8_e4m3"}},
    {"flops": 1e9, "device": "cpu"},
    {"flops": 1e9, "device_name": "NVIDIA B300"},
    {"flops": 1e9, "device_name": None},
    {"flops": 1e9, "params": {"dtype": "int4"}},
    {"flops": 1e9, "params": {"dtype": "int8"}, "device_name": "Tesla V100-SXM2-16GB"},
    {"flops": 1e9, "params": {}},
    {"bytes": 1e6},
    {},
    # A workload may say why it does not state a count; one reason for both counts is given once.
    {"flops": 1e9, "device": "cpu", "missing_reasons": NO_FORMULA},
    {"missing_reasons": NO_FORMULA},
    {"missing_reasons": NO_SHAPES},
    # What cannot be true.
    {"flops": 84e12},
    {"bytes": 12e12},
    {"flops": 1e9, "seconds": 0.0},
    {"flops": 0, "bytes": 0},
    {"items": 0},
    {"items": 3, "flops": 9, "seconds": 70e-9, "check": SpotCheck(empty_call_s=40e-9)},
    {"items": 0, "check": SpotCheck(follows_input=False)},
    # What may be true.
    {"flops": 83.7e12},  # within what a card may run above its rated clock
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
]


def test_the_share_of_the_nearer_peak_or_why_there_is_none_and_what_is_implausible(snapshot):
    texts = {}
    for options in SCENES:
        found = row(**options)
        given = ", ".join(f"{name} {value}" for name, value in options.items() if name in ("items", "flops", "bytes"))
        lines = [f"{found.rate.peak_fraction} of {found.rate.peak}", f"implausible: {found.flag.implausible}"]
        lines += [text for text in (found.rate.reason, found.flag.implausible_reason) if text]
        texts[f"{len(texts) + 1}: {given}"] = "\n".join(lines) + "\n"
    snapshot("peaks-and-plausibility", front_door.under_titles(texts))


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
