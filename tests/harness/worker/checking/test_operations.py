"""Kinds of operations by their names, and the number of those that small calls take."""

import subprocess
import sys
from collections import Counter

import front_door
import pytest
import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from dlbench.core.measurement import OperationKind
from dlbench.harness.worker.checking.operations import operations_of
from dlbench.harness.worker.profiling.profile import OF_BACKWARD, OperationCounts, _own_times, kind_of, kinds_in

K = OperationKind


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        K.PRODUCTS: "aten::addmm aten::mkldnn_convolution aten::convolution_backward AddmmBackward0 ConvolutionBackward0 aten::baddbmm "
        "aten::_thnn_conv2d aten::mv aten::cudnn_convolution aten::_scaled_mm aten::bmm aten::mm aten::mkldnn_rnn_layer",
        K.NORMALISATION: "aten::native_batch_norm aten::cudnn_batch_norm_backward NativeLayerNormBackward0 aten::relu_ aten::clamp_min_ "
        "aten::threshold_backward aten::add aten::gelu_backward aten::_log_softmax aten::nll_loss_forward aten::sum aten::bernoulli_ "
        "aten::native_dropout aten::mean aten::hardtanh_backward AddBackward0 ReluBackward0 aten::embedding_dense_backward aten::_softmax",
        K.POOLING: "aten::max_pool2d_with_indices_backward aten::adaptive_avg_pool2d MaxPool2DWithIndicesBackward0",
        K.ATTENTION: "aten::_scaled_dot_product_flash_attention_for_cpu ScaledDotProductFlashAttentionForCpuBackward0",
        K.UPDATE: "Optimizer.step#SGD.step Optimizer.zero_grad#AdamW.zero_grad torch::autograd::AccumulateGrad aten::_foreach_add_ "
        "aten::_fused_adamw_ aten::_amp_foreach_non_finite_check_and_unscale_",
        K.COPIES: "aten::copy_ aten::_to_copy aten::fill_ aten::cat aten::zeros_like aten::constant_pad_nd aten::clone",
        K.DATA: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ aten::index_select aten::index",
        K.REST: "aten::sort aten::empty aten::view mylib::mm pool convolution "
        "aten::_convert_indices_from_coo_to_csr aten::upsample_bilinear2d",
    }.items(),
)
def test_a_name_tells_a_kind(kind, names):
    assert {name: kind_of((name,)) for name in names.split()} == dict.fromkeys(names.split(), kind)
    assert {kind_of((f"{OF_BACKWARD}{name}",)) for name in names.split()} == {kind}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (K.COPIES, ("aten::copy_", "aten::linear")),
        (K.PRODUCTS, ("aten::empty", "aten::linear", "dlbench layer: pool MaxPool2d")),
        (K.UPDATE, ("aten::mul_", "aten::add", "Optimizer.step#SGD.step")),
        (K.ATTENTION, ("aten::copy_", "aten::_flash_attention_forward", "aten::scaled_dot_product_attention")),
        (K.ATTENTION, ("aten::bmm", "aten::scaled_dot_product_attention")),
        (K.POOLING, ("aten::sum", "aten::adaptive_avg_pool2d")),
        (K.DATA, ("aten::addmm", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")),
    ],
)
def test_the_innermost_that_tells_counts_and_of_some_the_whole(kind, names):
    assert kind_of(names) is kind


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
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
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
