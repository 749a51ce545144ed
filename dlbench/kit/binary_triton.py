"""Products of signs on CUDA devices, in Triton: 32 bits a word."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORD = 32
_TILE = 64
"""Rows, and columns, that one program computes: 4096 sums, 32 in each thread."""


class TritonProduct:
    """A product by Triton on the device of its operands."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self._a = a
        self._columns = _pack(b.T.contiguous())

    def __call__(self, *, packs: bool = True) -> Tensor:
        """Return the product, as `BinaryProduct` does."""
        if packs:
            self._rows = _pack(self._a.contiguous())
        (words, m), n = self._rows.shape, self._columns.shape[1]
        product = torch.empty(m, n, dtype=torch.int32, device=self._a.device)
        grid = triton.cdiv(m, _TILE), triton.cdiv(n, _TILE)
        _multiply[grid](self._rows, self._columns, product, m, n, self._a.shape[1], words, TILE=_TILE)
        return product


def _pack(x: Tensor) -> Tensor:
    """Return the signs of m rows of k numbers as (ceil(k / 32), m) words, in the order in which programs read them."""
    m, k = x.shape
    packed = torch.empty(triton.cdiv(k, _WORD), m, dtype=torch.int32, device=x.device)
    _pack_words[triton.cdiv(m, _TILE), len(packed)](x, packed, m, k, TILE=_TILE, WORD=_WORD)
    return packed


@triton.jit
def _pack_words(x, packed, m, k, TILE: tl.constexpr, WORD: tl.constexpr):  # noqa: N803  # Triton's constants are in capitals
    """Pack one word of each of TILE rows."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    bit = tl.arange(0, WORD)
    column = tl.program_id(1) * WORD + bit
    there = (row < m)[:, None] & (column < k)[None, :]
    numbers = tl.load(x + row.to(tl.int64)[:, None] * k + column[None, :], mask=there, other=-1.0)  # no bit behind the last
    words = tl.sum((numbers >= 0).to(tl.int32) << bit[None, :], axis=1)
    tl.store(packed + tl.program_id(1).to(tl.int64) * m + row, words, mask=row < m)


@triton.jit
def _multiply(a, b, product, m, n, k, words, TILE: tl.constexpr):  # noqa: N803  # Triton's constants are in capitals
    """Multiply TILE rows by TILE columns."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    differ = tl.zeros((TILE, TILE), dtype=tl.int32)
    for _ in range(words):
        differ += _count(tl.load(a + row, mask=row < m)[:, None] ^ tl.load(b + column, mask=column < n)[None, :])
        a += m
        b += n
    there = (row < m)[:, None] & (column < n)[None, :]
    tl.store(product + row.to(tl.int64)[:, None] * n + column[None, :], k - 2 * differ, mask=there)


@triton.jit
def _count(x):
    """Count the ones of each int32: in pairs, fours and bytes, which a multiplication sums up (Warren, Hacker's Delight, 5-1)."""
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    return (((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24
