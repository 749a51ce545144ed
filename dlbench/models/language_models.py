"""BERT-base and GPT-2, of layers as in Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.

Nothing is dropped out: with dropout a CPU would compute fused attention as plain products, and say nothing of it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it


class Attention(nn.Module):
    """Attention of each token to all of its sequence, or with ``causal`` to those before it: (batch, seq, width) to the same."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}; give a width that is a multiple of the heads")
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        """Return the attention output of each token.

        ``cache``: keys and values (2, batch, heads, context, width / heads) of a sequence; ``x`` is then its last token alone, whose own
        key and value are written into the cache.
        """
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (batch, heads, seq, width / heads) each
        if cache is not None:
            cache[0, :, :, -1:], cache[1, :, :, -1:] = k, v
            k, v = cache
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and cache is None)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class TransformerLayer(nn.Module):
    """Attention and a feed-forward part, each added to its input: (batch, seq, width) to the same.

    An encoder, BERT's, normalises the sums; a decoder, GPT-2's, normalises the input of either part.
    """

    def __init__(self, width: int, heads: int, eps: float, *, is_decoder: bool) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads, causal=is_decoder), nn.LayerNorm(width, eps)
        self.up, self.down, self.norm2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width, eps)
        self.is_decoder = is_decoder
        self.gelu = nn.GELU("tanh" if is_decoder else "none")

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        """Return the layer's output; ``cache``: see `Attention.forward`."""
        if self.is_decoder:
            x = x + self.attention(self.norm1(x), cache)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        out: Tensor = self.norm2(x + self._feed_forward(x))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.gelu(self.up(x)))
        return out


BERT_VOCABULARY, BERT_POSITIONS = 30522, 512
WIDTH, HEADS, LAYERS = 768, 12, 12
"""Sizes of BERT-base and of the small GPT-2."""
MASKED = 20
"""Tokens of a sequence that are to be predicted from the others: the code's ``max_predictions_per_seq``, 15 % of 128."""
BERT_EPS = 1e-12
"""Epsilon of its normalisations."""


class BertHeads(nn.Module):
    """Heads that BERT is trained by: which tokens are masked, and whether the second sentence follows the first."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, BERT_EPS)
        self.bias = nn.Parameter(torch.zeros(BERT_VOCABULARY))
        self.follows = nn.Linear(WIDTH, 2)

    def reset_parameters(self) -> None:
        """Set the bias to zero, as it belongs to no layer of torch that would do so."""
        nn.init.zeros_(self.bias)

    def forward(self, masked: Tensor, pooled: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the masked words, (batch, masked, vocabulary), and of whether the second sentence follows, (batch, 2).

        ``words``: vectors of the vocabulary, (vocabulary, 768), which the heads share with the network.
        """
        return F.linear(self.norm(F.gelu(self.dense(masked))), words, self.bias), self.follows(pooled)


class Bert(nn.Module):
    """Twelve layers and the pooler, 109,482,240 parameters; with the heads of its training 110,106,428.

    Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3, with the heads of its code (https://github.com/google-research/bert,
    run_pretraining.py). Sequences are whole, so that attention needs no mask.

    Forward a sequence takes L (2 s (4 w² + 2 w f) + 4 s² w) + 2 w² operations, of s tokens in L layers of width w, and f = 4 w; with the
    heads, at m places and of a vocabulary v, 2 m (w² + w v) + 4 w more: of 128 tokens 4.3 %, where heads on all of them would be 27.5 %.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.sentences = (nn.Embedding(number, WIDTH) for number in (BERT_VOCABULARY, BERT_POSITIONS, 2))
        self.norm = nn.LayerNorm(WIDTH, BERT_EPS)
        self.layers = nn.Sequential(*(TransformerLayer(WIDTH, HEADS, BERT_EPS, is_decoder=False) for _ in range(LAYERS)))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.heads = BertHeads()

    def forward(self, ids: Tensor, sentences: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return vectors of all tokens, (batch, seq, 768), and of the sequence, (batch, 768); or with ``places`` the logits of the heads.

        ``ids`` and ``sentences`` are (batch, seq); ``places``, (batch, masked), are the positions of masked words.
        """
        x = self.layers(self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]] + self.sentences(sentences)))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        if places is None:
            return x, pooled
        logits: tuple[Tensor, Tensor] = self.heads(x.gather(1, places[..., None].expand(-1, -1, WIDTH)), pooled, self.words.weight)
        return logits


def draw_pretraining(batch: int, seq: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    """Return random inputs, sequences of two sentences with masked places, and targets: the words there, and whether they follow."""
    masked = min(MASKED, seq)
    sentences = (torch.arange(seq) >= seq // 2).long().repeat(batch, 1)
    places = torch.rand(batch, seq).argsort(1)[:, :masked].sort(1).values
    inputs = torch.randint(BERT_VOCABULARY, (batch, seq)), sentences, places
    return inputs, (torch.randint(BERT_VOCABULARY, (batch, masked)), torch.randint(2, (batch,)))


def pretraining_loss(logits: tuple[Tensor, Tensor], inputs: object, targets: tuple[Tensor, Tensor]) -> Tensor:
    """Return the sum of both heads' cross-entropies."""
    (words, follows), (right_words, does_follow) = logits, targets
    return F.cross_entropy(words.flatten(0, 1), right_words.flatten()) + F.cross_entropy(follows, does_follow)


GPT2_VOCABULARY, GPT2_POSITIONS = 50257, 1024
GPT2_EPS = 1e-5
"""Epsilon of its normalisations."""


class GPT2(nn.Module):
    """Decoder of so many layers: (batch, seq) tokens to (batch, seq, vocabulary) logits of the next ones.

    Radford et al. 2019, section 2.3 and table 2, as its code has it (https://github.com/openai/gpt-2, src/model.py); by default the small
    one, with 124,439,808 parameters.
    """

    def __init__(self, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(GPT2_VOCABULARY, width), nn.Embedding(GPT2_POSITIONS, width)
        self.layers = nn.ModuleList(TransformerLayer(width, heads, GPT2_EPS, is_decoder=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width, GPT2_EPS)

    def forward(self, ids: Tensor, caches: Sequence[Tensor] | None = None) -> Tensor:
        """Return logits; ``caches``: of each layer, as `Attention` has them, where the last token of each sequence alone is given."""
        seq = ids.shape[1]
        end = caches[0].shape[3] if caches else seq
        x = self.words(ids) + self.positions.weight[end - seq : end]
        for at, layer in enumerate(self.layers):
            x = layer(x, caches and caches[at])
        return F.linear(self.norm(x), self.words.weight)


def draw_text(batch: int, seq: int) -> tuple[tuple[Tensor], None]:
    """Return random sequences, whose next tokens are to be predicted; they are their own targets."""
    return (torch.randint(GPT2_VOCABULARY, (batch, seq)),), None


def next_token_loss(logits: Tensor, inputs: tuple[Tensor], targets: None) -> Tensor:
    """Return the cross-entropy of each token but the first, predicted from those before it."""
    (ids,) = inputs
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
