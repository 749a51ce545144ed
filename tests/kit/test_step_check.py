"""Steps in modes held against fp64: those that leave something out are refused, and those by other kernels are not."""

import re
from functools import partial
from itertools import product

import pytest
import torch
from small_networks import NETWORKS, held, lend_modes, timed_step
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.core.errors import Unknown
from dlbench.core.model import Status
from dlbench.kit.precision import autocast

CPU = torch.device("cpu")
DTYPES = ("fp32", "bf16", "amp_bf16", "fp16", "amp_fp16")
CASES = [*product(("compile", "graph", "autotune"), DTYPES[:3]), ("graph", "fp16"), ("autotune", "amp_fp16")]


@pytest.fixture(autouse=True)
def lent(monkeypatch):
    lend_modes(monkeypatch)


def trained_with(parts, change=lambda logits: logits, *, backward=True, update=True):
    loss_of = autocast(CPU, parts.dtype, lambda: F.cross_entropy(change(parts.network(parts.inputs[0])), parts.labels))

    def broken():
        parts.update.zero_grad()
        loss = loss_of()
        if backward:
            loss.backward()
        if update:
            parts.update.step()
        return loss.detach()

    return broken


def with_another_gradient(step, parts):
    def broken():
        parts.update.zero_grad()
        loss = autocast(CPU, parts.dtype, lambda: F.cross_entropy(parts.network(parts.inputs[0]), parts.labels))()
        loss.backward()
        gradients = [each.grad for each in parts.network.parameters()]
        for each in gradients:
            each.neg_()
        parts.update.step()
        for each in gradients:
            each.neg_()
        return loss.detach()

    return broken


def without_a_block(step, parts):
    def broken():
        kept = parts.network[2].forward
        parts.network[2].forward = lambda x: x
        try:
            return step()
        finally:
            parts.network[2].forward = kept

    return broken


def doing_nothing(step, parts):
    output = step().clone()
    return lambda: output


BROKEN = {
    "without backward": lambda step, parts: trained_with(parts, backward=False),
    "without update": lambda step, parts: trained_with(parts, update=False),
    "zero logits": lambda step, parts: trained_with(parts, lambda logits: logits * 0),
    "zero logits, gradients as usual": lambda step, parts: trained_with(parts, lambda logits: logits - logits.detach()),
    "a block skipped": without_a_block,
    "nothing": doing_nothing,
}
AWAY = r"its (output|loss|(gradient|update|momentum) of \S+( of \S+)?) is ({}); it computes something else than it says, or not in {}"


def refused(workload, broken, dtype, **given):
    found = held(workload, broken, dtype=dtype, **given)
    away = r"\S+ away from fp64, where rounding explains \S+|missing, or not finite"
    assert found.status is Status.FAILED, found.missing_reasons
    assert re.fullmatch(AWAY.format(away, dtype), found.reason)
    returned = re.match("its (output|loss) ", found.reason)
    assert not returned or found.check.error is None or found.check.error > found.check.tolerance


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize("wrong", BROKEN)
def test_a_training_step_that_leaves_something_out_is_refused(wrong, mode, dtype):
    refused("train_step", BROKEN[wrong], dtype, mode=mode)


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize("wrong", ["without backward", "without update", "zero logits", "a block skipped"])
def test_dropout_hides_no_mistake(wrong, mode, dtype):
    refused("train_step", BROKEN[wrong], dtype, mode=mode, model="dropping")


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize(
    "wrong", [without_a_block, lambda step, parts: lambda: 0 * step(), doing_nothing], ids=["skips", "zeros", "nothing"]
)
def test_logits_of_another_network_are_refused(wrong, mode, dtype):
    refused("infer_step", wrong, dtype, mode=mode)


@pytest.mark.parametrize(
    ("optimizer", "implementation"), [("sgd", "default"), ("sgd", "foreach"), ("adamw", "default"), ("adamw", "fused")]
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "amp_fp16"])
@pytest.mark.parametrize("wrong", [BROKEN["without update"], with_another_gradient], ids=["none", "another gradient"])
def test_each_optimizer_s_update_is_seen(wrong, optimizer, implementation, dtype):
    refused("train_step", wrong, dtype, mode="autotune", optimizer=optimizer, implementation=implementation)


def test_the_error_is_that_of_the_loss_whatever_else_is_wrong():
    found = held("train_step", BROKEN["without update"], mode="graph")
    assert found.status is Status.FAILED
    assert found.reason.startswith("its momentum of ")
    assert 0 < found.check.error < found.check.tolerance


@pytest.mark.parametrize(("workload", "given"), [("closed_loop", {}), ("open_loop", {"bound_ms": 50.0})])
def test_the_step_that_is_served_is_held_too_unless_it_is_executed_plainly(workload, given):
    found = held(workload, mode="graph", **given)
    assert (found.status, found.missing_reasons) == (Status.OK, {})
    assert found.check.error <= found.check.tolerance
    refused(workload, without_a_block, "fp32", mode="graph", **given)
    assert timed_step(workload, mode="graph", **given).has_checks
    assert not timed_step(workload, mode="eager", **given).has_checks


def at(threads, step):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return step()
    finally:
        torch.set_num_threads(before)


def by_other_kernels(step):
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        return step()


def in_another_layout(parts, step):
    parts.network.to(memory_format=torch.channels_last)
    try:
        return step()
    finally:
        parts.network.to(memory_format=torch.contiguous_format)


OTHERWISE = {
    "one thread": lambda step, parts: partial(at, 1, step),
    "three threads": lambda step, parts: partial(at, 3, step),
    "torch's own convolutions": lambda step, parts: partial(by_other_kernels, step),
    "another layout": lambda step, parts: partial(in_another_layout, parts, step),
}
STEPS = [
    ("infer_step", {"dtype": "fp32"}),
    ("infer_step", {"dtype": "bf16"}),
    ("train_step", {"dtype": "fp32", "implementation": "foreach"}),
    ("train_step", {"dtype": "amp_bf16"}),
    ("train_step", {"dtype": "bf16", "optimizer": "adamw", "implementation": "fused"}),
]


@pytest.mark.parametrize("otherwise", OTHERWISE)
@pytest.mark.parametrize(("workload", "given"), STEPS, ids=lambda each: each if isinstance(each, str) else "-".join(each.values()))
@pytest.mark.parametrize("model", NETWORKS)
def test_other_kernels_are_right(model, workload, given, otherwise):
    found = held(workload, OTHERWISE[otherwise], model=model, mode="autotune", **given)
    assert found.status is Status.OK
    if (model, workload) == ("dropping", "train_step"):  # dropout changes its loss, so that only the rest is held
        assert (found.check.error, found.missing_reasons["check"]) == (None, ({"part": "fp64", **Unknown.TOO_ROUGH.reason()},))
    else:
        assert found.missing_reasons == {}
        assert found.check.error <= found.check.tolerance


def test_an_implementation_of_an_update_is_held_in_eager_execution_too():
    """Fused SGD in bf16 leaves most weights as they are on a CPU (torch 2.13); others are held against what it would do."""
    found = held("train_step", mode="eager", implementation="fused", optimizer="adamw")
    assert (found.status, found.missing_reasons) == (Status.OK, {})
    refused("train_step", BROKEN["without update"], "fp32", mode="eager", implementation="foreach")


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, maximize=True, momentum=0.9, lr=1e-9), torch.optim.SGD, partial(torch.optim.RMSprop, momentum=0.9)],
    ids=["maximizing", "plain sgd", "rmsprop"],
)
def test_a_step_with_an_optimizer_of_its_own_is_held_to_what_shows(monkeypatch, optimizer):
    from dataclasses import replace

    monkeypatch.setitem(NETWORKS, "residual", replace(NETWORKS["residual"], optimizer=optimizer))
    assert held("train_step", mode="autotune", optimizer="own").status is Status.OK
    refused("train_step", BROKEN["without backward"], "fp32", mode="autotune", optimizer="own")


def test_scaled_gradients_are_held_at_a_scale_of_one():
    scales = set()

    def noting(step, parts):
        scales.add(parts.scaler.get_scale())
        return lambda: scales.add(parts.scaler.get_scale()) or step()

    assert held("train_step", noting, mode="autotune", dtype="amp_fp16").status is Status.OK
    assert scales == {1.0, 65536.0}
