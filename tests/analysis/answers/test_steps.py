"""Verdicts on steps, from made-up result files."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.analysis.answers.parts.step_bottleneck import REMEDIES
from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Status

DECLARED = {
    "products": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "launches": {"ceiling": "launch"},
    "step": {
        "tags": ["training"],
        "values": [
            {"name": "input_s", "unit": "s", "meaning": "m", "role": "input", "optional": True},
            {"name": "copy_s", "unit": "s", "meaning": "m", "role": "transfer", "optional": True},
        ],
    },
    "serve": {"tags": ["inference", "self"]},
}
HEADER = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}}
MEMORY = "a narrower precision, or operations fused by torch.compile"
HINT = "a larger batch, CUDA graphs or torch.compile"


def rounds(workload, device, seconds, device_s=None, operations=None, values=None, **fields):
    """Seven rounds of a case that takes so long, with the parts that it tells."""
    made = made_up.rounds_of(made_up.case(workload, device, dtype="fp32"), made_up.flat([seconds] * 7), items=None, **fields)
    made[0] = replace(made[0], check=SpotCheck(operations=operations))
    return [replace(each, samples=replace(each.samples, device_s=device_s), values=values or {}) for each in made]


def ceilings(device):
    """Of a device: 100 GFLOP/s in fp32, 10 GB/s of memory, 10 µs a launch."""
    return [
        *rounds("products", device, 1.0, flops=100e9),
        *rounds("moves", device, 0.1, flops=None, bytes=1e9),
        *[replace(each, items=1) for each in rounds("launches", device, 10e-6, flops=None)],
    ]


@pytest.fixture
def answer(asked):
    """The answer on the bottleneck of a step and the ceilings of its device, in files of their own."""

    def of(*step, device="cuda:0", **fields):
        return asked(rounds("step", device, *step, **fields), ceilings(device), **HEADER)["bottleneck"]

    return of


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def test_launches_bound_a_step_whose_device_idles(answer):
    found = answer(0.010, device_s=0.002, operations=600, flops=1e8)
    (row,) = found["tables"][0]["rows"]
    assert row["step.bound"] == "launches"
    assert row["step.launch_s"] == pytest.approx(0.006)
    assert row["step.host_s"] == pytest.approx(0.002)
    assert row["step.arithmetic_s"] == pytest.approx(0.001)
    assert row["step.unexplained_s"] == pytest.approx(0.001)
    assert (row["step.explained"], row["step.busy"]) == (pytest.approx(0.9), pytest.approx(0.2))
    assert row["step.verdict"] == f"launches 60.0 %: {HINT}"
    assert found["sentences"][:2] == [
        "step fp32: time 10.0 ms, bound by launches, explained 90.0 %, device busy 20.0 %.",
        f"step fp32: verdict launches 60.0 %: {HINT}.",
    ]
    assert line(found) == ("1 of 1 training steps wait for launches", "step: device busy 20.0 %", [])
    assert (row["place"], row["steps.kind"], row["steps.count"], row["steps.of"]) == ("cuda:0", "training", 1, 1)
    assert "step[dtype=fp32]@cuda:0" in found["cases"]


def test_reported_parts_bound_a_step(answer):
    found = answer(0.010, flops=1e8, device="cpu", values={"input_s": 0.007, "copy_s": 0.001})
    assert found["tables"][0]["rows"][0]["step.bound"] == "waiting for its batch"
    found = answer(0.010, flops=1e8, device="cpu", values={"copy_s": 0.008})
    assert found["tables"][0]["rows"][0]["step.bound"] == "copying its batch"


@pytest.mark.parametrize(
    ("flops", "moved", "bound"),
    [(0.8e9, 0, "arithmetic"), (0.1e9, 2e9, "memory bandwidth"), (0.8e9, 0.9e9, "arithmetic"), (0.1e8, 0, None)],
)
def test_the_longer_of_arithmetic_and_memory_bounds_a_busy_device(answer, flops, moved, bound):
    """Fewer bytes than the ceiling of memory was measured with may come from a cache."""
    seconds = 0.010 if bound != "memory bandwidth" else 0.250
    row = answer(seconds, device_s=seconds, operations=1, flops=flops, bytes=moved or None)["tables"][0]["rows"][0]
    assert row["step.bound"] == bound


@pytest.mark.parametrize(("moved", "flops"), [(1.5e9, 0.5e9), (0, 1.4e9)])
def test_no_part_takes_longer_at_its_ceiling_than_the_step_does(answer, moved, flops):
    """A step that beats the best product is the ceiling; one that moves bytes faster than memory has them from caches."""
    found = answer(0.010, device_s=0.010, operations=1, flops=flops, bytes=moved or None)
    (row,) = found["tables"][0]["rows"]
    assert row["step.arithmetic_s"] == pytest.approx(min(flops / 1e11, 0.010))
    assert row["step.memory_s"] is None
    assert row["step.verdict"] == f"arithmetic {'50.0 %' if moved else 'all'}: {REMEDIES['arithmetic']}"


def test_what_does_not_add_up_is_said(answer):
    overlapping = answer(0.010, device_s=0.010, operations=1, flops=0.8e9, values={"copy_s": 0.004})
    assert "the parts of 1 step add up to more than the whole, so some overlap" in overlapping["weaknesses"]
    unexplained = answer(0.010, device_s=0.010, operations=1, flops=1e8)
    assert line(unexplained) == ("measured parts explain 10.0 % of a step", "step: 10.0 % explained", [])
    assert unexplained["sentences"][0] == ("step fp32: time 10.0 ms, explained 10.0 %, device busy 100.0 %, verdict unexplained 90.0 %.")


def test_kernels_are_far_below_the_ceilings_only_where_both_are_known(answer):
    one = answer(0.250, device_s=0.250, operations=1, flops=1e8, bytes=1e9)
    assert one["tables"][0]["rows"][0]["step.verdict"] == f"memory bandwidth 40.0 %: {MEMORY}"
    both = answer(2.5, device_s=2.5, operations=1, flops=1e8, bytes=1e9)
    assert both["tables"][0]["rows"][0]["step.verdict"] == "unexplained 96.0 %: other shapes, layout or precision"


def test_where_the_devices_own_time_was_not_read_the_answer_says_so(answer):
    found = answer(0.010, operations=800, flops=1e8)
    assert line(found) == ("1 of 1 training steps wait for launches", "step: 90.0 % explained", [])
    assert "the device's own time was not read for 1 step, so what overlaps may count twice" in found["weaknesses"]


def test_the_stack_has_the_parts_of_each_step_and_adds_up(answer):
    figure = next(each for each in answer(0.010, device_s=0.002, operations=600, flops=1e8)["figures"] if each["mark"] == "stack")
    assert [row["step.part"] for row in figure["rows"]][-1] == "unexplained"
    shares = {row["step.part"]: row["step.share"] for row in figure["rows"] if row["step.share"]}
    assert shares == {
        name: pytest.approx(share)
        for name, share in (("arithmetic", 0.1), ("launches", 0.6), ("other code on the host", 0.2), ("unexplained", 0.1))
    }
    assert (figure["title"], figure["rows"][0]["step.named"]) == ("Time of a step, by its parts, on cuda:0", "step fp32, 10.0 ms")


def test_a_step_on_several_devices_says_where_and_one_that_nothing_explains_is_not_drawn(asked):
    slow, fast = rounds("step", "cpu", 0.1, flops=4e9), rounds("step", "cuda:0", 0.01, device_s=0.01, flops=1e4)
    found = asked([*slow, *fast, *ceilings("cpu"), *ceilings("cuda:0")], workloads=DECLARED)["bottleneck"]
    (shares,) = (each for each in found["figures"] if each["mark"] == "stack")
    assert shares["title"] == "Time of a step, by its parts"
    assert {row["step.named"] for row in shares["rows"]} == {"step fp32 on cpu, 100 ms"}
    nothing = asked(fast, ceilings("cuda:0"), **HEADER)["bottleneck"]
    assert [each["title"] for each in nothing["figures"] if each["mark"] == "stack"] == []


WOULD_TELL = "dlbench run ceilings measures what arithmetic, memory and launches would take"


def test_where_no_part_of_any_step_was_measured_the_answer_is_missing_with_what_would_tell(asked):
    found = asked(rounds("step", "cpu", 0.010, flops=1e8), workloads=DECLARED)["bottleneck"]
    reason = f"of 1 step no part was measured; {WOULD_TELL}"
    assert (found["kind"], found["reason"], found["command"]) == ("missing", reason, "dlbench run ceilings")


def test_steps_without_a_part_stand_in_no_table_beside_others(asked):
    found = asked(rounds("step", "cpu", 0.010, flops=1e8), rounds("step", "cuda:0", 0.010, device_s=0.002), workloads=DECLARED)[
        "bottleneck"
    ]
    assert [row["case.device"] for row in found["tables"][0]["rows"]] == ["cuda:0"]
    assert found["headline"] == "1 of 1 training steps wait for launches"
    assert f"of 1 step no part was measured; {WOULD_TELL}" in found["weaknesses"]
    assert "no ceiling of cuda:0 was measured; give the file of dlbench run ceilings with this one" in found["weaknesses"]


def test_what_is_known_comes_first_and_kinds_and_devices_are_not_mixed(asked):
    """A step of 200 letters, two of training that nothing explains, three of inference and one of another machine."""
    names, long = ("one", "other", "third"), "long" * 50
    declared = DECLARED | dict.fromkeys((*names, long), DECLARED["step"]) | {name: {"tags": ["inference"]} for name in "abc"}
    unknown = [each for name in names[:2] for each in rounds(name, "cuda:0", 0.010, device_s=0.010, flops=1e8)]
    known = [each for name in ("third", *"abc") for each in rounds(name, "cuda:0", 0.010, device_s=0.010, flops=8e8)]
    alone = asked([*unknown, *ceilings("cuda:0")], workloads=declared)["bottleneck"]
    assert line(alone) == ("measured parts explain 10.0 % of a step", "one: 10.0 % explained", [])
    found = asked([*unknown, *known, *ceilings("cuda:0")], workloads=declared)["bottleneck"]
    assert line(found) == ("arithmetic bounds 1 of 3 training steps", "third: 80.0 % explained", [])
    assert [tuple(row[name] for name in ("steps.kind", "step.bound", "steps.count", "steps.of")) for row in found["tables"][0]["rows"]] == [
        ("training", "arithmetic", 1, 3),
        ("training", None, 2, 3),
        ("training", None, 2, 3),
        *[("inference", "arithmetic", 3, 3)] * 3,
    ]
    noisy = made_up.rounds_of(made_up.case(long, "cpu", dtype="fp32"), made_up.flat([0.01, 0.02] * 4), items=None, flops=8e8)
    several = asked([*noisy, *ceilings("cpu"), *unknown, *ceilings("cuda:0")], workloads=declared)["bottleneck"]
    assert line(several) == ("arithmetic bounds 1 of 1 training steps", f"{long[:37]}…", ["noisy"])
    both = [[*unknown, *known, *ceilings("cuda:0")]] * 2
    assert line(asked(*both, workloads=declared)["bottleneck"])[1] == "third on run0 and 1 more"
    assert line(asked([*noisy, *ceilings("cpu")], workloads=declared)["bottleneck"])[1] == f"{long[:37]}…"


def test_ceilings_of_another_device_do_not_count(asked):
    found = asked([*rounds("step", "cpu", 0.010, flops=1e8), *ceilings("cuda:0")], workloads=DECLARED)["bottleneck"]
    assert f"of 1 step no part was measured; {WOULD_TELL}" in found["weaknesses"]
    assert "What bounds each step" not in [table["title"] for table in found["tables"]]


def test_no_step_of_dlbench_itself_and_none_that_failed_is_judged(asked):
    failed = made_up.ended(made_up.case("step", "cpu", dtype="fp32"), Status.FAILED, "it did not go well")
    found = asked([*rounds("serve", "cpu", 1.0), failed], workloads=DECLARED)["bottleneck"]
    assert (found["kind"], found["command"]) == ("missing", "dlbench run ceilings")


def test_steps_that_are_fed_in_several_ways_are_counted_apart(asked):
    declared = {**DECLARED, "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}}}
    fed = [each for source in ("one", "other") for each in rounds_with("fed", 1.0, source=source)]
    alone = asked([*fed, *ceilings("cpu")], workloads=declared)["bottleneck"]
    assert line(alone) == ("measured parts explain 1.0 % of a step", "one: 1.0 % explained", [])
    beside = asked([*fed, *rounds("step", "cpu", 0.010, flops=8e8), *ceilings("cpu")], workloads=declared)["bottleneck"]
    assert line(beside) == ("arithmetic bounds 1 of 1 training steps", "step: 80.0 % explained", [])
    assert [(row["steps.kind"], row["steps.count"]) for row in beside["tables"][0]["rows"]] == [("training", 1), *[("feeding", 2)] * 2]
    assert len(beside["tables"][0]["rows"]) == 3


def rounds_with(workload, seconds, **params):
    return made_up.rounds_of(made_up.case(workload, "cpu", dtype="fp32", **params), made_up.flat([seconds] * 7), flops=1e9)


def test_what_is_beyond_any_number_is_null_in_data(answer, tmp_path):
    """A file may hold a time next to nothing, and no document of JSON infinity."""
    (row,) = answer(0.010, device_s=5e-324, operations=600, flops=1e8)["tables"][0]["rows"]
    assert (row["time.device_s"], row["time.launch_bound"]) == (5e-324, None)
    made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case(), made_up.flat([5e-324] * 7)))
    done = front_door.in_process(tmp_path, "show", "run.jsonl", "--format", "json")
    assert (done.code, json.loads(done.out)[0]["rate.items_per_s"]) == (0, None)
