"""Values of seeds on two sides: ``dlbench compare`` of trainings whose seeds repeat."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import formats
import front_door
import made_up
import pytest

from dlbench.core.measurement import Memory

TWO_WORSE = (-0.020, -0.021, -0.019, -0.020, -0.020, -0.022)
A_SEED_BETTER = (-0.02, -0.02, -0.02, -0.02, -0.02, 0.001)
GAPS: dict[str, Sequence[float]] = {
    "the same seeds": formats.NO_GAPS,
    "2 points worse": TWO_WORSE,
    "2 points better": [-each for each in TWO_WORSE],
    "all worse, by less than a point": (-0.005, -0.001, -0.01, -0.002, -0.004, -0.003),
    "all worse, and one by more than a point": (-0.005, -0.001, -0.02, -0.002, -0.004, -0.003),
    "all worse, and one by nearly two points": (-0.005, -0.001, -0.019, -0.002, -0.004, -0.003),
    "a seed better": A_SEED_BETTER,
    "a seed better, and others far worse": (-0.2, -0.2, -0.1, -0.1, -0.05, 0.001),
}
"""By how much the seeds of the training in bf16 end above those in fp32."""


def with_points(*points: str) -> dict[str, Any]:
    """The declarations of the header with other seeds."""
    declared: dict[str, Any] = json.loads(json.dumps(formats.DECLARED))
    for each in declared["convergence"]["values"]:
        each["points"] = list(points) if each.get("points") else []
    return declared


def compared(folder, gaps, *options, base=formats.NO_GAPS, declared=formats.DECLARED, gate=None) -> front_door.Done:
    """The comparison of a training in bf16 with one whose seeds end so far above it, and which takes three times the memory.

    Memory of a single round, however much it grew, need not be excluded: another round would be the same seeds again.
    """
    sides = {"base": (base, 300, with_points(*formats.SEEDS[: len(base)])), "new": (gaps, 900, declared)}
    for name, (each_gap, memory, declares) in sides.items():
        sized = [replace(each, memory=Memory(host_peak_bytes=memory << 20)) for each in formats.training("bf16", each_gap)]
        made_up.write(folder / f"{name}.jsonl", sized, workloads=declares, gate=gate)
    return front_door.in_process(folder, "compare", "base.jsonl", "new.jsonl", *options)


def test_each_seed_is_compared_with_itself_and_a_gate_sees_twice_the_margin(tmp_path: Path, snapshot: Callable[[str, str], None]) -> None:
    found = {scene: compared(tmp_path / scene, gaps, gate={}) for scene, gaps in GAPS.items()}
    others = with_points(*(f"seed {at}" for at in range(6, 12)))
    found["other seeds"] = compared(tmp_path / "others", formats.NO_GAPS, declared=others)
    found["fewer seeds"] = compared(tmp_path / "fewer", formats.NO_GAPS[:5], declared=with_points(*formats.SEEDS[:5]))
    for scene, gap in {"three seeds alike": 0.0, "three seeds worse": -0.1}.items():
        found[scene] = compared(tmp_path / scene, (gap,) * 3, base=(0.0,) * 3, declared=with_points(*formats.SEEDS[:3]))
    texts = {}
    for scene, done in found.items():
        _, *shown = done.out.splitlines()
        texts[scene] = "\n".join([*shown, *done.err.splitlines()[3:]])  # the first notes are those of any two files without machines
    snapshot("compare-seeds", front_door.under_titles(texts))


def test_data_has_the_medians_and_the_largest_worsening_that_may_be(tmp_path: Path) -> None:
    (case,) = json.loads(compared(tmp_path, TWO_WORSE, "--format", "json").out)
    names = ("base", "new", "verdict", "possible")
    assert [case[f"value.accuracy.{name}"] for name in names] == [0.62, pytest.approx(0.599), "worse", pytest.approx(0.022)]
    assert (case["compare.regressed"], case["value.loss.verdict"]) == ("value.accuracy", None)


@pytest.mark.parametrize("options", [("--strict",), ("--detect", "25%")])
def test_a_gate_sees_that_the_same_seeds_end_the_same_and_strictly_what_they_leave_open(tmp_path: Path, options: tuple[str, ...]) -> None:
    gaps = {"same": formats.NO_GAPS, "worse": TWO_WORSE, "open": A_SEED_BETTER}
    same, worse, undecided = (compared(tmp_path / name, each, *options) for name, each in gaps.items())
    assert (same.code, worse.code, undecided.code) == (0, 3, 4)
    assert ["not excluded" in each.err for each in (same, worse)] == [False, False]
