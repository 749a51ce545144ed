"""Verdicts on steps, from made-up result files."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest

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
HEADER = {"workloads": DECLARED, "environment": {"machine_key": "a"}}
HINT = "; a larger batch, CUDA graphs or torch.compile, so that fewer launches do the same would help most"


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


def test_launches_bound_a_step_whose_device_idles(answer):
    found = answer(0.010, device_s=0.002, operations=600, flops=1e8)
    (row,) = found["tables"][0]["rows"]
    assert row["step.bound"] == "launches"
    assert row["step.launch_s"] == pytest.approx(0.006)
    assert row["step.host_s"] == pytest.approx(0.002)
    assert row["step.arithmetic_s"] == pytest.approx(0.001)
    assert row["step.unexplained_s"] == pytest.approx(0.001)
    assert row["step.verdict"] == f"launches take 6.00 ms of 10.0 ms (60.0 %){HINT}"
    assert found["sentences"][0] == f"Of 1 step on cuda:0 launches bound 1; step fp32: launches take 6.00 ms of 10.0 ms (60.0 %){HINT}."
    assert "step[dtype=fp32]@cuda:0" in found["cases"]


@pytest.mark.parametrize(
    ("narrow_flops", "helps"),
    [(None, "a narrower precision, or a device"), (200e9, "a narrower precision, or a device"), (50e9, "a device")],
    ids=["not measured", "faster", "slower"],
)
def test_a_narrower_precision_helps_unless_it_was_measured_to_be_slower(asked, narrow_flops, helps):
    narrow = made_up.rounds_of(made_up.case("products", "cpu", dtype="bf16"), made_up.flat([1.0] * 7), items=None, flops=narrow_flops)
    found = asked(rounds("step", "cpu", 0.010, flops=8e8), [*ceilings("cpu"), *narrow], **HEADER)["bottleneck"]
    assert found["tables"][0]["rows"][0]["step.verdict"].endswith(f"; {helps} with more of it would help most")


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
    (row,) = answer(0.010, device_s=0.010, operations=1, flops=flops, bytes=moved or None)["tables"][0]["rows"]
    assert row["step.arithmetic_s"] == pytest.approx(min(flops / 1e11, 0.010))
    assert row["step.memory_s"] is None
    assert row["step.verdict"].startswith(f"arithmetic at its measured ceiling takes {'5.00' if moved else '10.0'} ms of 10.0 ms (")


def test_what_does_not_add_up_is_said(answer):
    verdict = answer(0.010, device_s=0.010, operations=1, flops=0.4e9)["tables"][0]["rows"][0]["step.verdict"]
    assert verdict.startswith("arithmetic at its measured ceiling takes 4.00 ms of 10.0 ms (40.0 %); ")
    assert verdict.endswith("; 6.00 ms (60.0 %) is not explained")
    verdict = answer(0.010, device_s=0.010, operations=1, flops=0.8e9, values={"copy_s": 0.004})["tables"][0]["rows"][0]["step.verdict"]
    assert verdict.endswith("; its parts add up to 1.20 times its time, so some overlap")
    verdict = answer(0.010, device_s=0.010, operations=1, flops=1e8)["tables"][0]["rows"][0]["step.verdict"]
    assert "the most of what was measured, and too little to bound it; 9.00 ms (90.0 %) is not explained" in verdict


def test_kernels_are_far_below_the_ceilings_only_where_both_are_known(answer):
    verdict = answer(0.250, device_s=0.250, operations=1, flops=1e8, bytes=1e9)["tables"][0]["rows"][0]["step.verdict"]
    assert "its kernels run far below the ceilings" not in verdict
    verdict = answer(2.5, device_s=2.5, operations=1, flops=1e8, bytes=1e9)["tables"][0]["rows"][0]["step.verdict"]
    assert "its kernels run far below the ceilings" in verdict


def test_where_the_devices_own_time_was_not_read_the_verdict_says_so(answer):
    row = answer(0.010, operations=800, flops=1e8)["tables"][0]["rows"][0]
    assert row["step.bound"] == "launches"
    assert "the device's own time was not read" in row["step.verdict"]


def test_the_stack_has_the_parts_of_each_step_and_adds_up(answer):
    figure = next(each for each in answer(0.010, device_s=0.002, operations=600, flops=1e8)["figures"] if each["mark"] == "stack")
    assert [row["step.part"] for row in figure["rows"]][-1] == "not explained"
    shares = {row["step.part"]: row["step.share"] for row in figure["rows"] if row["step.share"]}
    assert shares == {
        name: pytest.approx(share)
        for name, share in (("arithmetic", 0.1), ("launches", 0.6), ("other code on the host", 0.2), ("not explained", 0.1))
    }
    assert figure["rows"][0]["step.named"] == "step fp32 on cuda:0, 10.0 ms"


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
    assert found["sentences"][0].startswith("Of 1 step on cuda:0 launches bound 1; ")
    assert f"of 1 step no part was measured; {WOULD_TELL}" in found["weaknesses"]
    assert "no ceiling of cuda:0 was measured; give the file of dlbench run ceilings beside this one" in found["weaknesses"]


def test_what_is_not_known_comes_behind_what_is(asked):
    unknown = [*rounds("step", "cuda:0", 0.010, device_s=0.010, flops=1e8), *rounds("other", "cuda:0", 0.010, device_s=0.010, flops=1e8)]
    declared = {**DECLARED, "other": DECLARED["step"], "third": DECLARED["step"]}
    known = rounds("third", "cuda:0", 0.010, device_s=0.010, flops=8e8)
    (sentence, *_) = asked([*unknown, *known, *ceilings("cuda:0")], workloads=declared)["bottleneck"]["sentences"]
    assert sentence.startswith("Of 3 steps on cuda:0 arithmetic bounds 1, what bounds 2 was not measured; third fp32: arithmetic at ")
    (sentence, *_) = asked([*unknown, *ceilings("cuda:0")], workloads=declared)["bottleneck"]["sentences"]
    assert sentence.startswith("Of 2 steps on cuda:0 what bounds 2 was not measured; other fp32: arithmetic at its measured ceiling takes ")


def test_ceilings_of_another_device_do_not_count(asked):
    found = asked([*rounds("step", "cpu", 0.010, flops=1e8), *ceilings("cuda:0")], workloads=DECLARED)["bottleneck"]
    assert f"of 1 step no part was measured; {WOULD_TELL}" in found["weaknesses"]
    assert "What bounds each step" not in [table["title"] for table in found["tables"]]


def test_no_step_of_dlbench_itself_and_none_that_failed_is_judged(asked):
    failed = made_up.ended(made_up.case("step", "cpu", dtype="fp32"), Status.FAILED, "it did not go well")
    found = asked([*rounds("serve", "cpu", 1.0), failed], workloads=DECLARED)["bottleneck"]
    assert (found["kind"], found["command"]) == ("missing", "dlbench run ceilings")


def test_steps_that_are_fed_in_several_ways_are_counted_only_where_there_are_no_others(asked):
    declared = {**DECLARED, "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}}}
    fed = [each for source in ("one", "other") for each in rounds_with("fed", 1.0, source=source)]
    alone = asked([*fed, *ceilings("cpu")], workloads=declared)["bottleneck"]
    assert alone["sentences"][0].startswith("Of 2 steps on cpu ")
    beside = asked([*fed, *rounds("step", "cpu", 0.010, flops=8e8), *ceilings("cpu")], workloads=declared)["bottleneck"]
    assert beside["sentences"][0].startswith("Of 1 step on cpu arithmetic bounds 1; step fp32: ")
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
