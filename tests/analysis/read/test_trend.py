"""Rounds that differ in all cases alike, in made-up times and in the committed files."""

import json
import math
import random

import front_door
import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.analysis.read.usability import LEVEL, shared_change
from dlbench.core.model import Status

EARLIER = front_door.FILES / "intel-xeon-processor"
MEASURE_AGAIN = "dlbench doctor"
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


@pytest.mark.parametrize("draw", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize(("cases", "rounds"), [(14, 7), (30, 6), (3, 12)])
def test_plain_noise_is_left_alone(draw, cases, rounds):
    rng, runs = random.Random(1), 200
    alarms = [shared_change(noisy(rng, draw, cases, rounds)) for _ in range(runs)]
    assert sum(each is not None for each in alarms) <= 2 * 2 * LEVEL * runs  # each of two tests errs in so many at most, twice that by luck


def test_a_machine_that_slows_by_two_percent_a_round_is_told_of_as_a_rule():
    rng, runs, seen = random.Random(1), 100, 0
    for _ in range(runs):
        times = noisy(rng, NOISE["normal"])
        seen += shared_change([{number: s * 1.02**number for number, s in each.items()} for each in times]) is not None
    assert seen >= 0.7 * runs


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        pytest.param([1] * 7, None, id="nothing"),
        pytest.param([1] * 6 + [1.019], None, id="too little to matter"),
        pytest.param([1] * 6 + [1.11], "round 7 of 7 was 10.9 % slower than the middle one", id="the last"),
        pytest.param([1.5] + [1] * 6, "round 1 of 7 was 50.0 % slower than the middle one", id="the first"),
        pytest.param([1, 1, 1, 0.5, 1, 1, 1], "round 4 of 7 was 50.0 % faster than the middle one", id="a fast one"),
        pytest.param([1] * 5 + [2, 2], "rounds 6, 7 of 7 were up to 99.8 % slower than the middle one", id="a step"),
        pytest.param([1] * 6 + [2] * 4 + [1, 1], "rounds 7, 8, 9, 10 of 12 were up to 100.0 % slower than the middle one", id="many"),
        pytest.param([1.03**n for n in range(7)], "times rose by 19.4 % over 7 rounds", id="rising"),
        pytest.param([1.03**-n for n in range(7)], "times fell by 16.3 % over 7 rounds", id="falling"),
        pytest.param([1.003**n for n in range(7)], None, id="rising by less than matters"),
        pytest.param([1], None, id="one round"),
    ],
)
def test_what_is_said_of_rounds(factors, said):
    advice = COOL_DOWN if said and said.startswith("times") else MEASURE_AGAIN
    assert shared_change(shaped(factors)) == (f"{said}, median of 12 cases: {advice}" if said else None)


def test_few_cases_tell_nothing_of_one_round_and_enough_of_a_trend():
    assert shared_change(shaped([1, 1, 1, 1, 1, 1, 2], cases=8)) is None
    assert str(shared_change(shaped([1.05**n for n in range(7)], cases=2))).startswith("times rose by 34.")
    assert shared_change(shaped([1.05**n for n in range(7)], cases=1)) is None
    assert shared_change(shaped([1.05**n for n in range(6)], cases=2)) is not None
    assert shared_change(shaped([1.05**n for n in range(5)], cases=2)) is None
    assert shared_change([]) is None


def test_rounds_that_only_noisy_cases_had_and_cases_that_lack_a_round_do_not_count():
    times = shaped([1, 1, 1, 1, 1, 1, 1.5])
    times[0].update(dict.fromkeys(range(7, 20), 9.0))
    del times[1][3]
    assert str(shared_change(times)).startswith("round 7 of 7 was 49.9 % slower than the middle one, median of 11 cases: ")


def written(path, factors, side=None):
    """A file whose cases all follow the factors."""
    measurements = []
    for number, times in enumerate(shaped(factors)):
        rounds = made_up.rounds_of(made_up.case("matmul", n=number + 1, dtype="fp32"), made_up.flat(list(times.values())), side=side)
        measurements += rounds
    return made_up.write(path, measurements)


def test_show_says_it_once_below_the_table(tmp_path):
    (line,) = collect([written(tmp_path / "run.jsonl", [1, 1, 1, 1, 1, 1, 1.5])]).circumstances
    assert line == f"run: round 7 of 7 was 49.9 % slower than the middle one, median of 12 cases: {MEASURE_AGAIN}"


def test_each_device_is_looked_at_for_itself(tmp_path):
    steady, uneven = shaped([1.0] * 7), shaped([1, 1, 1, 1, 1, 1, 1.5])
    measurements = [
        each
        for device, cases in (("cpu", steady), ("cuda:0", uneven))
        for number, times in enumerate(cases)
        for each in made_up.rounds_of(made_up.case("matmul", device, n=number + 1), made_up.flat(list(times.values())))
    ]
    (line,) = collect([made_up.write(tmp_path / "run.jsonl", measurements)]).circumstances
    assert line.startswith("run on cuda:0: round 7 of 7 was 49.9 % slower")


def test_rounds_that_went_wrong_have_no_times(tmp_path):
    measurements = [
        each
        for number, times in enumerate(shaped([1, 1, 1, 1, 1, 1, 1.5]))
        for each in made_up.rounds_of(made_up.case("matmul", n=number + 1), made_up.flat(list(times.values())))
    ]
    measurements[0] = made_up.ended(measurements[0].case, Status.CRASHED, "killed", 0)
    (line,) = collect([made_up.write(tmp_path / "run.jsonl", measurements)]).circumstances
    assert "median of 11 cases" in line


def test_of_two_sides_the_first_tells(tmp_path):
    path = tmp_path / "ab.jsonl"
    sides = [written(tmp_path / f"{side}.jsonl", [1, 1, 1, 1, 1, 1, 1.5], side=side) for side in ("a", "b")]
    lines = [line for each in sides for line in each.read_text().splitlines() if json.loads(line)["kind"] == "measurement"]
    header = json.loads(sides[0].read_text().splitlines()[0]) | {"sides": made_up.TWO_SIDES}
    path.write_text("\n".join([json.dumps(header), *lines, '{"kind":"footer"}', ""]))
    assert len(collect([path]).circumstances) == 1


def test_runs_of_another_tool_stand_beside_nothing(tmp_path):
    runs = [{"metadata": {"loops": 1}, "values": [1.0 + (number == 6)]} for number in range(7)]
    benchmarks = [{"metadata": {"name": f"bench{number}"}, "runs": runs} for number in range(10)]
    path = tmp_path / "pyperf.json"
    path.write_text(json.dumps({"version": "1.0", "benchmarks": benchmarks}))
    assert collect([path]).circumstances == ()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("quick", "quick: round 7 of 7 was 11.8 % slower than the middle one, median of 14 cases"),
        ("cnn", None),  # two rounds
        ("scaling", None),
    ],
)
def test_earlier_files_say_which_round_was_slow(file, said):
    found = [line.rpartition(":")[0] for line in collect([EARLIER / f"{file}.jsonl"]).circumstances]
    assert found == ([said] if said else [])


def test_a_time_that_nothing_can_take_tells_of_no_trend(tmp_path):
    measurements = [
        each for n in range(1, 9) for each in made_up.rounds_of(made_up.case("matmul", n=n), made_up.flat([1.0] + [5e-324] * 9))
    ]
    assert collect([made_up.write(tmp_path / "run.jsonl", measurements)]).circumstances == ()
