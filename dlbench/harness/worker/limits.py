"""The limit of memory that a case computes within."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import torch

from dlbench.core.declarations import Search
from dlbench.core.model import ParamValue
from dlbench.core.units import byte_count
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.lifecycle import limited_memory
from dlbench.harness.worker.usage import read_status

SAFE_SHARE = 0.8
"""Of the host's memory that is left: a search stays below it, as other processes may take the rest meanwhile."""


class TooLittleLeft(Exception):
    """The machine has less memory left than the case is to be limited to; the text says how much."""


@contextmanager
def memory_limit(
    search: Search | None, params: Mapping[str, ParamValue], backend: Backend, device: torch.device, left_bytes: int | None
) -> Iterator[None]:
    """Have torch raise an error beyond what the case may take: of its own limit, and of ``left_bytes`` on the host.

    Raises TooLittleLeft where its own limit is more than the host can spare, NotImplementedError where the device has no such limits.
    """
    gibibytes = params.get(search.limit or "") if search else None
    own = None if gibibytes is None else int(float(gibibytes) * 2**30)
    if backend.is_host:
        limited = _on_host(search, own, left_bytes)
    else:
        limited = nullcontext() if own is None else _on_accelerator(backend, device, own)
    with limited:
        yield


@contextmanager
def _on_accelerator(backend: Backend, device: torch.device, own: int) -> Iterator[None]:
    backend.limit_memory(device, own)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # a device that has failed meanwhile has said so already
            backend.limit_memory(device, None)


def _on_host(search: Search | None, own: int | None, left_bytes: int | None) -> AbstractContextManager[None]:
    if search and search.limit and left_bytes:
        left_bytes = int(SAFE_SHARE * left_bytes)
        if own and own > left_bytes:
            raise TooLittleLeft(
                f"{search.limit}={own / 2**30:g} is more than the {byte_count(left_bytes)} that the host can spare; "
                "give less, or free some memory and go on with --resume"
            )
    limit = own or left_bytes
    return limited_memory(limit, read_status("VmData") or 0) if limit else nullcontext()
