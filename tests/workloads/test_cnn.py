"""Training and inference steps: real ones, in every precision, and those that search for their fastest settings or the largest batch."""

from functools import partial
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import nn

from dlbench import Dtype, Network
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Case, Status
from dlbench.harness.plan.searches import search_of
from dlbench.harness.worker import registry
from dlbench.kit.precision import operands, output, storage
from dlbench.workloads import cnn
from dlbench.workloads.cnn import largest_batch

CPU = torch.device("cpu")


def tiny_network(name: str) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, kernel_size=32, stride=32), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 7, 1000))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Make every model a tiny one; the list holds those that were built."""
    built: list[nn.Module] = []

    def build(name: str) -> nn.Module:
        built.append(tiny_network(name))
        return built[-1]

    monkeypatch.setattr(cnn, "build", build)
    return built


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a learning rate that shows after a step, as the one for measuring does not."""
    for name, optimizer in cnn.OPTIMIZERS.items():
        monkeypatch.setitem(cnn.OPTIMIZERS, name, partial(optimizer, lr=1e-2))


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_every_precision_and_optimizer_learns_its_batch_but_not_while_it_is_measured(tiny, request, dtype):
    torch.manual_seed(0)
    work = cnn.train_step(CPU, model="resnet18", batch=1, dtype=dtype)
    losses = [work.call().item() for _ in range(20)]
    assert losses[-1] == pytest.approx(losses[0], rel=1e-3)
    assert all(p.grad.count_nonzero() for p in tiny[0].parameters())
    request.getfixturevalue("learning")
    for optimizer in ("sgd", "adamw"):
        work = cnn.train_step(CPU, model="resnet18", batch=4, dtype=dtype, optimizer=optimizer)
        losses = [work.call() for _ in range(5)]
        assert all(each.isfinite() and each.shape == () and not each.requires_grad for each in losses)
        assert losses[-1] < losses[0]
        assert all(torch.isfinite(p).all() and p.dtype == storage(dtype) for p in tiny[-1].parameters())
    work = cnn.infer_step(CPU, model="resnet18", batch=2, dtype=dtype)
    logits = work.call()
    assert (logits.shape, logits.dtype, logits.is_inference(), tiny[-1].training) == ((2, 1000), output(dtype), True, False)
    assert torch.equal(logits, work.call())
    assert [(tuple(each.shape), each.dtype) for each in work.inputs] == [((2, 3, 224, 224), storage(dtype))]


def test_bytes_are_those_of_operators_weights_and_update(tiny):
    values = 3 * 224**2 + 3 * 2 * 4 * 49 + 1000  # an image, three outputs that are inputs again, the logits
    parameters = 4 * 3 * 32**2 + 4 + 2 * 4 + 4 * 49 * 1000 + 1000
    infer = cnn.infer_step(CPU, model="resnet18", batch=2, dtype="bf16")
    averages = 2 * 4  # of batch normalisation
    assert (infer.bytes, infer.least_bytes) == (2 * (2 * values + parameters + averages), 2 * (2 * 3 * 224**2 + parameters))
    sgd, adamw = (cnn.train_step(CPU, model="resnet18", batch=2, optimizer=each) for each in ("sgd", "adamw"))
    assert adamw.bytes - sgd.bytes == adamw.least_bytes - sgd.least_bytes == 2 * 4 * parameters
    assert sgd.least_bytes == 4 * (2 * 3 * 224**2 + 5 * parameters)
    assert sgd.bytes > 2 * infer.bytes


@pytest.mark.usefixtures("learning")
def test_a_step_is_the_step_written_out(tiny):
    torch.manual_seed(7)
    work = cnn.train_step(CPU, model="resnet18", batch=2, dtype="fp64")
    torch.manual_seed(7)
    network = tiny_network("resnet18").double()
    (images,) = operands(CPU, (2, 3, 224, 224), dtype="fp64")
    labels = torch.randint(1000, (2,))
    velocity = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for _ in range(2):
        network.zero_grad()
        loss = -torch.log_softmax(network(images), 1)[torch.arange(2), labels].mean()
        loss.backward()
        with torch.no_grad():
            for name, p in network.named_parameters():
                velocity[name] = 0.9 * velocity[name] + p.grad + 1e-4 * p
                p -= 1e-2 * velocity[name]
        assert work.call().item() == pytest.approx(loss.item(), rel=1e-12)
    for ours, theirs in zip(tiny[0].parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_step_whose_loss_is_read_returns_it():
    reads = []
    loss = SimpleNamespace(item=lambda: reads.append(1))
    assert (cnn.and_read_loss(lambda: loss)(), reads) == (loss, [1])


def test_channels_last_is_channels_last_in_images_and_weights():
    network = cnn.build_on(CPU, "resnet18", "fp32", "channels_last")
    images, _ = cnn.draw_batch(CPU, "resnet18", 2, "fp32", "channels_last")
    spatial = [p for p in network.parameters() if p.dim() == 4 and p.shape[-1] > 1]
    assert len(spatial) == 17
    for tensor in (images, *spatial):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()
    seen = []
    network.layer4[1].conv2.register_forward_hook(lambda _, __, y: seen.append(y.is_contiguous(memory_format=torch.channels_last)))
    with torch.inference_mode():
        network(images)
    assert seen == [True]


@pytest.mark.parametrize(
    ("own", "moved", "unknown"),
    [(None, True, {}), (torch.optim.RMSprop, False, {"bytes": "nobody knows what its optimizer moves"})],
    ids=["none", "rmsprop"],
)
def test_a_network_without_an_optimizer_of_its_own_moves_what_sgd_does(monkeypatch, own, moved, unknown):
    network = Network("mine", lambda: nn.Linear(6, 3), inputs=(6,), classes=3, optimizer=own)
    monkeypatch.setattr(cnn, "find_network", lambda name: network)
    with_own, with_sgd = (cnn.train_step(CPU, model="mine", batch=2, optimizer=each) for each in ("own", "sgd"))
    assert (with_own.bytes == with_sgd.bytes, with_own.unknown) == (moved, unknown)


def test_inception_s_loss_is_that_of_both_heads():
    logits, auxiliary, labels = torch.randn(2, 5), torch.randn(2, 5), torch.tensor([1, 4])
    expected = [-each.log_softmax(1)[range(2), labels].mean() for each in (logits, auxiliary)]
    torch.testing.assert_close(cnn.with_auxiliary((logits, auxiliary), labels), expected[0] + 0.4 * expected[1])


@pytest.mark.real  # at full width
@pytest.mark.parametrize(
    ("model", "train_flops", "infer_flops"),
    [("resnet18", 10_648_412_160, None), ("alexnet", None, 1_428_376_960), ("inception_v3", 34_275_032_448, 11_426_432_192)],
)
def test_a_published_network_trains_and_infers_at_full_width(model, train_flops, infer_flops):
    torch.manual_seed(0)
    work, infer = cnn.train_step(CPU, model=model, batch=2), cnn.infer_step(CPU, model=model, batch=1)
    assert work.flops == 2 * (train_flops or work.flops / 2)
    assert work.call().isfinite()
    assert (infer.flops, infer.call().shape) == (infer_flops or infer.flops, (1, 1000))


@pytest.mark.real
@pytest.mark.parametrize(("model", "numbers", "classifier"), [("resnet18", 512, 512 * 1000), ("alexnet", 256 * 6 * 6, 58_621_952)])
def test_a_pass_until_the_last_pooling_leaves_the_classifier_out(model, numbers, classifier):
    whole, until = (cnn.infer_step(CPU, model=model, batch=1, until=each) for each in ("logits", "pooling"))
    assert until.call().shape == (1, numbers)
    assert whole.flops - until.flops == 2 * classifier


PLAIN = {"batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}


@pytest.mark.parametrize(("name", "step"), [("fastest_train_step", cnn.train_step), ("fastest_infer_step", cnn.infer_step)])
def test_what_is_chosen_runs_as_the_step_of_that_name_and_a_search_begins_at_its_defaults(monkeypatch, name, step):
    monkeypatch.setattr(cnn, "build", tiny_network)
    registry.load_builtins()
    signature = registry.get(name).signature
    plain = {**PLAIN, **({"implementation": "default"} if name == "fastest_train_step" else {})}
    plan = search_of(Case.of("modes", signature, {"model": "resnet18"}, "cpu"), signature)
    assert plan.next([]).params == {"model": "resnet18", **plain}
    switches = signature.declared.having("switch")
    assert {name: signature.declared.plain_default(name) for name in switches} == {name: plain[name] for name in switches}
    works = []
    for function in (getattr(cnn, name), step):
        torch.manual_seed(1)
        works.append(function(CPU, model="resnet18", **plain))
    ours, theirs = works
    assert (ours.items, ours.flops, ours.bytes) == (theirs.items, theirs.flops, theirs.bytes)
    torch.testing.assert_close(ours.call(), theirs.call())


MIB = 1 << 20


@pytest.mark.parametrize(("step", "shape"), [("train", ()), ("infer", (1, 1000))])
def test_it_is_a_step_of_the_network(step, shape):
    work = largest_batch(CPU, model="resnet18", batch=1, step=step)
    assert (work.items, work.call().shape) == (1, shape)


def searched(peak_mib, *, gibibytes=1.0, fits=None, reports=True):
    """Search with a peak by batch, and return the outcome and the batches that were tried."""
    registry.load_builtins()
    signature = registry.get("largest_batch").signature
    plan = search_of(Case.of("memory", signature, {"model": "alexnet", "memory_gib": gibibytes}, "cpu"), signature)
    tries = []
    while case := plan.next(tries):
        peak = int(peak_mib(case.params["batch"]) * MIB)
        went_well = peak <= gibibytes * 2**30 if fits is None else fits(case.params["batch"])
        status = Status.OK if went_well else Status.OOM
        memory = Memory(host_peak_bytes=peak) if went_well and reports else Memory()
        tries.append(Measurement(case, 0, status, None if went_well else "full", memory=memory, limit_bytes=int(gibibytes * 2**30)))
        assert len(tries) < 40
    return plan.outcome(tries, 0), [each.case.params["batch"] for each in tries]


@pytest.mark.parametrize("fixed", [0, 90, 900])
@pytest.mark.parametrize("sample", [0.3, 5, 31, 120])
def test_a_line_is_searched_in_few_tries_and_the_limit_is_met_within_five_percent(fixed, sample):
    outcome, tried = searched(lambda batch: fixed + sample * batch)
    true = int((1024 - fixed) / sample)
    assert outcome.found["batch"] == pytest.approx(true, rel=0.05, abs=1)
    assert outcome.found["batch"] <= true
    assert outcome.values == {"largest_batch": outcome.found["batch"]}
    assert len(tried) <= 11


def test_a_size_that_takes_less_than_a_smaller_one_does_not_mislead_it():
    """As was measured of ResNet-18: another algorithm of a convolution takes less from batch 59 on."""
    outcome, tried = searched(lambda batch: 89 + 7.4 * batch - (24 if batch >= 59 else 0), gibibytes=0.5, fits=lambda batch: batch <= 63)
    assert outcome.found["batch"] in range(60, 64)
    assert max(tried) <= 75
    assert len(tried) <= 9


def test_without_peaks_it_doubles_and_halves():
    outcome, tried = searched(lambda batch: 10 * batch, reports=False)
    assert outcome.found["batch"] in range(97, 103)
    assert tried[:8] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_where_not_even_one_sample_fits_the_outcome_is_out_of_memory():
    outcome, tried = searched(lambda batch: 2000.0)
    assert (outcome.status, outcome.reason, tried) == (Status.OOM, "not even batch=1 fits: full", [1])
    assert outcome.limit_bytes == 2**30
