"""Operations and bytes of any network, against counts by hand, published ones and torch's own counter."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from dlbench.models import MODELS
from dlbench.models.operations import Counted, count_step, tensors_of

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text())["vision"]


def images(batch: int, size: int) -> Tensor:
    return torch.empty(batch, 3, size, size, device="meta")


@torch.no_grad()
def forward(network: nn.Module, arguments: Any, keywords: Any) -> None:
    network(*arguments, **keywords)


def train(network: nn.Module, arguments: Any, keywords: Any) -> None:
    outputs = tensors_of(network(*arguments, **keywords))
    if needed := [each for each in outputs if each.requires_grad]:
        torch.stack([each.sum().abs() for each in needed]).sum().backward()


def both(network: nn.Module, *arguments: Any, **keywords: Any) -> tuple[Counted, Counted]:
    first, second = (count_step(step, network, arguments, keywords) for step in (forward, train))
    return first, second


def counted(network: nn.Module, *arguments: Any, **keywords: Any) -> tuple[int | None, int | None]:
    found = both(network, *arguments, **keywords)
    assert [dict(each.unknown) for each in found] == [{}, {}]
    return found[0].flops, found[1].flops


class Call(nn.Module):
    """A network that is one function of its inputs and of a weight of four by four."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4))
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(self.weight, *arguments)


DEEP = ("resnet101", "resnet152", "inception_v3", "vgg13", "vgg16", "resnet34")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.real] if each in DEEP else []) for each in PUBLISHED])
def test_operations_of_published_networks_are_those_of_their_formulas(name):
    with torch.device("meta"):
        network = MODELS[name]()
    published, batch = PUBLISHED[name], images(2, PUBLISHED[name]["input"])
    assert count_step(train, network, (batch,), {}).flops == 2 * published["train_flops"]
    assert count_step(forward, network.eval(), (batch,), {}).flops == 2 * published["forward_flops"]


@pytest.mark.parametrize(
    ("layer", "size", "forward"),
    [
        (nn.Linear(5, 7), (3, 5), 2 * 3 * 5 * 7),
        (nn.Conv1d(4, 6, 3), (2, 4, 9), 2 * (2 * 6 * 7) * (4 * 3)),
        (nn.Conv2d(4, 6, (3, 5), stride=2, groups=2), (1, 4, 8, 8), 2 * (6 * 3 * 2) * (2 * 15)),
        (nn.Conv2d(8, 8, 3, padding="same", groups=8), (2, 8, 5, 5), 2 * (2 * 8 * 25) * 9),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), 2 * (3 * 27) * (2 * 8)),
        (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (1, 4, 3, 3), 2 * (4 * 9) * (3 * 4)),
    ],
)
def test_a_layer_alone_takes_one_product_forward_and_one_for_its_weight(layer, size, forward):
    assert counted(layer, torch.zeros(size)) == (forward, 2 * forward)
    assert counted(layer, torch.zeros(size, requires_grad=True)) == (forward, 3 * forward)
    assert counted(layer.requires_grad_(False), torch.zeros(size)) == (forward, forward)
    # The same by torch, but for grouped convolutions, of which it counts the backward pass as if they had one group.
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros(size))
    assert counter.get_total_flops() == forward


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, batch: Any, scale: float = 1.0) -> Any:
        return [self.layer(batch["left"]), {"right": self.layer(batch["rest"][0]) * scale}, None]


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight @ weight

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        return gradient, None


MATRIX, ROWS, VECTOR, BATCH = torch.zeros(4, 4), torch.zeros(3, 4), torch.zeros(4), torch.zeros(5, 4, 4)
BLOCKS = 2 * 5 * 4**3
COMPLEX, IMAGE = torch.zeros(4, 4, dtype=torch.complex64), torch.zeros(1, 3, 4, 4)


@pytest.mark.parametrize(
    ("function", "x", "forward", "trained"),
    [
        (lambda w, x: torch.einsum("ij,bjk->bik", w, x), BATCH, BLOCKS, 2 * BLOCKS),
        (lambda w, x: torch.baddbmm(x, w.expand(5, 4, 4), x), BATCH, BLOCKS, 2 * BLOCKS),
        (lambda w, x: torch.addbmm(x[0], w.expand(5, 4, 4), x), BATCH, BLOCKS, 2 * BLOCKS),
        (lambda w, x: torch.addmm(w, x, w), MATRIX, 128, 256),
        (lambda w, x: x @ w, ROWS, 96, 192),
        (lambda w, x: torch.complex(w, w) @ x, COMPLEX, 512, 1024),
        (lambda w, x: F.conv2d(x, w[:, :3].reshape(2, 3, 2, 1)), IMAGE, 288, 576),
        # The gradient of a product with a vector is no product.
        (lambda w, x: w @ x, VECTOR, 32, 32),
        (lambda w, x: torch.addmv(x, w, x), VECTOR, 32, 32),
        (lambda w, x: torch.dot(w[0], x), VECTOR, 8, 8),
        (lambda w, x: Squared.apply(x @ w, w), ROWS, 3 * 96, 4 * 96),  # what its own backward pass runs
    ],
)
def test_a_function_counts_as_a_layer_does(function, x, forward, trained):
    assert counted(Call(function), x) == (forward, trained)


def test_elementwise_work_is_not_counted_inputs_come_in_containers_and_counting_is_the_same_wherever_it_is_called():
    layers = nn.BatchNorm2d(3), nn.GELU(), nn.MaxPool2d(2), nn.Dropout(), nn.PReLU(), nn.Upsample(scale_factor=2), nn.GroupNorm(1, 3)
    assert counted(nn.Sequential(*layers, nn.Softmax(1)), torch.zeros(2, 3, 8, 8)) == (0, 0)
    batch = {"left": torch.zeros(3, 4), "rest": (torch.zeros(5, 4), "a word", None)}
    assert counted(Nested(), batch, scale=2.0) == (2 * 8 * 4 * 2, 2 * 2 * 8 * 4 * 2)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert counted(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), ROWS) == (2 * 96, 5 * 96)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("frozen", [False, True])
def test_attention_takes_its_four_layers_and_two_products(mode, frozen):
    tokens, width = 10, 16
    network = nn.MultiheadAttention(width, 4, batch_first=True).train(mode == "train").requires_grad_(not frozen)
    inward = 3 * 2 * tokens * width**2  # whose input needs no gradient
    rest = 2 * 2 * tokens**2 * width + 2 * tokens * width**2
    x = torch.zeros(1, tokens, width)
    assert counted(network, x, x, x) == (inward + rest, inward + rest if frozen else 2 * inward + 3 * rest)
    assert counted(network, x, x, x, need_weights=False)[0] == inward + rest


def test_fused_attention_is_two_products():
    query, key = torch.zeros(2, 4, 6, 8, requires_grad=True), torch.zeros(2, 4, 9, 8, requires_grad=True)
    product = 2 * (2 * 4) * 6 * 9 * 8
    network = Call(lambda w, q, k, v: F.scaled_dot_product_attention(q, k, v))
    assert counted(network, query, key, key) == (2 * product, 6 * product)
    assert counted(network, query, key, key.detach()) == (2 * product, 6 * product)  # one operator gives all of its gradients


@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_a_recurrent_layer_takes_two_products_a_step(kind, gates):
    steps, batch, width, hidden = 5, 2, 8, 16
    step = 2 * batch * gates * hidden**2
    inward = 2 * batch * gates * hidden * width * steps
    network = kind(width, hidden, batch_first=True)
    # The input needs no gradient, and neither does the state that the first step begins with.
    assert counted(network, torch.zeros(batch, steps, width)) == (inward + steps * step, 2 * inward + (3 * steps - 1) * step)
    both = kind(width, hidden, num_layers=2, bidirectional=True)
    second = 2 * batch * gates * hidden * (2 * hidden) * steps
    assert counted(both, torch.zeros(steps, batch, width))[0] == 2 * (inward + second + 2 * steps * step)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_twice_counts_once(reentrant):
    network, layer = Checkpointed(reentrant), 2 * 3 * 4 * 4
    assert counted(network, torch.zeros(3, 4)) == (3 * layer, 2 * layer + 2 * 3 * layer)
    network(torch.zeros(3, 4)).sum().backward()  # which still works as it did
    assert network.block[0].weight.grad is not None


def test_frozen_layers_take_a_product_less_or_two():
    layer, x = 2 * 3 * 4 * 4, torch.zeros(3, 4)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    network[0].requires_grad_(False)  # of the first two nothing needs a gradient, neither of their inputs nor of their weights
    network[1].requires_grad_(False)
    assert counted(network, x) == (4 * layer, (1 + 1 + 2 + 3) * layer)
    network[3].requires_grad_(False)  # whose input does
    assert counted(network, x) == (4 * layer, (1 + 1 + 2 + 2) * layer)


def test_what_runs_without_gradients_has_no_backward_pass():
    def function(weight: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = x @ weight
        with torch.inference_mode():
            torch.nn.functional.linear(x, weight).relu()
        return x @ weight

    product = 2 * 3 * 4 * 4
    assert counted(Call(function), ROWS) == (3 * product, 4 * product)


def test_autocast_on_the_device_of_a_tensor_casts_as_it_does_there():
    def function(weight: Tensor, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return x @ weight

    assert counted(Call(function), ROWS) == (96, 2 * 96)
    casts, product = (16 + 12) * (4 + 2), (16 + 12 + 12) * 2
    assert both(Call(function), ROWS)[0].bytes == casts + product


def test_a_compiled_network_counts_as_what_it_was_compiled_of():
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph

    assert counted(torch.compile(nn.Linear(4, 4), backend=backend), ROWS) == (96, 2 * 96)
    assert compiled == []


@pytest.mark.parametrize(
    ("function", "operators"),
    [
        (lambda w, x: torch.fft.rfft2(x @ w).abs(), ("aten._fft_r2c",)),
        (lambda w, x: torch.linalg.solve(w, x) + torch.linalg.inv(w), ("aten._linalg_solve_ex", "aten.linalg_inv_ex")),
        (lambda w, x: torch.cdist(w, x), ("aten._cdist_forward",)),
        (lambda w, x: torch._int_mm(x.to(torch.int8), x.to(torch.int8)), ("aten._int_mm",)),
        (lambda w, x: F.bilinear(x, x, w.expand(4, 4, 4)), ("aten._trilinear",)),
        (lambda w, x: torch.linalg.svd(w)[1], ("aten._linalg_svd",)),
    ],
)
def test_an_operator_without_a_formula_makes_all_unknown(function, operators):
    found, _ = both(Call(function), MATRIX)
    assert (found.flops, found.unknown["flops"]) == (None, f"no formula for {', '.join(operators)}")


def test_an_operator_of_a_library_is_named_whether_it_runs_on_shapes_or_not():
    library = torch.library.Library("dlbench_test", "FRAGMENT")
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: 3 * x, "CPU")
    found, _ = both(Call(lambda w, x: torch.ops.dlbench_test.triple(x) @ w), MATRIX)
    no_shapes = "it does not run on shapes alone, without numbers: UnsupportedOperatorException: dlbench_test.triple.default"
    assert found == Counted(unknown={"flops": "no formula for dlbench_test.triple", "bytes": no_shapes})
    library._register_fake("triple", torch.empty_like)
    found, _ = both(Call(lambda w, x: torch.ops.dlbench_test.triple(x) @ w), MATRIX)
    assert found == Counted(bytes=(2 + 3) * 64, unknown={"flops": "no formula for dlbench_test.triple"})


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda w, x: w[x > 0].sum(), "DynamicOutputShapeException: aten."),
        (lambda w, x: x * x.sum().item(), "DataDependentOutputException: aten._local_scalar_dense.default"),
        (lambda w, x: torch.tensor(x.numpy()), "RuntimeError: "),
        (lambda w, x: [][len(x)], "IndexError: list index out of range"),
    ],
)
def test_a_network_that_needs_numbers_says_so(function, error):
    for found in both(Call(function), MATRIX):
        assert (found.flops, found.bytes, found.unknown["flops"]) == (None, None, found.unknown["bytes"])
        assert found.unknown["bytes"].startswith(f"it does not run on shapes alone, without numbers: {error}")


def test_a_network_that_looks_at_numbers_unless_it_is_compiled_is_counted_as_when_compiled():
    """As the language models of transformers, whose mask of attention depends on whether sequences are packed."""

    def unless_packed(w: Tensor, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and (x == 0).all():
            return x
        return x @ w

    assert counted(Call(unless_packed), MATRIX) == (128, 256)
    assert not torch.compiler.is_compiling()


def test_the_network_and_the_inputs_are_left_as_they_are():
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm, self.table = nn.Linear(4, 4), nn.BatchNorm1d(4), [torch.ones(4)]
            self.last = None
            self.layer.weight = self.tied = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.last = self.norm(self.layer(x)) + self.table[0]
            return self.last @ self.tied

    network, state = Keeping(), torch.get_rng_state()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert counted(network, ROWS) == (2 * 96, (2 + 3) * 96)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.last is None
    assert all(each.device.type == "cpu" and each.grad is None for each in network.parameters())
    assert torch.equal(torch.get_rng_state(), state)


PUBLISHED_BYTES = {
    "alexnet": (782_945_140, 264_371_168),
    "vgg11": (2_303_466_868, 819_934_432),
    "resnet18": (492_756_916, 190_316_000),
    "resnet50": (1_866_872_260, 752_762_336),
}
"""Of a training step and of inference, two images each: what a closed formula of their layers gives, operator by operator."""


@pytest.mark.parametrize("name", PUBLISHED_BYTES)
def test_bytes_of_published_networks_are_those_of_their_formula(name):
    def train(network: nn.Module, batch: Tensor, labels: Tensor) -> None:
        F.cross_entropy(network(batch), labels).backward()

    with torch.device("meta"):
        network, labels = MODELS[name](), torch.empty(2, dtype=torch.int64)
    inferred = count_step(forward, network.eval(), (images(2, 224),), {}).bytes
    assert (count_step(train, network.train(), images(2, 224), labels).bytes, inferred) == PUBLISHED_BYTES[name]


N, X, WEIGHT, SCALAR, PICKED = 3 * 4 * 4, torch.zeros(3, 4), 16 * 4, 4, torch.tensor([0, 2])


@pytest.mark.parametrize(
    ("function", "moved"),
    [
        (lambda w, x: x.view(2, 6)[0].unsqueeze(0).expand(5, 6).T.detach(), 0),
        (lambda w, x: x.T.reshape(-1), 2 * N),
        (lambda w, x: x.relu_(), 2 * N),
        (lambda w, x: x.mul_(2).add_(1).clamp_(0, 1), 3 * 2 * N),
        (lambda w, x: x.add_(w[0]), 2 * N + 16),
        (lambda w, x: x + w[0].expand(3, 4), 2 * N + 16),
        (lambda w, x: x * x, 2 * N),
        (lambda w, x: torch.add(x, x, out=torch.empty(3, 4)), 2 * N),
        (lambda w, x: torch.empty(3, 4).copy_(x), 2 * N),
        (lambda w, x: torch.zeros(3, 4), N),
        (lambda w, x: torch.zeros_like(x), N),
        (lambda w, x: torch.empty(3, 4).fill_(1), N),
        (lambda w, x: torch.empty(3, 4).normal_(), N),
        (lambda w, x: x.bernoulli_(0.5), N),
        (lambda w, x: x.index_select(0, PICKED), 2 * 2 * 16 + 16),
        (lambda w, x: x[PICKED], 2 * 2 * 16 + 16),
        (lambda w, x: F.embedding(PICKED, w), 2 * 2 * 16 + 16),
        (lambda w, x: torch.cat((x, x[:1])), 2 * (N + 16)),
        (lambda w, x: x.to(torch.float64), N + 2 * N),
        (lambda w, x: x.shape[0] * x.dim() * len(x), 0),
    ],
    ids=lambda value: None,
)
def test_an_operator_reads_its_operands_and_writes_its_results_once(function, moved):
    assert count_step(forward, Call(function), (X,), {}).bytes == moved


def test_frozen_layers_move_less_in_backward():
    def train(network: nn.Module) -> None:
        network(X).sum().backward()

    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4, bias=False))
    inferred = (2 * N + WEIGHT + 16) + 2 * N + (2 * N + WEIGHT) + (N + SCALAR)  # the last to be summed
    last = SCALAR + (SCALAR + N + WEIGHT)  # the gradient of the sum is one number
    assert count_step(train, network).bytes == inferred + last + (SCALAR + N + WEIGHT) + 3 * N + (2 * N + WEIGHT) + (N + 16)
    network[0].requires_grad_(False)
    assert count_step(train, network).bytes == inferred + last


def test_attention_counts_as_the_operator_that_its_device_runs():
    tokens, heads, scores = 2 * 10 * 16 * 4, 2 * 4 * 10 * 4, 2 * 4 * 10 * 10 * 4
    x = torch.zeros(2, 10, 4, 4).transpose(1, 2)
    fused, apart = (
        count_step(forward, Call(lambda w, x, dropout=dropout: F.scaled_dot_product_attention(x, x, x, dropout_p=dropout)), (x,), {})
        for dropout in (0.0, 0.5)
    )
    assert fused.bytes == 2 * tokens + heads  # queries, keys and values are one tensor here; the logarithms of sums are kept
    assert apart.bytes > 2 * tokens + 4 * scores  # a CPU has none with dropout: scores go to memory and back
    assert fused.flops == apart.flops == 2 * 2 * 2 * 4 * 10 * 10 * 4
