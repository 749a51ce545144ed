"""Distance in fp64 of outputs and gradients between dlbench's BERT and GPT-2 and those of transformers with the same weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForPreTraining, GPT2Config, GPT2LMHeadModel

from benchmarks.networks import Apart
from dlbench.models import language_models

BATCH, SEQ = 2, 128
Modules = Mapping[str, Sequence[str]]
"""Of each module of ours with weights those of theirs that have them, one behind the other."""


def apart() -> Iterator[Apart]:
    """Yield each network's distances. Their weights are theirs at random, ours a copy."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        yield _bert()
        yield _gpt2()
    finally:
        torch.set_default_dtype(torch.float32)


def _bert() -> Apart:
    theirs = BertForPreTraining(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    modules = {
        "words": ["bert.embeddings.word_embeddings"],
        "positions": ["bert.embeddings.position_embeddings"],
        "sentences": ["bert.embeddings.token_type_embeddings"],
        "norm": ["bert.embeddings.LayerNorm"],
        "pooler": ["bert.pooler.dense"],
        "heads": ["cls.predictions"],
        "heads.dense": ["cls.predictions.transform.dense"],
        "heads.norm": ["cls.predictions.transform.LayerNorm"],
        "heads.follows": ["cls.seq_relationship"],
    }
    for at in range(language_models.LAYERS):
        layer = f"bert.encoder.layer.{at}"
        modules |= {
            f"layers.{at}.attention.qkv": [f"{layer}.attention.self.{each}" for each in ("query", "key", "value")],
            f"layers.{at}.attention.out": [f"{layer}.attention.output.dense"],
            f"layers.{at}.norm1": [f"{layer}.attention.output.LayerNorm"],
            f"layers.{at}.up": [f"{layer}.intermediate.dense"],
            f"layers.{at}.down": [f"{layer}.output.dense"],
            f"layers.{at}.norm2": [f"{layer}.output.LayerNorm"],
        }
    inputs, targets = language_models.draw_pretraining(BATCH, SEQ)
    ids, sentences, places = inputs
    labels = torch.full_like(ids, -100).scatter(1, places, targets[0])  # -100: no word to predict
    output = theirs(input_ids=ids, token_type_ids=sentences, labels=labels, next_sentence_label=targets[1])
    encoded = theirs.bert(input_ids=ids, token_type_ids=sentences)
    words = output.prediction_logits.gather(1, places[..., None].expand(-1, -1, language_models.BERT_VOCABULARY))
    found = [words, output.seq_relationship_logits, encoded.last_hidden_state, encoded.pooler_output]
    ours = copied(language_models.Bert(), theirs, modules)
    predicted = ours(*inputs)
    return compared(
        "bert_base",
        ours,
        theirs,
        modules,
        (language_models.pretraining_loss(predicted, inputs, targets), output.loss),
        [*predicted, *ours(*inputs[:2])],
        found,
    )


def _gpt2() -> Apart:
    theirs = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
    modules = {"words": ["transformer.wte"], "positions": ["transformer.wpe"], "norm": ["transformer.ln_f"]}
    for at in range(language_models.LAYERS):
        named = {"norm1": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj", "norm2": "ln_2"}
        named |= {"up": "mlp.c_fc", "down": "mlp.c_proj"}
        modules |= {f"layers.{at}.{own}": [f"transformer.h.{at}.{other}"] for own, other in named.items()}
    inputs, targets = language_models.draw_text(BATCH, SEQ)
    output = theirs(input_ids=inputs[0], labels=inputs[0])
    ours = copied(language_models.GPT2(), theirs, modules)
    logits = ours(*inputs)
    return compared(
        "gpt2", ours, theirs, modules, (language_models.next_token_loss(logits, inputs, targets), output.loss), [logits], [output.logits]
    )


def as_ours(name: str, theirs: nn.Module, modules: Modules, of: Callable[[Tensor], Any]) -> Tensor:
    """Return what of each weight of theirs gives, in the shape that the weight of ours of this name has."""
    module, _, weight = name.rpartition(".")
    found = []
    for each in map(theirs.get_submodule, modules[module]):
        value = of(each.get_parameter(weight))
        found.append(value.T if type(each).__name__ == "Conv1D" and weight == "weight" else value)  # which is a linear layer, turned
    return torch.cat(found)


def copied(ours: nn.Module, theirs: nn.Module, modules: Modules) -> nn.Module:
    """Give ours the weights of theirs, and return it. Raises ValueError where some of theirs have no place in ours."""
    taken = {id(each) for names in modules.values() for name in names for each in theirs.get_submodule(name).parameters()}
    if left := [name for name, each in theirs.named_parameters() if id(each) not in taken]:
        raise ValueError(f"transformers has weights that dlbench has not: {', '.join(left)}")
    ours.load_state_dict({name: as_ours(name, theirs, modules, Tensor.detach) for name, _ in ours.named_parameters()})
    return ours


def compared(
    name: str,
    ours: nn.Module,
    theirs: nn.Module,
    modules: Modules,
    losses: tuple[Tensor, Tensor],
    outputs: Sequence[Tensor],
    their_outputs: Sequence[Tensor],
) -> Apart:
    """Return how far both are apart."""
    for loss in losses:
        loss.backward()
    gradients = [(each.grad, as_ours(weight, theirs, modules, lambda one: one.grad)) for weight, each in ours.named_parameters()]
    return Apart(name, distance(*losses), max(map(distance, outputs, their_outputs)), max(distance(*both) for both in gradients))


def distance(one: Tensor | None, other: Tensor) -> float:
    """Return how far a tensor is from another, relative; infinitely where it is missing."""
    return float("inf") if one is None else ((one - other).norm() / other.norm()).item()
