"""Findings of a short A/A, on made-up rounds."""

from pathlib import Path

import made_up
import pytest

from dlbench.analysis.doctor import checks
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.machine import Fitness
from dlbench.core.store import RunFile

CASE = made_up.case("matmul", n=512)


def run_of(measurements=(), discarded=(), states=()):
    return RunFile(Path("run.jsonl"), {}, tuple(measurements), {}, torn=False, states=tuple(states), discarded=tuple(discarded))


def states(*others, stolen=0.0):
    return [RoundState(number, 9.0, each, stolen, {}, {}) for number, each in enumerate(others)]


@pytest.mark.parametrize(
    ("others", "fitness", "found"),
    [
        (
            (0.0, 0.02, 0.1),
            Fitness.FIT,
            "other processes took 0.02 CPUs' time on average, and 0.10 at most, next to the 2 that dlbench computes with",
        ),
        (
            (0.0, 0.02, 0.5),
            Fitness.NOTE,
            "other processes took 0.02 CPUs' time on average, and 0.50 at most, next to the 2 that dlbench computes with; "
            "that mattered in 1 of 3 rounds",
        ),
        (
            (0.2, 0.02, 0.5),
            Fitness.UNFIT,
            "other processes took 0.20 CPUs' time on average, and 0.50 at most, next to the 2 that dlbench computes with",
        ),
        ((None, None), Fitness.UNKNOWN, "the operating system does not count it"),
    ],
)
def test_load(others, fitness, found):
    finding, _ = checks.load(run_of(states=states(*others)), 2)
    assert (finding.check, finding.fitness, finding.found) == ("load", fitness, found)
    assert bool(finding.advice) == (fitness is not Fitness.FIT)


def test_stolen_time():
    used, stolen = checks.load(run_of(states=states(0.0, 0.0, stolen=1.0)), 2)
    assert (used.fitness, stolen.check, stolen.fitness) == (Fitness.FIT, "stolen time", Fitness.UNFIT)
    assert stolen.values == {"cpus": 1.0, "cpus_most": 1.0}


@pytest.mark.parametrize(
    ("kept", "again", "fitness", "found"),
    [
        ([None], [], Fitness.UNKNOWN, "nothing here counts it"),
        ([Throttling(quota=0.0), None], [], Fitness.FIT, "none while measuring, by the CPU quota; nothing else is counted here"),
        (
            [Throttling(thermal=0.0, quota=0.0, reasons=())],
            [],
            Fitness.FIT,
            "none while measuring, by heat or the driver's reasons or the CPU quota; nothing else is counted here",
        ),
        ([Throttling(quota=0.0)], [0.5], Fitness.NOTE, "1 measurement was held back and made again: too hot for 50.0 % of its time"),
        (
            [Throttling(thermal=0.1), Throttling(thermal=0.0)],
            [0.5, 0.5],
            Fitness.UNFIT,
            "1 of 2 measurements were held back, and pauses did not help: too hot for 10.0 % of its time",
        ),
    ],
)
def test_throttling(kept, again, fitness, found):
    measurements = [made_up.rounds_of(CASE, [[1.0]], throttling=each)[0] for each in kept]
    discarded = [made_up.rounds_of(CASE, [[1.0]], throttling=Throttling(thermal=share))[0] for share in again]
    discarded += made_up.rounds_of(CASE, [[1.0]], throttling=Throttling(waiting=0.5))  # disturbed, which is not throttled
    (finding,) = checks.throttling(run_of(measurements, discarded))
    assert (finding.check, finding.device, finding.fitness, finding.found) == ("throttling", "cpu", fitness, found)


def judged(folder, one, other):
    """The findings on two sides with these medians a round, in seconds."""
    sides = []
    for name, seconds in (("a", one), ("b", other)):
        path = made_up.write(folder / f"{name}.jsonl", made_up.rounds_of(CASE, made_up.flat(seconds)))
        sides.append(collect((path,)))
    (finding,) = checks.same_code_findings(*sides)
    assert (finding.check, finding.device, finding.case) == ("same code", "cpu", CASE.id)
    return finding


def spread(half):
    """Seven rounds, evenly over one second ± half."""
    return [1 + half * step / 3 for step in range(-3, 4)]


def test_a_quiet_machine_shows_the_threshold(tmp_path):
    finding = judged(tmp_path, spread(0.001), spread(0.001))
    assert finding.fitness is Fitness.FIT
    assert finding.found.startswith("matmul n=512: twice the same code differs by +0.0 % (-0.1 … +0.1 %, by its p10); ")
    assert finding.found.endswith("; to be seen a change takes 3.0 % with 7 rounds a side or 3.0 % with 10 rounds a side")


def test_a_noisy_machine_shows_less_and_more_rounds_more(tmp_path):
    finding = judged(tmp_path, spread(0.06), spread(0.06))
    assert finding.fitness is Fitness.NOTE
    seven, ten = finding.values["detectable_7"], finding.values["detectable_10"]
    assert 0.03 < ten < 0.1
    assert (1 + seven) ** (0.7**0.5) == pytest.approx(1 + ten)
    assert judged(tmp_path / "noisier", spread(0.3), spread(0.3)).fitness is Fitness.UNFIT


def test_the_same_code_called_slower_is_unfit(tmp_path):
    finding = judged(tmp_path, spread(0.001), [1.1 * each for each in spread(0.001)])
    assert finding.fitness is Fitness.UNFIT
    assert finding.found.startswith("matmul n=512: the same code was called slower: twice the same code differs by +10.0 %")
    assert finding.values["change"] == pytest.approx(0.1)


def test_too_few_rounds_say_so(tmp_path):
    finding = judged(tmp_path, [1.0, 1.1], [1.0, 1.1])
    assert (finding.fitness, finding.advice) == (Fitness.UNKNOWN, "leave --rounds out")
    assert finding.found == "matmul n=512: 2 rounds a side are too few to say how much the same code differs"


def test_a_case_that_failed_is_unfit(tmp_path):
    ended = made_up.ended(CASE, made_up.Status.FAILED, "no such thing")
    sides = [collect((made_up.write(tmp_path / f"{side}.jsonl", [ended]),)) for side in "ab"]
    (finding,) = checks.same_code_findings(*sides)
    assert (finding.fitness, finding.found) == (Fitness.UNFIT, "matmul n=512: failed: no such thing; in the base it was failed")
