"""Copies between memories, and what page-locking costs. docs/transfers.md says what counts."""

import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from dlbench import Clock, Reported, Size, Sweep, Unit, Value, Work, link_bytes_per_s_of, pci_text, workload
from dlbench.kit.memory import page_locked, page_locking, refuse_more_than_left
from dlbench.kit.precision import fill_repeating

Direction = Literal["h2d", "d2h", "d2d", "both", "peer"]
HostPages = Literal["pageable", "pinned"]
Pair = tuple[Tensor, Tensor]
"""Source and target of a copy."""

_OVER_LINK = ("h2d", "d2h", "both")
_REPEATS = 5
WARMUP_S = 0.5
"""Warm-up of an experiment, as long as that of a call on an accelerator: within it the clock of an idle device rises."""
_MOST_PRODUCTS = 64
"""Most products during the copy of a batch: where products are even quicker, more of them say nothing new."""
_ENDS = 4096
"""Bytes at either end of a buffer that are compared after a copy."""


@workload(
    tags=("copy",),
    ceiling="copy",
    values=(
        Value(
            "link_bytes_per_s",
            Unit.BYTES_PER_S,
            None,
            "what the PCIe link carries at most at the generation and width read while copying; both ways together where both are used",
            when={"direction": _OVER_LINK},
            optional=True,
            bounds="rate.bytes_per_s",
        ),
    ),
)
def transfer(
    device: torch.device,
    *,
    bytes: Sweep[Size],  # noqa: A002  # the field's standard name of this parameter
    direction: Direction,
    memory: HostPages = "pageable",
    blocking: bool = True,
) -> Work:
    """Copy `bytes` from one memory to another, into memory that exists: one copy a call, and two for `both`.

    `direction`: `h2d` from the host to the device, `d2h` back, `both` at once on two streams, `d2d` within the device's memory, `peer`
    to another device. `memory`: the kind of the host's memory. `blocking`: whether a call waits until its copies have ended. The rate
    counts `bytes` once; twice for `both`, which moves them each way, and for `d2d`, which reads and writes the same memory.
    """
    _refuse_impossible(device, direction, memory, blocking)
    pairs = _buffers(device, bytes, direction, memory)
    # Only `both` has two pairs of source and target; any other direction has one.
    start_copies = _both_ways(device, pairs) if direction == "both" else partial(_copy, *pairs[0])
    call = start_copies
    if blocking and direction in ("h2d", "d2h"):
        call = partial(_copy, *pairs[0], non_blocking=False)
    elif blocking and device.type != "cpu":
        # torch itself waits for no copy between accelerators or within one. The copies of `both` are only started.
        call = partial(_and_wait, start_copies, device)
    _verify(call, device, pairs)
    moved_bytes = 2 * bytes if direction in ("both", "d2d") else bytes
    work = Work(call=call, bytes=moved_bytes)
    if direction not in _OVER_LINK:
        return work
    return replace(work, report=lambda _: _link_rate(start_copies, device, len(pairs)))


def _refuse_impossible(device: torch.device, direction: Direction, memory: HostPages, blocking: bool) -> None:
    """Raise NotImplementedError for a copy that the device does not have, and for a parameter that means nothing for it."""
    if device.type == "cpu" and direction != "d2d":
        raise NotImplementedError(f"a CPU's memory is the host's, so there is no copy {direction}; d2d is one within it")
    if device.type == "cpu" and not blocking:
        raise NotImplementedError("a CPU has copied before the call returns; there is no copy that does not block")
    if direction == "both" and memory == "pageable":
        raise NotImplementedError("pageable memory passes through a buffer of the driver, one copy after the other; both needs pinned")
    if direction not in _OVER_LINK and memory == "pinned":
        raise NotImplementedError(f"{direction} has no memory of the host that a device reads or writes; leave memory out")


@workload(
    tags=("copy",),
    values=(
        Value("lock_s", Unit.SECONDS, "lower", "page-locking memory that was used before"),
        Value("unlock_s", Unit.SECONDS, "lower", "making it pageable again"),
        Value("lock_bytes_per_s", Unit.BYTES_PER_S, "higher", "bytes that are page-locked a second"),
    ),
)
def pin(device: torch.device, *, bytes: Size) -> Work:  # noqa: A002  # as in transfer
    """Page-lock `bytes` of existing host memory in place, and unlock them again."""
    if device.type != "cuda":
        raise NotImplementedError(f"memory is page-locked by the runtime of CUDA or ROCm, and a device of kind {device.type} has neither")
    refuse_more_than_left(bytes, "what is to be locked takes")
    pages = torch.ones(bytes, dtype=torch.uint8)  # written to, so that the system has provided all of them
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def observe(clock: Clock) -> Mapping[str, Reported]:
        lock_and_unlock = partial(_lock_and_unlock, runtime, pages, device, clock)
        warm_up(lock_and_unlock, clock)
        times = [lock_and_unlock() for _ in range(_REPEATS)]
        lock_s = statistics.median(locking_s for locking_s, _ in times)
        unlock_s = statistics.median(unlocking_s for _, unlocking_s in times)
        return {"lock_s": lock_s, "unlock_s": unlock_s, "lock_bytes_per_s": bytes / lock_s}

    return Work(observe=observe)


def warm_up(action: Callable[[], object], clock: Clock) -> None:
    """Repeat an action for `WARMUP_S`, at least once."""
    begun_s = clock.now()
    action()
    while clock.now() - begun_s < WARMUP_S:
        action()


def seconds_of(action: Callable[[], object], clock: Clock) -> float:
    """Run an action once and return the seconds that it took."""
    start_s = clock.now()
    action()
    return clock.now() - start_s


def streams_of(device: torch.device) -> Any:
    """Return torch's module for the device, with its streams and events. Raises NotImplementedError for a device without streams."""
    module: Any = torch.get_device_module(device) if device.type != "cpu" else None  # torch.cpu's streams are empty shells
    if not hasattr(module, "Stream"):
        raise NotImplementedError(f"a device of kind {device.type} has no streams on which copies could run during other work")
    return module


def _buffers(device: torch.device, size: int, direction: Direction, memory: HostPages) -> list[Pair]:
    """Return the source, with random bytes, and the target of each copy in a call; every page has been written to.

    Raises MemoryError where the host has too little memory left for its buffers.
    """
    if direction == "peer":
        return [(_fill_at_random(_empty(size, device)), _peer_buffer(size, device))]
    host = torch.device("cpu")
    h2d, d2h = (host, device), (device, host)
    routes = {"d2d": [(device, device)], "h2d": [h2d], "d2h": [d2h], "both": [h2d, d2h]}[direction]
    host_buffers = sum(place.type == "cpu" for route in routes for place in route)
    refuse_more_than_left(host_buffers * size, "its buffers on the host take")
    return [(_fill_at_random(_empty(size, source, memory)), _empty(size, target, memory).zero_()) for source, target in routes]


def _fill_at_random(buffer: Tensor) -> Tensor:
    return fill_repeating(buffer, partial(torch.randint, 256))


def _empty(size: int, device: torch.device, memory: HostPages = "pageable") -> Tensor:
    """Return an empty buffer on the device; ``memory``: its kind if that is the host."""
    empty = torch.empty(size, dtype=torch.uint8, device=device)
    return page_locked(empty) if memory == "pinned" and device.type == "cpu" else empty


def _peer_buffer(size: int, device: torch.device) -> Tensor:
    """Return a buffer of zeros on the next accelerator of the device's kind.

    Raises NotImplementedError where there is only one, and where the peer can't be used, which is no failure of the device itself.
    """
    module: Any = torch.get_device_module(device)
    count: int = module.device_count()
    if count < 2:
        raise NotImplementedError(f"a copy to a peer needs two devices of kind {device.type}, and there is one")
    peer = torch.device(device.type, ((device.index or 0) + 1) % count)
    try:
        target = _empty(size, peer).zero_()
        torch.accelerator.synchronize(peer)  # so that what fails there is raised here
    except RuntimeError as error:
        if "out of memory" in str(error).lower():  # the case takes too much memory; the peer itself can be used
            raise
        raise NotImplementedError(f"the peer {peer} can't be used: {error}") from error
    return target


def _copy(source: Tensor, target: Tensor, non_blocking: bool = True) -> None:
    target.copy_(source, non_blocking=non_blocking)


def _both_ways(device: torch.device, pairs: list[Pair]) -> Callable[[], None]:
    """Return a call that starts both copies, each on a stream of its own, and lets the current stream wait for them."""
    module = streams_of(device)
    copies = [(module.Stream(), source, target) for source, target in pairs]

    def call() -> None:
        current = module.current_stream()
        for stream, source, target in copies:
            stream.wait_stream(current)  # so that no call begins before the last one has ended
            with module.stream(stream):
                _copy(source, target)
        for stream, _, _ in copies:
            current.wait_stream(stream)

    return call


def _and_wait(start_copies: Callable[[], object], device: torch.device) -> None:
    start_copies()
    torch.accelerator.synchronize(device)


def _verify(call: Callable[[], object], device: torch.device, pairs: list[Pair]) -> None:
    """Copy once. Raises ValueError if either end of a target differs from that of its source."""
    call()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    for source, target in pairs:
        for end in (slice(_ENDS), slice(-_ENDS, None)):
            if not torch.equal(source[end].cpu(), target[end].cpu()):
                raise ValueError("the copy is not what was copied")


def _link_rate(start_copies: Callable[[], object], device: torch.device, directions: int) -> Mapping[str, Reported]:
    """Return the bandwidth of the PCIe link at the generation and width that it has during a copy: an idle link slows down.

    ``directions``: 2 where both are used, else 1. Empty where Linux does not tell them, or this torch not the device's address.
    """
    start_copies()
    properties = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    if domain is None or bus is None or slot is None:
        return {}
    address = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
    speed, width = (pci_text(address, f"current_link_{what}") for what in ("speed", "width"))
    rate = link_bytes_per_s_of(speed, width) if speed and width else None
    return {} if rate is None else {"link_bytes_per_s": directions * rate}


def _lock_and_unlock(runtime: Any, pages: Tensor, device: torch.device, clock: Clock) -> tuple[float, float]:
    """Lock the pages and unlock them again; return the seconds that locking took, and those that unlocking took.

    Raises the runtime's reason if it refuses to lock or to unlock: RuntimeError where memory ran out, else NotImplementedError.
    """
    begun_s = clock.now()
    status = runtime.cudaHostRegister(pages.data_ptr(), pages.nbytes, 0)
    locked_s = clock.now()
    if not int(status):  # 0 is success
        status = runtime.cudaHostUnregister(pages.data_ptr())
    unlocked_s = clock.now()
    if int(status):  # locking has failed, or unlocking
        _clear_error(device)
        with page_locking():  # turns this error into NotImplementedError, unless its reason is "out of memory"
            raise RuntimeError(f"page-locking: {runtime.cudaGetErrorString(status)}")
    return locked_s - begun_s, unlocked_s - locked_s


def _clear_error(device: torch.device) -> None:
    """Launch a kernel that takes the error which the runtime keeps: torch would raise it after the next kernel, in another case."""
    with suppress(RuntimeError):
        torch.ones(1, device=device).neg_()
        torch.accelerator.synchronize(device)


@workload(
    tags=("copy",),
    values=(
        Value("copy_s", Unit.SECONDS, "lower", "copying all batches, alone"),
        Value("compute_s", Unit.SECONDS, "lower", "computing on all batches, alone"),
        Value("serial_s", Unit.SECONDS, "lower", "one after the other, on one stream"),
        Value("overlapped_s", Unit.SECONDS, "lower", "both at once, on two streams"),
        Value(
            "overlap_efficiency",
            Unit.FRACTION,
            "higher",
            "how much of the shorter of the two was hidden: (serial - overlapped) / (serial - max(copy, compute))",
            optional=True,
            margin=0.05,
        ),
    ),
)
def overlap(device: torch.device, *, n: Size = 2048, batches: Size = 16) -> Work:
    """Copy `batches` of n x n fp32 numbers to the device while it multiplies the one before by itself, from two page-locked buffers.

    As many products a batch as take about the time of its copy. With serial = copy + compute the efficiency is the overlap of
    IMB-NBC in the Intel MPI Benchmarks, (t_pure + t_CPU - t_ovrl) / min(t_pure, t_CPU), here not cut off at 0 and 1.
    """
    return Work(observe=Pipeline(streams_of(device), device, n, batches).observe)


class Pipeline:
    """Copies of batches to a device and products on them, in turn or at once.

    There are two buffers on the host, two on the device, a stream for copies and one for products, and events that hand buffers over.
    """

    def __init__(self, module: Any, device: torch.device, n: int, batches: int) -> None:
        self._stream = module.stream
        self._host = [page_locked(torch.empty(n, n)).fill_(value) for value in (1.0, 2.0)]
        self._slots = [torch.zeros(n, n, device=device) for _ in range(2)]
        self._product = torch.empty(n, n, device=device)
        self._right_numbers = torch.zeros(batches, dtype=torch.int64, device=device)
        """For each batch how many numbers in its slot were right once its products had been computed."""
        self._copying, self._computing = module.Stream(), module.Stream()
        self._copied = [module.Event() for _ in range(2)]
        """For each slot the end of the last copy to it."""
        self._computed = [module.Event() for _ in range(2)]
        """For each slot the end of the last products on it."""
        self._batches = range(batches)
        self._products_of_batch = 1

    def observe(self, clock: Clock) -> Mapping[str, Reported]:
        """Return the median seconds of all copies, of all products, of both in turn and of both at once, and the share that was hidden.

        Raises ValueError where a batch was computed on before its copy had ended, or after the next batch was copied over it.
        """
        actions: dict[str, Callable[[], None]] = {
            "copy_s": partial(self._on, self._copying, self._copy),
            "compute_s": partial(self._on, self._computing, self._compute),
            "serial_s": partial(self._on, self._copying, self._copy, self._compute),
            "overlapped_s": self._overlapped,
        }
        # The actions use the same buffers on different streams, so each has to end before the next begins. seconds_of waits for that;
        # the seconds themselves are of no use here.
        warm_up(lambda: [seconds_of(action, clock) for action in actions.values()], clock)
        copy_s = seconds_of(actions["copy_s"], clock)
        compute_s = seconds_of(actions["compute_s"], clock)
        # So far a batch had one product. Computing should take as long as copying: then there is most to hide.
        self._products_of_batch = max(1, min(_MOST_PRODUCTS, round(copy_s / compute_s)))
        times: dict[str, list[float]] = {name: [] for name in actions}
        for _ in range(_REPEATS):
            for name, action in actions.items():
                self._right_numbers.zero_()
                times[name].append(seconds_of(action, clock))
                if name in ("serial_s", "overlapped_s"):  # these two compute on the batches that they copy
                    self._check()
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        most_saved_s = medians["serial_s"] - max(medians["copy_s"], medians["compute_s"])
        if most_saved_s <= 0:  # copies or products take so little time that there is nothing to hide
            return medians
        saved_s = medians["serial_s"] - medians["overlapped_s"]
        return {**medians, "overlap_efficiency": saved_s / most_saved_s}

    def _on(self, stream: Any, *steps: Callable[[int], None]) -> None:
        """Do these steps with one batch after the other, all on one stream."""
        with self._stream(stream):
            for batch in self._batches:
                for step in steps:
                    step(batch)

    def _overlapped(self) -> None:
        """Copy each batch while products are computed on the one before."""
        for batch in self._batches:
            slot = batch % 2
            with self._stream(self._copying):
                self._copying.wait_event(self._computed[slot])
                self._copy(batch)
                self._copied[slot].record(self._copying)
            with self._stream(self._computing):
                self._computing.wait_event(self._copied[slot])
                self._compute(batch)
                self._computed[slot].record(self._computing)

    def _copy(self, batch: int) -> None:
        self._slots[batch % 2].copy_(self._host[_source(batch)], non_blocking=True)

    def _compute(self, batch: int) -> None:
        """Multiply, and then count the right numbers: last, so that it also notices a next batch that was copied too early."""
        matrix = self._slots[batch % 2]
        for _ in range(self._products_of_batch):
            torch.mm(matrix, matrix, out=self._product)
        copied_value = self._host[_source(batch)][0, 0].item()
        torch.sum(matrix == copied_value, dim=(0, 1), out=self._right_numbers[batch])

    def _check(self) -> None:
        wrong_batches = int((self._right_numbers != self._product.numel()).sum())
        if wrong_batches:
            raise ValueError(
                f"{wrong_batches} of {len(self._batches)} batches were computed on before their copy was there, or after the next came"
            )


def _source(batch: int) -> int:
    """Return the index of a batch's buffer on the host. Each slot of the device gets both in turn, so that an old batch would show."""
    return batch // 2 % 2
