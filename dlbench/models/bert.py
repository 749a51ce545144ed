"""BERT-base, from "BERT: Pre-training of deep bidirectional transformers for language understanding".

Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3, with the heads of its code (https://github.com/google-research/bert,
run_pretraining.py). Sequences are whole, so that attention needs no mask, and nothing is dropped out.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.models.transformer import TransformerLayer

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 30522, 512, 768, 12, 12
MASKED = 20
"""Tokens of a sequence that are to be told from the others: the code's ``max_predictions_per_seq``, 15 % of 128."""
EPS = 1e-12
"""Of its normalisations."""


class BertHeads(nn.Module):
    """What BERT is trained by: which tokens are masked, and whether the second sentence follows the first."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, EPS)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        self.follows = nn.Linear(WIDTH, 2)

    def reset_parameters(self) -> None:
        """Put the bias, which no layer of torch has, back to zero."""
        nn.init.zeros_(self.bias)

    def forward(self, masked: Tensor, pooled: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (batch, masked, vocabulary) of the words, whose vectors (vocabulary, 768) it shares, and (batch, 2)."""
        return F.linear(self.norm(F.gelu(self.dense(masked))), words, self.bias), self.follows(pooled)


class Bert(nn.Module):
    """Twelve layers and the pooler, 109,482,240 parameters; with the heads of its training 110,106,428.

    Forward a sequence takes L (2 s (4 w² + 2 w f) + 4 s² w) + 2 w² operations, of s tokens in L layers of width w, and f = 4 w; with the
    heads, at m places and of a vocabulary v, 2 m (w² + w v) + 4 w more: of 128 tokens 4.3 %, where heads on all of them would be 27.5 %.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.sentences = (nn.Embedding(number, WIDTH) for number in (VOCABULARY, POSITIONS, 2))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.layers = nn.Sequential(*(TransformerLayer(WIDTH, HEADS, EPS, is_decoder=False) for _ in range(LAYERS)))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.heads = BertHeads()

    def forward(self, ids: Tensor, sentences: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return vectors of all tokens (batch, seq, 768) and of the whole (batch, 768), or what the heads make of both.

        ``ids`` and ``sentences`` are (batch, seq); ``places`` (batch, masked) says where the heads look.
        """
        x = self.layers(self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]] + self.sentences(sentences)))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        if places is None:
            return x, pooled
        told: tuple[Tensor, Tensor] = self.heads(x.gather(1, places[..., None].expand(-1, -1, WIDTH)), pooled, self.words.weight)
        return told


def draw(batch: int, seq: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    """Return random sequences of two sentences with the places that are masked, and as targets the words there and what follows."""
    masked = min(MASKED, seq)
    sentences = (torch.arange(seq) >= seq // 2).long().repeat(batch, 1)
    places = torch.rand(batch, seq).argsort(1)[:, :masked].sort(1).values
    inputs = torch.randint(VOCABULARY, (batch, seq)), sentences, places
    return inputs, (torch.randint(VOCABULARY, (batch, masked)), torch.randint(2, (batch,)))


def loss(told: tuple[Tensor, Tensor], inputs: object, targets: tuple[Tensor, Tensor]) -> Tensor:
    """Return the sum of both heads' cross-entropies."""
    (words, follows), (right_words, does_follow) = told, targets
    return F.cross_entropy(words.flatten(0, 1), right_words.flatten()) + F.cross_entropy(follows, does_follow)
