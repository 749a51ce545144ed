"""What the self-test concludes from made-up measurements whose truth is known."""

from made_up import case, rounds_of

from dlbench.analysis.selftest import judge_selftest
from dlbench.core.fitness import Fitness
from dlbench.core.model import Measurement, Status

PROGRAMS = ("matmul", "add", "softmax", "conv", "linear", "mlp_step")


def self_test(copies=5, rounds=40, slower=1.1, tail=1.0, noop=25e-9, spin=501e-6, bump=0.0):
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


def sentences(measurements):
    return [each.found.partition(";")[0] for each in judge_selftest(measurements)]


def failed(measurements):
    return [each.check for each in judge_selftest(measurements) if each.fitness is Fitness.UNFIT]


def test_a_quiet_machine_passes():
    assert sentences(self_test(tail=1.1)) == [
        "passed: 1,760 of 1,760 measurements went well",
        "passed: a call that does nothing reads 25.0 ns, median of 40 rounds",
        "passed: a call of 500 µs reads 501 µs, median of 40 rounds",
        "passed: 240 in 4 windows of 10 rounds could be made in the time",
        "passed: 0.0 % (0 of 240) of comparisons call it slower",
        "passed: 0.0 % (0 of 40) of them fail",
        "passed: the 95 % interval of the median's change holds the truth in 100.0 % (240 of 240)",
        "passed: the 95 % interval of the p10's change holds the truth in 100.0 % (240 of 240)",
        "passed: 10 % more time is called slower in 100.0 % (96 of 96) of comparisons",
        "one call of ten at twice its time is called slower in 100.0 % (96 of 96) of comparisons",
    ]


def test_a_harness_that_costs_too_much_does_not_pass():
    measurements = self_test(noop=200e-9, spin=506e-6)
    assert failed(measurements) == ["known cost", "known cost"]
    assert sentences(measurements)[1:3] == [
        "not passed: a call that does nothing reads 200 ns, median of 40 rounds",
        "not passed: a call of 500 µs reads 506 µs, median of 40 rounds",
    ]


def test_identical_code_that_differs_does_not_pass():
    # One copy of five is slower: four comparisons of ten are of it.
    measurements = self_test(bump=0.2)
    assert failed(measurements) == ["identical code", "identical suites", "interval", "interval"]
    assert sentences(measurements)[4:6] == [
        "not passed: 40.0 % (96 of 240) of comparisons call it slower",
        "not passed: 40.0 % (16 of 40) of them fail",
    ]


def test_a_slowdown_that_is_not_seen_does_not_pass():
    measurements = self_test(slower=1.0)
    assert failed(measurements) == ["real slowdown"]
    assert sentences(measurements)[-2] == "not passed: 10 % more time is called slower in 0.0 % (0 of 96) of comparisons"


def test_a_case_that_went_wrong_is_named():
    measurements = self_test()
    measurements.append(Measurement(measurements[0].case, 40, Status.CRASHED, "its process was killed"))
    assert failed(measurements) == ["measurements"]
    assert sentences(measurements)[0] == "not passed: 1,760 of 1,761 measurements went well: noop[]@cpu is crashed"


def test_too_few_rounds_for_a_comparison_do_not_pass():
    assert failed(self_test(rounds=9)) == ["comparisons"]
    assert sentences(self_test(rounds=9))[-1] == "not passed: none could be made in the time"


def test_windows_share_no_round_and_what_is_left_over_is_not_used():
    assert failed(self_test(rounds=39)) == ["comparisons"]
    assert sentences(self_test(rounds=39))[3] == "not passed: 180 in 3 windows of 10 rounds could be made in the time"
