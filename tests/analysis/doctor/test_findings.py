"""Findings of a short A/A on made-up rounds, and of the self-test from made-up measurements whose truth is known."""

import random
from functools import cache
from pathlib import Path

import made_up
import pytest

from dlbench.analysis.doctor import checks
from dlbench.analysis.doctor.selftest import judge_selftest
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.machine import Fitness
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.store import RunFile

CASE = made_up.case("matmul", n=512)


def run_of(measurements=(), discarded=(), states=()):
    return RunFile(Path("run.jsonl"), {}, tuple(measurements), {}, torn=False, states=tuple(states), discarded=tuple(discarded))


def load(*others, stolen=0.0):
    """The findings where other processes took so many CPUs in each round, of two, and other guests so many in all."""
    return checks.load(run_of(states=[RoundState(number, 9.0, each, stolen, {}, {}) for number, each in enumerate(others)]), 2)


def throttling(*kept, again=()):
    """The findings where measurements were held back so, and others, which were made again, for such shares of their time."""
    discarded = [Throttling(thermal=share) for share in again] + [Throttling(waiting=0.5)]  # disturbed, which is not throttled
    kept, discarded = ([made_up.rounds_of(CASE, [[1.0]], throttling=each)[0] for each in some] for some in (kept, discarded))
    return checks.throttling(run_of(kept, discarded))


@pytest.fixture
def judged(tmp_path):
    """The finding on two sides with these medians a round, in seconds."""

    def judge(one, other):
        rounds = ("a", one), ("b", other)
        paths = [made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(CASE, made_up.flat(seconds))) for name, seconds in rounds]
        (finding,) = checks.same_code(*(collect((path,)) for path in paths))
        for path in paths:
            path.unlink()
        return finding

    return judge


def spread(half):
    """Seven rounds, evenly over one second ± half."""
    return [1 + half * step / 3 for step in range(-3, 4)]


def test_what_the_checks_say(judged, tmp_path, snapshot):
    slower = [1.1 * each for each in spread(0.001)]
    ended = made_up.ended(CASE, Status.FAILED, "no such thing")
    failed = [collect((made_up.write(tmp_path / f"ended-{side}.jsonl", [ended]),)) for side in "ab"]
    found = {
        "other processes took little": load(0.0, 0.02, 0.1),
        "other processes took much in one round": load(0.0, 0.02, 0.5),
        "other processes took much in most rounds": load(0.2, 0.02, 0.5),
        "the operating system counts nothing": load(None, None),
        "other guests took a CPU": load(0.0, 0.0, stolen=1.0),
        "throttling is not counted": throttling(None),
        "no quota held it back": throttling(Throttling(quota=0.0), None),
        "nothing held it back": throttling(Throttling(thermal=0.0, quota=0.0, reasons=())),
        "a measurement was made again": throttling(Throttling(quota=0.0), again=[0.5]),
        "pauses did not help": throttling(Throttling(thermal=0.1), Throttling(thermal=0.0), again=[0.5, 0.5]),
        "a quiet machine": [judged(spread(0.001), spread(0.001))],
        "a noisy machine": [judged(spread(0.06), spread(0.06))],
        "a noisier machine": [judged(spread(0.3), spread(0.3))],
        "the same code is called slower": [judged(spread(0.001), slower)],
        "two rounds": [judged([1.0, 1.1], [1.0, 1.1])],
        "a case that failed": checks.same_code(*failed),
    }
    lines = (
        f"== {scene}\n" + "".join(f"{each.fitness.value}: {each.check} {each.device}: {each.found}\n  {each.advice}\n" for each in findings)
        for scene, findings in found.items()
    )
    snapshot("doctor-findings", "\n".join(lines).replace("  \n", ""))


def test_the_figures_of_a_noisy_machine_and_of_a_change(judged):
    assert load(0.0, 0.0, stolen=1.0)[1].values == {"cpus": 1.0, "cpus_most": 1.0}
    noisy = judged(spread(0.06), spread(0.06))
    seven, ten = noisy.values["detectable_7"], noisy.values["detectable_10"]
    assert 0.03 < ten < 0.1
    assert (1 + seven) ** (0.7**0.5) == pytest.approx(1 + ten)
    assert judged(spread(0.001), [1.1 * each for each in spread(0.001)]).values["change"] == pytest.approx(0.1)


@cache
def self_test(copies=10, rounds=14, slower=1.1, tail=1.0, noop=25e-9, spin=501e-6, bump=0.0):
    """The measurements of a self-test, in which the last copy of each program takes longer by ``bump``."""
    measurements, chance = [], random.Random(1)

    def add(case, seconds):
        measurements.extend(made_up.rounds_of(case, made_up.flat(seconds), transfer=None))

    add(made_up.case("noop"), [noop] * rounds)
    add(made_up.case("spin", seconds=5e-4), [spin] * rounds)
    for program in ("matmul", "add", "softmax", "conv", "linear", "mlp_step"):
        levels = [1 + 0.001 * ((7 * number) % 10) for number in range(rounds)]
        for copy in range(copies):
            factor = 1 + (bump if copy == copies - 1 else 0.0)
            # No two rounds of two copies are equal, and none of them is the slower copy by and by.
            seconds = [factor * each * (1 + 1e-5 * chance.gauss(0, 1)) for each in levels]
            add(made_up.case("slowed", program=program, percent=0, tail=False, copy=copy), seconds)
        add(made_up.case("slowed", program=program, percent=10, tail=False), [slower * each for each in levels])
        add(made_up.case("slowed", program=program, percent=0, tail=True), [tail * each for each in levels])
    return measurements


def test_a_quiet_machine_passes(snapshot):
    findings = judge_selftest(self_test(tail=1.1))
    assert Fitness.UNFIT not in {each.fitness for each in findings}
    snapshot("self-test", "".join(f"{each.check}: {each.found}\n" for each in findings))


CRASHED = Measurement(made_up.case("noop"), 14, Status.CRASHED, "its process was killed")


@pytest.mark.parametrize(
    ("measurements", "failed", "said"),
    [
        (
            lambda: self_test(noop=200e-9, spin=506e-6),
            ["known cost", "known cost"],
            ["a call that does nothing reads 200 ns, median of 14 rounds", "a call of 500 µs reads 506 µs, median of 14 rounds"],
        ),
        # One copy of ten is slower: nine comparisons of 45 are of it.
        (
            lambda: self_test(bump=0.2),
            ["identical code", "identical suites", *["interval"] * 4],
            ["20.0 % (54 of 270) of comparisons call it slower", "20.0 % (9 of 45) of them fail"],
        ),
        (lambda: self_test(slower=1.0), ["real slowdown"], ["10.0 % more time is called slower in 0.0 % (0 of 54) of comparisons"]),
        (lambda: [*self_test(tail=1.1), CRASHED], ["measurements"], ["1,036 of 1,037 measurements went well: noop[]@cpu is crashed"]),
        (lambda: self_test(rounds=9), ["comparisons"], ["none could be made of 9 rounds"]),
        (lambda: self_test(copies=8), ["comparisons"], ["168 of identical code, with 14 rounds a side"]),
    ],
    ids=["costs too much", "identical code differs", "a slowdown is not seen", "a case went wrong", "few rounds", "few copies"],
)
def test_what_does_not_pass_is_named(measurements, failed, said):
    findings = judge_selftest(measurements())
    unfit = [each for each in findings if each.fitness is Fitness.UNFIT]
    assert [each.check for each in unfit] == failed
    assert [each.found.partition(";")[0] for each in unfit[: len(said)]] == [f"not passed: {each}" for each in said]
