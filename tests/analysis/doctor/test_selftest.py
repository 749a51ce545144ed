"""Conclusions of the self-test from made-up measurements whose truth is known."""

import random

from made_up import case, rounds_of

from dlbench.analysis.doctor.selftest import judge_selftest
from dlbench.core.machine import Fitness
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status

PROGRAMS = ("matmul", "add", "softmax", "conv", "linear", "mlp_step")


def self_test(copies=10, rounds=14, slower=1.1, tail=1.0, noop=25e-9, spin=501e-6, bump=0.0):
    measurements, chance = [], random.Random(1)

    def add(a_case, seconds):
        measurements.extend(rounds_of(a_case, [[s] * 10 for s in seconds], transfer=None))

    add(case("noop"), [noop] * rounds)
    add(case("spin", seconds=5e-4), [spin] * rounds)
    for program in PROGRAMS:
        levels = [1 + 0.001 * ((7 * number) % 10) for number in range(rounds)]
        for copy in range(copies):
            factor = 1 + (bump if copy == copies - 1 else 0.0)
            # No two rounds of two copies are equal, and none of them is the slower copy by and by.
            seconds = [factor * each * (1 + 1e-5 * chance.gauss(0, 1)) for each in levels]
            add(case("slowed", program=program, percent=0, tail=False, copy=copy), seconds)
        add(case("slowed", program=program, percent=10, tail=False), [slower * each for each in levels])
        add(case("slowed", program=program, percent=0, tail=True), [tail * each for each in levels])
    return measurements


def sentences(measurements):
    return [each.found.partition(";")[0] for each in judge_selftest(measurements)]


def failed(measurements):
    return [each.check for each in judge_selftest(measurements) if each.fitness is Fitness.UNFIT]


def test_a_quiet_machine_passes():
    assert sentences(self_test(tail=1.1)) == [
        "passed: 1,036 of 1,036 measurements went well",
        "passed: a call that does nothing reads 25.0 ns, median of 14 rounds",
        "passed: a call of 500 µs reads 501 µs, median of 14 rounds",
        "passed: 270 of identical code, with 14 rounds a side",
        "passed: 0.0 % (0 of 270) of comparisons call it slower",
        "passed: 0.0 % (0 of 45) of them fail",
        "passed: the 95 % interval of the change by its median holds the truth in 100.0 % (270 of 270)",
        "passed: the 95 % interval of the change by its p10 holds the truth in 100.0 % (270 of 270)",
        "passed: the 95 % interval of the change by its pairs of rounds holds the truth in 94.4 % (255 of 270)",
        "passed: the 95 % interval of the change by its mean holds the truth in 100.0 % (270 of 270)",
        "passed: 10.0 % more time is called slower in 100.0 % (54 of 54) of comparisons",
        "one call of ten at twice its time is called slower in 100.0 % (54 of 54) of comparisons",
    ]


def test_a_harness_that_costs_too_much_does_not_pass():
    measurements = self_test(noop=200e-9, spin=506e-6)
    assert failed(measurements) == ["known cost", "known cost"]
    assert sentences(measurements)[1:3] == [
        "not passed: a call that does nothing reads 200 ns, median of 14 rounds",
        "not passed: a call of 500 µs reads 506 µs, median of 14 rounds",
    ]


def test_identical_code_that_differs_does_not_pass():
    # One copy of ten is slower: nine comparisons of 45 are of it.
    measurements = self_test(bump=0.2)
    assert failed(measurements) == ["identical code", "identical suites", "interval", "interval", "interval", "interval"]
    assert sentences(measurements)[4:6] == [
        "not passed: 20.0 % (54 of 270) of comparisons call it slower",
        "not passed: 20.0 % (9 of 45) of them fail",
    ]


def test_a_slowdown_that_is_not_seen_does_not_pass():
    measurements = self_test(slower=1.0)
    assert failed(measurements) == ["real slowdown"]
    assert sentences(measurements)[-2] == "not passed: 10.0 % more time is called slower in 0.0 % (0 of 54) of comparisons"


def test_a_case_that_went_wrong_is_named():
    measurements = self_test()
    measurements.append(Measurement(measurements[0].case, 14, Status.CRASHED, "its process was killed"))
    assert failed(measurements) == ["measurements"]
    assert sentences(measurements)[0] == "not passed: 1,036 of 1,037 measurements went well: noop[]@cpu is crashed"


def test_too_few_rounds_for_a_comparison_do_not_pass():
    assert failed(self_test(rounds=9)) == ["comparisons"]
    assert sentences(self_test(rounds=9))[-1] == "not passed: none could be made of 9 rounds"


def test_too_few_copies_for_so_many_comparisons_do_not_pass():
    assert failed(self_test(copies=8)) == ["comparisons"]
    assert sentences(self_test(copies=8))[3] == "not passed: 168 of identical code, with 14 rounds a side"
