"""A layer of a transformer, as BERT and GPT-2 have it: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.

Nothing is dropped out: with dropout a CPU would compute fused attention as plain products, and say nothing of it.
"""

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
        """Return what each token takes from those that it attends to.

        ``cache``: keys and values (2, batch, heads, context, width / heads) of a sequence whose last token alone is given; it gets its own.
        """
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (batch, heads, seq, width / heads) each
        if cache is not None:
            cache[0, :, :, -1:], cache[1, :, :, -1:] = k, v
            k, v = cache
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and cache is None)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class TransformerLayer(nn.Module):
    """Attention and a feed-forward part, each added to what it gets: (batch, seq, width) to the same.

    Of an encoder, BERT's, sums are normalised; of a decoder, GPT-2's, what either part gets is.
    """

    def __init__(self, width: int, heads: int, eps: float, *, is_decoder: bool) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads, causal=is_decoder), nn.LayerNorm(width, eps)
        self.up, self.down, self.norm2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width, eps)
        self.is_decoder = is_decoder
        self.gelu = nn.GELU("tanh" if is_decoder else "none")

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        """Return what the next layer gets; see `Attention` of the cache."""
        if self.is_decoder:
            x = x + self.attention(self.norm1(x), cache)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        out: Tensor = self.norm2(x + self._feed_forward(x))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.gelu(self.up(x)))
        return out
