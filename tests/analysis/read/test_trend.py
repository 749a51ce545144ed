"""Times of all cases that rise or fall over the rounds, made up."""

import json
import math
import random

import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.analysis.read.usability import LEVEL, shared_trend
from dlbench.core.model import Status

COOL_DOWN = "let the machine come to its temperature"
NOISE = {
    "normal": lambda rng: rng.gauss(0, 0.05),
    "skewed": lambda rng: rng.expovariate(10),
    "hiccups": lambda rng: 0.5 if rng.random() < 0.1 else rng.gauss(0, 0.01),
    "long tails": lambda rng: 0.05 * rng.gauss(0, 1) / max(0.2, rng.random()),
}


def noisy(rng, draw, cases=14, rounds=7):
    """Cases of one second, each round of each with noise of its own."""
    return [{number: math.exp(draw(rng)) for number in range(rounds)} for _ in range(cases)]


def shaped(factors, cases=12):
    """Cases of different sizes whose rounds have the same factors and, each in an order of its own, a little noise."""
    order = random.Random(1)
    found = []
    for case in range(cases):
        little = [1 + 0.001 * number for number in range(len(factors))]
        order.shuffle(little)
        found.append({number: (case + 1) * factor * little[number] for number, factor in enumerate(factors)})
    return found


RISING = [1.03**n for n in range(7)]


@pytest.mark.parametrize("draw", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize(("cases", "rounds"), [(14, 7), (30, 6), (3, 12)])
def test_plain_noise_is_left_alone(draw, cases, rounds):
    rng, runs = random.Random(1), 200
    alarms = [shared_trend(noisy(rng, draw, cases, rounds)) for _ in range(runs)]
    assert sum(each is not None for each in alarms) <= 2 * LEVEL * runs  # in so many at most, twice that by luck


def test_a_machine_that_slows_by_three_percent_a_round_is_named_as_a_rule():
    rng, runs, seen = random.Random(1), 100, 0
    for _ in range(runs):
        times = noisy(rng, NOISE["normal"])
        seen += shared_trend([{number: s * 1.03**number for number, s in each.items()} for each in times]) is not None
    assert seen >= 0.7 * runs


@pytest.mark.parametrize(
    ("factors", "change"),
    [
        pytest.param([1] * 7, None, id="nothing"),
        pytest.param([1] * 6 + [2], None, id="one slow round"),
        pytest.param(RISING, "times rose by 19.4 % over 7 rounds", id="rising"),
        pytest.param([1 / each for each in RISING], "times fell by 16.3 % over 7 rounds", id="falling"),
        pytest.param([1.003**n for n in range(7)], None, id="rising by less than matters"),
        pytest.param([1], None, id="one round"),
    ],
)
def test_the_sentence_on_a_trend(factors, change):
    assert shared_trend(shaped(factors)) == (f"{change}, median of 12 cases: {COOL_DOWN}" if change else None)


def test_two_cases_of_six_rounds_are_enough():
    assert str(shared_trend(shaped([1.05**n for n in range(7)], cases=2))).startswith("times rose by 34.")
    assert shared_trend(shaped([1.05**n for n in range(7)], cases=1)) is None
    assert shared_trend(shaped([1.05**n for n in range(6)], cases=2)) is not None
    assert shared_trend(shaped([1.05**n for n in range(5)], cases=2)) is None
    assert shared_trend([]) is None


def test_rounds_that_few_cases_had_and_cases_that_lack_a_round_do_not_count():
    times = shaped(RISING)
    times[0].update(dict.fromkeys(range(7, 20), 9.0))
    del times[1][3]
    assert shared_trend(times) == f"times rose by 19.4 % over 7 rounds, median of 11 cases: {COOL_DOWN}"


def rounds_of(factors, device="cpu", **options):
    """Rounds of twelve products that all follow the factors."""
    return [
        each
        for number, times in enumerate(shaped(factors))
        for each in made_up.rounds_of(made_up.case("matmul", device, n=number + 1), made_up.flat(list(times.values())), **options)
    ]


def test_each_device_is_looked_at_for_itself_and_rounds_that_went_wrong_have_no_times(tmp_path):
    measurements = [*rounds_of([1.0] * 7), *rounds_of(RISING, "cuda:0")]
    measurements[-1] = made_up.ended(measurements[-1].case, Status.CRASHED, "killed", 6)
    (line,) = collect([made_up.write(tmp_path / "run.jsonl", measurements)]).circumstances
    assert line == f"run on cuda:0: times rose by 19.4 % over 7 rounds, median of 11 cases: {COOL_DOWN}"


def test_of_two_sides_the_first_tells(tmp_path):
    sides = [*rounds_of(RISING, side="a"), *rounds_of(RISING, side="b")]
    assert len(collect([made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES)]).circumstances) == 1


def test_runs_of_another_tool_are_not_looked_at(tmp_path):
    runs = [{"metadata": {"loops": 1}, "values": [each]} for each in RISING]
    benchmarks = [{"metadata": {"name": f"bench{number}"}, "runs": runs} for number in range(10)]
    path = tmp_path / "pyperf.json"
    path.write_text(json.dumps({"version": "1.0", "benchmarks": benchmarks}))
    assert collect([path]).circumstances == ()


def test_a_time_that_nothing_can_take_has_no_trend(tmp_path):
    measurements = [
        each for n in range(1, 9) for each in made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat([1.0] + [5e-324] * 9))
    ]
    assert collect([made_up.write(tmp_path / "run.jsonl", measurements)]).circumstances == ()
