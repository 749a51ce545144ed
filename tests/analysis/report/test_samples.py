"""Figures of rounds, samples and readings: which cases, and which numbers."""

import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.read.table import collect
from dlbench.analysis.report.samples import samples
from dlbench.core.conditions import RoundState


@pytest.fixture
def drawn(tmp_path):
    """The samples of a file with these measurements."""

    def draw(measurements, **header):
        results = collect([made_up.write(tmp_path / "run.jsonl", measurements, **header)])
        return samples(results, answers(results))

    return draw


def noisy(name, rounds=((1.0, 2.0), (2.0, 4.0), (3.0, 3.0))):
    """A case whose interval is wider than any target."""
    return made_up.rounds_of(made_up.case(name, n=1), rounds)


def test_each_round_stands_beside_the_interval_relative_to_the_median(drawn):
    seconds = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    rounds = drawn(noisy("mine", made_up.flat(seconds))).figures[0]
    assert [row["sample.relative"] for row in rounds.rows] == [*(each / 4 for each in seconds), 1.0]
    assert [row["sample.low"] for row in rounds.rows] == [None] * 7 + [0.25]
    assert [row["sample.high"] for row in rounds.rows] == [None] * 7 + [1.75]
    assert {row["sample.case"] for row in rounds.rows} == {"mine n=1 on cpu"}


def test_samples_stand_in_the_order_taken_by_round(drawn):
    _, in_order = drawn(noisy("mine")).figures
    assert in_order.title == "Samples of mine n=1 on cpu"
    assert [(row["sample.round"], row["time.median_s"]) for row in in_order.rows] == [
        (1.0, 1.0), (1.5, 2.0), (2.0, 2.0), (2.5, 4.0), (3.0, 3.0), (3.5, 3.0),
    ]  # fmt: skip


def test_readings_after_each_round_are_drawn_with_their_unit(drawn):
    states = [
        RoundState(
            number, 1.0, None, None, before={}, after={"accelerators": {"cuda:0": {"clock_sm_hz": hz, "temperature_c": 60 + number}}}
        )
        for number, hz in enumerate((1.98e9, 1.5e9))
    ]
    *_, clock, temperature = drawn(noisy("mine"), states=states).figures
    assert (clock.title, clock.y.column.unit.value) == ("Clock after each round of run", "Hz")
    assert [(row["sample.round"], row["sample.reading"]) for row in clock.rows] == [(1, 1.98e9), (2, 1.5e9)]
    assert (temperature.title, [row["sample.reading"] for row in temperature.rows]) == ("Temperature after each round of run", [60, 61])


def test_readings_are_drawn_of_the_files_whose_cases_are(tmp_path):
    states = [RoundState(number, 1.0, None, None, before={}, after={"cpu": {"clock_hz": 2e9}}) for number in range(2)]
    paths = []
    for number in range(30):
        found = [each for n in range(2) for each in noisy(f"case{number:02}_{n}")]
        paths.append(made_up.write(tmp_path / f"run{number:02}.jsonl", found, states=states))
    results = collect(paths)
    titles = [figure.title for figure in samples(results, answers(results)).figures]
    assert [each for each in titles if each.startswith("Clock")] == [f"Clock after each round of run{number:02}" for number in range(10)]


def test_twenty_cases_are_drawn_and_the_others_named(drawn):
    found = drawn([each for number in range(23) for each in noisy(f"case{number:02}")])
    assert len(found.figures) == 1 + 20
    assert found.left_out == tuple(f"case{number}[n=1]@cpu" for number in (20, 21, 22))


def test_what_more_answers_rest_on_comes_first_then_the_gravest_flag(drawn):
    quiet = [each for n in range(20) for each in made_up.rounds_of(made_up.case("quiet", n=n), made_up.flat([1.0] * 7))]
    found = drawn([*quiet, *noisy("wide", made_up.flat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])), *made_up.both_kinds()])
    cases = [figure.title for figure in found.figures if figure.title.startswith("Samples")]
    assert sum("train_step" in each for each in cases) == 8  # speed-up, batch and precision rest on them
    assert "Samples of wide n=1 on cpu" in cases
    assert sum("quiet" in each for each in cases) == 11


def test_without_a_time_there_is_nothing_to_draw(drawn):
    assert drawn([]).figures == ()
