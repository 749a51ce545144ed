"""Figure of rounds: which cases, and which numbers."""

import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.read.table import collect
from dlbench.analysis.report.page import rounds_figures


@pytest.fixture
def drawn(tmp_path):
    """The figures of a file with these measurements."""

    def draw(measurements, name="run", **header):
        results = collect([made_up.write(tmp_path / f"{name}.jsonl", measurements, **header)])
        return rounds_figures(results, answers(results))

    return draw


def noisy(name, rounds=((1.0, 2.0), (2.0, 4.0), (3.0, 3.0))):
    """A case whose interval is wider than any target."""
    return made_up.rounds_of(made_up.case(name, n=1), rounds)


def test_each_round_stands_in_the_interval_relative_to_the_median(drawn):
    (rounds,) = drawn(noisy("mine", made_up.flat((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))))
    assert [row["sample.relative"] for row in rounds.rows] == [each / 4 for each in range(1, 8)]
    assert {(row["sample.case"], row["sample.time_low"], row["sample.time_high"]) for row in rounds.rows} == {
        ("mine n=1 on cpu", 0.25, 1.75)
    }


def test_a_time_far_beyond_the_others_is_beyond_the_end_of_the_axis(drawn):
    (rounds,) = drawn(noisy("mine", made_up.flat((1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 40.0))))
    # Quartiles 0.975 and 1.075 of the medians; a fence is three times their distance further.
    assert rounds.clip == pytest.approx((0.9, 1.075 + 3 * 0.1))
    assert max(row["sample.relative"] for row in rounds.rows) == 40.0  # the table still has it
    (calm,) = drawn(noisy("calm", ([1.0] * 5, [1.019] * 5)), name="calm")
    assert calm.clip == pytest.approx((1 / 1.0095, 1.019 / 1.0095))


def test_twenty_cases_are_drawn_those_first_that_more_answers_rest_on(drawn):
    (figure,) = drawn([each for number in range(23) for each in noisy(f"case{number:02}")])
    assert len({row["sample.case"] for row in figure.rows}) == 20
    assert figure.about.endswith(" Drawn are the 20 of 23 cases that most answers rest on.")
    quiet = [each for n in range(20) for each in made_up.rounds_of(made_up.case("quiet", n=n), made_up.flat([1.0] * 7))]
    (figure,) = drawn([*quiet, *made_up.both_kinds()], name="more")
    first = dict.fromkeys(row["sample.case"] for row in figure.rows)
    assert ["train_step" in each for each in first] == [True] * 8 + [False] * 12  # speed-up, batch and precision rest on them


def test_without_a_time_there_is_nothing_to_draw(drawn):
    assert drawn([]) == []
