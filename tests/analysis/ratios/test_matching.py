from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import made_up
import pytest

from dlbench.analysis.answers.engine.pairs import best_pairs
from dlbench.analysis.presentation.columns import PAIR_COLUMNS, pair_frame
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.ratios.matching import Match, Matches, Unmatched, match_rows
from dlbench.analysis.read.table import Results, collect
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement, Transfer
from dlbench.core.model import Status

if TYPE_CHECKING:
    import pandas as pd


def results_of(path: Path, *runs: list[Measurement]) -> Results:
    return collect([made_up.write(path / f"run{number}.jsonl", run) for number, run in enumerate(runs)])


def table(pairs: Matches | list[Match]) -> "pd.DataFrame":
    return pair_frame(pairs if isinstance(pairs, list) else pairs.rows)


def test_the_accelerator_is_measured_against_the_cpu_on_the_same_case(tmp_path: Path) -> None:
    pairs = match_rows(results_of(tmp_path, made_up.both_kinds(cpu_s=0.4, gpu_s=0.01)), "device")
    frame = table(pairs)
    assert list(frame.columns) == list(PAIR_COLUMNS)
    assert pairs.unmatched == ()
    work = dict(zip(frame["pair.case"], frame["ratio.speedup"], strict=True))
    assert work == {
        "train_step[model=resnet18,batch=8,dtype=fp32]": pytest.approx(40),
        "train_step[model=resnet18,batch=8,dtype=bf16]": pytest.approx(80),
        "train_step[model=resnet18,batch=64,dtype=fp32]": pytest.approx(50),
        "train_step[model=resnet18,batch=64,dtype=bf16]": pytest.approx(100),
    }


def test_a_ratio_carries_everything_that_both_sides_are(tmp_path: Path) -> None:
    row = table(match_rows(results_of(tmp_path, made_up.both_kinds()), "device")).iloc[0]
    assert [row[f"base.{name}"] for name in ("device", "device_name", "threads", "dtype", "batch", "run", "value", "rounds")] == [
        "cpu", made_up.CPU, 2, "fp32", 8, "run0", "cpu", 7,
    ]  # fmt: skip
    assert [row[f"other.{name}"] for name in ("device", "device_name", "threads", "dtype", "batch", "run", "value", "rounds")] == [
        "cuda:0", made_up.GPU, 2, "fp32", 8, "run0", "cuda:0", 7,
    ]  # fmt: skip
    assert (row["base.median_s"], row["other.median_s"]) == (0.4, 0.01)
    assert row["pair.by"] == "case.device"


def test_the_interval_of_seven_against_seven_holds_whatever_the_spreads(tmp_path: Path) -> None:
    row = table(match_rows(results_of(tmp_path, made_up.both_kinds()), "device")).iloc[0]
    quotients = sorted(0.4 * a / (0.01 * b) for a in made_up.SEVEN for b in made_up.SEVEN)
    assert row["ratio.ci_low"] == pytest.approx(quotients[6])  # the ninth would cover 96.2 % where spreads are alike, and else 87.5 %
    assert row["ratio.ci_high"] == pytest.approx(quotients[-7])
    assert row["ratio.confidence"] == pytest.approx(0.948, abs=0.001)
    assert row.isna()["ratio.reason"]


def test_few_rounds_give_a_ratio_without_an_interval_and_say_why(tmp_path: Path) -> None:
    row = table(match_rows(results_of(tmp_path, made_up.both_kinds(rounds=3)), "device")).iloc[0]
    assert row["ratio.speedup"] == pytest.approx(40)
    assert row[["ratio.ci_low", "ratio.ci_high", "ratio.confidence"]].isna().all()
    assert row["ratio.reason"] == "3 and 3 rounds are too few for a 95 % interval; 4 and 4 are enough"


def test_only_ok_rows_are_paired_and_the_others_are_named_with_the_reason(tmp_path: Path) -> None:
    fits, lonely, too_large = (made_up.case("matmul", n=n, dtype="fp32") for n in (1, 2, 3))
    measurements = [
        *made_up.rounds_of(fits, [[1.0]]),
        *made_up.rounds_of(lonely, [[1.0]]),
        *made_up.rounds_of(too_large, [[1.0]]),
        *made_up.rounds_of(made_up.case("matmul", "cuda:0", n=1, dtype="fp32"), [[0.5]]),
        made_up.ended(made_up.case("matmul", "cuda:0", n=3, dtype="fp32"), Status.OOM, "it wanted 100 GiB"),
    ]
    pairs = match_rows(results_of(tmp_path, measurements), "device")
    assert list(table(pairs)["pair.case"]) == ["matmul[n=1,dtype=fp32]"]
    assert pairs.unmatched == (
        Unmatched("matmul[n=2,dtype=fp32]@cpu", "run0", "nothing to pair it with at another device"),
        Unmatched("matmul[n=3,dtype=fp32]@cuda:0", "run0", "oom: it wanted 100 GiB"),
        Unmatched("matmul[n=3,dtype=fp32]@cpu", "run0", "nothing to pair it with at another device"),
    )


def test_ranks_on_a_cpu_are_no_pair_with_as_many_accelerators(tmp_path: Path) -> None:
    measurements = [
        each
        for ranks in (1, 2)
        for device, seconds in (("cpu", 1.0), ("cuda:0", 0.1))
        for each in made_up.rounds_of(made_up.case("data_parallel", device, form="ddp", ranks=ranks), made_up.flat([seconds] * 7))
    ]
    results = results_of(tmp_path, measurements)
    pairs = match_rows(results, "device")
    assert list(table(pairs)["base.id"]) == list(table(best_pairs(results))["base.id"]) == ["data_parallel[form=ddp,ranks=1]@cpu"]
    reason = "it has several devices, and ranks on a CPU share one; see --by ranks"
    assert [each.reason for each in pairs.unmatched] == [reason, reason]


@pytest.mark.parametrize(
    "difference", [{"dtype": "bf16"}, {"mode": "compile"}, {"batch": 16}, {"layout": "channels_last"}], ids=lambda d: next(iter(d))
)
def test_rows_that_differ_in_anything_else_are_no_pair(tmp_path: Path, difference: dict[str, str | int]) -> None:
    common = {"dtype": "fp32", "mode": "eager", "batch": 8, "layout": "nchw"}
    cpu, gpu = made_up.case(device="cpu", **common), made_up.case(device="cuda:0", **{**common, **difference})
    pairs = match_rows(results_of(tmp_path, [*made_up.rounds_of(cpu, [[1.0]]), *made_up.rounds_of(gpu, [[1.0]])]), "device")
    assert len(table(pairs)) == 0
    assert [each.case for each in pairs.unmatched] == [cpu.id, gpu.id] or [each.case for each in pairs.unmatched] == [gpu.id, cpu.id]


def test_by_dtype_the_base_is_fp32_and_sides_stay_on_one_device(tmp_path: Path) -> None:
    frame = table(match_rows(results_of(tmp_path, made_up.both_kinds()), "dtype"))
    assert set(frame["base.value"]) == {"fp32"}
    assert set(frame["other.value"]) == {"bf16"}
    assert list(frame["base.device"]) == list(frame["other.device"])
    speedups = dict(zip(frame["other.id"], frame["ratio.speedup"], strict=True))
    assert speedups["train_step[model=resnet18,batch=8,dtype=bf16]@cpu"] == pytest.approx(1)
    assert speedups["train_step[model=resnet18,batch=8,dtype=bf16]@cuda:0"] == pytest.approx(2)
    assert set(frame["pair.case"]) == {"train_step[model=resnet18,batch=8]", "train_step[model=resnet18,batch=64]"}


def test_the_math_flags_of_a_precision_may_differ_with_it_and_with_nothing_else(tmp_path: Path) -> None:
    measurements = [
        *made_up.rounds_of(made_up.case(n=1, dtype="fp32"), [[1.0]], math={"tf32": False}),
        *made_up.rounds_of(made_up.case(n=1, dtype="tf32"), [[0.5]], math={"tf32": True}),
        *made_up.rounds_of(made_up.case(n=2, dtype="fp32"), [[1.0]], math={"tf32": True}),
    ]
    results = results_of(tmp_path, measurements)
    assert len(table(match_rows(results, "dtype"))) == 1
    assert len(table(match_rows(results, "n"))) == 0


@pytest.mark.parametrize("by", ["batch", "param.batch"])
def test_a_parameter_is_named_short_or_in_full(tmp_path: Path, by: str) -> None:
    frame = table(match_rows(results_of(tmp_path, made_up.both_kinds()), by))
    assert set(frame["pair.by"]) == {"param.batch"}
    assert set(zip(frame["base.value"], frame["other.value"], strict=True)) == {("8", "64")}
    speedups = set(zip(frame["other.device"], frame["ratio.speedup"].round(9), strict=True))
    assert speedups == {("cpu", 1 / 4), ("cuda:0", 1 / 3.2)}


def test_rows_without_the_column_take_no_part(tmp_path: Path) -> None:
    pairs = match_rows(results_of(tmp_path, [*made_up.both_kinds(), *made_up.rounds_of(made_up.case("noop"), [[1.0]])]), "batch")
    assert pairs.unmatched == ()


def test_another_base(tmp_path: Path) -> None:
    results = results_of(tmp_path, made_up.both_kinds())
    assert table(match_rows(results, "device", base="cuda:0"))["ratio.speedup"][0] == pytest.approx(1 / 40)
    with pytest.raises(UsageError, match=r"no row has case\.device = 'cuda:1'; did you mean 'cuda:0'\?"):
        match_rows(results, "device", base="cuda:1")


def test_two_files_of_different_machines_are_paired_and_each_side_says_which_it_is(tmp_path: Path) -> None:
    cpu_run = [made_up.renamed(each, "Intel Xeon 8480", 56) for each in made_up.both_kinds(cpu_s=0.1) if each.case.device == "cpu"]
    frame = table(match_rows(results_of(tmp_path, cpu_run, made_up.both_kinds(cpu_s=0.4)), "device"))
    first = frame[frame["pair.case"] == "train_step[model=resnet18,batch=8,dtype=fp32]"]
    sides = first[["base.run", "base.device_name", "base.threads", "other.run", "other.device_name"]].to_numpy().tolist()
    assert sides == [
        ["run0", "Intel Xeon 8480", 56, "run1", made_up.GPU],
        ["run1", made_up.CPU, 2, "run1", made_up.GPU],
    ]
    assert list(first["ratio.speedup"]) == [pytest.approx(10), pytest.approx(40)]


def test_by_run_the_first_file_is_the_base(tmp_path: Path) -> None:
    frame = table(match_rows(results_of(tmp_path, made_up.both_kinds(0.4, 0.01), made_up.both_kinds(0.2, 0.005)), "run"))
    assert len(frame) == 8
    assert set(zip(frame["base.run"], frame["other.run"], strict=True)) == {("run0", "run1")}
    assert list(frame["ratio.speedup"]) == [pytest.approx(2)] * 8


def test_an_unknown_column_is_refused_with_the_nearest(tmp_path: Path) -> None:
    results = results_of(tmp_path, made_up.both_kinds())
    with pytest.raises(UsageError, match=r"can't be paired by 'devise'.*did you mean 'device'"):
        match_rows(results, "devise")
    with pytest.raises(UsageError, match=r"did you mean 'param\.batch'"):
        match_rows(results, "param.bach")
    with pytest.raises(UsageError, match=r"can't be paired by 'time\.median_s'"):
        match_rows(results, "time.median_s")


def test_rows_without_times_are_named_and_not_paired(tmp_path: Path) -> None:
    values = [
        made_up.with_values(made_up.without_rounds(made_up.rounds_of(made_up.case(device=d), [[1.0]])[0]), loss=1.0)
        for d in ("cpu", "cuda:0")
    ]
    zero = [made_up.rounds_of(made_up.case("noop", d), [[0.0]])[0] for d in ("cpu", "cuda:0")]
    pairs = match_rows(results_of(tmp_path, [*values, *zero]), "device")
    assert len(table(pairs)) == 0
    assert {(each.case, each.reason) for each in pairs.unmatched} == {
        ("train_step[]@cpu", "it reports values, not times"),
        ("train_step[]@cuda:0", "it reports values, not times"),
        ("noop[]@cpu", "its time reads as zero"),
        ("noop[]@cuda:0", "its time reads as zero"),
    }


def test_a_file_with_nothing_in_it_has_no_pairs(tmp_path: Path) -> None:
    results = results_of(tmp_path, [])
    assert (len(table(match_rows(results, "device"))), len(table(best_pairs(results)))) == (0, 0)


def cold_and_hot(device: str = "cuda:0", **device_s: float) -> list[Measurement]:
    """Products of 20 µs cold and 10 µs hot by the wall; of each the given share of that by the device's own events."""
    return [
        made_up.timed_on_device(each, device_s[cache]) if cache in device_s else each
        for cache, seconds in (("hot", 10e-6), ("cold", 20e-6))
        for each in made_up.rounds_of(made_up.case("matmul", device, n=256, cache=cache), made_up.flat([seconds] * 7))
    ]


def test_cold_calls_are_set_beside_hot_ones_by_device_times(tmp_path: Path) -> None:
    row = table(match_rows(results_of(tmp_path, cold_and_hot(hot=0.9, cold=0.675)), "cache", base="hot")).iloc[0]
    assert (row["pair.time"], row["base.median_s"], row["other.median_s"]) == ("device", 10e-6, 20e-6)
    assert (row["base.device_s"], row["other.device_s"]) == (pytest.approx(9e-6), pytest.approx(13.5e-6))
    assert (row["ratio.speedup"], row["ratio.ci_low"]) == (pytest.approx(1 / 1.5), pytest.approx(1 / 1.5))


@pytest.mark.parametrize("known", [{}, {"hot": 0.9}, {"cold": 0.9}, {"hot": 0.9, "cold": 0.0}], ids=["neither", "hot", "cold", "zero"])
def test_without_device_times_on_both_sides_it_is_wall_times(tmp_path: Path, known: dict[str, float]) -> None:
    row = table(match_rows(results_of(tmp_path, cold_and_hot(**known)), "cache", base="hot")).iloc[0]
    assert (row["pair.time"], row["ratio.speedup"]) == ("wall", pytest.approx(0.5))


def test_a_round_without_a_device_time_leaves_the_wall(tmp_path: Path) -> None:
    first, *rest = cold_and_hot(hot=0.9, cold=0.9)
    without = made_up.rounds_of(first.case, [list(first.samples.block_s)] if first.samples else [])
    row = table(match_rows(results_of(tmp_path, [*without, *rest]), "cache", base="hot")).iloc[0]
    assert (row["pair.time"], row["ratio.speedup"]) == ("wall", pytest.approx(0.5))


def test_other_columns_are_paired_by_what_a_user_waits_for(tmp_path: Path) -> None:
    runs = [
        made_up.timed_on_device(each, share)
        for dtype, share in (("fp32", 1.0), ("bf16", 0.1))
        for each in made_up.rounds_of(made_up.case("matmul", "cuda:0", n=64, dtype=dtype), made_up.flat([1.0] * 7))
    ]
    row = table(match_rows(results_of(tmp_path, runs), "dtype")).iloc[0]
    assert (row["pair.time"], row["ratio.speedup"]) == ("wall", 1.0)
    assert (row["base.launch_bound"], row["other.launch_bound"]) == (False, True)


def test_each_side_may_choose_its_memory_layout(tmp_path: Path) -> None:
    times = {("cpu", "nchw"): 1.0, ("cpu", "channels_last"): 2.0, ("cuda:0", "nchw"): 0.4, ("cuda:0", "channels_last"): 0.1}
    measurements = [
        each
        for (device, layout), seconds in times.items()
        for each in made_up.rounds_of(made_up.case(device=device, model="resnet50", batch=8, layout=layout), made_up.flat([seconds] * 7))
    ]
    frame = table(best_pairs(results_of(tmp_path, measurements)))
    assert list(frame["pair.case"]) == ["train_step[model=resnet50]"]
    assert (frame["base.layout"][0], frame["other.layout"][0], frame["ratio.speedup"][0]) == ("nchw", "channels_last", pytest.approx(10))


@pytest.mark.parametrize(
    ("by", "values", "declared", "base"),
    [
        ("layout", ("channels_last", "nchw"), {}, "nchw"),
        ("library", ("autograd", "numpy", "torch"), {"parameters": {"library": {"way": "numpy"}}}, "numpy"),
        ("optimizer", ("adam", "sgd"), {"parameters": {"optimizer": {"switch": "sgd"}}}, "sgd"),
        ("optimizer", ("adam", "lion"), {"parameters": {"optimizer": {"switch": "sgd"}}}, "adam"),  # it was not measured
        ("library", ("autograd", "numpy"), {}, "autograd"),
        ("limit", (2, ""), {"parameters": {"limit": {"switch": ""}}}, ""),  # an empty text is a default, too
    ],
)
def test_the_base_is_the_plain_default_where_one_is_declared(
    tmp_path: Path, by: str, values: tuple[str, ...], declared: dict[str, Any], base: str
) -> None:
    rounds = [each for value in values for each in made_up.rounds_of(made_up.case("mine", **{by: value}), made_up.flat([1.0] * 7))]
    path = made_up.write(tmp_path / "run.jsonl", rounds, workloads={"mine": {"values": [], "parallel": {}, **declared}})
    assert set(table(match_rows(collect([path]), by))["base.value"]) == {base}


def test_each_side_at_its_own_best_batch_and_precision(tmp_path: Path) -> None:
    # On the CPU bf16 takes longer than fp32 here, so the two sides choose differently.
    slower = [
        made_up.scaled(each, 3.0) if each.case.device == "cpu" and each.case.params["dtype"] == "bf16" else each
        for each in made_up.both_kinds()
    ]
    bests = best_pairs(results_of(tmp_path, slower))
    assert len(table(bests)) == 1
    row = table(bests).iloc[0]
    assert (row["pair.case"], row["pair.work"], row["pair.by"]) == ("train_step[model=resnet18]", "train_step[model=resnet18]", "best")
    assert (row["base.device"], row["base.batch"], row["base.dtype"]) == ("cpu", 64, "fp32")
    assert (row["other.device"], row["other.batch"], row["other.dtype"]) == ("cuda:0", 64, "bf16")
    assert row["base.items_per_s"] == pytest.approx(64 / 1.6)
    assert row["other.items_per_s"] == pytest.approx(64 / 0.016)
    assert row["ratio.speedup"] == pytest.approx(100)
    assert row["ratio.ci_low"] < 100 < row["ratio.ci_high"]


def test_the_best_of_different_models_and_shapes_are_not_mixed_and_modes_are_chosen(tmp_path: Path) -> None:
    cases = [("train_step", {"model": "vgg11"}), ("train_step", {"model": "vgg16"}), ("train_step", {"model": "vgg16", "mode": "compile"})]
    cases += [("matmul", {"n": 64}), ("matmul", {"n": 128})]
    measurements = [
        made_up.rounds_of(made_up.case(workload, device, **params, dtype="fp32"), [[seconds]])[0]
        for workload, params in cases
        for device, seconds in (("cpu", 1.0), ("cuda:0", 0.5))
    ]
    frame = table(best_pairs(results_of(tmp_path, measurements)))
    assert list(frame["pair.case"]) == [
        "matmul[n=64]", "matmul[n=128]", "train_step[model=vgg11]", "train_step[model=vgg16]",
    ]  # fmt: skip
    assert list(frame["ratio.speedup"]) == [pytest.approx(2)] * 4


def test_what_a_search_found_is_a_best_and_no_same_case(tmp_path: Path) -> None:
    found = {"dtype": "bf16", "batch": 64, "mode": "compile", "layout": "channels_last", "implementation": "fused"}
    measurements = [
        replace(each, found=found)
        for device, seconds in (("cpu", 1.0), ("cuda:0", 0.5))
        for each in made_up.rounds_of(made_up.case("search", device, model="vgg11"), made_up.flat([seconds] * 4))
    ]
    results = results_of(tmp_path, measurements)
    row = table(best_pairs(results)).iloc[0]
    assert row["pair.case"] == "search[model=vgg11]"
    assert {name: row[f"other.{name}"] for name in found} == found
    pairs = match_rows(results, "device")
    assert not pairs.rows
    assert {each.reason for each in pairs.unmatched} == {"it stands for what its search found, which another's need not have"}


def test_how_much_fits_on_two_devices_is_no_speed_of_either(tmp_path: Path) -> None:
    largest = [
        Measurement(made_up.case("search", device), 0, Status.OK, values={"largest_batch": batch}, found={"batch": int(batch)})
        for device, batch in (("cpu", 25.0), ("cuda:0", 400.0))
    ]
    assert not match_rows(results_of(tmp_path, largest), "device", timed=False).rows


def test_without_items_the_best_is_by_arithmetic(tmp_path: Path) -> None:
    measurements = [
        made_up.rounds_of(made_up.case("matmul", device, n=64, dtype=dtype), made_up.flat([seconds] * 4), items=None, flops=1e6)[0]
        for device, dtype, seconds in (("cpu", "fp64", 1.0), ("cpu", "fp32", 0.5), ("cuda:0", "fp32", 0.25), ("cuda:0", "bf16", 0.05))
    ]
    row = table(best_pairs(results_of(tmp_path, measurements))).iloc[0]
    assert (row["base.dtype"], row["other.dtype"]) == ("fp32", "bf16")
    assert (row["base.flops_per_s"], row["other.flops_per_s"]) == (pytest.approx(2e6), pytest.approx(2e7))
    assert row["ratio.speedup"] == pytest.approx(10)


def test_a_call_that_was_held_up_changes_neither_a_pair_nor_the_best(tmp_path: Path) -> None:
    # A block of the accelerator stalls, so three take 0.9 s.
    measurements = [
        *made_up.rounds_of(made_up.case(batch=8), [[1.0, 1.0, 1.0]]),
        *made_up.rounds_of(made_up.case(device="cuda:0", batch=8), [[0.1, 0.1, 0.7]], transfer=Transfer(1, 0.1, 1, 0.1)),
    ]
    results = results_of(tmp_path, measurements)
    assert table(match_rows(results, "device"))["ratio.speedup"][0] == pytest.approx(10)
    assert table(best_pairs(results))["ratio.speedup"][0] == pytest.approx(10)


def test_an_implausible_row_is_never_the_best(tmp_path: Path) -> None:
    on_gpu_in_bf16 = {"train_step[model=resnet18,batch=8,dtype=bf16]@cuda:0", "train_step[model=resnet18,batch=64,dtype=bf16]@cuda:0"}
    measurements = [replace(each, flops=1e18) if each.case.id in on_gpu_in_bf16 else each for each in made_up.both_kinds()]
    row = table(best_pairs(results_of(tmp_path, measurements))).iloc[0]
    assert row["other.dtype"] == "fp32"
    assert row["ratio.speedup"] == pytest.approx(50)


def test_each_side_chooses_its_workloads_own_switches_and_a_declared_default_is_not_told(tmp_path: Path) -> None:
    declared = {"parameters": {"kernels": {"switch": "plain"}, "layout": {"switch": "blocked"}, "depth": {"searched": ""}}}
    times = {("cpu", "plain"): 1.0, ("cpu", "tuned"): 2.0, ("cuda:0", "plain"): 0.4, ("cuda:0", "tuned"): 0.1}
    rounds = [
        each
        for (device, kernels), seconds in times.items()
        for each in made_up.rounds_of(
            made_up.case("mine", device, n=8, kernels=kernels, layout="blocked", depth=2), made_up.flat([seconds] * 7)
        )
    ]
    results = collect([made_up.write(tmp_path / "run.jsonl", rounds, workloads={"mine": declared})])
    (pair,) = best_pairs(results)
    assert (pair.case, pair.work, pair.ratio.speedup) == ("mine[n=8]", "mine[n=8]", pytest.approx(10))
    assert (choice(pair.base), choice(pair.other)) == ("depth=2", "tuned depth=2")
    undeclared = best_pairs(results_of(tmp_path, rounds))
    assert [(each.case, each.ratio.speedup) for each in undeclared] == [
        ("mine[n=8,kernels=plain,depth=2]", pytest.approx(2.5)),
        ("mine[n=8,kernels=tuned,depth=2]", pytest.approx(20)),
    ]
