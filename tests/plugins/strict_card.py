"""An accelerator that insists on its rules: a device type of torch's own, with its data in host memory and the clocks of a simulation.

Fresh memory and copies on their way to the host hold poison, page-locked copies end only when the host has waited for them, tensors of
two devices don't mix, streams have to wait for each other, and memory goes back only when nobody uses it. Who breaks a rule gets an
error, at the latest with the next synchronisation. Operations take as long as is written here, by the clocks that the harness reads,
and profiles have them.
"""

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import record_function
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.cuda._sanitizer import EventHandler, zip_arguments
from torch.profiler import ProfilerActivity
from torch.utils import backend_registration
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from dlbench import Backend, Memory, Unit, Value, Work, register_backend, testing, workload
from dlbench.harness.worker.backends import base
from dlbench.harness.worker.serving import main
from dlbench.kit import batches
from dlbench.workloads import concurrency, sustained, transfer

LAUNCH_S, WATCHED_LAUNCH_S = 10e-6, 17.5e-6
"""Host time of an operation, usually and under the profiler."""
MEMORY_BYTES = 1 << 30
KERNEL_S, PRODUCT_S, COPY_S = 1e-6, 3e-6, 4e-6
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")
NO_KERNEL = ("empty", "new_empty", "_unsafe_view", "set_", "resize_")
READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive")
"""Operations whose answer the host waits for."""
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
"""Whose indices may lie on the host, which waits while they are copied."""


class Stream:
    """Work in the order it was given, and when the last of it ends."""

    def __init__(self, device: Any = None) -> None:
        self.number, self.ends_s = CARD.streams, 0.0
        CARD.streams += 1
        CARD.order._handle_stream_creation(self.number)

    def wait_event(self, event: "Event") -> None:
        if event.stream:
            self.ends_s = max(self.ends_s, event.at_s)
            CARD.order._handle_event_wait(id(event), self.number)

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(Event().record(other))

    def synchronize(self) -> None:
        Event().record(self).synchronize()


class Event:
    """A place in a stream, and the time when it gets there."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.stream: Stream | None = None

    def record(self, stream: Stream | None = None) -> "Event":
        self.stream = stream or CARD.current
        self.at_s = max(self.stream.ends_s, CARD.host_s)
        CARD.order._handle_event_creation(id(self))
        CARD.order._handle_event_record(id(self), self.stream.number)
        return self

    def synchronize(self) -> None:
        if self.stream:
            CARD.host_s = max(CARD.host_s, self.at_s)
            CARD.order._handle_event_synchronization(id(self))
            CARD.settle()


class Card(backend_registration._DummyBackendModule):
    """Module of this kind of device, as torch.cuda is one; there is one card, whose random numbers the CPU draws."""

    Event, Stream = Event, Stream
    current: Stream

    def __init__(self) -> None:
        self.host_s = self.last_s = 0.0
        """The host's time, and when the last of all work ends."""
        self.order = EventHandler()
        """Who waits for whom, as torch's sanitizer for CUDA has it."""
        self.streams = 0
        self.under_way: list[tuple[int, int, Callable[[], None]]] = []
        """Copies that the host doesn't know to have ended: stream, number, and what to do when it does."""
        self.broken: list[str] = []
        self.watched: list[tuple[str, float, float]] = []
        """Kernels under a profiler: name, begin and end."""
        self.seen: Counter[str] = Counter()
        self.memory: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()
        self.live_bytes = self.peak_bytes = self.allocations = 0
        self.limit_bytes = MEMORY_BYTES

    def launch(self, name: str, seconds: float, reads: Iterable["OnCard"], writes: Iterable["OnCard"]) -> None:
        """Give the current stream what takes so long, with the tensors that it reads and writes."""
        written = {each.held.number for each in writes}
        read = {each.held.number for each in reads} - written
        if self.order._handle_kernel_launch(self.current.number, read, written, set(), name, defaultdict(list)):
            raise RuntimeError(f"strict card: {name} uses memory that another stream uses, and its stream does not wait for that")
        begin_s = self.keep_busy(seconds)
        if not torch.autograd._profiler_enabled():
            self.host_s += LAUNCH_S
            return
        self.host_s += WATCHED_LAUNCH_S
        self.watched.append((f"card_{name}", begin_s, self.current.ends_s))
        with record_function(f"launch {len(self.watched) - 1}"):
            pass

    def keep_busy(self, seconds: float) -> float:
        """Give the current stream that long to do; return when it begins."""
        begin_s = max(self.current.ends_s, self.host_s)
        self.current.ends_s = begin_s + seconds
        self.last_s = max(self.last_s, self.current.ends_s)
        return begin_s

    def synchronize(self, device: Any = None) -> None:
        self.host_s = max(self.host_s, self.last_s)
        self.order._handle_device_synchronization()
        self.settle()
        self.refuse_broken()

    def settle(self) -> None:
        """End the copies that the host has now waited for."""
        known = self.order.syncs.host_sync_state
        ended = [each for each in self.under_way if each[1] <= known.get(each[0], -1)]
        self.under_way = [each for each in self.under_way if each not in ended]
        for *_, end in ended:
            end()

    def refuse_broken(self) -> None:
        if self.broken:
            raise RuntimeError(f"strict card: {self.broken.pop()}")

    def current_stream(self, device: Any = None) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Held:
    """Memory on the card, which goes back to the stream that took it when the last tensor in it is gone."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage, self.home, self.number = storage, CARD.current.number, CARD.allocations
        self.recorded = {self.home}
        CARD.memory[storage._cdata] = self
        CARD.allocations += 1
        CARD.live_bytes += storage.nbytes()
        if CARD.live_bytes > CARD.limit_bytes:
            raise torch.OutOfMemoryError("strict card out of memory")
        CARD.peak_bytes = max(CARD.peak_bytes, CARD.live_bytes)

    def __del__(self) -> None:
        CARD.live_bytes -= self.storage.nbytes()
        used = CARD.order.tensors_accessed.accesses.pop(self.number, None)
        for access in [*used.reads, *filter(None, [used.write])] if used else []:
            if access.stream not in self.recorded and not CARD.order.syncs.is_ordered_after(self.home, access.seq_num, access.stream):
                CARD.broken.append("memory went back while another stream may still use it, without record_stream")


class OnCard(torch.Tensor):
    """A tensor on the card; its numbers are those of ``there``, which nobody else may see."""

    @staticmethod
    def __new__(cls, there: torch.Tensor) -> "OnCard":
        made = torch.Tensor._make_wrapper_subclass(
            cls, there.size(), strides=there.stride(), storage_offset=there.storage_offset(), dtype=there.dtype, device=DEVICE
        )
        storage = there.untyped_storage()
        made.there, made.held = there, CARD.memory.get(storage._cdata) or Held(storage)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def record_stream(self, stream: Stream) -> None:
        self.held.recorded.add(stream.number)


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """Do an operation that has tensors of the card, or is to make one."""
    CARD.refuse_broken()
    if func._can_decompose():  # of what is made in inference mode; else autograd takes it apart
        return func.decompose(*args, **kwargs)
    name = func._schema.name.removeprefix("aten::")
    with torch.no_grad():
        if name == "copy_":
            return copy(*args, **kwargs)
        if name == "_to_copy" and (to := kwargs.pop("device", None)) not in (None, args[0].device):
            layout = {"dtype": kwargs.get("dtype"), "memory_format": kwargs.get("memory_format") or torch.preserve_format}
            target = torch.empty_like(here(args[0]), **layout)
            return copy(OnCard(poison(target)) if to.type == DEVICE.type else target, args[0], kwargs.get("non_blocking", False))
        return compute(func, name, args, kwargs)


def compute(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Do one that is no copy between host and card."""
    flat, spec = tree_flatten((args, kwargs))
    operands = [each for each in flat if isinstance(each, torch.Tensor)]
    on_card = [each for each in operands if isinstance(each, OnCard)]
    there_args, there_kwargs = tree_unflatten([here(each) for each in flat], spec)
    if any(each.is_meta for each in operands):
        return func(*there_args, **there_kwargs)
    mixed = on_card and any(each.dim() for each in operands if not isinstance(each, OnCard))
    if mixed and name not in INDEXED:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! ({name})")
    known = {id(each.there): each for each in on_card}
    found = func(*there_args, **there_kwargs)
    is_view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
    # In inference mode, too, a view of a tensor that was made outside of it is one like that.
    with torch.inference_mode(torch.is_inference_mode_enabled() and not (is_view and not operands[0].is_inference())):
        made = tree_map_only(torch.Tensor, lambda each: known[id(each)] if id(each) in known else OnCard(each), found)
    if name.startswith(("empty", "new_empty")):
        poison(made.there)
    if not is_view and not name.startswith(NO_KERNEL):
        changed = [value for about, value in zip_arguments(func._schema, args, kwargs) if about.alias_info and about.alias_info.is_write]
        written = [each for each in tree_leaves((changed, made)) if isinstance(each, OnCard)]
        CARD.launch(name, PRODUCT_S if name in PRODUCTS else KERNEL_S, on_card, written)
        if name in READS or (name in INDEXED and (mixed or any(each.dtype == torch.bool for each in operands[1:]))):
            CARD.seen["reads"] += 1
            CARD.current.synchronize()
    return made


def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy within the card, or between it and the host, which may go on at once where it is page-locked."""
    to, given, leaves = here(target), here(source), isinstance(source, OnCard)
    used = ([source] if leaves else []), ([target] if isinstance(target, OnCard) else [])
    CARD.launch("copy_", KERNEL_S if all(used) else COPY_S, *used)
    if all(used):
        to.copy_(given)
    elif non_blocking and leaves:
        under_way(partial(to.copy_, given.clone()))
        poison(to)
    elif non_blocking and given.untyped_storage().data_ptr() in PINNED:
        to.copy_(given)
        under_way(partial(refuse_overwritten, given, given._version))
    else:
        CARD.seen["reads" if leaves else "blocking_copies"] += 1
        to.copy_(given)
        CARD.current.synchronize()
    return target


def under_way(end: Callable[[], Any]) -> None:
    CARD.seen["late_copies"] += 1
    CARD.under_way.append((CARD.current.number, CARD.order.seq_num, end))


def refuse_overwritten(sent: torch.Tensor, version: int) -> None:
    if sent._version != version:
        raise RuntimeError("strict card: the host overwrote page-locked memory before it knew that its copy had ended")


def here(operand: Any) -> Any:
    """Return what stands on the host for an operand, or for the device itself."""
    if isinstance(operand, OnCard):
        return operand.there
    return HERE if isinstance(operand, torch.device) and operand == DEVICE else operand


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill memory with what nobody means."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.fill_(float("nan"))
    return tensor.fill_(1 if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max - 2)


PINNED: dict[int, torch.Tensor] = {}
"""Page-locked tensors by their addresses, which nobody else gets."""


def page_locked(tensor: torch.Tensor) -> torch.Tensor:
    return PINNED.setdefault(tensor.untyped_storage().data_ptr(), tensor)


EMPTY_LIKE, BUILD_TREE = torch.empty_like, EventList._build_tree


def empty_like(like: torch.Tensor, *args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    tensor = EMPTY_LIKE(like, *args, **kwargs)
    return page_locked(tensor) if pin_memory else tensor


def build_tree(events: EventList) -> None:
    """Put the card's kernels into what the profiler has of the host: at the operations that launched them, and as events of a device."""
    BUILD_TREE(events)
    for launch in [each for each in events if each.name.startswith("launch ")]:
        name, begin_s, end_s = CARD.watched[int(launch.name.split()[1])]
        (launch.cpu_parent or launch).append_kernel(name, 0, (end_s - begin_s) * 1e6)
        events.append(FunctionEvent(-1, name, 0, begin_s * 1e6, end_s * 1e6, device_type=DeviceType.PrivateUse1))


def lowered(operation: Any, *operands: Any) -> torch.Tensor:
    """Do a product in the precision of the autocast that is in force."""
    lower = torch.get_autocast_dtype(DEVICE.type)
    floats = [isinstance(each, torch.Tensor) and each.is_floating_point() for each in operands]
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
        return operation(*(each.to(lower) if cast else each for each, cast in zip(operands, floats, strict=True)))


class Generator(torch.Generator):
    """One for any device, as all numbers are drawn here."""

    def __new__(cls, device: Any = None) -> "Generator":
        return super().__new__(cls, "cpu")


CARD = Card()
CARD.current = Stream()
CARD.get_rng_state, CARD.set_rng_state = lambda device=None: torch.get_rng_state(), lambda state, device=None: torch.set_rng_state(state)
CARD.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
backend_registration._setup_privateuseone_for_python_backend("card", CARD)
HERE, DEVICE = torch.device("cpu"), torch.device("card", 0)
LIBRARIES = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
for makes in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default):
    LIBRARIES[0].impl(makes, lambda *args, makes=makes, **kwargs: run(makes, args, kwargs), "PrivateUse1")
for operation in (torch.ops.aten.linear.default, torch.ops.aten.matmul.default, torch.ops.aten.conv2d.default):
    LIBRARIES[0].impl(operation, partial(lowered, operation), "AutocastPrivateUse1")
LIBRARIES[1].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
torch.Generator, torch.empty_like, EventList._build_tree = Generator, empty_like, build_tree
torch.Tensor.pin_memory = lambda tensor: page_locked(tensor.clone())
torch.accelerator.synchronize = CARD.synchronize
ProfilerActivity.CARD = ProfilerActivity.PrivateUse1
for module in (torch.autograd, torch.autograd.profiler):
    module._supported_activities = lambda: {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}


class StrictCard(Backend):
    """One card, whose clocks are those of its simulation."""

    kind = "card"
    block_s = 0.0
    warmup_s = 0.0
    warmup_calls = 2

    def count(self) -> int:
        return 1

    def describe(self, index: int) -> dict[str, Any]:
        return {"name": "Strict card", "vendor": "nobody", "memory_bytes": MEMORY_BYTES}

    def synchronize(self, device: torch.device) -> None:
        CARD.synchronize()

    def limit_memory(self, device: torch.device, limit_bytes: int | None) -> None:
        CARD.limit_bytes = limit_bytes or MEMORY_BYTES

    def restart_peak(self, device: torch.device) -> None:
        CARD.peak_bytes = CARD.live_bytes

    reset_peak = restart_peak

    def peak(self, device: torch.device) -> Memory:
        return Memory(CARD.peak_bytes, CARD.peak_bytes)

    def held(self, device: torch.device) -> Memory:
        return Memory(CARD.live_bytes, CARD.live_bytes)

    def pin(self, tensors: Any) -> list[torch.Tensor]:
        return [each.detach().pin_memory() for each in tensors]

    def event_timer(self, device: torch.device) -> "StrictCard":
        return self

    def delay(self, seconds: float) -> None:
        CARD.keep_busy(seconds)

    def mark(self) -> Event:
        return Event().record()

    def seconds(self, start: Event, end: Event) -> float:
        return end.at_s - start.at_s


register_backend(StrictCard())
main.DeviceClock = lambda synchronize: SimpleNamespace(now=lambda: (CARD.synchronize(), CARD.host_s)[1], stamp=lambda: CARD.host_s)
main.LostTime = lambda: SimpleNamespace(shares=lambda own_threads: (None, {}))  # this machine may have much to do beside the tests
base.perf_counter = lambda: CARD.host_s
sustained.WARMUP_S, sustained.BLOCK_S, sustained.FEWEST_POINTS, transfer.WARMUP_S = 0.0, 1e-2, 3, 0.0
concurrency.WARMUP_S, concurrency.perf_counter = 0.0, lambda: CARD.host_s
concurrency.main_output = lambda output: output if isinstance(output, OnCard) else taught(output)


TOLD = tuple(Value(name, Unit.COUNT, None, "told") for name in ("reads", "blocking_copies", "late_copies"))


def other(of: str, given: str) -> Work:
    pairs = [each.split("=") for each in given.split()]
    return testing.set_up(of, "card:0", **{name: int(value) if value.isdigit() else value for name, value in pairs})


@workload
def both_ways(device: torch.device, *, numbers: int) -> Work:
    """Fill, copy both ways, and read: each on the current stream but the copies."""
    pairs = [(torch.zeros(numbers, device=device), torch.zeros(numbers, device=device)) for _ in range(2)]
    copies = transfer._both_ways(device, pairs)

    def call() -> torch.Tensor:
        for source, _ in pairs:
            source.fill_(1)
        copies()
        return pairs[0][1] + pairs[1][1]

    return Work(call=call)


@workload(values=TOLD)
def counted(device: torch.device, *, of: str, given: str) -> Work:
    """Count what a warm call of another workload asks of the card; ``given``: its parameters as words."""
    work = other(of, given)

    def observe(clock: Any) -> dict[str, int]:
        for _ in range(3):
            CARD.seen.clear()
            work.call()
        return {each.name: CARD.seen[each.name] for each in TOLD}

    return Work(observe=observe)


def taught(logits: torch.Tensor) -> torch.Tensor:
    """Have the host take a millisecond for them."""
    CARD.host_s += 1e-3
    return logits


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told", series=True) for name in ("answered", "learnt", "ahead")))
def beside_a_teacher(device: torch.device, *, last: Literal["teacher", "student"]) -> Work:
    """Have a student on the card learn the numbers of its teacher's batches, where one of them is the last to end its batch.

    A teacher that is ends a batch when its student has learnt the one before, a student when its teacher is as far ahead as it may be.
    """
    counts = torch.zeros(1000, device=device)
    begun, ended = ([threading.Event() for _ in range(1000)] for _ in range(2))
    answered, learnt, ahead = list[float](), list[float](), list[float]()

    def teach() -> torch.Tensor:
        at = len(ahead)
        ahead.append(at - len(learnt))
        begun[at].set()
        if last == "teacher" and 0 < at < 4:  # the last of all has no student any more
            answered.append(ended[at - 1].wait(60))
        return taught(torch.full((2,), float(at)))

    def learn(logits: torch.Tensor) -> None:
        at = len(learnt)
        if last == "student":
            answered.append(begun[at + concurrency.AHEAD].wait(60))
        counts[at] = logits.pin_memory().to(device, non_blocking=True).sum()
        learnt.append(at)
        ended[at].set()

    def observe(clock: Any) -> dict[str, Any]:
        lane = concurrency.Lane(learn, CARD)
        concurrency.run_overlapped(clock, teach, lane, concurrency.usable_cpus(), concurrency.usable_cpus(), 0.02)
        counted = counts.cpu()[: len(learnt)].tolist()
        return {"answered": answered, "learnt": [now - 2 * at for at, now in enumerate(counted)], "ahead": ahead}

    return Work(observe=observe)


@workload(values=(Value("total", Unit.NUMBER, None, "told"),))
def misuse(device: torch.device, *, how: Literal["mixed", "fresh", "overwritten", "early", "unordered", "freed"]) -> Work:
    """Break one of the rules."""
    ones, aside = torch.ones(64, device=device), Stream()

    def overwritten() -> torch.Tensor:
        locked = torch.ones(64).pin_memory()
        sent = locked.to(device, non_blocking=True)
        locked.zero_()
        return sent + ones

    def on_the_other_stream(make: Callable[[], torch.Tensor]) -> torch.Tensor:
        with CARD.stream(aside):
            return make()

    def freed() -> torch.Tensor:
        theirs = on_the_other_stream(lambda: torch.ones(64, device=device))
        CARD.current.wait_stream(aside)
        return theirs + ones

    ways = {
        "mixed": lambda: ones + torch.ones(64),
        "fresh": lambda: torch.empty_like(ones) * ones,
        "early": lambda: ones.to("cpu", non_blocking=True) + torch.ones(64),
        "overwritten": overwritten,
        "unordered": lambda: on_the_other_stream(lambda: ones * 2),
        "freed": freed,
    }
    return Work(observe=lambda clock: {"total": float(ways[how]().sum())})


@workload()
def careless(
    device: torch.device, *, of: str, given: str, left_out: Literal["make_room", "wait_event", "record", "record_stream"], by: int = -1
) -> Work:
    """Run another workload without what it waits for: everywhere, or by one of the streams."""
    owner = {"make_room": batches.PageLocked, "record": Event, "record_stream": OnCard}.get(left_out, Stream)
    careful = getattr(owner, left_out)

    def careless(self: Any, *others: Any) -> None:
        if by >= 0 and by != getattr(self, "number", None) and by not in [each.number for each in others if isinstance(each, Stream)]:
            careful(self, *others)

    setattr(owner, left_out, careless)
    work = other(of, given)

    def observe(clock: Any) -> dict[str, Any]:
        nonlocal work
        for _ in range(5):
            work.call() if work.call else work.observe(clock)
        del work
        clock.now()
        return {}

    return Work(observe=observe)
