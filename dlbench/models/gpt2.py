"""GPT-2, from "Language models are unsupervised multitask learners"; by default the small one, with 124,439,808 parameters.

Radford et al. 2019, section 2.3 and table 2, as its code has it (https://github.com/openai/gpt-2, src/model.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.models.transformer import TransformerLayer

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12
EPS = 1e-5
"""Of its normalisations."""


class GPT2(nn.Module):
    """Decoder of so many layers: (batch, seq) tokens to (batch, seq, vocabulary) logits of the next ones."""

    def __init__(self, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(POSITIONS, width)
        self.layers = nn.ModuleList(TransformerLayer(width, heads, EPS, is_decoder=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width, EPS)

    def forward(self, ids: Tensor, caches: Sequence[Tensor] | None = None) -> Tensor:
        """Return logits; ``caches``: of each layer, as `Attention` has them, where the last token of each sequence alone is given."""
        seq = ids.shape[1]
        end = caches[0].shape[3] if caches else seq
        x = self.words(ids) + self.positions.weight[end - seq : end]
        for at, layer in enumerate(self.layers):
            x = layer(x, caches and caches[at])
        return F.linear(self.norm(x), self.words.weight)


def draw(batch: int, seq: int) -> tuple[tuple[Tensor], None]:
    """Return random sequences, whose next tokens are to be told; they are their own targets."""
    return (torch.randint(VOCABULARY, (batch, seq)),), None


def loss(logits: Tensor, inputs: tuple[Tensor], targets: None) -> Tensor:
    """Return the cross-entropy of each token but the first, as told from those before it."""
    (ids,) = inputs
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
