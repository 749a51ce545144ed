"""Products of signs, one bit a number: XOR and popcount of packed words (Rastegari and others, XNOR-Net, arXiv 1603.05279)."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor

from dlbench.kit.c_library import NotBuilt, built

WORD = 64
_ROWS, _PANEL = 4, 8
"""As in binary.c: rows that a kernel takes at once, and neighbouring columns whose words lie side by side."""


class _Product(Protocol):
    kernel: str

    def __call__(self, *, packs: bool) -> Tensor: ...


class BinaryProduct:
    """Signs of (m, k) times signs of (k, n), both in fp32 and on one device, by XOR and popcount of packed bits.

    A sign is 1 where a number is at least 0, so of -0.0 too, and else -1, so of NaN. The right operand is packed here, once, as weights
    are whose bits are stored. ``kernel`` is the name of the one to take, by default the fastest that there is.

    Raises ValueError for operands that do not fit, and NotImplementedError where there is no such kernel.
    """

    why = ""
    """Why it is NumPy that computes, in a sentence."""

    def __init__(self, a: Tensor, b: Tensor, *, kernel: str | None = None) -> None:
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
            raise ValueError(f"products of signs take (m, k) and (k, n), and these are {tuple(a.shape)} and {tuple(b.shape)}")
        if (a.dtype, b.dtype, a.device) != (torch.float32, torch.float32, b.device):
            raise ValueError(f"signs are taken of fp32 on one device, and not of {a.dtype} on {a.device} and {b.dtype} on {b.device}")
        if a.device.type != "cpu":
            raise NotImplementedError(f"there is no product of single bits on {a.device.type}")
        self._product: _Product
        if kernel == "NumPy":
            self._product = _InNumPy(a, b)
        else:
            try:
                self._product = _Compiled(a.contiguous(), b, kernel)
            except NotBuilt as error:
                self.why = str(error)
                self._product = _InNumPy(a, b)
        self._product(packs=True)

    @property
    def kernel(self) -> str:
        """The instructions that compute it, or Triton, or NumPy."""
        return self._product.kernel

    @property
    def is_numerics(self) -> bool:
        """Whether its time says nothing of what one bit brings, as NumPy's."""
        return self.kernel == "NumPy"

    def __call__(self) -> Tensor:
        """Pack the left operand, and return the product, (m, n) in int32."""
        return self._product(packs=True)

    def multiply_packed(self) -> Tensor:
        """Return the product of what was packed last."""
        return self._product(packs=False)


def kernels() -> dict[str, int]:
    """Return the kernels of binary.c that this processor has the instructions for, the fastest first. Raises NotBuilt."""
    found: dict[str, int] = {}
    for number in count():
        name = _library().binary_kernel(number)
        if name is None:
            break
        if name:
            found.setdefault(name.decode(), number)
    return found


@cache
def _library() -> ctypes.CDLL:
    """Return binary.c, built once in a process. Raises NotBuilt."""
    library = built("binary.c")
    number, address = ctypes.c_int64, ctypes.c_void_p
    library.binary_kernel.restype, library.binary_kernel.argtypes = ctypes.c_char_p, [number]
    library.binary_pack.restype, library.binary_pack.argtypes = None, [number, address, number, number, address]
    library.binary_multiply.restype, library.binary_multiply.argtypes = None, [number, address, address, *[number] * 3, address]
    return library


class _Compiled:
    """A kernel of binary.c, in as many threads as torch's own, each with its rows."""

    def __init__(self, a: Tensor, b: Tensor, kernel: str | None) -> None:
        there = kernels()
        self.kernel = kernel or next(iter(there))
        if self.kernel not in there:
            raise NotImplementedError(f"this processor has no {self.kernel}; it has {', '.join(there)}")
        self._number, self._a = there[self.kernel], a
        (m, k), n = a.shape, b.shape[1]
        words = -(-k // WORD)
        self._packed = torch.zeros(_up(m, _ROWS), words, dtype=torch.int64)
        columns, rows = torch.zeros(_up(n, _PANEL), words, dtype=torch.int64), b.T.contiguous()
        _library().binary_pack(self._number, rows.data_ptr(), n, k, columns.data_ptr())
        self._panels = columns.view(-1, _PANEL, words).transpose(1, 2).contiguous()
        self._shape = n, k
        step = max(_up(-(-m // torch.get_num_threads()), _ROWS), _ROWS)
        self._parts = [(begin, min(step, m - begin)) for begin in range(0, m, step)]
        self._pool = ThreadPoolExecutor(len(self._parts)) if len(self._parts) > 1 else None

    def __call__(self, *, packs: bool) -> Tensor:
        n, k = self._shape
        product = torch.empty(self._a.shape[0], n, dtype=torch.int32)

        def compute(part: tuple[int, int]) -> None:
            begin, rows = part
            packed = self._packed[begin].data_ptr()
            if packs:
                _library().binary_pack(self._number, self._a[begin].data_ptr(), rows, k, packed)
            _library().binary_multiply(self._number, packed, self._panels.data_ptr(), rows, n, k, product[begin].data_ptr())

        _ = [*(self._pool.map if self._pool else map)(compute, self._parts)]
        return product


class _InNumPy:
    """The same in NumPy, for a machine without a compiler."""

    kernel = "NumPy"

    def __init__(self, a: Tensor, b: Tensor) -> None:
        try:
            import numpy as np
        except ImportError as error:
            raise NotImplementedError("NumPy is not installed") from error
        if not hasattr(np, "bitwise_count"):
            raise NotImplementedError(f"NumPy {np.__version__} counts no bits; 2.0 does")
        self._np: Any = np
        self._a, self._k = a, a.shape[1]
        self._columns = self._bits(b.T)

    def __call__(self, *, packs: bool) -> Tensor:
        if packs:
            self._rows = self._bits(self._a)
        differ = self._np.zeros((self._rows.shape[1], self._columns.shape[1]), self._np.int32)
        for row, column in zip(self._rows, self._columns, strict=True):
            differ += self._np.bitwise_count(row[:, None] ^ column)
        return torch.from_numpy(self._k - 2 * differ)

    def _bits(self, x: Tensor) -> Any:
        """Return a matrix (m, k) as ceil(k / 64) words of m rows."""
        packed = self._np.packbits(x.contiguous().numpy() >= 0, axis=1)
        whole = self._np.pad(packed, ((0, 0), (0, -packed.shape[1] % (WORD // 8))))
        return self._np.ascontiguousarray(whole.view(self._np.uint64).T)


def _up(number: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-number // step) * step
