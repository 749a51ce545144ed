"""Forecasts of cases that are far too slow, by probes of smaller sizes."""

import re
from pathlib import Path
from typing import Any

import front_door
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_hosts import dlbench

from dlbench.core.model import Policy
from dlbench.harness.worker import registry
from dlbench.harness.worker.measuring.forecast import Probe, calls_of_round, forecast

PLUGIN = str(front_door.ROOT / "tests/plugins/slowing.py")
FP16 = (0.011, 0.110, 2.1)
"""Seconds of fp16 products of 256, 512 and 1024 on a CPU without fp16; one of 2048 took 46.8 s there."""


def of_products(*seconds: float) -> list[Probe]:
    return [Probe({"n": 256 << at}, each, 3.0) for at, each in enumerate(seconds)]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ((), None),
        (FP16[:1], 0.011 * 512),  # by its operations alone
        (FP16[:2], 0.110 * 4**3.321928),  # tenfold from probe to probe
        (FP16, 2.1 * (2.1 / 0.110)),
        ((1.0, 4.0, 16.0), 16.0 * 8),  # less steep than operations
        ((5e-6, 0.008), 0.008 * 64),  # an interruption of the second tells nothing of so short calls
    ],
)
def test_a_forecast_takes_the_steeper_of_operations_and_the_last_two_probes(taken: tuple[float, ...], expected: float | None) -> None:
    assert forecast(of_products(*taken)) == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=3), st.floats(0.5, 4))
def test_a_forecast_is_never_below_what_operations_say(taken: list[float], power: float) -> None:
    probes = [Probe({"n": 64}, each, power) for each in taken]
    assert forecast(probes) >= taken[-1] * (8, 4, 2)[len(taken) - 1] ** power * (1 - 1e-9)


def test_a_round_of_slow_calls_has_the_first_and_those_that_are_timed() -> None:
    assert [calls_of_round(Policy(min_blocks=blocks)) for blocks in (1, 2, 3, 10)] == [3, 3, 4, 11]


def measured(folder: Path, bench: str, *more: str, timeout_s: int = 20, run: Any = dlbench) -> tuple[dict[str, Any], list[int]]:
    """The first measurement of a case, and the sizes that it was set up with, in turn."""
    log = folder / "log"
    head = front_door.HASTY.replace("timeout_s = 20", f"timeout_s = {timeout_s}")
    suite = front_door.suite(folder, f'workload = "slowing"\naxes.log = "{log}"\n{bench}', head=head)
    run("run", suite, "--plugin", PLUGIN, "--device", "cpu", "-o", "o.jsonl", *more, cwd=folder)
    return front_door.measurements(folder / "o.jsonl")[0], list(map(int, log.read_text().split()))


def test_a_case_that_is_far_too_slow_ends_before_it_starts(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, "axes.n = 64\naxes.full_s = 2", timeout_s=3)
    assert found["status"] == "timeout"
    # 4, 31 and 250 ms, where shorter calls than 200 ms go on to the next: one call of 2 s would end in time, and four would not.
    assert re.fullmatch(
        r"by [\d.]+ ms at n=32 a call is forecast to take [\d.]+ s, so the 4 of a round would end behind the deadline of 3 s; "
        r"raise --timeout, or measure a smaller size",
        found["reason"],
    )
    assert sizes == [8, 16, 32]


def test_a_probe_that_hangs_is_ended_and_counts_with_what_it_took(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, 'axes.n = 64\naxes.full_s = 0.001\naxes.small = "hangs"', timeout_s=3)
    assert (found["status"], sizes) == ("timeout", [8, 16])  # both are set up, and the first hangs
    assert re.match(r"by [\d.]+ m?s at n=8 a call is forecast to take ", found["reason"])


def test_probes_run_in_another_process_and_ahead_of_the_first_round_alone(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, "axes.n = 64\naxes.full_s = 0.001")
    assert (found["status"], found["values"]) == ("ok", {"set_ups": 1.0})
    assert sizes == [8, 16, 32, 64, 64]


def test_a_first_call_that_loads_code_tells_nothing_of_a_short_deadline(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, 'axes.n = 64\naxes.full_s = 0.001\naxes.small = "loads_code"', timeout_s=3)
    assert (found["status"], sizes) == ("ok", [8, 16, 32, 64, 64])


def test_a_small_size_stays_as_it_is_while_the_others_are_probed(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, "axes.n = 64\naxes.m = 63\naxes.full_s = 0.001")
    assert (found["status"], sizes) == ("ok", [8, 63, 16, 63, 32, 63, 64, 63, 64, 63])


def test_convolutions_are_probed_by_all_their_lengths() -> None:
    registry.load_builtins()
    assert registry.get("conv2d").signature.declared.having("probed") == ("batch", "channels", "size", "filters")


def test_the_deadline_of_a_round_counts_from_behind_its_probes(tmp_path: Path) -> None:
    """Probes take 2.7 s, and the calls of the round 1.6 s: more than 4 s together."""
    found, sizes = measured(tmp_path, 'axes.n = 64\naxes.full_s = 0.4\naxes.small = "set_up_slowly"', timeout_s=4)
    assert (found["status"], sizes) == ("ok", [8, 16, 32, 64, 64])


@pytest.mark.parametrize(
    ("bench", "sizes"),
    [
        ("axes.n = 63\naxes.m = 32\naxes.full_s = 0.001", [63, 32, 63, 32]),
        ('axes.n = 64\naxes.full_s = 0.001\naxes.small = "fails"', [8, 64, 64]),
        ('axes.n = 64\naxes.full_s = 0.001\naxes.small = "observes"', [8, 16, 64, 64]),
    ],
)
def test_where_probes_tell_nothing_the_case_is_measured(tmp_path: Path, bench: str, sizes: list[int]) -> None:
    found, made = measured(tmp_path, bench)
    assert (found["status"], made) == ("ok", sizes)


def test_a_process_that_has_computed_already_makes_no_probes(tmp_path: Path) -> None:
    found, sizes = measured(tmp_path, "axes.n = 64\naxes.full_s = 0.001", "--isolation", "none", run=front_door.dlbench)
    assert (found["status"], sizes) == ("ok", [64, 64])
