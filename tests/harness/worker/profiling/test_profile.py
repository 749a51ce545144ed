"""Operations by kind and number, and profiles of steps of one known kind of operation each, by the front door."""

import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace
from unittest import mock

import front_door
import pytest
import shared_hosts
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.autograd.profiler import record_function

from dlbench.core.conditions import Throttling
from dlbench.core.measurement import OperationKind
from dlbench.core.model import Work
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.worker.checking.operations import operations_of
from dlbench.harness.worker.profiling import profile
from dlbench.harness.worker.profiling.profile import OF_BACKWARD, OperationCounts, _own_times, kind_of, kinds_in

PLUGIN = str(front_door.PLUGINS / "known_kinds.py")
HEAD = "[policy]\nrounds = 2\nround_s = 0.005\nwarmup_s = 0.001\nmax_warmup_s = 0.005\ntries = 1\n"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the result file of all workloads of the plugin, in two rounds, and with what one of them noted."""
    folder = tmp_path_factory.mktemp("kinds")
    names = ("products", "by_number", "large_update", "captured_step", "refuses", "no_step")
    benches = [*(f'workload = "{name}"' for name in names), 'workload = "tried"\naxes.batch = 1']
    benches.append(f'workload = "layered"\naxes.file = "{folder / "events"}"')
    arguments = ("run", front_door.suite(folder, *benches, head=HEAD), PLUGIN, "--device", "cpu", "-o", "out.jsonl")
    with pytest.MonkeyPatch.context() as patched:  # this machine may have much to do beside the tests
        patched.setattr(Monitor, "throttling", lambda *_: Throttling(waiting=0.0))
        done = shared_hosts.dlbench(*arguments, cwd=folder)
    assert done.code == 0, done.err
    assert "USDT" not in done.err
    return folder


@pytest.fixture(scope="module")
def measured(folder):
    """The measurements of the first round, by workload."""
    return {each["case"]["workload"]: each for each in front_door.measurements(folder / "out.jsonl") if each["round"] == 0}


@pytest.mark.parametrize(("name", "kind"), [("products", "products"), ("by_number", "normalisation"), ("large_update", "update")])
def test_a_step_of_one_kind_is_named_so(measured, name, kind):
    found = measured[name]["profile"]
    kinds = {each["kind"]: each for each in found["kinds"]}
    total_s = sum(each["seconds"] for each in kinds.values())
    assert kinds[kind]["seconds"] >= 0.8 * (total_s - kinds["rest"]["seconds"])  # the rest grows with what else this machine does
    assert total_s == pytest.approx(found["step_s"], rel=0.05)
    assert name != "products" or (kinds[kind]["operations"], kinds[kind]["bytes"]) == (16, 16 * 3 * 4 * 256**2)


def test_layers_have_their_forward_and_their_backward(measured):
    layers = {each["name"]: each["kind"] for each in measured["layered"]["profile"]["layers"] if each["forward_s"] and each["backward_s"]}
    assert {"0": "Linear", "1": "ReLU", "2.0": "Linear"}.items() <= layers.items()


def test_no_timed_call_is_profiled_and_no_round_but_the_first_as_a_budget_may_end_before_the_second(folder):
    first, second, behind = ({*events.split("\n")} - {""} for events in (folder / "events").read_text().split("reported"))
    assert (first, second, behind) == ({"set up", "called"}, {"profiled", "set up", "called"}, set())
    later = [each for each in front_door.measurements(folder / "out.jsonl") if each["round"] == 1]
    assert len(later) == 8
    assert not any("profile" in each or "profile" in each.get("missing_reasons", {}) for each in later)


def test_a_step_without_a_profile_says_why(measured, folder):
    why = {name: each["missing_reasons"].get("profile") for name, each in measured.items() if "profile" not in each}
    assert why == {
        "captured_step": [{"reason": "one_kernel"}],
        "tried": [{"reason": "searches"}],
        "refuses": [{"reason": "exception", "text": "RuntimeError: not while you watch"}],
        "no_step": None,
    }
    done = front_door.in_process(folder, "show", "out.jsonl", "--topic", "bottleneck")
    assert "Where the time of each step goes" in done.out
    assert "no profile of 1 step: what is compiled or captured runs as one kernel, whatever it does" in done.out


@pytest.mark.parametrize(("left_s", "most"), [(1000, "10"), (30, "10"), (9, "3")])
def test_a_step_that_takes_long_is_left_out(left_s, most):
    def profiled(step_s):
        result, workload = SimpleNamespace(samples=SimpleNamespace(block_s=(step_s,))), mock.Mock()
        workload.signature.declared.searched = ()
        clock = SimpleNamespace(now=lambda: 100.0)
        subject = SimpleNamespace(
            result=result, work=Work(call=lambda: None), workload=workload, device=CPU, clock=clock, deadline=100.0 + left_s
        )
        return profile.with_profile(subject)

    with pytest.raises(profile.Unavailable, match=f"about 11 s, and {most} s at most"):
        profiled(11.0)
    assert profiled(2.9).profile.steps == 1


@pytest.mark.parametrize(
    ("call_s", "order"), [(0.3, "before prepare call before start call stop"), (0.6, "before prepare start call stop")]
)
def test_the_first_step_under_the_profiler_does_not_count(monkeypatch, call_s, order):
    """It pays for the profiler's buffers, and its own work, which later ones do not do, is in no time; a long step hides what it pays."""
    events, ahead = [], torch.ones(64, 64)
    for name in ("prepare", "start", "stop"):
        done = getattr(profile.profile, f"{name}_trace")
        monkeypatch.setattr(profile.profile, f"{name}_trace", lambda *args, name=name, done=done: (events.append(name), done(*args)))

    def call():
        events.append("call")
        return ahead @ ahead if "start" not in events else ahead.sin()

    work = Work(call=call, before=lambda: events.append("before") or ahead.cos())
    found = profile.take_profile(work, call_s, CPU, SimpleNamespace(now=time.perf_counter))
    assert " ".join(events) == order
    assert {each.kind for each in found.kinds if each.seconds} == {"normalisation", "rest"}
    assert (found.steps, sum(each.seconds for each in found.kinds)) == (1, pytest.approx(found.step_s))


def event(name, start, end, outer=None, kernels=(), device=DeviceType.CPU, number=-1):
    """An event of the profiler, in microseconds."""
    spent = [SimpleNamespace(duration=each) for each in kernels]
    span = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(name=name, cpu_parent=outer, kernels=spent, device_type=device, time_range=span, sequence_nr=number)


def test_an_accelerator_has_the_time_of_its_kernels_and_waits_between_them():
    layer = event("dlbench layer: conv Conv2d", 0, 9)
    linear = event("aten::linear", 1, 8, layer, number=3)
    product = event("aten::addmm", 2, 7, linear, kernels=(300_000, 100_000), number=3)
    node = event("autograd::engine::evaluate_function: AddmmBackward0", 10, 20, number=3)
    backward = event("aten::mm", 11, 19, node, kernels=(500_000,))
    host = [layer, linear, product, node, backward]
    device = [event("gemm", *span, device=DeviceType.CUDA) for span in ((0, 300_000), (200_000, 300_000), (500_000, 1_000_000))]
    repeated = event("dlbench layer: conv Conv2d", 0, 9_000_000, device=DeviceType.CUDA)
    assert profile.busy_s([*host, *device, repeated]) == pytest.approx(0.8)
    timed = list(profile._own_times([*host, *device], torch.device("cuda")))
    assert [(within[0].name, seconds) for within, seconds in timed if seconds] == [("aten::addmm", 0.4), ("aten::mm", 0.5)]
    assert profile.slowest_layers(timed, steps=2) == (profile.LayerTime("conv", "Conv2d", 0.2, 0.25),)


K = OperationKind


def test_the_innermost_name_that_tells_a_kind_counts_and_of_some_the_whole(transcript):
    def kind(title):
        names = title.split(" < ")
        assert len(names) > 1 or kind_of((f"{OF_BACKWARD}{title}",)) is kind_of((title,))
        return kind_of(names).name

    transcript("kinds-of-operations", 68, kind)


def counted(call):
    with (counts := OperationCounts()):
        call()
    return {kind: (counts.operations[kind], counts.bytes[kind]) for kind in counts.operations}, counts.flops


A, B, TARGET, WEIGHTS = torch.rand(4, 8), torch.rand(8, 2), torch.zeros(4, 2), torch.rand(8)


def update():
    with record_function("Optimizer.step#SGD.step"):
        WEIGHTS.add_(WEIGHTS)
    WEIGHTS.neg()


@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        (lambda: A @ B, {K.PRODUCTS: (1, 4 * (32 + 16 + 8))}),
        (lambda: A.relu_(), {K.NORMALISATION: (1, 4 * (32 + 32))}),
        (lambda: A + A[:1].expand(4, 8), {K.NORMALISATION: (1, 4 * (32 + 32 + 32))}),
        (lambda: TARGET.fill_(1), {K.COPIES: (1, 4 * 8)}),
        (lambda: TARGET.copy_(A[:, :2]), {K.COPIES: (1, 4 * (8 + 8))}),
        (lambda: A.index_select(0, torch.arange(2)), {K.REST: (1, 8 * 2), K.DATA: (1, 4 * (16 + 16) + 8 * 2)}),
        (update, {K.UPDATE: (1, 4 * (8 + 8 + 8)), K.NORMALISATION: (1, 4 * (8 + 8))}),
    ],
)
def test_operations_move_their_operands_and_their_output(call, kinds):
    assert counted(call)[0] == kinds


@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["fused", "of products"])
def test_products_of_attention_are_counted_by_shape(dropout):
    query, key, value = (torch.rand(2, 3, length, 16, requires_grad=True) for length in (5, 7, 7))
    forward = 2 * (2 * 2 * 3 * 5 * 7 * 16)
    own = {each: each * 2 for each in (query, key, value)}  # which is elementwise, forward and backward
    kinds, flops = counted(lambda: nn.functional.scaled_dot_product_attention(*own.values(), dropout_p=dropout).sum().backward())
    assert flops == {K.ATTENTION: 3 * forward}
    assert kinds.keys() == {K.ATTENTION, K.NORMALISATION, K.COPIES}


def test_attention_and_pooling_within_layers_are_counted_as_such():
    attention, pooling = nn.MultiheadAttention(8, 2, dropout=0.5), nn.AdaptiveAvgPool2d(1)
    rows, images = torch.rand(4, 1, 8), torch.rand(2, 3, 4, 4, requires_grad=True)
    _, flops = counted(lambda: attention(rows, rows, rows, need_weights=False)[0].sum().backward())
    assert flops == {K.ATTENTION: 3 * (2 * 2 * 2 * 4 * 4 * 4)}
    gradient = torch.ones(2, 3, 1, 1)
    kinds, _ = counted(lambda: pooling(images).backward(gradient))
    assert kinds.keys() == {K.POOLING}
    assert nn.functional.adaptive_avg_pool2d.__module__ == "torch.nn.functional"


@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["fused", "of products"])
def test_the_time_of_attention_is_that_of_both_passes(dropout):
    def timed(backward):
        query = torch.rand(1, 4, 128, 16, requires_grad=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            output = nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
            if backward:
                output.sum().backward()
        kinds = Counter()
        for kind, _ in kinds_in((within, 1.0) for within, _ in _own_times(profiler.events(), torch.device("cpu"))):
            kinds[kind] += 1
        return kinds

    forward, both = timed(backward=False), timed(backward=True)
    assert forward.keys() == {K.ATTENTION}
    assert both[K.ATTENTION] > forward[K.ATTENTION]
    assert K.PRODUCTS not in both


SQUARE = torch.randn(4, 4)
LAYER = nn.Linear(4, 3, bias=False)
OPTIMIZER = torch.optim.SGD(LAYER.parameters(), lr=0.1, foreach=False)


def infer():
    with torch.inference_mode():
        return torch.relu(LAYER(SQUARE))


def train():
    OPTIMIZER.zero_grad()
    LAYER(SQUARE).sum().backward()
    OPTIMIZER.step()


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: None, 0),
        (lambda: SQUARE.t().reshape(2, 8)[0].unsqueeze(0).detach(), 1),  # reshape has to copy
        (lambda: torch.empty(3, 3).view(9), 0),
        (lambda: (SQUARE @ SQUARE).relu_(), 2),
        (infer, 2),
        # Forward: a product and a sum. Backward: the sum's gradient of ones, which is only expanded, and a product. Update: one addition.
        (train, 5),
    ],
)
def test_what_computes_counts_and_views_and_allocations_do_not(call, count):
    call()
    assert len(operations_of(call)) == count


COUNTED = """
import sys
import torch
from dlbench.harness.worker.checking.operations import operations_of
images = torch.ones(2, 2)
print(operations_of(lambda: images @ images), "torch._dynamo" in sys.modules)
"""


@pytest.mark.real
def test_counting_does_not_import_the_compiler():
    """Each case on a CPU counts in a process of its own, which would pay a second for that."""
    counted = subprocess.run([sys.executable, "-c", COUNTED], env=front_door.environment(), capture_output=True, text=True, check=True)
    assert counted.stdout == "['mm'] False\n"
