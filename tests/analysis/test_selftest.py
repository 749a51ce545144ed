"""What the self-test concludes from made-up measurements whose truth is known."""

import pytest
from made_up import case, rounds_of

from dlbench.analysis import selftest
from dlbench.core.model import Status

PROGRAMS = ("matmul", "add", "softmax", "conv", "linear", "mlp_step")
"""One window of rounds; deviations of the rounds, in thousandths: two programs never lie on each other."""


def self_test(copies=5, rounds=20, slower=1.1, tail=1.0, noop=25e-9, spin=501e-6, bump=0.0):
    measurements = []

    def add(a_case, seconds):
        measurements.extend(rounds_of(a_case, [[s] * 3 for s in seconds], transfer=None))

    add(case("noop"), [noop] * rounds)
    add(case("spin", seconds=5e-4), [spin] * rounds)
    for program in PROGRAMS:
        levels = [1 + 0.001 * ((7 * number) % 10) for number in range(rounds)]
        for copy in range(copies):
            factor = 1 + 1e-5 * copy + (bump if copy == copies - 1 else 0.0)
            add(case("slowed", program=program, percent=0, tail=False, copy=copy), [factor * each for each in levels])
        add(case("slowed", program=program, percent=10, tail=False), [slower * each for each in levels])
        add(case("slowed", program=program, percent=0, tail=True), [tail * each for each in levels])
    return measurements


def found(measurements):
    return {check.check: (check.measured, check.passed) for check in selftest.check_all(measurements)}


def test_a_quiet_machine_passes():
    assert found(self_test(tail=1.1)) == {
        "measurements that went well": ("880 of 880", True),
        "reading of a call that does nothing": ("25.0 ns", True),
        "reading of a call of 500 µs": ("501 µs", True),
        "identical code called slower, a comparison": ("0.0 % (0 of 120)", True),
        "identical suites that fail": ("0.0 % (0 of 20)", True),
        "95 % interval of the median holds the truth": ("100.0 % (120 of 120)", True),
        "95 % interval of the p10 holds the truth": ("100.0 % (120 of 120)", True),
        "a real 10 % called slower": ("100.0 % (48 of 48)", True),
        "a slow tail called slower": ("100.0 % (48 of 48)", True),
    }


def test_a_harness_that_costs_too_much_does_not_pass():
    checks = found(self_test(noop=200e-9, spin=506e-6))
    assert checks["reading of a call that does nothing"] == ("200 ns", False)
    assert checks["reading of a call of 500 µs"] == ("506 µs", False)


def test_identical_code_that_differs_does_not_pass():
    checks = found(self_test(bump=0.2))
    assert not checks["identical code called slower, a comparison"][1]


def test_a_slowdown_that_is_not_seen_does_not_pass():
    checks = found(self_test(slower=1.0))
    assert checks["a real 10 % called slower"] == ("0.0 % (0 of 48)", False)


def test_a_case_that_went_wrong_is_said():
    measurements = self_test()
    first = measurements[0]
    bad = type(first)(first.case, 99, Status.CRASHED, "its process was killed")
    checks = found([*measurements, bad])
    assert checks["measurements that went well"][1] is False


def test_with_nothing_measured_nothing_passes():
    checks = found(self_test(rounds=5))
    assert checks["a real 10 % called slower"] == ("nothing", False)


@pytest.mark.parametrize("rounds", [10, 19])
def test_windows_share_no_round(rounds):
    (check,) = (each for each in selftest.check_all(self_test(rounds=rounds)) if each.check.startswith("identical suites"))
    assert check.measured == "0.0 % (0 of 10)"
