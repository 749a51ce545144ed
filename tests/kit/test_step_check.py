"""Steps in modes held against fp64: those that leave something out are refused, and those by other kernels are not."""

import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
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


def each_of(*rows):
    """Every combination: the first, and every seventh after it, in seconds, and all others where real processes run, too."""
    return [
        pytest.param(*row, id="-".join(map(str, row)), marks=[] if at % 7 == 0 else pytest.mark.real)
        for at, row in enumerate(product(*rows))
    ]


@pytest.fixture(autouse=True)
def lent(monkeypatch):
    lend_modes(monkeypatch)


def trained_with(parts, change=lambda logits: logits, *, backward=True, update=True, sign=1):
    loss_of = autocast(CPU, parts.dtype, lambda: F.cross_entropy(change(parts.network(parts.inputs[0])), parts.labels))

    def broken():
        parts.update.zero_grad()
        loss = loss_of()
        if backward:
            loss.backward()
        gradients = [each.grad for each in parts.network.parameters() if each.grad is not None]
        torch._foreach_mul_(gradients, sign) if gradients else None
        if update:
            parts.update.step()
        torch._foreach_mul_(gradients, sign) if gradients else None
        return loss.detach()

    return broken


@contextmanager
def skipping(parts):
    kept, parts.network[2].forward = parts.network[2].forward, lambda x: x
    yield
    parts.network[2].forward = kept


@contextmanager
def at(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield
    torch.set_num_threads(before)


@contextmanager
def in_another_layout(parts):
    parts.network.to(memory_format=torch.channels_last)
    yield
    parts.network.to(memory_format=torch.contiguous_format)


def within(context: Callable):
    """Return what a mode makes of a step: the same within a context."""

    def changed(step, parts):
        def call():
            with context(parts):
                return step()

        return call

    return changed


def doing_nothing(step, parts):
    output = step().clone()
    return lambda: output


BROKEN = {
    "without backward": lambda step, parts: trained_with(parts, backward=False),
    "without update": lambda step, parts: trained_with(parts, update=False),
    "zero logits": lambda step, parts: trained_with(parts, lambda logits: logits * 0),
    "a block skipped": within(skipping),
    "zero logits, gradients as usual": lambda step, parts: trained_with(parts, lambda logits: logits - logits.detach()),
    "nothing": doing_nothing,
    "another gradient": lambda step, parts: trained_with(parts, sign=-1),
    "zeros": lambda step, parts: lambda: 0 * step(),
}
TRAINED = [*BROKEN][:6]
AWAY = r"its (output|loss|(gradient|update|momentum) of \S+( of \S+)?) is ({}); it computes something else than it says, or not in {}"


def refused(workload, broken, dtype, **given):
    found = held(workload, BROKEN[broken], dtype=dtype, **given)
    away = r"\S+ away from fp64, where rounding explains \S+|missing, or not finite"
    assert found.status is Status.FAILED, found.missing_reasons
    assert re.fullmatch(AWAY.format(away, dtype), found.reason)
    returned = re.match("its (output|loss) ", found.reason)
    assert not returned or found.check.error is None or found.check.error > found.check.tolerance


@pytest.mark.parametrize(("wrong", "model", "case"), each_of(TRAINED, ["residual", "dropping"], CASES))
def test_a_training_step_that_leaves_something_out_is_refused_and_dropout_hides_no_mistake(wrong, model, case):
    mode, dtype = case
    if model == "residual" or wrong in TRAINED[:4]:
        refused("train_step", wrong, dtype, mode=mode, model=model)


@pytest.mark.parametrize(("wrong", "case"), each_of(["a block skipped", "zeros", "nothing"], CASES))
def test_logits_of_another_network_are_refused(wrong, case):
    mode, dtype = case
    refused("infer_step", wrong, dtype, mode=mode)


@pytest.mark.parametrize(
    ("optimizer", "dtype", "wrong"),
    each_of(
        [("sgd", "default"), ("sgd", "foreach"), ("adamw", "default"), ("adamw", "fused")],
        ["fp32", "bf16", "amp_fp16"],
        ["without update", "another gradient"],
    ),
)
def test_each_optimizer_s_update_is_seen(wrong, optimizer, dtype):
    name, implementation = optimizer
    refused("train_step", wrong, dtype, mode="autotune", optimizer=name, implementation=implementation)


def test_the_error_is_that_of_the_loss_whatever_else_is_wrong():
    found = held("train_step", BROKEN["without update"], mode="graph")
    assert (found.status, found.reason.partition(" of ")[0]) == (Status.FAILED, "its momentum")
    assert 0 < found.check.error < found.check.tolerance


@pytest.mark.parametrize(("workload", "given"), [("closed_loop", {}), ("open_loop", {"bound_ms": 50.0})])
def test_the_step_that_is_served_is_held_too_unless_it_is_executed_plainly(workload, given):
    found = held(workload, mode="graph", **given)
    assert (found.status, found.missing_reasons) == (Status.OK, {})
    assert found.check.error <= found.check.tolerance
    refused(workload, "a block skipped", "fp32", mode="graph", **given)
    assert [timed_step(workload, mode=mode, **given).is_executed_otherwise for mode in ("graph", "eager")] == [True, False]


OTHERWISE = {
    "one thread": within(lambda parts: at(1)),
    "three threads": within(lambda parts: at(3)),
    "torch's own convolutions": within(lambda parts: torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)),
    "another layout": within(in_another_layout),
}
STEPS = {
    "infer fp32": ("infer_step", {"dtype": "fp32"}),
    "infer bf16": ("infer_step", {"dtype": "bf16"}),
    "train fp32": ("train_step", {"dtype": "fp32", "implementation": "foreach"}),
    "train amp": ("train_step", {"dtype": "amp_bf16"}),
    "train bf16": ("train_step", {"dtype": "bf16", "optimizer": "adamw", "implementation": "fused"}),
}


@pytest.mark.parametrize(("model", "step", "otherwise"), each_of(NETWORKS, STEPS, OTHERWISE))
def test_other_kernels_are_right(model, step, otherwise):
    workload, given = STEPS[step]
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
    refused("train_step", "without update", "fp32", mode="eager", implementation="foreach")


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, maximize=True, momentum=0.9, lr=1e-9), torch.optim.SGD, partial(torch.optim.RMSprop, momentum=0.9)],
    ids=["maximizing", "plain sgd", "rmsprop"],
)
def test_a_step_with_an_optimizer_of_its_own_is_held_to_what_shows(monkeypatch, optimizer):
    monkeypatch.setitem(NETWORKS, "residual", replace(NETWORKS["residual"], optimizer=optimizer))
    assert held("train_step", mode="autotune", optimizer="own").status is Status.OK
    refused("train_step", "without backward", "fp32", mode="autotune", optimizer="own")


def test_scaled_gradients_are_held_at_a_scale_of_one():
    scales = set()

    def noting(step, parts):
        scales.add(parts.scaler.get_scale())
        return lambda: scales.add(parts.scaler.get_scale()) or step()

    assert held("train_step", noting, mode="autotune", dtype="amp_fp16").status is Status.OK
    assert scales == {1.0, 65536.0}
