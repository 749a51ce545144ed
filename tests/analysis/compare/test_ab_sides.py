"""Verdicts of an A/B file, made up: what is matched, and what measuring again changes. By the front door of ``compare --by run``."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up
import pytest
from click.testing import CliRunner
from front_door import Done
from hypothesis import given
from hypothesis import strategies as st

from dlbench.cli.main import dlbench
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import DlbenchError
from dlbench.core.measurement import BALANCED, Measurement
from dlbench.core.model import Status
from dlbench.harness.schedule import Side, Task, in_balanced_order

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
ONE, TWO = made_up.case("matmul", n=1), made_up.case("matmul", n=2)


def on(side: str, a_case: made_up.Case, factor: float = 1.0, rounds: Sequence[float] = TEN, **fields: Any) -> list[Measurement]:
    return made_up.rounds_of(a_case, made_up.flat([factor * each for each in rounds]), side=side, **fields)


def write(folder: Path, *measurements: Sequence[Measurement], name: str = "ab", **options: Any) -> Path:
    every = [each for some in measurements for each in some]
    return made_up.write(folder / f"{name}.jsonl", every, sides=made_up.TWO_SIDES, planned=len({each.series for each in every}), **options)


def call(folder: Path, *arguments: str) -> Done:
    with contextlib.chdir(folder):
        result = CliRunner().invoke(dlbench, arguments, standalone_mode=False)
    if isinstance(result.exception, DlbenchError):
        return Done(int(result.exception.exit_code), result.stdout, str(result.exception))
    if result.exception:
        raise result.exception
    return Done(int(result.return_value or 0), result.stdout, result.stderr)


def verdicts(folder: Path, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    done = call(folder, "compare", "ab.jsonl", "--by", "run", "--format", "json", *arguments)
    return done.code, {row["compare.case"]: (row["compare.verdict"], row["compare.note"] or "") for row in json.loads(done.out)}


def test_b_is_compared_with_a_at_the_threshold_of_rounds_measured_in_turn(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE, 1.05), on("a", TWO), on("b", TWO))
    done = call(tmp_path, "compare", "ab.jsonl", "--by", "run")
    assert (done.code, done.out.splitlines()[0]) == (3, "ab:b against ab:a, on cpu")
    assert done.out.endswith("1 slower, 1 same; exit 3\n")
    assert done.err == "note: the sides differ, a against b: side.environ.SPEED: 'a' against 'b'\n"
    assert call(tmp_path, "compare", "ab.jsonl", "--by", "case.run", "--threshold", "10%").code == 0


@pytest.mark.parametrize(
    ("base", "new", "verdict", "code"),
    [
        (on("a", ONE), [made_up.ended(ONE, Status.CRASHED, "killed")], "failed", 5),
        (on("a", ONE), [made_up.ended(ONE, Status.OOM, "too large")], "failed", 5),
        ([made_up.ended(ONE, Status.CRASHED, "killed")], on("b", ONE), "incomparable", 0),
        (on("a", ONE), [], "missing", 5),
        ([], on("b", ONE), "new", 0),
    ],
)
def test_what_one_side_lacks_is_never_a_silent_pass(
    tmp_path: Path, base: list[Measurement], new: list[Measurement], verdict: str, code: int
) -> None:
    sided = [[replace(each, side=side) for each in some] for side, some in (("a", base), ("b", new))]
    write(tmp_path, *sided, on("a", TWO), on("b", TWO))
    found = verdicts(tmp_path)
    assert (found[0], found[1][ONE.id][0], found[1][TWO.id][0]) == (code, verdict, "same")


def test_flags_and_threads_that_an_environment_sets_are_part_of_what_is_compared(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE, 1.2, threads=4, math={"tf32": True}))
    assert verdicts(tmp_path)[0] == 3


def again(factor: float, rounds: Sequence[float] = TEN) -> tuple[list[Measurement], list[Measurement]]:
    return on("a-confirm", ONE, 1, rounds), on("b-confirm", ONE, factor, rounds)


def test_what_was_measured_again_is_decided_by_those_rounds_alone(tmp_path: Path) -> None:
    first = (on("a", ONE), on("b", ONE, 1.05), on("a", TWO), on("b", TWO))
    write(tmp_path, *first, *again(1.0))
    code, found = verdicts(tmp_path)
    assert (code, found[ONE.id], found[TWO.id]) == (
        0, ("same", "measured again; the first rounds said slower by +5.0 %"), ("same", ""),
    )  # fmt: skip


def test_a_confirmed_change_fails_and_says_what_both_said(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE, 1.05), on("a", TWO), on("b", TWO), *again(1.2))
    code, found = verdicts(tmp_path)
    assert (code, found[ONE.id]) == (3, ("slower", "measured again; the first rounds said slower by +5.0 %"))


def test_the_correction_counts_only_what_was_measured_again(tmp_path: Path) -> None:
    """Five rounds carry three cases, not a hundred: they can confirm one of a hundred."""
    many = [made_up.case("matmul", n=n) for n in range(1, 101)]
    first = [on(side, each, 1.2 if side == "b" and each == many[0] else 1.0) for each in many for side in ("a", "b")]
    write(tmp_path, *first, *again(1.2, TEN[:5]))
    code, found = verdicts(tmp_path)
    assert (code, found[ONE.id][0]) == (3, "slower")


def test_rounds_that_can_decide_nothing_leave_the_first_verdict(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE, 1.2), on("a", TWO), on("b", TWO), *again(1.0, TEN[:3]))
    code, found = verdicts(tmp_path)
    assert (code, found[ONE.id][0]) == (3, "slower")
    assert found[ONE.id][1].startswith("not confirmed: too few rounds")


def test_what_the_first_rounds_could_not_see_counts_no_more_where_fresh_ones_could(tmp_path: Path) -> None:
    varying = [made_up.Memory(host_peak_bytes=each << 30) for each in (1, 4, 2, 3, 5, 1, 4, 2, 3, 5)]
    first = [
        [replace(each, memory=memory) for each, memory in zip(side, varying, strict=True)] for side in (on("a", ONE), on("b", ONE, 1.05))
    ]
    write(tmp_path, *first)
    assert "memory may be up to" in call(tmp_path, "compare", "ab.jsonl", "--by", "run").out
    write(tmp_path, *first, *again(1.0), name="again")
    done = call(tmp_path, "compare", "again.jsonl", "--by", "run")
    assert (done.code, done.out.splitlines()[-1], "is not excluded" in done.err) == (0, "1 same; exit 0", False)


def test_an_ab_file_is_no_side_of_a_comparison(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE))
    made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(ONE, made_up.flat(TEN)))
    for files in (("ab.jsonl", "run.jsonl"), ("run.jsonl", "ab.jsonl")):
        done = call(tmp_path, "compare", *files)
        assert (done.code, done.out) == (2, "")
        assert done.err == "a file that dlbench ab wrote holds both sides of its comparison; give it alone, with --by run"


def test_export_tells_the_sides_apart(tmp_path: Path) -> None:
    write(tmp_path, on("a", ONE), on("b", ONE, 2.0))
    rows = call(tmp_path, "export", "ab.jsonl", "--to", "csv").out.splitlines()
    run = rows[0].split(",").index("case.run")
    assert [row.split(",")[run] for row in rows[1:]] == ["ab:a", "ab:b"]
    call(tmp_path, "export", "ab.jsonl", "--to", "pyperf", "-o", "ab.json")
    names = [each["metadata"]["name"] for each in json.loads((tmp_path / "ab.json").read_text())["benchmarks"]]
    assert names == ["a: matmul[n=1]@cpu", "b: matmul[n=1]@cpu"]
    assert call(tmp_path, "show", "ab.json").code == 0
    call(tmp_path, "export", "ab.jsonl", "--to", "bencher", "-o", "bencher.json")
    assert list(json.loads((tmp_path / "bencher.json").read_text())) == names


def test_an_ab_file_is_not_gone_on_with(tmp_path: Path) -> None:
    path = write(tmp_path, on("a", ONE), finished=False)
    before = path.read_bytes()
    shown = call(tmp_path, "show", "ab.jsonl")
    assert shown.err.splitlines()[0].endswith("start it again, as an A/B can't be resumed")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("sides", "wrong"),
    [
        (3, "sides: Expected `object`, got `int`"),
        ({"a": {}, "b": {"stack": []}}, "sides: Expected `object`, got `array` - at `$[...].stack`"),
    ],
)
def test_sides_that_are_none_are_a_damaged_header(tmp_path: Path, sides: Any, wrong: str) -> None:
    made_up.write(tmp_path / "ab.jsonl", on("a", ONE), sides=sides)
    done = call(tmp_path, "compare", "ab.jsonl", "--by", "run")
    assert (done.code, done.err) == (
        2, f"ab.jsonl, line 1: in the header, {wrong}; the file was edited or damaged",
    )  # fmt: skip


@given(st.integers(1, 9), st.integers(0, 2**32), st.integers(0, 99), st.booleans())
def test_a_round_has_both_sides_of_a_case_next_to_each_other_and_all_in_random_order(cases: int, seed: int, number: int, two: bool) -> None:
    sides = [Side({"cpu": None}, name=name) for name in (("a", "b") if two else (None,))]
    tasks = [Task(made_up.case(n=n), side) for side in sides for n in range(cases)]
    order = in_balanced_order(tasks, seed, number)
    assert sorted(task.series for task in order) == sorted(task.series for task in tasks)
    ids = [task.case.id for task in order]
    assert all(first == second for first, second in zip(ids[:: len(sides)], ids[len(sides) - 1 :: len(sides)], strict=True))


def first_sides(tasks: Sequence[Task], number: int) -> dict[str, str | None]:
    """Which side of each case comes first in a round."""
    return {task.case.id: task.side.name for task in reversed(in_balanced_order(tasks, 7, number))}


def test_an_odd_round_reverses_the_order_of_the_sides_and_even_ones_draw_it() -> None:
    tasks = [Task(made_up.case(n=n), Side({"cpu": None}, name=name)) for name in ("a", "b") for n in range(9)]
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
def test_taken_cpus_strike_sides_in_balanced_order_alike_so_a_change_stands_and_no_change_does_not(
    tmp_path: Path, order: str | None, factor: float, verdict: str, code: int
) -> None:
    sides = [on("a", ONE), on("b", ONE, factor)]
    write(tmp_path, *[[replace(each, throttling=Throttling(waiting=0.5)) for each in side] for side in sides], order=order)
    found, by_case = verdicts(tmp_path)
    assert (found, by_case[ONE.id][0]) == (code, verdict)
    assert "disturbed in 10 of 10 rounds: waited for a CPU for 50.0 % of its time" in by_case[ONE.id][1]
    assert ("CPUs taken" in by_case[ONE.id][1]) == (verdict == "inconclusive")
    warming = [[replace(each, samples=replace(each.samples, steady=False)) for each in side if each.samples] for side in sides]
    write(tmp_path, *warming, name="warming", order=order)
    done = call(tmp_path, "compare", "warming.jsonl", "--by", "run")
    assert (done.code, done.out.splitlines()[-1]) == (4, "1 inconclusive; exit 4")


def spinning(side: str | None, left_out: int) -> list[Measurement]:
    """Rounds of a case of which a thread of its own spins in so many blocks more, which do not count."""
    rounds = made_up.rounds_of(ONE, [[each] * 10 + [3 * each] * left_out for each in TEN], side=side)
    for each in rounds:
        assert each.samples
        each.samples = replace(each.samples, wait_s=(0.0,) * 10 + (1.0,) * left_out)
    return rounds


APART = "threads waited for a CPU in 9.1 % of its blocks and in 0.0 % of those of the base, which are left out"


@pytest.mark.parametrize(
    ("left_out", "order", "verdict"),
    [(1, BALANCED, "inconclusive"), (0, BALANCED, "same"), (1, None, "same")],
)
def test_sides_that_leave_out_different_shares_of_their_blocks_are_not_the_same(
    tmp_path: Path, left_out: int, order: str | None, verdict: str
) -> None:
    write(tmp_path, spinning("a", 0), spinning("b", left_out), order=order)
    _, by_case = verdicts(tmp_path)
    assert by_case[ONE.id][0] == verdict
    assert (APART in by_case[ONE.id][1]) == (verdict == "inconclusive")


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
    done = call(tmp_path, "compare", "base.jsonl", "new.jsonl")
    assert done.out.splitlines()[-1] == f"1 {verdict}; exit {4 if verdict == 'inconclusive' else 0}"
    assert (f"{APART}, though others took hardly any CPU time" in " ".join(done.out.split())) == (verdict == "inconclusive")
