"""Steps of BERT and GPT-2: their counts, both kinds of attention, every precision, and what they refuse before anything runs."""

import math
from functools import partial
from typing import get_args

import pytest
import torch
from torch import nn

from dlbench import Dtype
from dlbench.harness.worker.backends.torch_build import set_math
from dlbench.kit.precision import storage
from dlbench.models import language_models as networks
from dlbench.workloads import transformer

CPU = torch.device("cpu")
SMALL = {
    "WIDTH": 32,
    "HEADS": 4,
    "LAYERS": 2,
    **dict.fromkeys(("BERT_VOCABULARY", "GPT2_VOCABULARY"), 60),
    **dict.fromkeys(("BERT_POSITIONS", "GPT2_POSITIONS"), 16),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Make both networks small; the list holds those that were built."""
    built: list[nn.Module] = []
    for name, number in SMALL.items():
        monkeypatch.setattr(networks, name, number)
    tiny = transformer.MODELS["gpt2"]._replace(make=partial(networks.GPT2, 2, 32, 4))
    monkeypatch.setitem(transformer.MODELS, "gpt2", tiny)
    for name in transformer.MODELS:
        monkeypatch.setitem(transformer.MODELS, name, transformer.MODELS[name]._replace(positions=16))
    with_random_weights = transformer.with_random_weights

    def fill(network: nn.Module) -> nn.Module:
        built.append(with_random_weights(network))
        return built[-1]

    monkeypatch.setattr(transformer, "with_random_weights", fill)
    return built


@pytest.fixture(autouse=True)
def usual_attention():
    yield
    set_math("fp32")


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("model", transformer.MODELS)
def test_every_precision_trains_to_finite_losses_by_the_token(small, model, dtype):
    torch.manual_seed(0)
    work = transformer.transformer_train_step(CPU, model=model, batch=2, seq=12, dtype=dtype)
    assert work.items == 24
    assert not work.unknown
    losses = [work.call().item() for _ in range(2)]
    assert all(map(math.isfinite, losses))
    assert all(each.dtype == storage(dtype) and torch.isfinite(each).all() for each in small[0].parameters())
    assert all(each.grad is not None for name, each in small[0].named_parameters())


def test_training_bert_takes_three_times_the_operations_of_a_forward_pass_with_both_heads(small):
    work = transformer.transformer_train_step(CPU, model="bert_base", batch=2, seq=12)
    forward = 2 * (2 * 12 * (4 * 32**2 + 2 * 32 * 128) + 4 * 12**2 * 32) + 2 * 32**2
    heads = 2 * 12 * (32**2 + 32 * 60) + 4 * 32
    assert work.flops == 3 * 2 * (forward + heads)
    infer = transformer.transformer_infer_step(CPU, model="bert_base", batch=2, seq=12)
    assert (infer.flops, infer.items) == (2 * forward, 24)
    assert not hasattr(small[-1], "heads")


@pytest.mark.parametrize("step", [transformer.transformer_train_step, transformer.transformer_infer_step])
@pytest.mark.parametrize("model", transformer.MODELS)
def test_both_kinds_of_attention_give_the_same_and_are_other_kernels(small, model, step):
    outputs, kernels = [], []
    for attention in get_args(transformer.Attention):
        torch.manual_seed(0)
        work = step(CPU, model=model, batch=2, seq=12, dtype="fp64", attention=attention)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            output = work.call()
        outputs.append(output if isinstance(output, tuple) else (output,))
        kernels.append({event.key for event in profiler.key_averages() if "flash" in event.key or "attention_math" in event.key})
    torch.testing.assert_close(*outputs)
    fused, math_ = (" ".join(sorted(each)) for each in kernels)
    assert "flash" in fused
    assert "math" not in fused
    assert "math" in math_
    assert "flash" not in math_


def test_decoding_moves_its_weights_and_what_it_keeps(small):
    work = transformer.decode_step(CPU, context=16, batch=3, layers=4, width=32, heads=4)
    assert work.call().shape == (3, 1, 60)
    assert torch.equal(work.call(), work.call())
    weights = 60 * 32 + 4 * (12 * 32**2 + 13 * 32) + 2 * 32  # but the table of positions
    kept = 2 * 3 * 16 * 32 * 4
    assert work.bytes == work.least_bytes == 4 * (weights + kept)
    assert work.flops == 3 * (2 * (4 * 12 * 32**2 + 60 * 32) + 4 * 4 * 16 * 32)
    assert work.items == 3
    assert [tuple(each.shape) for each in work.inputs] == [(3, 1)]
    assert transformer.decode_step(CPU, context=16, width=32, heads=4, dtype="bf16").bytes % 2 == 0
    outputs = []
    for attention in get_args(transformer.Attention):
        torch.manual_seed(0)
        outputs.append(transformer.decode_step(CPU, context=16, layers=1, width=32, heads=4, attention=attention).call())
        assert torch.backends.cuda.flash_sdp_enabled() is (attention == "fused")
    torch.testing.assert_close(*outputs)
    set_math("fp32")  # the harness gives attention back to torch
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()
