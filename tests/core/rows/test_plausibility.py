"""Share of the published peak, and signs that a row can't be true; every number is made up."""

import json

import made_up
import pytest

from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Work
from dlbench.core.rows.columns import Checks
from dlbench.core.rows.summary import summarise


def row(device="cuda:0", seconds=1.0, params=None, **fields):
    """The row of seven rounds in which each call took so long; by default nothing is stated."""
    params = {"n": 8, "dtype": "fp32"} if params is None else params
    stated = {"items": None, "flops": None, "bytes": None, **fields}
    return summarise(made_up.rounds_of(made_up.case("matmul", device, **params), made_up.flat([seconds] * 7), **stated))


def test_the_share_of_the_nearer_peak_or_why_there_is_none_and_what_is_implausible(transcript):
    def judged(title):
        options = json.loads(title[title.index("{") :])
        found = row(**{**options, "check": SpotCheck(**options["check"])} if "check" in options else options)
        lines = [f"{found.rate.peak_fraction} of {found.rate.peak}", f"implausible: {found.flag.implausible}"]
        return "\n".join([*lines, *filter(None, [found.rate.reason, found.flag.implausible_reason])])

    transcript("peaks-and-plausibility", 33, judged)


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
