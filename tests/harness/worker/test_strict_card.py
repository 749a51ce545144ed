"""Workloads on a card that refuses what a real one leaves to chance, by the front door: none breaks a rule, and each rule can be broken."""

import json
import re
from unittest import mock

import front_door
import pytest
import shared_hosts
from torch.utils import backend_registration

from dlbench.harness.probe import processor

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch takes no device that is written in Python",
    ),
]
PLUGINS = [f"{front_door.PLUGINS / name}.py" for name in ("small_models", "known_kinds", "strict_card")]
HEAD = "[policy]\nrounds = 1\nround_s = 0.0005\nwarmup_s = 0.0001\nmax_warmup_s = 0.0005\nmin_blocks = 3\ntries = 1\ntimeout_s = 100\n"
FEED = {"batch": 8, "samples": 64, "width": 16}
PICTURES = {"batch": 2, "width": 40, "pictures": 2, "model": "small_cnn"}


def measured(folder, *benches, plugins=()):
    """The rows of a run on the card, by case without its device."""
    suite = front_door.suite(folder, *benches, head=HEAD)
    with mock.patch.object(processor, "cpu_time", return_value=None):  # of what else this machine does
        done = shared_hosts.dlbench("run", suite, *PLUGINS, *plugins, "--device", "card", "-o", "out.jsonl", cwd=folder)
    assert done.code in (0, 5), done.err
    return {each["case"]["id"].removesuffix("@card:0"): each for each in front_door.measurements(folder / "out.jsonl")}


def bench(workload, **axes):
    return "\n".join([f'workload = "{workload}"', *(f"axes.{name} = {json.dumps(value)}" for name, value in axes.items())])


SMALL = {"model": "resnet18", "batch": 2}
DECODED = {"context": 16, "batch": 2, "layers": 2, "width": 32, "heads": 4}
EXAMPLE = front_door.ROOT / "examples" / "my-network" / "my_network.py"
WORKLOADS = (
    bench("matmul", n=32, dtype=["fp32", "fp64", "bf16", "fp16", "int8"], copies=["none", "pageable", "pinned"]),
    bench("conv2d", batch=2, channels=2, size=8, filters=2, kernel=3),
    bench("transfer", bytes=10000, direction=["h2d", "d2h"], memory=["pageable", "pinned"], blocking=[True, False]),
    bench("transfer", bytes=10000, direction="d2d", blocking=[True, False]),
    bench("transfer", bytes=10000, direction="both", memory="pinned", blocking=[True, False]),
    bench("both_ways", numbers=8),
    bench("overlap", n=32, batches=4),
    bench("feed", **FEED, source=["resident", "pageable", "pinned", "prefetch", "loader"]),
    bench("feed", **FEED, source="loader", workers=2),
    bench("preprocess", **PICTURES, where=["processes", "threads", "device"], workers=1, step=["none", "inference"]),
    bench("train_step", **SMALL, dtype=["fp32", "amp_bf16", "amp_fp16"]),
    bench("train_step", **SMALL, optimizer="adamw", implementation=["default", "foreach", "fused"]),
    bench("infer_step", **SMALL, dtype=["fp32", "bf16", "amp_bf16"]),
    bench("train_step", model="small_cnn", batch=2),
    bench("decode_step", **DECODED, dtype=["fp32", "bf16"], attention=["fused", "math"]),
    bench("small_batch", batch=16, norm=["batch_norm", "group_norm"], learning_rate=0.1, samples=64),
    bench("convergence", format=["fp32", "bf16_stochastic", "amp_bf16", "fp8_e4m3", "binary"], rate=0.02, steps=5),
    bench("largest_batch", model="resnet18", memory_gib=0.01),
    bench("sustained_training", **SMALL, seconds=0.3),
    bench("closed_loop", **SMALL, bound_ms=0.065, seconds=0.005, copies=["none", "pageable"]),
    bench("concurrent_training", **SMALL, networks=[2, 3], launch="one_thread", seconds=0.02),
    bench("distillation", teacher="resnet18", student="resnet50", batch=2, launch=["one_thread", "thread_each"], seconds=0.02),
    bench("distillation", teacher="small_cnn", student="resnet18", batch=2, seconds=0.02),
    bench("beside_a_teacher", last=["teacher", "student"]),
)
UNLIKE = "ValueError: student resnet18 answers with (1000,) numbers and its teacher small_cnn with (10,); it needs its teacher's classes"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("card"), *WORKLOADS, plugins=[str(EXAMPLE)])


def test_no_workload_breaks_a_rule(rows):
    failed = {name: (each["status"], each["reason"].rpartition(" (")[0]) for name, each in rows.items() if each["status"] != "ok"}
    assert failed == {"distillation[teacher=small_cnn,student=resnet18,batch=2,dtype=fp32,seconds=0.02]": ("failed", UNLIKE)}


WAITS = {
    "feed[batch=8,source=pageable,samples=64,width=16,dtype=fp32]",
    *(f"matmul[n=32,dtype={dtype},copies=pageable]" for dtype in ("fp32", "fp64", "bf16", "fp16", "int8")),
    # Threads prepare into pageable memory.
    "preprocess[batch=2,where=threads,workers=1,model=small_cnn,width=40,pictures=2,dtype=fp32]",
    "preprocess[batch=2,where=threads,workers=1,step=inference,model=small_cnn,width=40,pictures=2,dtype=fp32]",
    "train_step[model=resnet18,batch=2,dtype=amp_fp16]",  # looks whether a gradient overflowed
    "transfer[bytes=10000,direction=both,memory=pinned]",
    "transfer[bytes=10000,direction=d2d]",
    *(f"transfer[bytes=10000,direction={way}{memory}]" for way in ("h2d", "d2h") for memory in ("", ",memory=pinned")),
    "transfer[bytes=10000,direction=h2d,blocking=false]",  # pageable
}


def test_only_calls_that_have_to_wait_for_the_card(rows):
    waits = {name for name, each in rows.items() if {"reason": "not_queued"} in each.get("missing_reasons", {}).get("device_s", ())}
    assert {name for name in waits if "where=device" not in name} == WAITS  # whose threads wait now in one call, now in another


def test_times_copies_and_memory_are_exact(rows):
    product = rows["matmul[n=32,dtype=fp32]"]
    assert product["samples"]["device_s"] == pytest.approx(3e-6)
    assert product["samples"]["block_s"] == pytest.approx([10e-6] * len(product["samples"]["block_s"]))
    assert product["memory"] | {"host_peak_bytes": 0} == {"peak_bytes": 3 * 4096, "reserved_bytes": 3 * 4096, "host_peak_bytes": 0}
    times = dict.fromkeys(("h2d_s", "pinned_h2d_s"), pytest.approx(20e-6)) | dict.fromkeys(("d2h_s", "pinned_d2h_s"), pytest.approx(10e-6))
    assert product["transfer"] == {"h2d_bytes": 8192, "d2h_bytes": 4096, **times}


STEPS = "concurrent_training[model=resnet18,batch=2,networks={},launch=one_thread,dtype=fp32,seconds=0.02]"
FEEDS = "feed[batch=8,source={},samples=64,width=16,dtype=fp32]"
LOOP = "closed_loop[model=resnet18,batch=2,dtype=fp32,{}bound_ms=0.065,seconds=0.005]"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("largest_batch[model=resnet18,memory_gib=0.01,dtype=fp32]", {"largest_batch": 12}),
        (
            "overlap[n=32,batches=4]",
            {"copy_s": 40e-6, "compute_s": 120e-6, "serial_s": 160e-6, "overlapped_s": 160e-6, "overlap_efficiency": 0},
        ),
        # Five operations and a read of their result, and a copy there, which each take the host 10 µs; 84 and 72 of them last 5 ms.
        (LOOP.format(""), {"p50_s": 60e-6, "p90_s": 60e-6, "within": 1.0, "items_per_s": 2 / 60e-6, "calls": 84}),
        (LOOP.format("copies=pageable,"), {"p50_s": 70e-6, "p90_s": 70e-6, "within": 0.0, "items_per_s": 2 / 70e-6, "calls": 72}),
        # A copy beside the step is no part of it.
        (FEEDS.format("pinned"), {"transfer_s": 20e-6}),
        (FEEDS.format("prefetch"), {"hidden_copy_s": 20e-6}),
        # On streams of one thread they take turns where launches are all there is.
        (STEPS.format(2), {"kept": [1 / 2] * 2, "overlap_efficiency": 0}),
        (STEPS.format(3), {"kept": [1 / 3] * 3, "overlap_efficiency": 0}),
    ],
)
def test_values_of_experiments_are_exact(rows, case, expected):
    values = rows[case]["values"]
    assert {name: values[name] for name in expected} == {name: pytest.approx(each) for name, each in expected.items()}
    assert {name for name in values if name.endswith("copy_s") or name == "transfer_s"} <= expected.keys()


def test_a_student_and_its_teacher_wait_for_each_other_at_a_batch_alone(rows):
    """Each waits for the other to go on, which one that waited for more would never do."""
    by_teacher, by_student = (rows[f"beside_a_teacher[last={last}]"]["values"] for last in ("teacher", "student"))
    assert (by_teacher["answered"], {*by_student["answered"]}) == ([1, 1, 1], {1})
    assert {*by_teacher["learnt"], *by_student["learnt"]} == {0}  # each batch what its teacher said of that one
    assert max(by_student["ahead"]) == 2


def test_a_teacher_of_one_thread_computes_while_the_card_does_and_not_while_the_host_launches(rows):
    """Alone it takes 1 ms; its student's launches take longer than its kernels, so that at once they add up."""
    values = rows["distillation[teacher=resnet18,student=resnet50,batch=2,launch=one_thread,dtype=fp32,seconds=0.02]"]["values"]
    assert sum(values["kept"]) == pytest.approx(1)
    assert values["kept"][1] == pytest.approx(values["at_once_items_per_s"] / 2 * 1e-3)
    assert values["in_turn_items_per_s"] <= values["at_once_items_per_s"]


STEP, FED, OVERLAP = "model=resnet18 batch=2", "batch=8 samples=64 width=16", "n=32 batches=4"


ASKED = {
    **dict.fromkeys(("fp32", "amp_bf16", "resident"), (0, 0, 0)),
    "amp_fp16": (1, 0, 0),  # whether a gradient overflowed
    "pageable": (0, 2, 0),
    **dict.fromkeys(("pinned", "prefetch", "loader"), (0, 0, 2)),
    "eager": (0, 0, 0),  # one token: its keys and values go into a cache that lies there
}
"""Reads by the host, copies that it waits for, and others."""


def test_a_call_reads_and_copies_what_it_needs_and_nothing_else(tmp_path):
    given = {"train_step": [f"{STEP} dtype={dtype}" for dtype in ("fp32", "amp_bf16", "amp_fp16")]}
    given["feed"] = [f"{FED} source={source}" for source in ("resident", "pageable", "pinned", "prefetch", "loader")]
    given["decode_step"] = [" ".join(f"{name}={value}" for name, value in DECODED.items()) + " mode=eager"]
    found = measured(tmp_path, *(bench("counted", of=of, given=each) for of, each in given.items()))
    names = ("reads", "blocking_copies", "late_copies")
    asked = {each["case"]["params"]["given"].rpartition("=")[2]: tuple(map(each["values"].get, names)) for each in found.values()}
    assert asked == ASKED


RULES = {
    "mixed": "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, card:0 and cpu! (add)",
    "fresh": "ValueError: value 'total' is nan; it has to be finite, and 1e+100 at most",
    "early": "ValueError: value 'total' is nan; it has to be finite, and 1e+100 at most",
    "overwritten": "RuntimeError: strict card: the host overwrote page-locked memory before it knew that its copy had ended",
    "unordered": "RuntimeError: strict card: sum uses memory that another stream uses, and its stream does not wait for that",
    "freed": "RuntimeError: strict card: memory went back while another stream may still use it, without record_stream",
}
LEFT_OUT = [
    ("overlap", OVERLAP, "wait_event", 1, "copy_"),
    ("overlap", OVERLAP, "wait_event", 2, "mm"),
    ("overlap", OVERLAP, "record", 1, "mm"),
    ("overlap", OVERLAP, "record", 2, "copy_"),
    ("feed", f"{FED} source=prefetch", "wait_event", 0, "addmm"),
    ("feed", f"{FED} source=prefetch", "record_stream", -1, RULES["freed"]),
    ("feed", f"{FED} source=prefetch", "make_room", -1, RULES["overwritten"]),
    ("feed", f"{FED} source=pinned", "make_room", -1, RULES["overwritten"]),
    ("both_ways", "numbers=8", "wait_event", 1, "copy_"),
    ("both_ways", "numbers=8", "wait_event", 0, "add"),
]
"""Workload, its parameters, what it leaves out on which stream, and the reason, or the operation that meets another."""


def test_each_rule_can_be_broken_and_a_wait_that_is_left_out_of_a_workload_is_refused(tmp_path):
    careless = [bench("careless", of=of, given=given, left_out=left_out, by=by) for of, given, left_out, by, _ in LEFT_OUT]
    broken = measured(tmp_path, bench("misuse", how=list(RULES)), *careless)
    found = {tuple(each["case"]["params"].values()): each.get("reason") for each in broken.values()}
    reasons = {tuple(left_out): reason if " " in reason else RULES["unordered"].replace("sum", reason) for *left_out, reason in LEFT_OUT}
    assert found == {(how,): reason for how, reason in RULES.items()} | reasons


def test_a_step_s_time_is_its_kernels_and_waiting_for_the_rest_of_what_it_took_unwatched(tmp_path):
    row = measured(tmp_path, bench("products"))["products[]"]
    kinds = {each["kind"]: each["seconds"] for each in row["profile"]["kinds"]}
    assert row["samples"]["block_s"] == pytest.approx([160e-6] * len(row["samples"]["block_s"]))
    assert (row["profile"]["step_s"], kinds["products"]) == (pytest.approx(280e-6), pytest.approx(48e-6))
    shown = front_door.in_process(tmp_path, "show", "out.jsonl", "--topic", "bottleneck").out
    assert re.search(r"^ products +160 µs +30\.0 % +70\.0 %  idle 70 %", shown, re.MULTILINE)
    assert re.search(r"^ products +waiting for launches +112 µs +70\.0 %$", shown, re.MULTILINE)
