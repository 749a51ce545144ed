"""Modes held against eager execution: mistakes are refused by three times their tolerance, and other kernels are not."""

import math
import re
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.kit import modes, step_check
from dlbench.kit.precision import autocast
from dlbench.workloads import cnn

CPU = torch.device("cpu")
DTYPES = ("fp32", "bf16", "amp_bf16", "fp16", "amp_fp16")
MODES = ("compile", "graph", "autotune")
CASES = [*product(MODES, DTYPES[:3]), ("graph", "fp16"), ("autotune", "amp_fp16")]


def small_network(name):
    """Convolutions with batch normalisation and without, and a residual block, in front of 1000 classes."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

        def forward(self, x):
            return F.relu(x + self.bn(self.conv(x)))

    torch.manual_seed(3)
    head = (nn.Flatten(), nn.Linear(8 * 49, 64), nn.ReLU(), nn.Dropout() if name == "alexnet" else nn.Identity(), nn.Linear(64, 1000))
    return nn.Sequential(nn.Conv2d(3, 8, 32, stride=32), nn.ReLU(), Block(), Block(), *head)


class Played:
    """A step as a captured graph would be: its output, its gradients and its weights stay where they are."""

    def __init__(self, step):
        self.step, self.output = step, step().clone()

    def __call__(self):
        self.output.copy_(self.step())
        return self.output


@pytest.fixture
def pretended(monkeypatch):
    """Let a CPU have all modes, with ``broken(step, network, images, labels, update)`` in place of what each makes of a step."""
    monkeypatch.setattr(cnn, "build", small_network)
    monkeypatch.setattr(modes, "refuse_lack", lambda mode, device: None)
    monkeypatch.setattr(modes, "CompilerCache", lambda case: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    begin = modes.Execution.begin

    def pretend(broken):
        def wrong(self, work, eager, parts):
            return begin(self, replace(work, call=broken(work.call, parts)), eager, parts)

        monkeypatch.setattr(modes, "captured", lambda step, device: Played(step))
        monkeypatch.setattr(modes.Execution, "begin", wrong)

    return pretend


def loss_of(parts, change=lambda logits: logits):
    return autocast(CPU, parts.dtype, lambda: F.cross_entropy(change(parts.network(parts.inputs[0])), parts.labels))()


def without_backward(step, parts):
    def broken():
        parts.update.zero_grad()
        loss = loss_of(parts)
        parts.update.step()
        return loss.detach()

    return broken


def without_update(step, parts):
    return trained_with(parts, update=False)


def applying_another_gradient(step, parts):
    def broken():
        parts.update.zero_grad()
        loss = loss_of(parts)
        loss.backward()
        gradients = [each.grad for each in parts.network.parameters()]
        for each in gradients:
            each.mul_(-100)
        parts.update.step()
        for each in gradients:
            each.div_(-100)
        return loss.detach()

    return broken


def with_zero_logits(step, parts):
    return trained_with(parts, lambda logits: logits * 0)


def with_zero_logits_and_their_gradients(step, parts):
    return trained_with(parts, lambda logits: logits - logits.detach())


def trained_with(parts, change=lambda logits: logits, *, update=True):
    def broken():
        parts.update.zero_grad()
        loss = loss_of(parts, change)
        loss.backward()
        if update:
            parts.update.step()
        return loss.detach()

    return broken


def without_layer(layer):
    def broken_step(step, parts):
        def broken():
            kept = parts.network[layer].forward
            parts.network[layer].forward = lambda x: x
            try:
                return step()
            finally:
                parts.network[layer].forward = kept

        return broken

    return broken_step


def doing_nothing(step, parts):
    output = step().clone()
    return lambda: output


def refused(workload, **params):
    """Return error and tolerance of a case that is refused."""
    with pytest.raises(ValueError, match=r"eager execution|that of its gradient") as refusal:
        workload(CPU, model=params.pop("model", "resnet18"), batch=2, **params)
    return told(str(refusal.value))


def told(sentence):
    if re.fullmatch(r"the gradient of [\w.]+ is missing, and eager execution has one", sentence):
        return math.inf, 1
    if found := re.fullmatch(
        r"the norm of the gradient of [\w.]+ is (\S+) times that of eager execution, where rounding explains (\S+) to (\S+)", sentence
    ):
        ratio, least, most = map(float, found.groups())
        assert least <= 1 <= most
        return abs(math.log(ratio)), math.log(most)
    found = re.fullmatch(
        r"its [\w' ]+ is (\S+) away from that of (?:eager execution|its gradient), where rounding explains (\S+)", sentence
    )
    return tuple(map(float, found.groups()))


BROKEN = {
    "without backward": without_backward,
    "without update": without_update,
    "zero logits": with_zero_logits,
    "zero logits, gradients as usual": with_zero_logits_and_their_gradients,
    "a block skipped": without_layer(2),
    "nothing": doing_nothing,
}


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize("wrong", BROKEN)
def test_a_training_step_that_leaves_something_out_is_refused(pretended, wrong, mode, dtype):
    pretended(BROKEN[wrong])
    error, tolerance = refused(cnn.train_step, mode=mode, dtype=dtype)
    assert error >= 3 * tolerance


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize("wrong", ["without backward", "without update", "zero logits", "a block skipped"])
def test_dropout_hides_no_mistake(pretended, wrong, mode, dtype):
    pretended(BROKEN[wrong])
    error, tolerance = refused(cnn.train_step, model="alexnet", mode=mode, dtype=dtype)
    assert error >= 3 * tolerance


@pytest.mark.parametrize(("mode", "dtype"), CASES)
@pytest.mark.parametrize(
    "wrong", [without_layer(2), lambda step, parts: lambda: 0 * step(), doing_nothing], ids=["skips", "zeros", "nothing"]
)
def test_logits_of_another_network_are_refused(pretended, wrong, mode, dtype):
    pretended(wrong)
    error, tolerance = refused(cnn.infer_step, mode=mode, dtype=dtype)
    assert error >= 3 * tolerance


@pytest.mark.parametrize(
    ("optimizer", "implementation"), [("sgd", "default"), ("sgd", "foreach"), ("adamw", "default"), ("adamw", "fused")]
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "amp_fp16"])
@pytest.mark.parametrize("wrong", [without_update, applying_another_gradient])
def test_each_optimizer_s_update_is_seen(pretended, wrong, optimizer, implementation, dtype):
    pretended(wrong)
    error, tolerance = refused(cnn.train_step, mode="autotune", dtype=dtype, optimizer=optimizer, implementation=implementation)
    assert error >= 3 * tolerance


@pytest.mark.parametrize("model", ["resnet18", "alexnet"])
@pytest.mark.parametrize("mode", MODES)
def test_a_check_leaves_everything_as_it_was(pretended, mode, model):
    pretended(lambda step, parts: step)
    kept = {}

    def noting(network, *rest):
        parts = step_check.StepParts(network, *rest)
        kept["parts"], kept["before"] = parts, [each.clone() for each in state_of(parts)]
        return parts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cnn, "StepParts", noting)
        torch.manual_seed(1)
        generator = torch.get_rng_state
        work = cnn.train_step(CPU, model=model, batch=2, mode=mode)
        after = generator()
        torch.manual_seed(1)
        cnn.train_step(CPU, model=model, batch=2, mode="eager")
    for before, now in zip(kept["before"], state_of(kept["parts"]), strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0)
    assert torch.equal(after, generator())
    assert torch.isfinite(work.call())


def state_of(parts):
    network = parts.network
    return [*network.parameters(), *network.buffers(), parts.inputs[0], parts.labels]


def test_momenta_are_those_of_an_optimizer_that_has_made_no_step(pretended):
    found = []
    pretended(lambda step, parts: found.append(parts) or step)
    cnn.train_step(CPU, model="resnet18", batch=2, mode="graph", optimizer="sgd")
    (parts,) = found
    momenta = [parts.update.state[each]["momentum_buffer"] for each in parts.network.parameters()]
    assert momenta
    assert not any(each.any() for each in momenta)


@pytest.mark.parametrize(("kernel", "refused"), [(torch.float64, []), (torch.float32, []), (torch.float16, ["exp_avg", "exp_avg_sq"])])
def test_momenta_may_be_those_of_decays_in_fp32_as_in_a_fused_kernel(kernel, refused):
    """1 - 0.999 is off by 1.3e-5 in fp32, ten times ten roundings, and by 2.3 % in fp16, which is another optimizer."""
    weight = nn.Parameter(torch.linspace(-1, 1, 64))
    weight.grad = torch.linspace(1, 3, 64)
    update = torch.optim.AdamW([weight], betas=tuple(torch.tensor(each, dtype=kernel).item() for each in (0.9, 0.999)))
    update.step()
    update.param_groups[0]["betas"] = 0.9, 0.999
    found = {name: (error, tolerance) for name, error, tolerance in step_check.momenta_apart(update)}
    assert [name for name, (error, tolerance) in found.items() if error > tolerance] == refused
    assert found["exp_avg"][1] == pytest.approx(10 * 2**-23 + 2.384e-7, rel=1e-3)
    assert found["exp_avg_sq"][1] == pytest.approx(10 * 2**-23 + 1.2875e-5, rel=1e-3)


def test_scaled_gradients_are_held_at_a_scale_of_one_and_timed_from_the_usual_one_on(pretended):
    scales, found = set(), []

    def noting(step, parts):
        found.append(parts.scaler)
        return lambda: scales.add(parts.scaler.get_scale()) or step()

    pretended(noting)
    work = cnn.train_step(CPU, model="resnet18", batch=2, mode="autotune", dtype="amp_fp16")
    assert scales == {1.0}
    assert found[0].get_scale() == 65536.0
    work.call()
    assert scales == {1.0, 65536.0}


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


@pytest.mark.parametrize("otherwise", OTHERWISE)
@pytest.mark.parametrize(
    ("mode", "dtype", "optimizer", "implementation"),
    [*(("compile", each, "sgd", "default") for each in DTYPES[:3]), *(("autotune", each, "adamw", "foreach") for each in DTYPES[2:])],
)
@pytest.mark.parametrize("model", ["resnet18", "alexnet"])
def test_other_kernels_are_right(pretended, model, mode, dtype, optimizer, implementation, otherwise):
    pretended(OTHERWISE[otherwise])
    cnn.infer_step(CPU, model=model, batch=2, mode=mode, dtype=dtype)
    cnn.train_step(CPU, model=model, batch=2, mode=mode, dtype=dtype, optimizer=optimizer, implementation=implementation)


@pytest.mark.parametrize(
    ("optimizer", "implementation"), [("sgd", "fused"), ("adamw", "default"), ("adamw", "foreach"), ("adamw", "fused")]
)
def test_large_gradients_of_other_kernels_are_right(pretended, monkeypatch, optimizer, implementation):
    def with_large_gradients(name):
        network = small_network(name)
        network[-1].weight.data.mul_(30)
        return network

    pretended(OTHERWISE["torch's own convolutions"])
    monkeypatch.setattr(cnn, "build", with_large_gradients)
    cnn.train_step(CPU, model="resnet18", batch=2, mode="autotune", dtype="amp_bf16", optimizer=optimizer, implementation=implementation)


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-4),
        partial(torch.optim.SGD, maximize=True, momentum=0.9),
        torch.optim.SGD,
        torch.optim.AdamW,
        partial(torch.optim.RMSprop, momentum=0.9),
    ],
    ids=["sgd", "maximizing", "plain sgd", "adamw", "rmsprop"],
)
def test_a_step_with_a_loss_and_an_optimizer_of_its_own_is_held_to_what_is_known_of_them(optimizer):
    network, inputs = nn.Linear(6, 3), torch.randn(4, 6)
    parts = step_check.StepParts(network, (inputs,), "fp32", None, optimizer(network.parameters(), lr=cnn.LEARNING_RATE))

    def step():
        parts.update.zero_grad()
        loss = network(inputs).square().mean()
        loss.backward()
        parts.update.step()
        return loss.detach()

    step()  # as a mode takes some before it is looked at, from where on there are momenta
    with step_check.restored(parts):
        expected = step_check.expected_of(step, parts, same_draws=True)
        step_check.refuse_disagreement(step, parts, expected)
        with pytest.raises(ValueError, match="the gradient of weight is missing"):
            step_check.refuse_disagreement(lambda: network(inputs).square().mean().detach(), parts, expected)
