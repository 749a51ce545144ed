"""Attention while a language model writes: one new token a sequence, which attends to all tokens before it."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from dlbench import Dtype, Size, Work, autocast, operands, workload


@workload(tags=("inference",))
def decode_attention(
    device: torch.device, *, seq: Size, batch: Size = 1, heads: Size = 32, kv_heads: Size = 32, width: Size = 128, dtype: Dtype = "fp32"
) -> Work:
    """Let one new token attend to `seq` tokens whose keys and values are kept; `heads` share `kv_heads` of those.

    With as many of them it is multi-head attention, with one multi-query attention (https://arxiv.org/abs/1911.02150), in between
    grouped-query attention (https://arxiv.org/abs/2305.13245). By default it is a layer of LLaMA with 7 billion parameters
    (https://arxiv.org/abs/2302.13971, table 2).
    """
    kept = (batch, kv_heads, seq, width)
    q, k, v = operands(device, (batch, heads, 1, width), kept, kept, dtype=dtype)
    return Work(
        call=autocast(device, dtype, lambda: scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)),
        inputs=(q, k, v),
        items=batch,  # a token each
        flops=4 * batch * heads * seq * width,  # q k^T and its product with v: seq x width multiply-adds a head each
        bytes=2 * k.nbytes + 2 * q.nbytes,  # read all keys and values once, the query, and write an output of its size
    )
