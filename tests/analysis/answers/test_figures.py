"""Figures of the answers as data: what is drawn, from which rows, and by which encoding."""

import made_up
import pytest


def axis(figure, name):
    return figure[name]["name"], figure[name]["unit"], name in figure["log"]


def by_title(answer):
    return {each["title"]: each for each in answer["figures"]}


def test_the_speed_up_of_each_case_is_drawn_on_a_ratio_axis_around_one(asked):
    same, best = asked(made_up.both_kinds())["speed-up"]["figures"]
    assert same["title"] == "The same case on both sides: how many times as fast"
    assert (same["mark"], same["reference"]) == ("bar", 1.0)
    assert (axis(same, "x"), axis(same, "y")) == (("ratio.speedup", "ratio", True), ("pair.case", "text", False))
    assert same["x"]["heading"] == "times as fast as cpu"
    assert [end["name"] for end in same["interval"]] == ["ratio.ci_low", "ratio.ci_high"]
    assert [round(row["ratio.speedup"]) for row in same["rows"]] == [40, 80, 50, 100]
    assert all(row["ratio.ci_low"] < row["ratio.speedup"] < row["ratio.ci_high"] for row in same["rows"])
    assert [row["pair.work"] for row in best["rows"]] == ["train_step[model=resnet18]"]


def test_throughput_latency_and_memory_stand_against_the_batch_with_all_devices_in_one_figure(asked):
    figures = by_title(asked(made_up.both_kinds())["batch"])
    assert list(figures) == [f"{quantity} by batch size: train_step" for quantity in ("Throughput", "Latency", "Memory")]
    throughput = figures["Throughput by batch size: train_step"]
    assert (throughput["mark"], axis(throughput, "x")) == ("line", ("param.batch", "count", True))
    rows = throughput["rows"]
    assert [(row["place"], row["batch.sweep"], row["param.batch"]) for row in rows] == [
        (device, f"resnet18 {dtype}", batch) for device in ("cuda:0", "cpu") for dtype in ("fp32", "bf16") for batch in (8, 64)
    ]
    assert rows[0]["rate.items_per_s"] == pytest.approx(800)
    # The fastest and the slowest of seven rounds are 3 % from the median.
    assert [rows[0][f"rate.items_per_s_{end}"] for end in ("low", "high")] == pytest.approx([800 / 1.03, 800 / 0.97])
    memory = figures["Memory by batch size: train_step"]
    assert {(row["place"], row["batch.memory_bytes"]) for row in memory["rows"]} == {("cpu", 3 << 20), ("cuda:0", 6 << 20)}
    assert memory["interval"] == []
    alone = by_title(asked([each for each in made_up.both_kinds() if each.case.device == "cpu"])["batch"])
    assert "Memory by batch size: train_step on cpu" in alone


def test_no_two_devices_or_machines_share_a_row(asked):
    """Of two machines with a CPU and an accelerator each: whatever a figure tells apart, no row or line of it is of two of them."""
    files = [[made_up.scaled(each, factor) for each in made_up.both_kinds()] for factor in (1.0, 1.5)]
    for found in (files[:1], files):
        drawn = [figure for answer in asked(*found).values() for figure in answer.get("figures", ())]
        assert len(drawn) >= 5
        for figure in drawn:
            names = [figure[name]["name"] for name in ("series", "place", "y", "x") if figure[name]]
            told = [tuple(row[name] for name in names if figure["mark"] == "line" or isinstance(row[name], str)) for row in figure["rows"]]
            assert len(told) == len(set(told)), figure["title"]


def test_an_accelerator_is_drawn_beside_the_cpu_of_its_own_machine_where_that_was_measured(asked):
    whole = made_up.both_kinds()
    cpu, card = ([each for each in whole if each.case.device == device] for device in ("cpu", "cuda:0"))

    def sides(*files):
        figure = asked(*files)["speed-up"]["figures"][0]
        return figure["x"]["heading"], list(dict.fromkeys(row["other.label"] for row in figure["rows"]))

    assert sides(whole, whole) == ("times as fast as the CPU", ["cuda:0 (run0)", "cuda:0 (run1)"])
    assert sides(cpu, cpu, card) == (
        "times as fast as the CPU", ["cuda:0 (run2) against cpu (run0)", "cuda:0 (run2) against cpu (run1)"],
    )  # fmt: skip
    assert sides(whole) == ("times as fast as cpu", ["cuda:0"])


def test_an_option_of_several_steps_has_a_row_for_each_of_these(asked):
    cases = [made_up.case("step", batch=batch, mode=mode) for batch in (8, 64) for mode in ("plain", "built")]
    measured = [each for case in cases for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    answer = asked(measured, workloads={"step": {"parameters": {"mode": {"switch": "plain"}}}})["default"]
    switches = by_title(answer)["What each tuning option brings alone: step on cpu"]
    assert (switches["mark"], [(row["default.case"], row["default.setting"]) for row in switches["rows"]]) == (
        "dot",
        [(f"step[batch={batch},mode=plain]", "built") for batch in (8, 64)],
    )
