"""The networks are the published ones, whole and in stages, with weights that keep activations in scale."""

import json
import math
import zlib
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.models import (
    BLOCK,
    MODELS,
    SIZES,
    ModelName,
    RowName,
    build,
    fill_normal,
    for_inference,
    initialise,
    language_models,
    on_meta,
    with_random_weights,
)
from dlbench.models.convnets import ResidualBlock
from dlbench.models.language_models import TransformerLayer
from dlbench.models.operations import count_step
from dlbench.models.splitting import WIDTH, cut, layers, mlp, stages, train_costs, width_for

DATA = Path(__file__).parents[1] / "data"
PUBLISHED, BERT = (json.loads((DATA / "models.json").read_text())[kind] for kind in ("vision", "bert"))
INCEPTION = json.loads((DATA / "inception_v3.json").read_text())["layers"]


TORCHVISION_NAMES = {
    "alexnet": (16, 0xE79AD846),
    "vgg11": (22, 0x8F162C31),
    "resnet18": (122, 0xA45DD05A),
    "inception_v3": (580, 0x0A534E5B),
}
"""How many weights and buffers a network has in torchvision, and the CRC-32 of their names in its order."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_buffers_and_names_are_the_published_ones(name):
    assert get_args(ModelName) == tuple(MODELS) == tuple(PUBLISHED)
    model = on_meta(MODELS[name])
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]["params"]
    assert sum(b.numel() for b in model.buffers()) == PUBLISHED[name]["buffers"]
    found = len(model.state_dict()), zlib.crc32(" ".join(model.state_dict()).encode())
    assert TORCHVISION_NAMES.get(name, found) == found


def test_bottleneck_strides_in_its_3x3_convolution():
    first = on_meta(MODELS["resnet50"]).get_submodule("layer2.0")
    assert (first.conv1.stride, first.conv2.stride, first.conv3.stride) == ((1, 1), (2, 2), (1, 1))
    assert first.downsample[0].weight.shape == (512, 256, 1, 1)


def test_each_layer_of_inception_has_the_published_parameters_and_operations():
    network = on_meta(MODELS["inception_v3"])
    layers = {name: each for name, each in network.named_modules() if isinstance(each, nn.Conv2d | nn.Linear)}
    taken = {}
    noted = [each.register_forward_pre_hook(lambda _, x, name=name: taken.update({name: x[0]})) for name, each in layers.items()]
    with torch.no_grad():
        network(torch.empty(2, 3, 299, 299, device="meta"))
    for each in noted:
        each.remove()
    flops = {name: count_step(lambda layer, x: layer(x), each, taken[name]).flops for name, each in layers.items()}
    found = {name: [sum(each.numel() for each in layer.parameters()), flops[name] / 2] for name, layer in layers.items()}
    assert found == INCEPTION
    with torch.no_grad():
        assert for_inference(network)(torch.empty(1, 3, 299, 299, device="meta")).shape == (1, 1000)
    assert sum(each.numel() for each in network.parameters()) == 23_834_568
    with pytest.raises(ValueError, match=r"^Inception-v3 trains batches of 2 or more, as its auxiliary head "):
        on_meta(MODELS["inception_v3"])(torch.empty(1, 3, 299, 299, device="meta"))


def test_weights_are_those_of_the_seed_and_spread_as_he_says_and_batch_norm_starts_as_torch_starts_it():
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build("resnet18").state_dict()

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], same[name]) for name in one)
    last = one["layer4.1.conv2.weight"]
    assert not torch.equal(last, other["layer4.1.conv2.weight"])
    assert last.mean().item() == pytest.approx(0, abs=1e-3)
    assert last.std().item() == pytest.approx(math.sqrt(1 / (512 * 9)), rel=0.02)  # half of He's, behind which a sum follows
    for name, fresh in nn.BatchNorm2d(256).state_dict().items():
        assert torch.equal(one[f"layer3.0.bn2.{name}"], fresh)


@pytest.mark.parametrize("rows", [1, 64, 1024])
def test_no_two_rows_of_a_filled_matrix_are_alike(rows):
    torch.manual_seed(0)
    weight = torch.zeros(rows, 4608)
    fill_normal(weight, 1.0)
    assert (weight.numel() > BLOCK) == (rows > 14)
    assert weight.count_nonzero() == weight.numel()
    assert len(torch.unique(weight[:, :32], dim=0)) == rows


LANGUAGE = {"bert": language_models.Bert, "gpt2": language_models.GPT2}
WIDE = ("alexnet", "vgg19", "resnet152", "inception_v3", *LANGUAGE)


@pytest.mark.parametrize("name", ["resnet18", *(pytest.param(each, marks=pytest.mark.real) for each in WIDE)])
def test_activations_neither_explode_nor_vanish(name):
    torch.manual_seed(0)
    if name in LANGUAGE:
        network, words = with_random_weights(on_meta(LANGUAGE[name])), torch.randint(30000, (1, 16))
        inputs = (words, torch.zeros_like(words)) if name == "bert" else (words,)
    else:
        network, inputs = build(name), (torch.randn(1, 3, SIZES.get(name, 64), SIZES.get(name, 64)),)
    spread = {}
    for path, layer in network.eval().named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda _, __, y, path=path: spread.update({path: y.std().item()}))
    with torch.inference_mode():
        output = network(*inputs)
    assert name in LANGUAGE or output.shape == (1, 1000)
    assert 0.1 < min(spread.values()) < max(spread.values()) < 100


def test_parameters_and_operations_are_those_of_eight_blocks_of_two_matrices():
    network = on_meta(partial(mlp, WIDTH))
    matrix = 1024 * 4096
    assert sum(p.numel() for p in network.parameters()) == 8 * (2 * matrix + 4096 + 1024) == 67_149_824
    x = torch.empty(1, WIDTH, device="meta")
    with torch.no_grad():
        assert count_step(lambda network, x: network(x), network, x).flops == 8 * 2 * 2 * matrix
    assert count_step(lambda network, x: network(x).sum().backward(), network, x).flops == 3 * 8 * 2 * 2 * matrix - 2 * matrix


def test_activations_of_the_perceptron_neither_explode_nor_vanish():
    torch.manual_seed(0)
    network = mlp(256)
    initialise(network)
    x, spread = torch.randn(16, 256), []
    with torch.inference_mode():
        for block in network:
            x = block(x)
            spread.append(x.std().item())
    assert x.shape == (16, 256)
    assert 0.1 < min(spread) < max(spread) < 10


@given(st.floats(min_value=1, max_value=1e12))
def test_a_width_for_so_many_parameters_has_them_and_the_next_narrower_has_not(least):
    width = width_for(least)
    assert width % 64 == 0
    assert 64 * width**2 >= least * (1 - 1e-12)
    assert 64 * (width - 64) ** 2 < least


IMAGE = (3, 224, 224)
# Of a plain network the number in its name; of a residual one its blocks, the convolution in front and the linear layer behind.
LAYERS = {
    "alexnet": 8,
    "vgg11": 11,
    "vgg13": 13,
    "vgg16": 16,
    "vgg19": 19,
    "resnet18": 10,
    "resnet34": 18,
    "resnet50": 18,
    "resnet101": 35,
    "resnet152": 52,
}


@pytest.mark.parametrize("name", get_args(RowName))
def test_every_network_has_its_layers_and_none_begins_in_place(name):
    row = layers(on_meta(MODELS[name]))
    assert len(row) == LAYERS[name]
    if name in ("alexnet", "vgg16", "resnet50"):
        assert sum(train_costs(row, IMAGE)) == PUBLISHED[name]["train_flops"]
    assert {type(layer[0]) for layer in row} <= {nn.Conv2d, nn.Linear, ResidualBlock}


@pytest.mark.parametrize("name", ["resnet18", *(pytest.param(each, marks=pytest.mark.real) for each in ("alexnet", "vgg11", "resnet50"))])
def test_stages_one_after_the_other_compute_what_the_network_computes(name):
    torch.manual_seed(0)
    network = build(name).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        expected = network(images)
        x = images
        for stage in stages(network, (3, 64, 64), 3):
            x = stage(x)
    torch.testing.assert_close(x, expected)


def test_equal_layers_are_shared_out_evenly_and_what_a_network_flattens_itself_is_not_flattened_again():
    network = on_meta(partial(mlp, 16))
    assert [len(stage) for stage in stages(network, (16,), 4)] == [4, 4, 4, 4]
    # The first layer costs less, as nobody needs the gradient of its input.
    assert [len(stage) for stage in stages(network, (16,), 3)] == [6, 5, 5]
    flat = nn.Sequential(nn.Conv2d(3, 4, 8), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    assert [[type(each) for each in layer] for layer in layers(flat)] == [[nn.Conv2d, nn.ReLU, nn.Flatten, nn.Dropout], [nn.Linear]]


@given(st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=9), st.data())
def test_no_cut_has_a_cheaper_costliest_part(costs, data):
    parts = data.draw(st.integers(min_value=1, max_value=len(costs)))

    def costliest(begins: tuple[int, ...]) -> int:
        return max(sum(costs[begin:end]) for begin, end in pairwise((*begins, len(costs))))

    begins = cut(costs, parts)
    assert begins[0] == 0
    assert len(begins) == parts
    assert all(begin < end for begin, end in pairwise((*begins, len(costs))))
    assert costliest(begins) == min(costliest((0, *inner)) for inner in combinations(range(1, len(costs)), parts - 1))


def parameters(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


def test_parameters_are_the_published_ones():
    assert parameters(for_inference(on_meta(language_models.Bert))) == BERT["params"]
    assert parameters(on_meta(language_models.Bert)) == BERT["params_pretraining"]
    assert parameters(on_meta(language_models.GPT2)) == 124_439_808
    assert parameters(on_meta(partial(language_models.GPT2, 48, 1600, 25))) == 1_557_611_200  # GPT-2 XL, as transformers has it


def flops(network: nn.Module, *inputs: torch.Tensor) -> int | None:
    with torch.no_grad():
        return count_step(lambda network, *inputs: network(*inputs), network, *inputs).flops


@pytest.mark.parametrize("seq", [128, 384, 512])
def test_operations_of_bert_are_the_published_ones_and_those_of_the_closed_formula(seq):
    ids, sentences, places = (each.to("meta") for each in language_models.draw_pretraining(1, seq)[0])
    layers, width, inner, vocabulary = 12, 768, 3072, 30522
    formula = layers * (2 * seq * (4 * width**2 + 2 * width * inner) + 4 * seq**2 * width) + 2 * width**2
    heads = 2 * places.shape[1] * (width**2 + width * vocabulary) + 4 * width
    network = on_meta(language_models.Bert)
    assert flops(network, ids, sentences) == formula == BERT["forward_flops"][str(seq)]
    assert flops(network, ids, sentences, places) == formula + heads
    if seq == 128:
        of_all = 2 * seq * (width**2 + width * vocabulary) + 4 * width
        assert [round(100 * each / formula, 1) for each in (heads, of_all)] == [4.3, 27.5]


def test_twenty_places_of_a_sequence_are_masked_each_once():
    torch.manual_seed(0)
    (ids, sentences, places), (words, follows) = language_models.draw_pretraining(3, 128)
    assert [tuple(each.shape) for each in (ids, sentences, places, words, follows)] == [(3, 128), (3, 128), (3, 20), (3, 20), (3,)]
    assert all(len(set(row)) == 20 and row == sorted(row) for row in places.tolist())
    assert sentences.sum(1).tolist() == [64, 64, 64]
    assert language_models.draw_pretraining(1, 8)[0][2].shape == (1, 8)


def copied(block: nn.Module, layer: nn.TransformerEncoderLayer) -> nn.TransformerEncoderLayer:
    """Give torch's layer the weights of a block."""
    theirs = (layer.self_attn.out_proj, layer.linear1, layer.linear2, layer.norm1, layer.norm2)
    for own, other in zip((block.attention.out, block.up, block.down, block.norm1, block.norm2), theirs, strict=True):
        other.load_state_dict(own.state_dict())
    layer.self_attn.in_proj_weight.data, layer.self_attn.in_proj_bias.data = (each.data for each in block.attention.qkv.parameters())
    return layer


def test_a_block_of_bert_is_torchs_layer():
    torch.manual_seed(0)
    block = TransformerLayer(768, 12, language_models.BERT_EPS, is_decoder=False).double()
    make = partial(nn.TransformerEncoderLayer, 768, 12, 3072, activation="gelu", batch_first=True, dtype=torch.float64)
    layer = copied(block, make(dropout=0.0, layer_norm_eps=1e-12))
    ours, theirs = (torch.randn(2, 9, 768, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in "ab")
    block(ours).pow(3).sum().backward()
    layer(theirs).pow(3).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(block.attention.qkv.weight.grad, layer.self_attn.in_proj_weight.grad, rtol=1e-9, atol=1e-9)


def test_a_block_of_gpt2_is_torchs_layer_with_a_causal_mask():
    torch.manual_seed(0)
    block = TransformerLayer(96, 4, language_models.GPT2_EPS, is_decoder=True).double()
    make = partial(nn.TransformerEncoderLayer, 96, 4, 384, dropout=0.0, norm_first=True, batch_first=True, dtype=torch.float64)
    layer = copied(block, make(activation=partial(F.gelu, approximate="tanh")))
    x = torch.randn(2, 9, 96, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    torch.testing.assert_close(block(x), layer(x, src_mask=mask, is_causal=True))


@torch.no_grad()
def test_a_token_with_the_keys_and_values_of_those_before_it_gives_what_the_whole_sequence_gives():
    torch.manual_seed(0)
    network = with_random_weights(on_meta(partial(language_models.GPT2, 2, 64, 4))).double()
    ids = torch.randint(language_models.GPT2_VOCABULARY, (3, 7))
    kept = []
    for layer in network.layers:
        layer.attention.qkv.register_forward_hook(lambda _, __, made: kept.append(made))
    whole = network(ids)
    caches = [made.unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4)[1:].clone() for made in kept]
    for cache in caches:
        cache[:, :, :, -1] = torch.nan  # of the last token nothing is kept yet
    torch.testing.assert_close(network(ids[:, -1:], caches)[:, 0], whole[:, -1])
    assert all(cache.isfinite().all() for cache in caches)


@torch.no_grad()
def test_the_heads_look_where_they_are_told_and_share_the_words(monkeypatch):
    for name, number in (("WIDTH", 32), ("HEADS", 4), ("LAYERS", 1), ("BERT_VOCABULARY", 50)):
        monkeypatch.setattr(language_models, name, number)
    torch.manual_seed(0)
    network = with_random_weights(on_meta(language_models.Bert)).double()
    (ids, sentences, places), targets = language_models.draw_pretraining(2, 9)
    places = places[:, :3]
    tokens, pooled = network(ids, sentences)
    hidden = network.heads.norm(F.gelu(network.heads.dense(tokens)))
    words, follows = network(ids, sentences, places)
    everywhere = hidden @ network.words.weight.T
    torch.testing.assert_close(words, torch.stack([everywhere[at, places[at]] for at in range(2)]))
    torch.testing.assert_close(follows, network.heads.follows(pooled))
    right = targets[0][:, :3], targets[1]
    expected = -words.log_softmax(2).gather(2, right[0][..., None]).mean() - follows.log_softmax(1).gather(1, right[1][:, None]).mean()
    torch.testing.assert_close(language_models.pretraining_loss((words, follows), (), right), expected)
