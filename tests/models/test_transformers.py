"""BERT and GPT-2 are the published networks: their parameters, their operations, and what torch's own layers give with their weights."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.models import for_inference, language_models, on_meta, with_random_weights
from dlbench.models.language_models import TransformerLayer
from dlbench.models.operations import count_step

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text())["bert"]


def parameters(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


def test_parameters_are_the_published_ones():
    assert parameters(for_inference(on_meta(language_models.Bert))) == PUBLISHED["params"]
    assert parameters(on_meta(language_models.Bert)) == PUBLISHED["params_pretraining"]
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
    assert flops(network, ids, sentences) == formula == PUBLISHED["forward_flops"][str(seq)]
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


@pytest.mark.real  # at full width
@torch.no_grad()
@pytest.mark.parametrize("make", [language_models.Bert, language_models.GPT2])
def test_activations_neither_explode_nor_vanish(make):
    torch.manual_seed(0)
    network, spread = with_random_weights(on_meta(make)).eval(), {}
    for path, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _, __, y, path=path: spread.update({path: y.std().item()}))
    inputs = (torch.randint(30000, (1, 16)), torch.zeros(1, 16, dtype=torch.int64))
    network(*inputs[: 2 if isinstance(network, language_models.Bert) else 1])
    assert 0.1 < min(spread.values()) < max(spread.values()) < 100
