"""Rows of cases, from rounds that are made up and from those of committed files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import Unknown
from dlbench.core.measurement import Measurement, Memory, Transfer
from dlbench.core.model import Status
from dlbench.core.rows.columns import BY_NAME, CaseRounds
from dlbench.core.rows.row import Row, cells
from dlbench.core.rows.summary import per_round, summarise

CASE = made_up.case(model="resnet18", batch=8, dtype="bf16")
GPU_CASE = made_up.case(device="cuda:0", model="resnet18", batch=8, dtype="bf16")


def rounds(blocks: Sequence[Sequence[float]] = ([1.0],), case: Any = CASE, **fields: Any) -> list[Measurement]:
    return made_up.rounds_of(case, blocks, **fields)


def holds(measurements: Sequence[Measurement] | Row, expected: Mapping[str, Any], **options: Any) -> None:
    """Assert what some cells of the row of these measurements are."""
    found = cells(measurements if isinstance(measurements, Row) else summarise(measurements, **options))
    assert {name: found[name] for name in expected} == expected


def test_times_over_rounds() -> None:
    assert list(cells(summarise(rounds()))) == [*BY_NAME, "param.model", "param.batch"]
    three = rounds([[2.0, 1.0, 3.0], [4.0, 4.0, 4.0], [1.0, 1.0, 7.0]])
    holds(three, {"time.median_s": 2.0, "time.rounds": 3, "time.blocks": 9, "time.first_call_s": 9.0})  # of 2, 4 and 1
    holds(three, {"time.min_s": 1.0, "time.p10_s": 1.0, "time.p90_s": pytest.approx(4.6)})
    holds(three, {"time.cv_within": 0.5, "time.sd_between": pytest.approx((7 / 3) ** 0.5 / (7 / 3))})  # of 0.5, 0 and 1.15
    holds(three, {"time.ci_low_s": None, "time.ci_high_s": None, "flag.noisy": None})
    seven = rounds(made_up.flat(made_up.SEVEN))
    holds(seven, {"time.ci_low_s": 0.97, "time.ci_high_s": 1.03, "flag.noisy": True}, target=0.02)
    holds(seven, {"flag.noisy": False}, target=0.031)
    usual = [1.0, 1.1, 1.2, 1.3, 1.4]
    holds(rounds([usual, [*usual, 9.0], [10 * each for each in usual]]), {"time.outliers": 1, "time.blocks": 16})


def test_rates_are_those_of_the_time_beside_them_however_many_blocks_a_round_has() -> None:
    one = rounds([[1.0] * 50], calls=10, items=8, flops=100.0, bytes=None)
    row = summarise([*one, *rounds([[4.0] * 3, [2.0, 2.0, 9.0]], calls=5, items=8, flops=100.0, bytes=None)])
    holds(row, {"time.median_s": 2.0, "rate.flops_per_s": 50.0, "rate.bytes_per_s": None, "rate.items_per_s": 4.0})
    holds(row, {"rate.items_per_s_low": None, "rate.items_per_s_high": None, "time.mean_s": 4.0})
    # What is paid for counts all the time: the last round took 13 s for its three calls.
    assert (row.rounds.items_per_s, row.paid_rate) == ((8.0, 2.0, 4.0), 2.0)
    assert row.paid_rates == pytest.approx((8.0, 2.0, 8 * 3 / 13))
    uneven = [*rounds(items=8), *rounds(items=None)]
    holds(uneven, {"rate.items_per_s": None})
    assert per_round(uneven).items_per_s == ()
    holds(rounds([[0.0, 0.0]]), {"time.median_s": 0.0, "rate.items_per_s": None})  # a clock that reads zero


def test_the_interval_of_throughput_is_that_of_the_time_turned_over() -> None:
    turned = rounds([[each, each, 9.0] for each in (4.0, 1.0, 2.0, 7.0, 6.0, 2.5, 3.0)], items=6)
    ends = {"rate.items_per_s_low": pytest.approx(6 / 7), "rate.items_per_s_high": pytest.approx(6 / 1)}
    holds(turned, {"time.ci_low_s": 1.0, "time.ci_high_s": 7.0, "rate.items_per_s": 6 / 3, **ends})


@pytest.mark.parametrize(
    ("blocks", "tail"),
    [
        *(([[each, each, last] for each in made_up.SEVEN], tail) for last, tail in ((3.0, True), (1.2, True), (1.05, False), (0.1, False))),
        ([[each, each, 3.0] for each in made_up.SEVEN[:5]], None),
        ([[1.0, 1.0, 1.08]] * 7, False),  # a few percent, however many rounds there are
        ([[1.0, 1.0, 1.1]] * 7, True),
    ],
)
def test_slow_calls_are_flagged_where_they_make_a_difference(blocks: list[list[float]], tail: bool | None) -> None:
    holds(rounds(blocks), {"flag.tail": tail})


def test_a_cpu_has_a_reason_in_place_of_copies() -> None:
    nulls = dict.fromkeys((name for name in BY_NAME if name.startswith("transfer.")), None)
    memory = {"memory.host_peak_bytes": 3 << 20, "memory.peak_bytes": None}
    holds(rounds(), {**nulls, "transfer.reason": made_up.NO_COPY, **memory})


def test_copies_are_medians_and_their_share_is_of_copy_call_copy() -> None:
    copied = [
        rounds([[0.5]], GPU_CASE, transfer=Transfer(1000, h2d_s, 10, 0.125, 2 * h2d_s, h2d_s / 2), memory=Memory(peak, 2 * peak, None))[0]
        for h2d_s, peak in ((0.25, 5), (0.5, 7), (0.125, 6))
    ]
    holds(copied, {"transfer.h2d_bytes": 1000, "transfer.h2d_s": 0.25, "transfer.h2d_bytes_per_s": 4000.0})
    holds(copied, {"transfer.d2h_bytes": 10, "transfer.d2h_s": 0.125, "transfer.d2h_bytes_per_s": 80.0})
    holds(copied, {"transfer.pinned_h2d_s": 0.5, "transfer.pinned_h2d_bytes_per_s": 2000.0})
    holds(copied, {"transfer.pinned_d2h_s": 0.125, "transfer.pinned_d2h_bytes_per_s": 80.0, "transfer.share": 0.375 / 0.875})
    holds(copied, {"transfer.link_bytes_per_s": None, "transfer.reason": None})  # a measurement does not know its file's header
    holds(copied, {"memory.peak_bytes": 7, "memory.reserved_bytes": 14, "memory.host_peak_bytes": None})
    why = {"transfer": made_up.why("pinned: a limit")}
    holds(
        rounds([[0.5]], GPU_CASE, transfer=Transfer(8, 0.25, 8, 0.25), missing_reasons=why),
        {"transfer.h2d_s": 0.25, "transfer.pinned_h2d_s": None, "transfer.reason": "pinned: a limit"},
    )
    nothing = {"transfer.h2d_bytes_per_s": None, "transfer.d2h_bytes_per_s": None, "transfer.share": 0.0}
    holds(rounds([[1.0]], GPU_CASE, transfer=Transfer(0, 0.0, 0, 0.0)), nothing)


def test_clock_and_power_under_load_are_medians_of_the_rounds_that_tell() -> None:
    read = [Throttling(clock_hz=each * 1e9, power_w=power) for each, power in ((1.5, 690.0), (1.98, None), (1.6, 650.0))]
    measured = [rounds([[0.5]], GPU_CASE, throttling=each)[0] for each in (Throttling(waiting=0.0), *read)]
    holds(measured, {"time.clock_hz": 1.6e9, "time.power_w": 670.0})


SKIPPED = made_up.ended(CASE, Status.SKIPPED, "no time was left")
TIMEOUTS = [made_up.ended(CASE, Status.TIMEOUT, reason, number) for number, reason in enumerate(("first", "second"))]


@pytest.mark.parametrize(
    ("measurements", "expected"),
    [
        (
            [*rounds([[1.0], [2.0], [3.0]]), made_up.ended(CASE, Status.CRASHED, "its process was killed", 3)],
            {"case.status": "crashed", "case.reason": "its process was killed", "time.median_s": 2.0, "time.rounds": 3},
        ),
        ([*TIMEOUTS, made_up.ended(CASE, Status.UNSUPPORTED, "third", 2)], {"case.status": "timeout", "case.reason": "second"}),
        ([SKIPPED, *rounds()], {"case.status": "ok", "case.reason": None}),  # it got its chance later
        ([SKIPPED], {"case.status": "skipped"}),
        (
            [made_up.ended(CASE, Status.OOM, "too large")],
            {"time.rounds": 0, "time.blocks": 0, "time.median_s": None, "rate.items_per_s": None}
            | {"flag.not_steady": None, "flag.noisy": None},
        ),
    ],
)
def test_the_gravest_ending_counts_and_of_equal_ones_the_last(measurements: list[Measurement], expected: dict[str, Any]) -> None:
    holds(measurements, expected)


@pytest.mark.parametrize(
    ("last", "unsteady"),
    [
        ([0.97] * 6, True),  # every round ended 3 % faster than it began
        ([0.97] * 5, None),  # so did these, but five of five happen by chance too often
        ([0.985] * 6, False),  # 1.5 % is still steady
        ([0.97] * 5 + [1.001], False),
        ([0.95, 1.06, 0.94, 1.03, 0.96, 1.05, 0.97], False),
    ],
)
def test_slow_calls_are_steady_if_the_rounds_do_not_all_move_one_way(last: list[float], unsteady: bool | None) -> None:
    holds(rounds([[1.0, 1.3, each] for each in last], steady=None), {"flag.not_steady": unsteady})
    holds(rounds([[1.0]] * 7, steady=None), {"flag.not_steady": None})  # one slow call a round tells nothing
    holds([*rounds(), *rounds(steady=False)], {"flag.not_steady": True})


def test_identity() -> None:
    plain = summarise(rounds(case=made_up.case("noop"), math={"tf32": False, "cudnn": "auto"}))
    assert plain.case.math == {"cudnn": "auto", "tf32": False}
    holds(plain, {"case.dtype": None, "case.mode": "eager", "case.math": "cudnn=auto, tf32=false"})
    compiled = summarise(rounds(case=made_up.case(dtype="bf16", mode="compile", n=3)))
    holds(compiled, {"case.dtype": "bf16", "case.mode": "compile", "param.n": 3})
    assert list(compiled.params) == ["n"]


def test_an_observation_has_values_and_no_times() -> None:
    observed = [
        made_up.with_values(made_up.without_rounds(each), accuracy=value)
        for each, value in zip(rounds([[1.0]] * 3), (0.5, 0.9, 0.7), strict=True)
    ]
    holds(observed, {"value.accuracy": 0.7, "time.rounds": 3, "time.median_s": None})
    assert per_round(observed) == CaseRounds(host_peak_bytes=(3 << 20,) * 3, values={"accuracy": (0.5, 0.9, 0.7)})


def test_what_each_round_gave() -> None:
    timed = rounds([[1.0, 1.0, 4.0], [2.0]], items=8, flops=None)
    assert per_round([*timed, made_up.ended(CASE, Status.OOM, "too large", 2)]) == CaseRounds(
        median_s=(1.0, 2.0),
        items=(8, 8),
        p10_s=(1.0, 2.0),
        mean_s=(2.0, 2.0),
        blocks=((1.0, 1.0, 4.0), (2.0,)),
        numbers=(0, 1),
        spoiled=(False, False),
        host_peak_bytes=(3 << 20,) * 2,
    )


def in_file(path: Path, blocks: Sequence[Sequence[tuple[float, float]]], least: int | None = None, **fields: Any) -> Row:
    """Return the row of a file whose rounds have these blocks, each with the share of it that a thread waited."""
    timed = rounds([[seconds for seconds, _ in each] for each in blocks], made_up.case(batch=8), **fields)
    for each, own in zip(timed, blocks, strict=True):
        each.throttling = Throttling(waiting=0.669, stolen=0.0)
        assert each.samples
        each.samples = replace(each.samples, wait_s=tuple(seconds * share for seconds, share in own), min_blocks=least)
    states = [RoundState(number, 10.0, 0.9, 0.0) for number in range(len(blocks))]
    (row,) = collect([made_up.write(path, timed, states=states)]).rows
    return row


CLEAN, TAKEN = [(0.0094, 0.0)] * 10, [(0.172, 0.669)] * 40


def test_a_round_rests_on_the_blocks_that_nobody_disturbed(tmp_path: Path) -> None:
    row = in_file(tmp_path / "a.jsonl", [[*TAKEN, *CLEAN], [*CLEAN, *TAKEN], CLEAN])
    holds(row, {"time.median_s": 0.0094, "time.mean_s": pytest.approx(0.0094), "time.p90_s": 0.0094, "time.blocks": 30})
    holds(row, {"time.left_out": 80, "time.reason": None, "time.disturbed_rounds": 0, "time.lost_share": 0.0})
    holds(row, {"flag.disturbed": False, "flag.reason": None})
    assert (row.rounds.left_out, [*map(list, row.rounds.blocks)]) == ((40, 40, 0), [[0.0094] * 10] * 3)


def test_a_round_with_nine_undisturbed_blocks_rests_on_all_and_is_flagged(tmp_path: Path) -> None:
    row = in_file(tmp_path / "a.jsonl", [[*TAKEN, *CLEAN[1:]], CLEAN])
    holds(row, {"time.median_s": pytest.approx((0.172 + 0.0094) / 2), "time.blocks": 59, "time.left_out": 0, "flag.disturbed": True})
    holds(row, {"time.reason": "in 1 of 2 rounds too few blocks were undisturbed, so all of them count"})
    holds(row, {"time.disturbed_rounds": 1, "time.lost_share": 0.669})
    row = in_file(tmp_path / "b.jsonl", [TAKEN[:1]])
    holds(row, {"time.median_s": 0.172, "time.blocks": 1, "time.left_out": None, "flag.disturbed": True})


def test_of_slow_calls_the_least_blocks_of_the_policy_are_enough(tmp_path: Path) -> None:
    blocks = [[(0.9, 0.5), (0.2, 0.0), (0.2, 0.01)]]
    holds(in_file(tmp_path / "a.jsonl", blocks, 2, steady=None), {"time.median_s": 0.2, "time.blocks": 2, "time.left_out": 1})
    all_count = {"time.mean_s": pytest.approx(1.3 / 3), "time.blocks": 3, "time.left_out": None}
    holds(in_file(tmp_path / "b.jsonl", blocks, 3, steady=None), all_count)


@pytest.mark.parametrize("unknown", [Unknown.WAITING, Unknown.WAITING_OF_RANKS, Unknown.WAITING_OF_CHILDREN])
def test_a_row_says_why_all_blocks_count_where_nothing_tells_who_waited(unknown: Unknown) -> None:
    why = {"waiting": [unknown.reason()]}
    holds(rounds(missing_reasons=why), {"time.left_out": None, "time.reason": unknown.value})
    holds(rounds(case=GPU_CASE, missing_reasons=why), {"time.left_out": None, "time.reason": None})
