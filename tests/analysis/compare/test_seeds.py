"""Values of seeds on two sides: ``dlbench compare`` of trainings whose seeds repeat."""

import json
from dataclasses import replace

import formats
import front_door
import made_up
import pytest

from dlbench.core.measurement import Memory

TWO_WORSE = (-0.020, -0.021, -0.019, -0.020, -0.020, -0.022)
BF16 = "convergence[network=mlp,format=bf16,rate=0.02]@cpu"


def written(folder, name, gaps=formats.NO_GAPS, memory=300, declared=formats.DECLARED, gate=None):
    """A training in fp32, and one in bf16 whose seeds ended so far above it."""
    measured = [*formats.training("fp32"), *formats.training("bf16", gaps)]
    sized = [replace(each, memory=Memory(host_peak_bytes=memory << 20)) for each in measured]
    made_up.write(folder / f"{name}.jsonl", sized, workloads=declared, gate=gate)


def compared(folder, gaps, *options, **fields):
    """Exit code, verdict of the training in bf16, and its note."""
    written(folder, "base")
    written(folder, "new", gaps, memory=900, **fields)
    done = front_door.in_process(folder, "compare", "base.jsonl", "new.jsonl", "--format", "json", *options)
    (case,) = [each for each in json.loads(done.out) if each["compare.case"] == BF16]
    return done, case


SIDES = {
    "the same seeds": (formats.NO_GAPS, "same", 0, "accuracy: 62.0 %, 0.0 points (0.0…0.0) over 6 seeds"),
    "2 points worse": (TWO_WORSE, "slower", 3, "accuracy worse: 62.0 % to 59.9 %, -2.0 points (-2.2…-1.9) over 6 seeds"),
    "2 points better": (
        [-each for each in TWO_WORSE],
        "faster",
        0,
        "accuracy better: 62.0 % to 64.1 %, +2.0 points (1.9…2.2) over 6 seeds",
    ),
    "all worse, by less than a point": (
        (-0.005, -0.001, -0.01, -0.002, -0.004, -0.003),
        "same",
        0,
        "accuracy: 62.0 % to 61.6 %, -0.4 points (-1.0…-0.1) over 6 seeds",
    ),
    "all worse, and one by more than a point": (
        (-0.005, -0.001, -0.02, -0.002, -0.004, -0.003),
        "inconclusive",
        4,
        "-0.4 points (-2.0…-0.1) over 6 seeds",
    ),
    "all worse, and one by nearly two points": (
        (-0.005, -0.001, -0.019, -0.002, -0.004, -0.003),
        "inconclusive",
        0,
        "-0.4 points (-1.9…-0.1) over 6 seeds",
    ),
    "a seed better": ((-0.02, -0.02, -0.02, -0.02, -0.02, 0.001), "inconclusive", 4, "-2.0 points (-2.0…0.1) over 6 seeds"),
    "a seed better, and others far worse": (
        (-0.2, -0.2, -0.1, -0.1, -0.05, 0.001),
        "inconclusive",
        4,
        "-10.0 points (-20.0…0.1) over 6 seeds",
    ),
}
MAY_BE = {
    "all worse, and one by more than a point": "2.0",
    "a seed better": "2.0",
    "a seed better, and others far worse": "20.0",
}
"""By how many points the accuracy may be worse, where a gate has to exclude as much."""


@pytest.mark.parametrize("what", SIDES)
def test_each_seed_is_compared_with_itself_and_a_gate_sees_twice_the_margin(tmp_path, what):
    gaps, verdict, code, note = SIDES[what]
    done, case = compared(tmp_path, gaps, gate={})
    assert (done.code, case["compare.verdict"]) == (code, verdict)
    assert note in case["compare.note"]
    assert case["compare.regressed"] == ("value.accuracy" if code == 3 else None)
    # Memory of a single round, however much it grew, has not to be excluded: another round would be the same seeds again.
    worse = f"accuracy may be up to {MAY_BE[what]} points worse" if what in MAY_BE else None
    assert case["compare.unseen"] == worse
    assert ("not excluded" in done.err) is bool(worse)
    assert "too few rounds" not in done.err


@pytest.mark.parametrize(
    ("what", "line", "counts"),
    [
        ("2 points worse", ["62.0", "%", "59.9", "%", "-2.0", "points", "-2.2…-1.9", "points", "worse"], "1 worse, 1 same; exit 3"),
        ("2 points better", ["62.0", "%", "64.1", "%", "+2.0", "points", "1.9…2.2", "points", "better"], "1 better, 1 same; exit 0"),
    ],
)
def test_the_table_has_the_value_that_decides(tmp_path, what, line, counts):
    written(tmp_path, "base")
    written(tmp_path, "new", SIDES[what][0])
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl")
    name = " convergence mlp bf16 rate=0.02 "
    assert [each.removeprefix(name).split() for each in done.out.splitlines() if each.startswith(name)] == [line]
    assert done.out.splitlines()[-1] == counts


def test_data_has_the_medians_and_the_largest_worsening_that_may_be(tmp_path):
    _, case = compared(tmp_path, TWO_WORSE)
    names = ("base", "new", "verdict", "possible")
    assert [case[f"value.accuracy.{name}"] for name in names] == [0.62, pytest.approx(0.599), "worse", pytest.approx(0.022)]
    assert case["value.loss.verdict"] is None


@pytest.mark.parametrize("options", [("--strict",), ("--detect", "25%")])
def test_a_gate_sees_that_the_same_seeds_end_the_same(tmp_path, options):
    assert compared(tmp_path, formats.NO_GAPS, *options, gate={})[0].code == 0
    assert "not excluded" not in compared(tmp_path / "worse", TWO_WORSE, *options)[0].err


def test_what_the_seeds_leave_open_is_undecided_where_one_is_strict(tmp_path):
    assert compared(tmp_path, SIDES["a seed better"][0], "--strict")[0].code == 4


def with_points(*points):
    declared = json.loads(json.dumps(formats.DECLARED))
    for each in declared["convergence"]["values"]:
        each["points"] = list(points) if each.get("points") else []
    return declared


def test_other_seeds_are_not_judged_and_it_is_told(tmp_path):
    done, case = compared(tmp_path, formats.NO_GAPS, declared=with_points(*(f"seed {at}" for at in range(6, 12))))
    others = "not judged, as its seeds are others: seed 0, seed 1 and 4 more against seed 6, seed 7 and 4 more"
    assert (case["compare.verdict"], others in case["compare.note"]) == ("inconclusive", True)
    fewer, case = compared(tmp_path / "fewer", formats.NO_GAPS[:5], declared=with_points(*formats.SEEDS[:5]))
    assert "not judged, as its seeds are others: seed 0, seed 1 and 4 more against seed 0, seed 1 and 3 more" in case["compare.note"]
    assert (done.code, fewer.code) == (4, 4)


def test_fewer_than_six_seeds_tell_nothing_unless_they_are_alike(tmp_path):
    declared = with_points("a", "b", "c")
    for name, gaps in (("base", (0.0, 0.0, 0.0)), ("alike", (0.0, 0.0, 0.0)), ("other", (-0.1, -0.1, -0.1))):
        measured = formats.training("bf16", gaps)
        made_up.write(tmp_path / f"{name}.jsonl", measured, workloads=declared)
    alike, other = (front_door.in_process(tmp_path, "compare", "base.jsonl", f"{name}.jsonl") for name in ("alike", "other"))
    assert (alike.code, other.code) == (0, 4)
    assert "3 seeds are too few, 6 would do" in other.out
    assert "accuracy has too few seeds" in other.out
    assert "1 inconclusive" in other.out
