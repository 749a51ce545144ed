"""Verdicts of an A/B file, made up: what is matched, and what measuring again changes. By the front door of ``compare --by run``."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest
from compared import ONE, TEN, timed
from front_door import Done
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.measurement import BALANCED, Measurement
from dlbench.core.model import Status
from dlbench.harness.schedule import Side, Task, in_balanced_order

Rounds = list[Measurement]
TWO = made_up.case("matmul", n=2)


def on(side: str, factor: float = 1.0, a_case: made_up.Case = ONE, rounds: Sequence[float] = TEN, **fields: Any) -> Rounds:
    return timed(factor, rounds, a_case, side=side, **fields)


def write(folder: Path, *measurements: Sequence[Measurement], name: str = "ab", **options: Any) -> Path:
    every = [each for some in measurements for each in some]
    return made_up.write(folder / f"{name}.jsonl", every, sides=made_up.TWO_SIDES, planned=len({each.series for each in every}), **options)


def compared(folder: Path, *arguments: str) -> Done:
    return front_door.in_process(folder, "compare", "ab.jsonl", "--by", "run", *arguments)


def verdicts(folder: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and the verdict and the note of each case."""
    done = compared(folder, "--format", "json")
    return done.code, {row["compare.case"]: (row["compare.verdict"], row["compare.note"] or "") for row in json.loads(done.out)}


def test_b_is_compared_with_a_at_the_threshold_of_rounds_measured_in_turn(tmp_path: Path) -> None:
    write(tmp_path, on("a"), on("b", 1.05), on("a", 1, TWO), on("b", 1, TWO))
    done = compared(tmp_path)
    assert (done.code, done.out.splitlines()[0], done.out.splitlines()[-1]) == (3, "ab:b against ab:a, on cpu", "1 slower, 1 same; exit 3")
    assert done.err == "note: the sides differ, a against b: side.environ.SPEED: 'a' against 'b'\n"
    assert front_door.in_process(tmp_path, "compare", "ab.jsonl", "--by", "case.run", "--threshold", "10%").code == 0


KILLED = made_up.ended(ONE, Status.CRASHED, "killed")


@pytest.mark.parametrize(
    ("base", "new", "verdict", "code"),
    [
        (on("a"), [KILLED], "failed", 5),
        (on("a"), [made_up.ended(ONE, Status.OOM, "too large")], "failed", 5),
        ([KILLED], on("b"), "incomparable", 0),
        (on("a"), [], "missing", 5),
        ([], on("b"), "new", 0),
        # Flags and threads that an environment sets are part of what is compared.
        (on("a"), on("b", 1.2, threads=4, math={"tf32": True}), "slower", 3),
    ],
)
def test_a_side_that_lacks_a_case_is_never_a_silent_pass(tmp_path: Path, base: Rounds, new: Rounds, verdict: str, code: int) -> None:
    sided = [[replace(each, side=side) for each in some] for side, some in (("a", base), ("b", new))]
    write(tmp_path, *sided, on("a", 1, TWO), on("b", 1, TWO))
    found = verdicts(tmp_path)
    assert (found[0], found[1][ONE.id][0], found[1][TWO.id][0]) == (code, verdict, "same")


MANY = [made_up.case("matmul", n=n) for n in range(1, 101)]
FIRST = "measured again; the first rounds said slower by "


@pytest.mark.parametrize(
    ("cases", "first", "again", "rounds", "code", "verdict", "note"),
    [
        ([ONE, TWO], 1.05, 1.0, 10, 0, "same", f"{FIRST}+5.0 %"),
        ([ONE, TWO], 1.05, 1.2, 10, 3, "slower", f"{FIRST}+5.0 %"),
        # Five rounds carry three cases, not a hundred: they can confirm one of a hundred.
        (MANY, 1.2, 1.2, 5, 3, "slower", f"{FIRST}+20.0 %"),
        ([ONE, TWO], 1.2, 1.0, 3, 3, "slower", "not confirmed: too few rounds: in 4 tests none could have been called slower"),
    ],
)
def test_a_case_measured_again_is_decided_by_those_rounds_alone_if_they_can_decide(
    tmp_path: Path, cases: list[made_up.Case], first: float, again: float, rounds: int, code: int, verdict: str, note: str
) -> None:
    sides = [on(side, first if (side, case) == ("b", ONE) else 1.0, case) for case in cases for side in ("a", "b")]
    write(tmp_path, *sides, on("a-confirm", 1, ONE, TEN[:rounds]), on("b-confirm", again, ONE, TEN[:rounds]))
    ended, found = verdicts(tmp_path)
    assert (ended, found[ONE.id][0], found[TWO.id][0]) == (code, verdict, "same")
    assert found[ONE.id][1].startswith(note)


def test_a_change_that_the_first_rounds_could_not_exclude_is_excluded_by_fresh_ones(tmp_path: Path) -> None:
    varying = [made_up.Memory(host_peak_bytes=each << 30) for each in (1, 4, 2, 3, 5, 1, 4, 2, 3, 5)]
    sides = [[replace(each, memory=memory) for each, memory in zip(side, varying, strict=True)] for side in (on("a"), on("b", 1.05))]
    write(tmp_path / "first", *sides)
    write(tmp_path / "again", *sides, on("a-confirm"), on("b-confirm"))
    first, again = compared(tmp_path / "first"), compared(tmp_path / "again")
    assert ("memory may be up to" in first.out, "is not excluded" in again.err) == (True, False)
    assert (again.code, again.out.splitlines()[-1]) == (0, "1 same; exit 0")


def test_an_ab_file_is_no_side_of_a_comparison_and_can_not_be_resumed(tmp_path: Path) -> None:
    path = write(tmp_path, on("a"), finished=False)
    before = path.read_bytes()
    made_up.write(tmp_path / "run.jsonl", timed())
    for files in (("ab.jsonl", "run.jsonl"), ("run.jsonl", "ab.jsonl")):
        done = front_door.in_process(tmp_path, "compare", *files)
        assert (done.code, done.out) == (2, "")
        assert "a file that dlbench ab wrote holds both sides of its comparison; give it alone, with --by run" in done.err
    shown = front_door.in_process(tmp_path, "show", "ab.jsonl")
    assert shown.err.splitlines()[0].endswith("start it again, as an A/B can't be resumed")
    assert path.read_bytes() == before


def test_export_distinguishes_the_sides(tmp_path: Path) -> None:
    write(tmp_path, on("a"), on("b", 2.0))
    rows = front_door.in_process(tmp_path, "export", "ab.jsonl", "--to", "csv").out.splitlines()
    run = rows[0].split(",").index("case.run")
    assert [row.split(",")[run] for row in rows[1:]] == ["ab:a", "ab:b"]
    for form in ("pyperf", "bencher"):
        front_door.in_process(tmp_path, "export", "ab.jsonl", "--to", form, "-o", f"{form}.json")
    pyperf, bencher = (json.loads((tmp_path / f"{form}.json").read_text()) for form in ("pyperf", "bencher"))
    names = [each["metadata"]["name"] for each in pyperf["benchmarks"]]
    assert names == list(bencher) == ["a: matmul[n=1]@cpu", "b: matmul[n=1]@cpu"]
    assert front_door.in_process(tmp_path, "show", "pyperf.json").code == 0


def tasks_of(cases: int, *sides: str | None) -> list[Task]:
    return [Task(made_up.case(n=n), Side({"cpu": None}, name=name)) for name in sides for n in range(cases)]


@given(st.integers(1, 9), st.integers(0, 2**32), st.integers(0, 99), st.sampled_from([("a", "b"), (None,)]))
def test_a_round_has_both_sides_of_a_case_next_to_each_other(cases: int, seed: int, number: int, sides: tuple[str | None, ...]) -> None:
    tasks = tasks_of(cases, *sides)
    order = in_balanced_order(tasks, seed, number)
    assert sorted(task.series for task in order) == sorted(task.series for task in tasks)
    ids = [task.case.id for task in order]
    assert ids[:: len(sides)] == ids[len(sides) - 1 :: len(sides)]


def first_sides(tasks: Sequence[Task], number: int) -> dict[str, str | None]:
    """Which side of each case comes first in a round."""
    return {task.case.id: task.side.name for task in reversed(in_balanced_order(tasks, 7, number))}


def test_an_odd_round_reverses_the_order_of_the_sides_and_even_ones_draw_it() -> None:
    tasks = tasks_of(9, "a", "b")
    rounds = [first_sides(tasks, number) for number in range(100)]
    for even, odd in zip(rounds[::2], rounds[1::2], strict=True):
        assert all({even[case], odd[case]} == {"a", "b"} for case in even)
    drawn = [side for even in rounds[::2] for side in even.values()]
    assert 200 < drawn.count("a") < 250
    orders = [[task.case.id for task in in_balanced_order(tasks, 7, number)] for number in (0, 1)]
    assert orders[0] not in (orders[1], orders[1][::-1])
    # Further rounds of some cases go on as all would have.
    alone = [task for task in tasks if task.case.id in list(rounds[0])[:2]]
    assert [first_sides(alone, number).items() <= rounds[number].items() for number in range(100)] == [True] * 100


@pytest.mark.parametrize(
    ("order", "factor", "verdict", "code"),
    [(BALANCED, 1.15, "slower", 3), (BALANCED, 1 / 1.15, "faster", 0), (BALANCED, 1.0, "inconclusive", 4), (None, 1.15, "inconclusive", 4)],
)
def test_taken_cpus_strike_balanced_sides_alike(tmp_path: Path, order: str | None, factor: float, verdict: str, code: int) -> None:
    sides = [on("a"), on("b", factor)]
    write(tmp_path, *[[replace(each, throttling=Throttling(waiting=0.5)) for each in side] for side in sides], order=order)
    found, by_case = verdicts(tmp_path)
    assert (found, by_case[ONE.id][0]) == (code, verdict)
    assert "disturbed in 10 of 10 rounds: waited for a CPU for 50.0 % of its time" in by_case[ONE.id][1]
    assert ("CPUs taken" in by_case[ONE.id][1]) == (verdict == "inconclusive")
    warming = tmp_path / "warming"
    write(warming, on("a", steady=False), on("b", factor, steady=False), order=order)
    assert verdicts(warming)[1][ONE.id][0] == "inconclusive"


def spinning(side: str | None, left_out: int) -> Rounds:
    """Rounds of a case whose own thread spins in so many blocks more, which do not count."""
    rounds = made_up.rounds_of(ONE, [[each] * 10 + [3 * each] * left_out for each in TEN], side=side)
    waits = (0.0,) * 10 + (1.0,) * left_out
    return [replace(each, samples=each.samples and replace(each.samples, wait_s=waits)) for each in rounds]


APART = "threads waited for a CPU in 9.1 % of its blocks and in 0.0 % of those of the base, which are left out"


@pytest.mark.parametrize(("left_out", "order", "verdict"), [(1, BALANCED, "inconclusive"), (0, BALANCED, "same"), (1, None, "same")])
def test_sides_that_leave_out_other_shares_are_not_the_same(tmp_path: Path, left_out: int, order: str | None, verdict: str) -> None:
    write(tmp_path, spinning("a", 0), spinning("b", left_out), order=order)
    found, note = verdicts(tmp_path)[1][ONE.id]
    assert (found, APART in note) == (verdict, verdict == "inconclusive")


@pytest.mark.parametrize(
    ("other_cpus", "verdict"),
    [
        pytest.param((0.02, 0.01), "inconclusive", id="others took hardly anything"),
        pytest.param((0.02, 0.5), "same", id="others were there, and are reason enough"),
        pytest.param((0.02, None), "same", id="nothing tells what others took"),
    ],
)
def test_so_are_stored_runs_unless_others_may_be_why(tmp_path: Path, other_cpus: tuple[float | None, ...], verdict: str) -> None:
    for name, left_out, cpus in zip(("base", "new"), (0, 1), other_cpus, strict=True):
        states = [RoundState(number, 9.0, cpus, 0.0) for number in range(len(TEN))]
        made_up.write(tmp_path / f"{name}.jsonl", spinning(None, left_out), states=states)
    done = front_door.in_process(tmp_path, "compare", "base.jsonl", "new.jsonl")
    assert done.out.splitlines()[-1] == f"1 {verdict}; exit {4 if verdict == 'inconclusive' else 0}"
    assert (f"{APART}, though others took hardly any CPU time" in " ".join(done.out.split())) == (verdict == "inconclusive")
