from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest

from dlbench.analysis.read.table import collect
from dlbench.core import store
from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.errors import Unknown
from dlbench.core.measurement import Measurement, Memory, Transfer
from dlbench.core.model import Status
from dlbench.core.rows.columns import BY_NAME, CaseRounds
from dlbench.core.rows.row import cells
from dlbench.core.rows.summary import per_round, summarise

CASE = made_up.case(model="resnet18", batch=8, dtype="bf16")
COMMITTED = sorted((*front_door.FILES.glob("*/*.jsonl"), *(front_door.ROOT / "results").rglob("*.jsonl")))
GPU_CASE = made_up.case(device="cuda:0", model="resnet18", batch=8, dtype="bf16")


def test_a_row_has_every_column_of_the_schema_first_and_in_order() -> None:
    row = summarise(made_up.rounds_of(CASE, [[1.0]]))
    assert list(cells(row)) == [*BY_NAME, "param.model", "param.batch"]


def test_times_over_rounds() -> None:
    rounds = [[2.0, 1.0, 3.0], [4.0, 4.0, 4.0], [1.0, 1.0, 7.0]]
    row = summarise(made_up.rounds_of(CASE, rounds))
    assert row.time.median_s == 2.0  # of 2, 4 and 1
    assert (row.time.rounds, row.time.blocks) == (3, 9)
    assert (row.time.min_s, row.time.p10_s, row.time.p90_s) == (1.0, 1.0, pytest.approx(4.6))
    assert row.time.cv_within == 0.5  # of 0.5, 0 and 1.15
    assert row.time.sd_between == pytest.approx((7 / 3) ** 0.5 / (7 / 3))
    assert row.time.first_call_s == 9.0
    assert (row.time.ci_low_s, row.time.ci_high_s, row.flag.noisy) == (None, None, None)


def test_six_rounds_have_an_interval_and_are_noisy_or_not() -> None:
    row = summarise(made_up.rounds_of(CASE, made_up.flat(made_up.SEVEN)), target=0.02)
    assert (row.time.ci_low_s, row.time.ci_high_s, row.flag.noisy) == (0.97, 1.03, True)
    assert summarise(made_up.rounds_of(CASE, made_up.flat(made_up.SEVEN)), target=0.031).flag.noisy is False


def test_rates_are_those_of_the_time_beside_them_however_many_blocks_a_round_has() -> None:
    one = made_up.rounds_of(CASE, [[1.0] * 50], calls=10, items=8, flops=100.0, bytes=None)
    others = made_up.rounds_of(CASE, [[4.0] * 3, [2.0, 2.0, 9.0]], calls=5, items=8, flops=100.0, bytes=None)
    row = summarise([*one, *others])
    assert (row.time.median_s, row.rate.flops_per_s, row.rate.bytes_per_s) == (2.0, 50.0, None)
    assert (row.rate.items_per_s, row.rounds.items_per_s) == (4.0, (8.0, 2.0, 4.0))
    assert (row.rate.items_per_s_low, row.rate.items_per_s_high) == (None, None)
    # What is paid for counts all the time: the last round took 13 s for its three calls.
    assert (row.time.mean_s, row.paid_rate) == (4.0, 2.0)
    assert row.paid_rates == pytest.approx((8.0, 2.0, 8 * 3 / 13))


def test_the_interval_of_throughput_is_that_of_the_time_turned_over() -> None:
    row = summarise(made_up.rounds_of(CASE, [[each, each, 9.0] for each in (4.0, 1.0, 2.0, 7.0, 6.0, 2.5, 3.0)], items=6))
    assert (row.time.ci_low_s, row.time.ci_high_s, row.rate.items_per_s) == (1.0, 7.0, 6 / 3)
    assert (row.rate.items_per_s_low, row.rate.items_per_s_high) == pytest.approx((6 / 7, 6 / 1))


@pytest.mark.parametrize(
    ("last", "rounds", "tail"),
    [(3.0, 7, True), (1.2, 7, True), (1.05, 7, False), (0.1, 7, False), (3.0, 5, None)],
)
def test_slow_calls_are_flagged_where_they_make_a_difference(last: float, rounds: int, tail: bool | None) -> None:
    row = summarise(made_up.rounds_of(CASE, [[each, each, last] for each in made_up.SEVEN[:rounds]]))
    assert row.flag.tail is tail


def test_a_few_percent_of_slow_calls_are_not_flagged_however_many_rounds_there_are() -> None:
    assert summarise(made_up.rounds_of(CASE, [[1.0, 1.0, 1.08]] * 7)).flag.tail is False
    assert summarise(made_up.rounds_of(CASE, [[1.0, 1.0, 1.1]] * 7)).flag.tail is True


def test_a_round_without_a_count_leaves_no_rate() -> None:
    rounds = [*made_up.rounds_of(CASE, [[1.0]], items=8), *made_up.rounds_of(CASE, [[1.0]], items=None)]
    assert summarise(rounds).rate.items_per_s is None
    assert per_round(rounds).items_per_s == ()


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_row_of_a_committed_file_agrees_with_itself(file: Path) -> None:
    rounds: dict[str, list[Measurement]] = {}
    for each in store.load(file).measurements:
        rounds.setdefault(each.case.id, []).append(each)
    for measurements in rounds.values():
        row, stated = summarise(measurements), measurements[-1]
        time, rate = row.time, row.rate
        if not time.median_s:  # an experiment, whose throughput, if any, is what it reports
            continue
        for per_s, count in ((rate.items_per_s, stated.items), (rate.flops_per_s, stated.flops), (rate.bytes_per_s, stated.bytes)):
            assert (per_s is None) is (count is None)
            assert count is None or per_s * time.median_s == pytest.approx(count, rel=1e-12)
        if rate.items_per_s and rate.flops_per_s:
            assert rate.flops_per_s / rate.items_per_s == pytest.approx(stated.flops / stated.items, rel=1e-12)
        if rate.items_per_s and time.ci_low_s and time.ci_high_s:
            turned_over = (rate.items_per_s_low * time.ci_high_s, rate.items_per_s_high * time.ci_low_s)
            assert turned_over == pytest.approx((stated.items, stated.items), rel=1e-12)


def test_a_cpu_has_a_reason_in_place_of_copies() -> None:
    row = summarise(made_up.rounds_of(CASE, [[1.0]]))
    assert set(astuple(row.transfer)) == {None, made_up.NO_COPY}
    assert row.transfer.reason == made_up.NO_COPY
    assert row.memory.host_peak_bytes == 3 << 20
    assert row.memory.peak_bytes is None


def test_copies_are_medians_and_their_share_is_of_copy_call_copy() -> None:
    rounds = [
        made_up.rounds_of(GPU_CASE, [[0.5]], transfer=Transfer(1000, h2d_s, 10, 0.125), memory=Memory(peak, 2 * peak, None))[0]
        for h2d_s, peak in ((0.25, 5), (0.5, 7), (0.125, 6))
    ]
    row = summarise(rounds)
    assert (row.transfer.h2d_bytes, row.transfer.h2d_s, row.transfer.h2d_bytes_per_s) == (1000, 0.25, 4000.0)
    assert (row.transfer.d2h_bytes, row.transfer.d2h_s, row.transfer.d2h_bytes_per_s) == (10, 0.125, 80.0)
    assert row.transfer.share == 0.375 / 0.875
    assert (row.memory.peak_bytes, row.memory.reserved_bytes, row.memory.host_peak_bytes) == (7, 14, None)


def test_clock_and_power_under_load_are_medians_of_the_rounds_that_tell() -> None:
    told = [
        Throttling(waiting=0.0),
        *(Throttling(clock_hz=each * 1e9, power_w=power) for each, power in ((1.5, 690.0), (1.98, None), (1.6, 650.0))),
    ]
    row = summarise([made_up.rounds_of(GPU_CASE, [[0.5]], throttling=each)[0] for each in told])
    assert (row.time.clock_hz, row.time.power_w) == (1.6e9, 670.0)


def test_pinned_copies_stand_beside_the_pageable_ones_and_out_of_the_share() -> None:
    pinned = [Transfer(1000, 0.25, 10, 0.125, seconds, seconds / 4) for seconds in (0.5, 0.125, 0.0625)]
    row = summarise([made_up.rounds_of(GPU_CASE, [[0.5]], transfer=each)[0] for each in pinned])
    assert (row.transfer.pinned_h2d_s, row.transfer.pinned_h2d_bytes_per_s) == (0.125, 8000.0)
    assert (row.transfer.pinned_d2h_s, row.transfer.pinned_d2h_bytes_per_s) == (0.03125, 320.0)
    assert row.transfer.share == 0.375 / 0.875
    assert (row.transfer.link_bytes_per_s, row.transfer.reason) == (None, None)  # a measurement does not know its file's header


def test_where_no_memory_was_locked_the_pageable_copies_stay_and_the_reason_is_told() -> None:
    row = summarise(
        made_up.rounds_of(
            GPU_CASE, [[0.5]], transfer=Transfer(8, 0.25, 8, 0.25), missing_reasons={"transfer": made_up.why("pinned: a limit")}
        )
    )
    assert (row.transfer.h2d_s, row.transfer.pinned_h2d_s, row.transfer.pinned_h2d_bytes_per_s) == (0.25, None, None)
    assert row.transfer.reason == "pinned: a limit"


def test_nothing_to_copy_has_no_bandwidth() -> None:
    row = summarise(made_up.rounds_of(GPU_CASE, [[1.0]], transfer=Transfer(0, 0.0, 0, 0.0)))
    assert (row.transfer.h2d_bytes_per_s, row.transfer.d2h_bytes_per_s, row.transfer.share) == (None, None, 0.0)


def test_a_clock_that_reads_zero_gives_no_rate() -> None:
    row = summarise(made_up.rounds_of(CASE, [[0.0, 0.0]]))
    assert (row.time.median_s, row.rate.items_per_s) == (0.0, None)


def test_a_case_that_crashed_later_is_crashed_and_keeps_its_times() -> None:
    ok = made_up.rounds_of(CASE, [[1.0], [2.0], [3.0]])
    row = summarise([*ok, made_up.ended(CASE, Status.CRASHED, "its process was killed", 3)])
    assert (row.case.status, row.case.reason) == ("crashed", "its process was killed")
    assert (row.time.median_s, row.time.rounds) == (2.0, 3)


def test_the_gravest_ending_wins_and_of_equal_ones_the_last() -> None:
    endings = [
        made_up.ended(CASE, Status.TIMEOUT, "first"),
        made_up.ended(CASE, Status.TIMEOUT, "second", 1),
        made_up.ended(CASE, Status.UNSUPPORTED, "third", 2),
    ]
    assert summarise(endings).case.reason == "second"


def test_a_case_that_got_its_chance_later_is_no_longer_skipped() -> None:
    row = summarise([made_up.ended(CASE, Status.SKIPPED, "no time was left"), *made_up.rounds_of(CASE, [[1.0]])])
    assert (row.case.status, row.case.reason) == ("ok", None)
    assert summarise([made_up.ended(CASE, Status.SKIPPED, "no time was left")]).case.status == "skipped"


def test_a_case_without_times_has_nulls_and_counts_of_zero() -> None:
    row = summarise([made_up.ended(CASE, Status.OOM, "too large")])
    assert (row.time.rounds, row.time.blocks) == (0, 0)
    assert (row.time.median_s, row.rate.items_per_s, row.flag.not_steady, row.flag.noisy) == (None, None, None, None)


def test_outliers_are_those_of_each_round() -> None:
    usual = [1.0, 1.1, 1.2, 1.3, 1.4]
    row = summarise(made_up.rounds_of(CASE, [usual, [*usual, 9.0], [10 * each for each in usual]]))
    assert (row.time.outliers, row.time.blocks) == (1, 16)


def test_one_unsteady_round_makes_the_case_unsteady() -> None:
    row = summarise([*made_up.rounds_of(CASE, [[1.0]]), *made_up.rounds_of(CASE, [[1.0]], steady=False)])
    assert row.flag.not_steady is True


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
    row = summarise(made_up.rounds_of(CASE, [[1.0, 1.3, each] for each in last], steady=None))
    assert row.flag.not_steady is unsteady


def test_one_slow_call_a_round_tells_nothing_of_steadiness() -> None:
    assert summarise(made_up.rounds_of(CASE, [[1.0]] * 7, steady=None)).flag.not_steady is None


def test_identity() -> None:
    plain = summarise(made_up.rounds_of(made_up.case("noop"), [[1.0]], math={"tf32": False, "cudnn": "auto"}))
    assert (plain.case.dtype, plain.case.mode, plain.case.math) == (None, "eager", {"cudnn": "auto", "tf32": False})
    assert cells(plain)["case.math"] == "cudnn=auto, tf32=false"
    compiled = summarise(made_up.rounds_of(made_up.case(dtype="bf16", mode="compile", n=3), [[1.0]]))
    assert (compiled.case.dtype, compiled.case.mode, compiled.params["n"]) == ("bf16", "compile", 3)
    assert list(compiled.params) == ["n"]


def test_an_observation_has_values_and_no_times() -> None:
    rounds = [made_up.without_rounds(each) for each in made_up.rounds_of(CASE, [[1.0]] * 3)]
    rounds = [made_up.with_values(each, accuracy=value) for each, value in zip(rounds, (0.5, 0.9, 0.7), strict=True)]
    row = summarise(rounds)
    assert (row.values["accuracy"], row.time.rounds, row.time.median_s) == (0.7, 3, None)
    assert per_round(rounds) == CaseRounds(host_peak_bytes=(3 << 20,) * 3, values={"accuracy": (0.5, 0.9, 0.7)})


def test_what_each_round_gave() -> None:
    measurements = [
        *made_up.rounds_of(CASE, [[1.0, 1.0, 4.0], [2.0]], items=8, flops=None),
        made_up.ended(CASE, Status.OOM, "too large", 2),
    ]
    assert per_round(measurements) == CaseRounds(
        (1.0, 2.0),
        (8, 8),
        (),
        p10_s=(1.0, 2.0),
        mean_s=(2.0, 2.0),
        blocks=((1.0, 1.0, 4.0), (2.0,)),
        numbers=(0, 1),
        spoiled=(False, False),
        host_peak_bytes=(3 << 20,) * 2,
    )


def in_file(path: Path, rounds: Sequence[Sequence[tuple[float, float]]], **fields: Any) -> Any:
    """Return the row of a file whose rounds have these blocks, each with the share of it that a thread waited."""
    measured = made_up.rounds_of(
        made_up.case(batch=8), [[seconds for seconds, _ in blocks] for blocks in rounds], steady=fields.pop("steady", True)
    )
    least = fields.pop("min_blocks", None)
    for each, blocks in zip(measured, rounds, strict=True):
        each.throttling = Throttling(waiting=0.669, stolen=0.0)
        assert each.samples
        each.samples = replace(each.samples, wait_s=tuple(seconds * share for seconds, share in blocks), min_blocks=least)
    states = [RoundState(number, 10.0, 0.9, 0.0) for number in range(len(rounds))]
    (row,) = collect([made_up.write(path, measured, states=states)]).rows
    return row


CLEAN, TAKEN = [(0.0094, 0.0)] * 10, [(0.172, 0.669)] * 40


def test_a_round_rests_on_the_blocks_that_nobody_disturbed(tmp_path: Path) -> None:
    row = in_file(tmp_path / "a.jsonl", [[*TAKEN, *CLEAN], [*CLEAN, *TAKEN], CLEAN])
    assert (row.time.median_s, row.time.mean_s, row.time.p90_s) == (0.0094, pytest.approx(0.0094), 0.0094)
    assert (row.time.blocks, row.time.left_out, row.time.reason) == (30, 80, None)
    assert (row.flag.disturbed, row.flag.reason, row.time.disturbed_rounds, row.time.lost_share) == (False, None, 0, 0.0)
    assert (row.rounds.left_out, [*map(list, row.rounds.blocks)]) == ((40, 40, 0), [[0.0094] * 10] * 3)


def test_a_round_with_nine_undisturbed_blocks_rests_on_all_and_is_flagged(tmp_path: Path) -> None:
    row = in_file(tmp_path / "a.jsonl", [[*TAKEN, *CLEAN[1:]], CLEAN])
    assert row.time.median_s == pytest.approx((0.172 + 0.0094) / 2)
    assert (row.time.blocks, row.time.left_out) == (59, 0)
    assert row.time.reason == "in 1 of 2 rounds too few blocks were undisturbed, so all of them count"
    assert (row.flag.disturbed, row.time.disturbed_rounds, row.time.lost_share) == (True, 1, 0.669)
    row = in_file(tmp_path / "b.jsonl", [TAKEN[:1]])
    assert (row.time.median_s, row.time.blocks, row.time.left_out, row.flag.disturbed) == (0.172, 1, None, True)


def test_of_slow_calls_the_least_blocks_of_the_policy_are_enough(tmp_path: Path) -> None:
    blocks = [(0.9, 0.5), (0.2, 0.0), (0.2, 0.01)]
    row = in_file(tmp_path / "a.jsonl", [blocks], steady=None, min_blocks=2)
    assert (row.time.median_s, row.time.blocks, row.time.left_out) == (0.2, 2, 1)
    row = in_file(tmp_path / "b.jsonl", [blocks], steady=None, min_blocks=3)
    assert (row.time.mean_s, row.time.blocks, row.time.left_out) == (pytest.approx(1.3 / 3), 3, None)


def test_a_row_says_why_all_blocks_count_where_nothing_tells_who_waited() -> None:
    for unknown in (Unknown.WAITING, Unknown.WAITING_OF_RANKS, Unknown.WAITING_OF_CHILDREN):
        row = summarise(made_up.rounds_of(CASE, [[1.0]], missing_reasons={"waiting": [unknown.reason()]}))
        assert (row.time.left_out, row.time.reason) == (None, unknown.value)
    on_card = summarise(made_up.rounds_of(GPU_CASE, [[1.0]], missing_reasons={"waiting": [Unknown.WAITING.reason()]}))
    assert (on_card.time.left_out, on_card.time.reason) == (None, None)
