"""Figures of rounds, samples and readings: which cases, and which numbers."""

import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import plots
from dlbench.analysis.report.samples import samples
from dlbench.core.conditions import RoundState


@pytest.fixture
def drawn(tmp_path):
    """The samples of a file with these measurements."""

    def draw(measurements, name="run", **header):
        results = collect([made_up.write(tmp_path / f"{name}.jsonl", measurements, **header)])
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
    states = [RoundState(number, 1.0, None, None, before={}, after={"cpu": {"clock_hz": (2 + number) * 1e9}}) for number in range(2)]
    paths = []
    for number in range(30):
        found = [each for n in range(2) for each in noisy(f"case{number:02}_{n}")]
        paths.append(made_up.write(tmp_path / f"run{number:02}.jsonl", found, states=states))
    results = collect(paths)
    titles = [figure.title for figure in samples(results, answers(results)).figures]
    assert [each for each in titles if each.startswith("Clock")] == [f"Clock after each round of run{number:02}" for number in range(10)]


def test_a_clock_that_stays_level_is_a_sentence_and_no_plot(drawn):
    clocks = ((1.98e9, 3.0e9, 2.6e9), (1.99e9, 3.1e9, 2.6e9))
    states = [
        RoundState(number, 1.0, None, None, before={}, after={"cpu": {"clock_hz": cpu}, "accelerators": {"cuda:0": accelerator}})
        for number, (graphics, cpu, memory) in enumerate(clocks)
        for accelerator in [{"clock_sm_hz": graphics, "clock_memory_hz": memory}]
    ]
    found = drawn(noisy("mine"), states=states)
    (clock,) = (figure for figure in found.figures if "after each round" in figure.title)
    assert (clock.title, {row["sample.device"] for row in clock.rows}) == ("Clock after each round of run", {"cpu"})
    assert found.level == (
        "Clock of cuda:0 after each round of run: 1.99 GHz, within 1 %.",
        "Memory clock of cuda:0 after each round of run: 2.60 GHz, within 1 %.",
    )


def arrows(figure, axis):
    """The shape of the arrows of a figure, and where they stand on an axis."""
    drawn = plots.draw(figure).specification
    layers = [each for each in drawn["layer"] if isinstance(each["mark"], dict) and each["mark"].get("shape")]
    return [(each["mark"]["shape"], [point[axis] for point in drawn["datasets"][each["data"]["name"]]]) for each in layers]


def test_a_time_far_beyond_the_others_is_an_arrow_at_the_end_of_the_axis(drawn):
    seconds = (1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 40.0)
    rounds, in_order = drawn(made_up.rounds_of(made_up.case("mine", n=1), made_up.flat(seconds))).figures
    # Quartiles 0.975 and 1.075 of the medians, and 0.95 and 1.1 of the blocks; a fence is three times their distance further.
    assert rounds.clip == (0.9, pytest.approx(1.075 + 3 * 0.1))
    assert in_order.clip == (0.9, pytest.approx(1.1 + 3 * 0.15))
    assert max(row["time.median_s"] for row in in_order.rows) == 40.0  # the table still has it
    assert in_order.about.endswith("Times far beyond the others are arrows at the end of the axis.")
    assert arrows(in_order, "y") == [("triangle-up", [in_order.clip[1]] * 10)]
    assert arrows(rounds, "x") == [("triangle-right", [rounds.clip[1]])]
    assert [each.clip for each in drawn(noisy("calm", ([1.0] * 5, [1.019] * 5)), name="calm").figures] == [None, None]


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
