"""Comparisons of cases in which only some calls are slow, which neither the median nor the p10 of a round shows."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest
from front_door import compared

CASE = made_up.case("matmul", n=1)
LEVELS = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001, 1.012, 0.992, 1.018, 0.983)
ONE_IN_THREE = (1, 1, 3)


def rounds(*calls, times=1, slow=range(14)):
    """Fourteen rounds whose blocks, one call each, take these times, and one second each in a round that is not slow."""
    blocks = [[level * call for call in (calls if number in slow else [1] * len(calls))] * times for number, level in enumerate(LEVELS)]
    return made_up.rounds_of(CASE, blocks)


def row_of(folder, base, new, *arguments):
    """Compare two files; return the exit code and the row."""
    done = compared(folder, base, new, "--format", "json", *arguments)
    return done.code, front_door.verdicts(done)[CASE.id]


STEADY, EXCLUDED = rounds(1, 1, 1), "; a slowdown of 25.0 % or more is excluded"


@pytest.mark.parametrize("times", [1, 3, 14])
def test_every_third_call_three_times_as_long_is_slower(tmp_path, times):
    code, row = row_of(tmp_path, rounds(1, 1, 1, times=times), rounds(*ONE_IN_THREE, times=times), "--strict")
    assert (code, row["compare.verdict"], row["compare.statistic"]) == (3, "slower", "mean")
    assert (row["mean.verdict"], row["median.verdict"], row["median.change"]) == ("slower", "same", 0)
    assert (row["mean.change"], row["compare.note"]) == (pytest.approx(2 / 3), "same by its median, slower by its mean")


@pytest.mark.parametrize(
    ("base", "new", "code", "verdict", "note"),
    [
        (rounds(*ONE_IN_THREE), STEADY, 4, "inconclusive", f"the same but for the mean of all its calls, -40.0 %{EXCLUDED}"),
        (STEADY, rounds(*ONE_IN_THREE, slow=range(8)), 4, "inconclusive", f"the same but for the mean of all its calls, +63.3 %{EXCLUDED}"),
        (rounds(*ONE_IN_THREE, slow=range(5)), rounds(*ONE_IN_THREE, slow=range(9)), 0, "same", None),
    ],
    ids=["fewer slow calls", "a mean that may have grown", "within the threshold"],
)
def test_an_unsure_mean_keeps_a_case_from_being_the_same_but_within_the_threshold(tmp_path, base, new, code, verdict, note):
    found, row = row_of(tmp_path, base, new, "--strict")
    assert (found, row["compare.verdict"], row["mean.verdict"], row["median.verdict"]) == (code, verdict, "inconclusive", "same")
    assert row["compare.note"] == note
    if base is STEADY:
        assert row["mean.p_holm"] > 0.05


@pytest.mark.parametrize("times", [1, 14])
def test_an_a_b_shows_every_third_call_too(tmp_path, times):
    sides = [replace(each, side=side) for side, calls in (("a", (1, 1, 1)), ("b", ONE_IN_THREE)) for each in rounds(*calls, times=times)]
    made_up.write(tmp_path / "ab.jsonl", sides, sides=made_up.TWO_SIDES)
    done = front_door.in_process(tmp_path, "compare", "--by", "run", "ab.jsonl")
    assert (done.code, done.out.splitlines()[-1]) == (3, "1 slower; exit 3")
    assert "+66.7 %  +65.0…+68.4 %" in done.out


def test_a_file_of_more_blocks_has_no_other_mean(tmp_path):
    # One call of ten is slow: hardly one of three, and four of forty.
    many = rounds(1, 1, 1, 1, 1, 3, 1, 1, 1, 1, times=4)
    few = [replace(each, samples=replace(each.samples, block_s=each.samples.block_s[:3])) for each in many]
    assert [row_of(tmp_path, *files)[1]["compare.verdict"] for files in ((few, many), (many, few))] == ["same"] * 2


def test_a_row_says_how_much_its_slow_calls_take(tmp_path):
    made_up.write(tmp_path / "run.jsonl", rounds(*ONE_IN_THREE))
    done = front_door.in_process(tmp_path, "show", "run.jsonl")
    assert "tail +66.7 %" in done.out
    assert "\ntail: some calls take far longer than the median; --topic details has which\n" in done.out
    (row,) = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--format", "json").out)
    assert (row["flag.tail"], row["time.mean_s"] / row["time.median_s"]) == (True, pytest.approx(5 / 3))
    assert row["rate.items_per_s"] == pytest.approx(8 / row["time.median_s"], rel=1e-12)
