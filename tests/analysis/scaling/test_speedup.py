"""Speed-up and efficiency of more devices, from made-up rows."""

import json
import re
from io import StringIO

import front_door
import made_up
import pytest
from plain_answers import lines_of
from rich.console import Console

from dlbench.analysis.answers import answer_to, devices
from dlbench.analysis.answers.engine.question import Missing
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import tables
from dlbench.analysis.report.terminal import more_devices
from dlbench.analysis.scaling.projection import cells
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core.model import Status

DECLARED = made_up.DECLARED["data_parallel"]
TITLE = "More devices: what all do together, against one"


def steps(seconds, ranks, device="cuda:0", *, form="ddp", workload="data_parallel", batch=32, count=7, items=None, threads=1, **params):
    """Rounds around so many seconds, 3 % to either side, of a step on so many devices with a batch of 32 each."""
    times = made_up.flat([seconds * each for each in made_up.SEVEN[:count]])
    case = made_up.case(workload, device, form=form, model="resnet18", batch=batch, ranks=ranks, **params)
    return made_up.rounds_of(case, times, items=items or ranks * batch, threads=threads)


def pipeline(microbatches, seconds, form="gpipe"):
    """A step of a pipeline on two devices."""
    return steps(seconds, 2, form=form, workload="model_parallel", items=32, microbatches=microbatches)


@pytest.fixture
def read(tmp_path):
    """A function that writes these measurements to a file, and collects it."""

    def read(*measured, **header):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        return collect([made_up.write(path, [each for rounds in measured for each in rounds], **header)])

    return read


@pytest.fixture
def rows(read):
    """A function that returns columns of the steps in these measurements, in their order."""

    def rows(names, *measured, **header):
        found = [cells(step) for step in scaling(read(*measured, **header))]
        return [tuple(row[f"scaling.{name}"] for name in names.split()) for row in found]

    return rows


def near(*numbers):
    return tuple(each if each is None or isinstance(each, str) else pytest.approx(each) for each in numbers)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # Weak scaling is throughput against that of one device.
        (
            [steps(s, ranks, scaling="weak") for s, ranks in ((1.0, 1), (1.03, 2), (2.0, 4))],
            [(1, "weak", 1, 1, "base"), (2, "weak", 2 / 1.03, 1 / 1.03, "scales"), (4, "weak", 2, 0.5, "helps")],
        ),
        # Strong scaling splits the batch, and may slow down.
        (
            [steps(s, ranks, batch=128, items=128, scaling="strong") for s, ranks in ((1.0, 1), (2.0, 2))],
            [(1, "strong", 1, 1, "base"), (2, "strong", 0.5, 0.25, "slows")],
        ),
        ([steps(1.0, 1), steps(2.0, 2)], [(1, None, 1, 1, "base"), (2, None, 1, 0.5, "undecided")]),
        # One device of another form is a base where the form has none.
        ([steps(1.0, 1, form="replicas"), pipeline(4, 1.0)], [(1, None, 1, 1, "base"), (2, "strong", 1, 0.5, "undecided")]),
        # On a CPU two ranks of one core may beat one rank of two.
        ([steps(1.0, 1, "cpu", threads=2), steps(1.6, 2, "cpu")], [(1, None, 1, 1, "base"), (2, None, 1.25, 1.25, "scales")]),
        ([steps(1.0, 2)], [(2, None, None, None, None)]),
    ],
)
def test_the_speed_up_over_one_device_and_its_share_of_the_devices(rows, measured, expected):
    assert rows("ranks kind speedup efficiency verdict", *measured) == [near(*row) for row in expected]


def test_intervals_bases_and_reasons(rows):
    (_, two) = rows("speedup_low speedup_high base", *(steps(s, ranks, scaling="weak") for s, ranks in ((1.0, 1), (1.03, 2))))
    base = "data_parallel[form=ddp,model=resnet18,batch=32,ranks=1,scaling=weak]@cuda:0"
    assert two == (pytest.approx(1.94 * 0.97, rel=0.01), pytest.approx(1.94 * 1.03, rel=0.01), base)
    (_, few) = rows("verdict speedup_low reason", steps(1.0, 1, count=3), steps(1.0, 2, count=3))
    assert few == ("undecided", None, "3 and 3 rounds are too few for a 95 % interval; 4 and 4 are enough")
    (alone,) = rows("items_per_s reason", steps(1.0, 2))
    assert alone == (pytest.approx(64, rel=0.01), "no ok row of the same work with ranks = 1 to set it against")
    others = steps(1.0, 1, batch=64), steps(1.0, 1, dtype="bf16"), steps(1.0, 1, "cpu")
    assert [speedup for ranks, speedup in rows("ranks speedup", *others, steps(1.0, 2)) if ranks == 2] == [None]
    case = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=32, ranks=4)
    ended = [made_up.ended(case, Status.UNSUPPORTED, "there is 1 device")]
    assert rows("verdict reason", steps(1.0, 1), ended)[1] == ("unsupported", "unsupported: there is 1 device")
    mixed = {"identity": {"accelerators": [{"kind": "cuda", "name": name} for name in (made_up.GPU, "NVIDIA L4")]}}
    (_, two) = rows("device_name speedup reason", steps(1.0, 1), steps(1.0, 2), environment=mixed)
    reason = "its devices are NVIDIA H200 and NVIDIA L4: one of them is no measure of the others"
    assert two == ("NVIDIA H200 and NVIDIA L4", None, reason)
    on_cpu = steps(1.0, 1, "cpu", threads=2), steps(1.6, 2, "cpu", threads=1)
    assert rows("cores_per_rank resources", *on_cpu) == [(2, 1), (1, 1)]


def test_experiments_count_by_what_they_report(rows):
    def trained(items_per_s, ranks):
        rounds = [made_up.without_rounds(each) for each in steps(1.0, ranks, form="tower")]
        return [made_up.with_values(each, items_per_s=items_per_s * f) for each, f in zip(rounds, made_up.SEVEN, strict=True)]

    (_, two) = rows("items_per_s speedup efficiency exposed_s", trained(100.0, 1), trained(150.0, 2))
    assert two == near(150, 1.5, 0.75, None)


def test_communication_that_a_step_waits_for(rows):
    forms = [steps(seconds, 2, form=form, synchronise=True) for form, seconds in (("ddp", 1.2), ("fsdp", 1.5), ("replicas", 0.9))]
    found = rows("form exposed_s", *forms, steps(1.0, 2, synchronise=False))
    assert sorted(found) == [("ddp", pytest.approx(0.2)), ("fsdp", pytest.approx(0.6)), ("replicas", None)]
    # Strong scaling waits as weak scaling of its share does, whether a parameter or the declaration says that the batch is shared.
    silent = steps(1.0, 2, scaling="weak", synchronise=False)
    split = {"batch": 64, "items": 64, "synchronise": True}
    shared = {"data_parallel": {**DECLARED, "parallel": {**DECLARED["parallel"], "scaling": "strong"}}}
    assert rows("kind exposed_s", steps(1.25, 2, scaling="strong", **split), silent) == [near("strong", 0.25)]
    assert rows("kind exposed_s", steps(1.25, 2, **split), silent, workloads=shared) == [near("strong", 0.25)]


def test_the_bubble_is_what_more_microbatches_take_away(rows):
    found = rows("bubble_theory bubble", *(pipeline(each, 1 + 1 / each) for each in (1, 2, 4, 8)))  # the theory itself
    assert found == [near(each, each) for each in (1 / 2, 1 / 3, 1 / 5, 1 / 9)]
    # Layers one after the other are a pipeline of one microbatch.
    forms = pipeline(1, 2.0, "layers"), pipeline(2, 1.5), pipeline(2, 1.5, "1f1b")
    thirds = {"layers": 1 / 2, "gpipe": 1 / 3, "1f1b": 1 / 3}
    found = rows("form bubble bubble_theory", *forms)
    assert {form: both for form, *both in found} == {form: pytest.approx([each, each]) for form, each in thirds.items()}
    one = steps(1.0, 2, form="1f1b", workload="model_parallel", microbatches=2)
    ((bubble, theory, reason),) = rows("bubble bubble_theory reason", one)
    assert (bubble, theory) == (None, pytest.approx(1 / 3))
    assert reason.endswith("its bubble takes rows with another number of microbatches")
    slower = steps(2.0, 2, form="1f1b", workload="model_parallel", microbatches=8)
    assert rows("bubble", one, slower)[0] == (None,)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_super_linear_scaling_is_implausible_and_no_headline(rows, read, device):
    measured = steps(1.0, 1, device, threads=2), steps(0.8, 2, device)
    assert rows("verdict", *measured) == [("base",), ("implausible",)]
    assert isinstance(answer_to(devices, read(*measured)), Missing)


@pytest.mark.parametrize("ranks", [0, -2, 10**400, 2.5, "many", True])
def test_ranks_that_are_none_are_no_devices(rows, ranks):
    case = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=32, ranks=ranks)
    assert set(rows("ranks", steps(1.0, 2), made_up.rounds_of(case, made_up.flat([1.0] * 7)))) <= {(1,), (2,)}


@pytest.mark.parametrize("width", [80, 100, 120])
def test_on_a_narrow_screen_every_row_still_has_its_case_and_its_verdict(read, width):
    strong = [steps(seconds, ranks, "cpu", scaling="strong", threads=2) for seconds, ranks in ((1.0, 1), (1.25, 2))]
    lines = Console(width=width, color_system=None, record=True, file=StringIO())
    lines.print(more_devices(read(*strong, steps(1.0, 2, "cpu", scaling="strong", synchronise=False, threads=2))))
    text = lines.export_text().partition(TITLE)[2]
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(r"…(\s|$)", text), text  # an interval has one within, a number that was cut at its end
    words = ("case", "verdict", "base", "helps", "1.60", "speed-up", "efficiency", "80.0")
    assert [word for word in words if word not in text] == []


def test_losses_after_the_same_time_stand_side_by_side_and_the_steps_of_a_tower_too(read, snapshot):
    shared = {"loss_before": 7.0, "updates": 20.0, "items_per_s": 12.5}
    found = {
        "async": {"loss": 1.5, "updates_per_s": 4.0, "staleness": [2.0, 16.0, 0.0, 0.0, 0.0, 2.0]},
        "tower": {"loss": 2.5, "updates_per_s": 1.0, "replicate_s": 0.025, "forward_s": 0.25, "wait_s": 0.5},
    }
    measured = [
        [made_up.with_values(made_up.without_rounds(each), **shared, **values) for each in steps(1.0, 2, "cpu", form=form, batch=4)]
        for form, values in found.items()
    ]
    results = read(*measured, workloads={"data_parallel": DECLARED})
    snapshot("values-of-data-parallel", "\n\n".join("\n".join(lines_of(each)) for each in tables.values(results)) + "\n")
    assert [tables.value_notes(row) for row in results.rows] == [
        ["loss 1.50", "updates per s 4.00 /s", "…"],
        ["loss 2.50", "updates per s 1.00 /s", "items per s 12.5 /s", "…"],
    ]


def test_show_has_the_table_by_itself_and_as_data(tmp_path):
    made_up.write(tmp_path / "run.jsonl", [*steps(1.0, 1), *steps(1.25, 2)])
    shown = front_door.in_process(tmp_path, "show", "run.jsonl", "--by", "ranks").out
    assert shown.splitlines()[0] == "devices: 2 ranks 1.60× one (1.55…1.65)  data_parallel ddp resnet18 b32"
    assert TITLE in shown
    by = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--by", "ranks", "--format", "json").out)
    assert [(row["scaling.ranks"], round(row["scaling.efficiency"], 6)) for row in by] == [(1, 1.0), (2, 0.8)]
    assert TITLE in front_door.in_process(tmp_path, "show", "run.jsonl", "--by", "param.ranks").out
    made_up.write(tmp_path / "alone.jsonl", made_up.both_kinds())
    assert "More devices" not in front_door.in_process(tmp_path, "show", "alone.jsonl", "--topic", "details").out
    assert front_door.in_process(tmp_path, "show", "alone.jsonl", "--by", "ranks").code == 2


def test_the_bus_bandwidth_of_collectives_by_size(tmp_path, read):
    measured = []
    for op, ranks, size, s in (
        ("all_reduce", 4, 20, 0.001), ("all_reduce", 4, 30, 0.1), ("all_reduce", 4, 32, 0.4), ("broadcast", 2, 30, 0.1),
        ("broadcast", 1, 30, 0.1),
    ):  # fmt: skip
        case = made_up.case("collective", "cuda:0", op=op, bytes=1 << size, ranks=ranks, dtype="fp32")
        measured += made_up.rounds_of(case, made_up.flat([s] * 7), items=1, flops=None, bytes=1 << size)
    rates = [row.rate.bus_bytes_per_s for row in read(measured).rows]
    assert rates == [near(each)[0] for each in (1.5 * 2**20 / 0.001, 1.5 * 2**30 / 0.1, 1.5 * 2**30 / 0.1, None, 2**30 / 0.1)]
    text = front_door.in_process(tmp_path, "show", "0.jsonl").out
    assert [line.rpartition("bus ")[2] for line in text.splitlines() if "bus " in line] == [
        "1.57 GB/s", "16.1 GB/s", "16.1 GB/s", "10.7 GB/s",
    ]  # fmt: skip
    assert "More devices" not in text
