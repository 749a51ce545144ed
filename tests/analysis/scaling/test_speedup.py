"""Speed-up and efficiency of more devices, from made-up rows."""

import json
import re
from io import StringIO
from pathlib import Path

import made_up
import pytest
from click.testing import CliRunner
from rich.console import Console

from dlbench.analysis.answers import answer_to, devices
from dlbench.analysis.answers.engine.question import Missing
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import tables
from dlbench.analysis.report.terminal import more_devices
from dlbench.cli.main import dlbench
from dlbench.core.errors import UsageError
from dlbench.core.model import Status

OLD = made_up.DECLARED["data_parallel"]
DECLARED = {"data_parallel": OLD}


def steps(seconds, ranks, device="cuda:0", *, form="ddp", workload="data_parallel", batch=32, count=7, items=None, threads=1, **params):
    """Rounds around so many seconds, 3 % to either side, of a step on so many devices with a batch of 32 each."""
    times = made_up.flat([seconds * each for each in made_up.SEVEN[:count]])
    case = made_up.case(workload, device, form=form, model="resnet18", batch=batch, ranks=ranks, **params)
    return made_up.rounds_of(case, times, items=items or ranks * batch, threads=threads)


def read(folder: Path, *measurements, **header):
    return collect([made_up.write(folder / "run.jsonl", [each for rounds in measurements for each in rounds], **header)])


def rows(folder: Path, *measurements, **header):
    path = made_up.write(folder / "run.jsonl", [each for rounds in measurements for each in rounds], **header)
    return json.loads(show(path, "--by", "ranks", "--format", "json").stdout)


def devices_of(folder: Path):
    """What the file that was read last says of several devices."""
    return answer_to(devices, collect([folder / "run.jsonl"]))


def show(*arguments):
    return CliRunner().invoke(dlbench, ["show", *map(str, arguments)])


def test_weak_scaling_is_throughput_against_that_of_one_device(tmp_path):
    found = rows(tmp_path, steps(1.0, 1, scaling="weak"), steps(1.03, 2, scaling="weak"), steps(2.0, 4, scaling="weak"))
    assert [row["scaling.ranks"] for row in found] == [1, 2, 4]
    assert [row["scaling.speedup"] for row in found] == pytest.approx([1, 2 / 1.03, 2])
    assert [row["scaling.efficiency"] for row in found] == pytest.approx([1, 1 / 1.03, 0.5])
    assert [row["scaling.verdict"] for row in found] == ["base", "scales", "helps"]
    assert {row["scaling.kind"] for row in found} == {"weak"}
    two = found[1]
    assert (two["scaling.speedup_low"], two["scaling.speedup_high"]) == pytest.approx((1.94 * 0.97, 1.94 * 1.03), rel=0.01)
    assert two["scaling.base"] == "data_parallel[form=ddp,model=resnet18,batch=32,ranks=1,scaling=weak]@cuda:0"


def test_strong_scaling_splits_the_batch_and_may_slow_down(tmp_path):
    one, two = (steps(seconds, ranks, batch=128, items=128, scaling="strong") for seconds, ranks in ((1.0, 1), (2.0, 2)))
    *_, split = rows(tmp_path, one, two)
    assert (split["scaling.speedup"], split["scaling.efficiency"], split["scaling.verdict"]) == (
        pytest.approx(0.5),
        pytest.approx(0.25),
        "slows",
    )


def test_a_difference_within_the_rounds_is_undecided_and_so_are_few_rounds(tmp_path):
    assert rows(tmp_path, steps(1.0, 1), steps(2.0, 2))[-1]["scaling.verdict"] == "undecided"
    (tmp_path / "run.jsonl").unlink()
    few = rows(tmp_path, steps(1.0, 1, count=3), steps(1.0, 2, count=3))[-1]
    assert (few["scaling.verdict"], few["scaling.speedup_low"]) == ("undecided", None)
    assert few["scaling.reason"] == "3 and 3 rounds are too few for a 95 % interval; 4 and 4 are enough"


def test_one_device_of_another_form_is_a_base_where_the_form_has_none(tmp_path):
    found = rows(tmp_path, steps(1.0, 1, form="replicas"), steps(1.0, 2, form="gpipe", workload="model_parallel", items=32, microbatches=4))
    assert [(row["scaling.form"], row["scaling.kind"], row["scaling.speedup"]) for row in found] == [
        ("replicas", None, pytest.approx(1)),
        ("gpipe", "strong", pytest.approx(1)),
    ]


def test_without_a_base_there_is_throughput_and_a_reason(tmp_path):
    (row,) = rows(tmp_path, steps(1.0, 2))
    assert (row["scaling.items_per_s"], row["scaling.speedup"], row["scaling.verdict"]) == (pytest.approx(64, rel=0.01), None, None)
    assert row["scaling.reason"] == "no ok row of the same work with ranks = 1 to set it against"


def test_another_batch_precision_or_device_is_no_base(tmp_path):
    others = steps(1.0, 1, batch=64), steps(1.0, 1, dtype="bf16"), steps(1.0, 1, "cpu")
    (two,) = (row for row in rows(tmp_path, *others, steps(1.0, 2)) if row["scaling.ranks"] == 2)
    assert two["scaling.speedup"] is None


def test_what_did_not_go_well_keeps_its_place_and_says_why(tmp_path):
    case = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=32, ranks=4)
    found = rows(tmp_path, steps(1.0, 1), [made_up.ended(case, Status.UNSUPPORTED, "there is 1 device")])
    assert (found[1]["scaling.verdict"], found[1]["scaling.reason"]) == (
        "unsupported",
        "unsupported: there is 1 device",
    )


def test_experiments_count_by_what_they_report(tmp_path):
    def trained(items_per_s, ranks):
        rounds = steps(1.0, ranks, form="tower")
        return [
            made_up.with_values(made_up.without_rounds(each), items_per_s=items_per_s * f)
            for each, f in zip(rounds, made_up.SEVEN, strict=True)
        ]

    found = rows(tmp_path, trained(100.0, 1), trained(150.0, 2))
    assert found[1]["scaling.items_per_s"] == pytest.approx(150)
    assert (found[1]["scaling.speedup"], found[1]["scaling.efficiency"]) == (pytest.approx(1.5), pytest.approx(0.75))
    assert found[1]["scaling.exposed_s"] is None


def test_communication_that_a_step_waits_for(tmp_path):
    others = [steps(seconds, 2, form=form, synchronise=True) for form, seconds in (("ddp", 1.2), ("fsdp", 1.5), ("replicas", 0.9))]
    found = rows(tmp_path, *others, steps(1.0, 2, synchronise=False))
    exposed = {row["scaling.form"]: row["scaling.exposed_s"] for row in found}
    assert exposed == {"ddp": pytest.approx(0.2), "fsdp": pytest.approx(0.6), "replicas": None}
    assert len(found) == 3  # what did not synchronise is no form
    ddp = next(row for row in found if row["scaling.form"] == "ddp")
    assert ddp["scaling.exposed_low_s"] < 0.2 < ddp["scaling.exposed_high_s"]


def test_strong_scaling_waits_as_weak_scaling_of_its_share_does(tmp_path):
    split = steps(1.25, 2, batch=64, items=64, scaling="strong", synchronise=True)
    (row,) = rows(tmp_path, split, steps(1.0, 2, scaling="weak", synchronise=False))
    assert row["scaling.exposed_s"] == pytest.approx(0.25)


def test_a_batch_that_is_declared_to_be_shared_is_split_as_one_that_a_parameter_shares(tmp_path):
    shared = {"data_parallel": {**OLD, "parallel": {**OLD["parallel"], "scaling": "strong"}}}
    split = steps(1.25, 2, batch=64, items=64, synchronise=True)
    (row,) = rows(tmp_path, split, steps(1.0, 2, scaling="weak", synchronise=False), workloads=shared)
    assert (row["scaling.kind"], row["scaling.exposed_s"]) == ("strong", pytest.approx(0.25))


def test_the_bubble_is_what_more_microbatches_take_away(tmp_path):
    def pipeline(microbatches, ranks=2):
        seconds = 1 + (ranks - 1) / microbatches  # the theory itself
        return steps(seconds, ranks, form="gpipe", workload="model_parallel", items=32, microbatches=microbatches)

    found = rows(tmp_path, *(pipeline(each) for each in (1, 2, 4, 8)))
    assert [row["scaling.bubble_theory"] for row in found] == pytest.approx([1 / 2, 1 / 3, 1 / 5, 1 / 9])
    assert [row["scaling.bubble"] for row in found] == pytest.approx([1 / 2, 1 / 3, 1 / 5, 1 / 9])


def test_layers_one_after_the_other_are_a_pipeline_of_one_microbatch(tmp_path):
    common = {"workload": "model_parallel", "items": 32}
    alone = steps(2.0, 2, form="layers", microbatches=1, **common)
    found = rows(tmp_path, alone, *(steps(1.5, 2, form=form, microbatches=2, **common) for form in ("gpipe", "1f1b")))
    for column in ("scaling.bubble", "scaling.bubble_theory"):
        bubbles = {row["scaling.form"]: row[column] for row in found}
        assert bubbles == pytest.approx({"layers": 1 / 2, "gpipe": 1 / 3, "1f1b": 1 / 3})


def test_a_bubble_that_can_not_be_told_has_its_theory_and_a_reason(tmp_path):
    one = steps(1.0, 2, form="1f1b", workload="model_parallel", microbatches=2)
    (row,) = rows(tmp_path, one)
    assert (row["scaling.bubble"], row["scaling.bubble_theory"]) == (None, pytest.approx(1 / 3))
    assert row["scaling.reason"].endswith("its bubble takes rows with another number of microbatches")
    (tmp_path / "run.jsonl").unlink()
    slower = steps(2.0, 2, form="1f1b", workload="model_parallel", microbatches=8)
    assert rows(tmp_path, one, slower)[0]["scaling.bubble"] is None


def test_devices_of_several_models_are_named_and_not_averaged_over(tmp_path):
    mixed = {"identity": {"accelerators": [{"kind": "cuda", "name": name} for name in (made_up.GPU, "NVIDIA L4")]}}
    found = rows(tmp_path, steps(1.0, 1), steps(1.0, 2), environment=mixed)
    assert (found[1]["scaling.device_name"], found[1]["scaling.speedup"]) == ("NVIDIA H200 and NVIDIA L4", None)
    assert found[1]["scaling.reason"] == "its devices are NVIDIA H200 and NVIDIA L4: one of them is no measure of the others"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_super_linear_scaling_is_implausible_and_no_headline(tmp_path, device):
    found = rows(tmp_path, steps(1.0, 1, device, threads=2), steps(0.8, 2, device))
    assert [row["scaling.verdict"] for row in found] == ["base", "implausible"]
    assert isinstance(devices_of(tmp_path), Missing)


def test_on_a_cpu_two_ranks_of_one_core_may_beat_one_rank_of_two(tmp_path):
    found = rows(tmp_path, steps(1.0, 1, "cpu", threads=2), steps(1.6, 2, "cpu", threads=1))
    assert [(row["scaling.cores_per_rank"], row["scaling.resources"]) for row in found] == [(2, 1), (1, 1)]
    assert (found[1]["scaling.speedup"], found[1]["scaling.efficiency"]) == (pytest.approx(1.25), pytest.approx(1.25))
    answer = devices_of(tmp_path)
    assert answer.sentences == (
        "data_parallel ddp resnet18 batch=32: ranks 2, speed-up 1.25 × (1.21…1.29), efficiency 125.0 %, verdict scales.",
    )
    assert any(note.endswith("not how accelerators scale.") for note in answer.tables[0].notes)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_on_a_narrow_screen_every_row_still_has_its_case_and_its_verdict(tmp_path, width):
    strong = [steps(seconds, ranks, "cpu", scaling="strong", threads=2) for seconds, ranks in ((1.0, 1), (1.25, 2))]
    lines = Console(width=width, color_system=None, record=True, file=StringIO())
    lines.print(more_devices(read(tmp_path, *strong, steps(1.0, 2, "cpu", scaling="strong", synchronise=False, threads=2))))
    text = lines.export_text().partition("More devices: what all do together, against one")[2]
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(r"…(\s|$)", text), text  # an interval has one within, a number that was cut at its end
    for word in ("case", "verdict", "base", "helps", "1.60", "speed-up", "efficiency", "80.0"):
        assert word in text, text


def test_losses_after_the_same_time_stand_side_by_side_and_the_steps_of_a_tower_too(tmp_path):
    told = {"loss_before": 7.0, "updates": 20.0, "items_per_s": 12.5}
    staleness = {"staleness": [2.0, 16.0, 0.0, 0.0, 0.0, 2.0]}
    steps_s = dict(zip(("replicate_s", "forward_s", "wait_s"), (0.025, 0.25, 0.5), strict=True))
    found = {"async": {"loss": 1.5, "updates_per_s": 4.0, **staleness}, "tower": {"loss": 2.5, "updates_per_s": 1.0, **steps_s}}
    measured = [
        [made_up.with_values(made_up.without_rounds(each), **told, **values) for each in steps(1.0, 2, "cpu", form=form, batch=4)]
        for form, values in found.items()
    ]
    results = collect([made_up.write(tmp_path / "run.jsonl", [one for each in measured for one in each], workloads=DECLARED)])
    free, tower = tables.values(results)
    assert free.title == tower.title == "Values of data_parallel"
    shared = {"updates": ["20"], "items per s": ["12.5 /s"], "loss before": ["7.00"]}
    assert dict(free.cells()) == shared | {
        "case": ["data_parallel async resnet18 batch=4 ranks=2"],
        "updates per s": ["4.00 /s"],
        "loss": ["1.50"],
        "staleness": ["0: 10.0 %, 1: 80.0 %, 16+: 10.0 %"],
    }
    assert dict(tower.cells()) == shared | {
        "case": ["data_parallel tower resnet18 batch=4 ranks=2"],
        "updates per s": ["1.00 /s"],
        "loss": ["2.50"],
        "replicate": ["25.0 ms"],
        "forward": ["250 ms"],
        "wait": ["500 ms"],
    }
    assert [tables.value_notes(row) for row in results.rows] == [
        ["loss 1.50", "updates per s 4.00 /s", "…"],
        ["loss 2.50", "updates per s 1.00 /s", "items per s 12.5 /s", "…"],
    ]
    assert "wait: of a step: waiting for every rank's gradients, and fetching them" in tower.notes


def test_show_has_the_table_by_itself_and_as_data(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", [*steps(1.0, 1), *steps(1.25, 2)])
    shown = show(path, "--by", "ranks").stdout
    assert shown.splitlines()[0] == "devices: 2 ranks 1.60× one (1.55…1.65)  data_parallel ddp resnet18 b32"
    assert "More devices: what all do together, against one" in shown
    by = json.loads(show(path, "--by", "ranks", "--format", "json").stdout)
    assert [(row["scaling.ranks"], round(row["scaling.efficiency"], 6)) for row in by] == [(1, 1.0), (2, 0.8)]
    assert "More devices: what all do together, against one" in show(path, "--by", "param.ranks").stdout


def test_rows_without_ranks_have_no_such_table(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())
    assert "More devices" not in show(path, "--topic", "details").stdout
    result = show(path, "--by", "ranks")
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize("ranks", [0, -2, 10**400, 2.5, "many", True])
def test_ranks_that_are_none_are_no_devices(tmp_path, ranks):
    case = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=32, ranks=ranks)
    found = rows(tmp_path, steps(1.0, 2), made_up.rounds_of(case, made_up.flat([1.0] * 7)))
    assert {row["scaling.ranks"] for row in found} <= {1, 2}


def exchanged(op, ranks, size, seconds, device="cuda:0"):
    """Rounds of a collective that took so long."""
    case = made_up.case("collective", device, op=op, bytes=size, ranks=ranks, dtype="fp32")
    return made_up.rounds_of(case, made_up.flat([seconds] * 7), items=1, flops=None, bytes=size)


def test_the_bus_bandwidth_of_collectives_by_size(tmp_path):
    measured = [
        *exchanged("all_reduce", 4, 1 << 20, 0.001),
        *exchanged("all_reduce", 4, 1 << 30, 0.1),
        *exchanged("all_reduce", 4, 1 << 32, 0.4),
        *exchanged("broadcast", 2, 1 << 30, 0.1),
        *exchanged("broadcast", 1, 1 << 30, 0.1),
    ]
    path = made_up.write(tmp_path / "run.jsonl", measured)
    rows = {row["case.id"]: row["rate.bus_bytes_per_s"] for row in json.loads(show(path, "--format", "json").stdout)}
    assert rows == {
        "collective[op=all_reduce,bytes=1048576,ranks=4,dtype=fp32]@cuda:0": pytest.approx(1.5 * 2**20 / 0.001),
        "collective[op=all_reduce,bytes=1073741824,ranks=4,dtype=fp32]@cuda:0": pytest.approx(1.5 * 2**30 / 0.1),
        "collective[op=all_reduce,bytes=4294967296,ranks=4,dtype=fp32]@cuda:0": pytest.approx(1.5 * 2**30 / 0.1),
        "collective[op=broadcast,bytes=1073741824,ranks=2,dtype=fp32]@cuda:0": pytest.approx(2**30 / 0.1),
        "collective[op=broadcast,bytes=1073741824,ranks=1,dtype=fp32]@cuda:0": None,
    }
    assert [line.rpartition("bus ")[2] for line in show(path).stdout.splitlines() if "bus " in line] == [
        "1.57 GB/s",
        "16.1 GB/s",
        "16.1 GB/s",
        "10.7 GB/s",
    ]
    assert "More devices" not in show(path, "--topic", "details").stdout
