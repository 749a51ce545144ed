"""Several at once: trainings that share a device, and a teacher on the CPU while its student trains. docs/concurrency.md reads the values.

Each side is timed alone, one after the other, and while all run: by its own steps in a window of so many seconds in which none has ended.
"""

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Clock, Dtype, Duration, Layout, Reported, Size, Spread, Switch, Unit, Value, Work, control_group, find_network, workload
from dlbench.kit.user_networks import forward_of, main_output, on_device, refuse_unfit
from dlbench.models import Model
from dlbench.workloads.cnn import build_on, draw_batch, optimizer_of, train_step, training_step, usual_optimizer
from dlbench.workloads.transfer import streams_of

T = TypeVar("T")
Launch = Literal["each", "one"]
"""Whether each side has a thread, all of which share the interpreter's lock, or one thread launches all in turn and waits for none."""
AHEAD = 2
"""Steps that are given to a device before the host waits for the first of them, and batches that a teacher may be ahead of its student."""
SECONDS, WARMUP_S = 4.0, 0.5
TEMPERATURE = 4.0
"""That soft targets are made at: Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, used 2.5 to 20."""
CPU = torch.device("cpu")

VALUES = (
    Value("at_once_items_per_s", Unit.ITEMS_PER_S, "higher", "what all do together while all run", role="at_once"),
    Value("in_turn_items_per_s", Unit.ITEMS_PER_S, None, "what they do one after the other", role="in_turn"),
    Value("kept", Unit.FRACTION, None, "share of its speed alone that each keeps", series=True, role="kept"),
    Value(
        "overlap_efficiency",
        Unit.FRACTION,
        "higher",
        "(sum of kept - 1) / (the most that sum can be - 1): 0 as one after the other, 1 with all at full speed",
        margin=0.05,
        role="overlap",
    ),
)
MPS = Value("mps", Unit.COUNT, None, "1 where NVIDIA's MPS has processes share the device, 0 where they take turns", optional=True)


@workload(tags=("cnn", "training"), values=(*VALUES, MPS))
def concurrent_training(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    networks: Spread[Size] = 1,
    launch: Spread[Launch] = "each",
    instances: Spread[Size | None] = None,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    seconds: Duration | None = None,
) -> Work:
    """Train several networks on one device at once: `networks` in each process, on streams of their own, in so many `instances`.

    On a CPU each has its share of the cores, and alone all of them.
    """
    if networks * (instances or 1) < 2:
        raise ValueError("one training is not several; give networks or instances, 2 or more in all")
    module = None if device.type == "cpu" and launch == "each" else streams_of(device)
    own = Cores.of_process()
    shares = [own.part(at, networks) if module is None else own for at in range(networks)]
    lanes = [
        Lane(_training(device, model=model, batch=batch, dtype=dtype, layout=layout, optimizer=usual_optimizer(model)), module)
        for _ in range(networks)
    ]
    whole = Cores.together(gathered(own, instances))
    window_s = seconds or SECONDS

    def observe(clock: Clock) -> dict[str, Reported]:
        measured = partial(in_window, clock, one_thread=launch == "one")
        measured(lanes, shares, WARMUP_S)
        first = not instances or dist.get_rank() == 0
        alone = measured(lanes[:1], [whole], window_s) if first else _idle(clock)
        ends = gathered((alone, measured(lanes, shares, window_s)), instances)
        (alone_per_s,) = rates(ends[0][0])
        per_s = rates([each for _, of_process in ends for each in of_process])
        pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")  # noqa: S108  # where NVIDIA has it
        mps = {"mps": float(pipe.exists())} if instances and device.type == "cuda" else {}
        return mps | reported([alone_per_s] * len(per_s), per_s, batch * alone_per_s, batch * sum(per_s), len(per_s))

    return Work(observe=observe)


@workload(tags=("cnn", "training"), values=VALUES)
def distillation(
    device: torch.device,
    *,
    teacher: Model,
    student: Model,
    batch: Size,
    launch: Spread[Launch] = "each",
    free_core: Spread[bool] = False,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    seconds: Duration | None = None,
) -> Work:
    """Train a student on a teacher's logits, which come from the CPU batch by batch; `free_core`: the teacher leaves one to the launches.

    On a CPU alone each of the two has half of the cores.
    """
    module = None if device.type == "cpu" and launch == "each" else streams_of(device)
    if free_core and module is None:
        raise ValueError("free_core is for the thread that launches on an accelerator; on a CPU alone leave it out")
    every = Cores.of_process()
    cores = [every.part(at, 2) for at in range(2)] if module is None else [every, every.but_one() if free_core else every]
    learner, knower = build_on(device, student, dtype, layout), build_on(CPU, teacher, "fp32", "nchw").eval()
    inputs, _ = draw_batch(device, student, batch, dtype, layout)
    host_inputs = on_device(inputs, CPU, "fp32")
    refuse_unfit(knower, teacher, host_inputs)
    know, answer = forward_of(knower, host_inputs), forward_of(learner, inputs)

    @torch.no_grad()
    def teach() -> Tensor:
        return main_output(know(host_inputs))  # type: ignore[no-any-return]  # of whatever network

    def loss_of(inputs: Any, logits: Tensor) -> Tensor:
        found, wanted = (each.float().flatten(0, -2) / TEMPERATURE for each in (main_output(answer(inputs)), logits))
        return TEMPERATURE**2 * F.cross_entropy(found, wanted.softmax(-1))

    logits = teach()
    with torch.no_grad():
        given, wanted = (tuple(each.shape[1:]) for each in (main_output(answer(inputs)), logits))
    if given != wanted:
        raise ValueError(
            f"student {student} answers with {given} numbers and its teacher {teacher} with {wanted}; it needs its teacher's classes"
        )
    update = optimizer_of(learner.train(), usual_optimizer(student), "default", in_graph=False, user_network=find_network(student))
    step = training_step(device, update, dtype, loss_of)
    learn = Lane(lambda logits: step(inputs, logits.pin_memory().to(device, non_blocking=True) if module else logits), module)
    window_s = seconds or SECONDS

    def observe(clock: Clock) -> dict[str, Reported]:
        def alone(side: Callable[[], object], seconds: float = window_s) -> float:
            return rates(in_window(clock, [side], [every], seconds))[0]

        def in_turn() -> None:
            learn(teach(), ahead=0)

        alone(in_turn, WARMUP_S)
        sides = alone(partial(learn, logits)), alone(teach)
        in_turn_per_s = alone(in_turn)
        per_s = [alone(lambda: learn(teach()))] * 2 if launch == "one" else rates(beside(clock, teach, learn, cores, window_s))
        return reported(sides, per_s, batch * in_turn_per_s, batch * per_s[0], 1 + min(sides) / max(sides))

    return Work(observe=observe)


class Lane:
    """Steps on a stream of their own, of which the host gives only a few ahead; where there is no module of streams, steps as they are."""

    def __init__(self, step: Callable[..., object], module: Any) -> None:
        self._step, self._module = step, module
        self._given = deque[Any]()
        self._stream = module and module.Stream()

    def __call__(self, *given: Any, ahead: int = AHEAD) -> None:
        """Give a step, and wait until at most so many of those given have not ended."""
        if not self._module:
            self._step(*given)
            return
        with self._module.stream(self._stream):
            self._step(*given)
            (event := self._module.Event()).record(self._stream)
        self._given.append(event)
        while len(self._given) > ahead:
            self._given.popleft().synchronize()


class Cores(NamedTuple):
    """Logical CPUs, none where the system places no threads, and how many threads compute there."""

    cpus: tuple[int, ...]
    threads: int

    @classmethod
    def of_process(cls) -> "Cores":
        """Return those of this process, which has one logical CPU of each core."""
        return cls(tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (), torch.get_num_threads())

    @classmethod
    def together(cls, several: Sequence["Cores"]) -> "Cores":
        """Return those of several processes, which may have the same CPUs."""
        return cls(tuple({cpu for each in several for cpu in each.cpus}), sum(each.threads for each in several))

    def part(self, at: int, of: int) -> "Cores":
        """Return one of so many equal parts. Raises NotImplementedError where there are fewer cores."""
        if self.threads < of:
            raise NotImplementedError(f"{of} at once need as many cores, and there are {self.threads} to use")
        each = len(self.cpus) // of
        return Cores(self.cpus[each * at : each * (at + 1)], self.threads // of)

    def but_one(self) -> "Cores":
        """Return all but one. Raises NotImplementedError where there is only one."""
        self.part(0, 2)
        return Cores(self.cpus[:-1], self.threads - 1)

    def take(self) -> None:
        """Have the calling thread, and those that it starts, compute there."""
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        torch.set_num_threads(self.threads)


def in_window(
    clock: Clock, steps: Sequence[Callable[[], object]], cores: Sequence[Cores], seconds: float, *, one_thread: bool = False
) -> list[list[float]]:
    """Return when steps of each side ended, all of which go on for so long behind their first: on a thread each, or on one in turn."""
    groups = [range(len(steps))] if one_thread else [range(at, at + 1) for at in range(len(steps))]
    begin, ends = Barrier(len(groups)), [list[float]() for _ in steps]

    def run(group: range) -> None:
        begin.wait()
        cores[group[0]].take()
        last = ends[group[-1]]
        while len(last) < 2 or last[-1] < last[0] + seconds:
            for at in group:
                steps[at]()
                ends[at].append(perf_counter())

    clock.now()
    with ThreadPoolExecutor(len(groups)) as pool:
        for running in [pool.submit(run, group) for group in groups]:
            running.result()
    clock.now()
    return ends


def beside(
    clock: Clock, teach: Callable[[], Tensor], learn: Callable[[Tensor], object], cores: Sequence[Cores], seconds: float
) -> list[list[float]]:
    """Return when steps of a student ended and when those of its teacher, which is a few batches ahead: they wait for nothing else."""
    taught = list[float]()
    ahead = deque[Future[Tensor]]()

    def teaching() -> Tensor:
        logits = teach()
        taught.append(perf_counter())
        return logits

    with ThreadPoolExecutor(1, initializer=cores[1].take) as pool:

        def step() -> None:
            while len(ahead) <= AHEAD:
                ahead.append(pool.submit(teaching))
            learn(ahead.popleft().result())

        (learnt,) = in_window(clock, [step], cores[:1], seconds)
        for each in ahead:
            each.cancel()
    return [learnt, taught]


def rates(sides: Sequence[Sequence[float]]) -> list[float]:
    """Return the steps a second of each side while all run: from when each has ended one until the first has ended its last.

    A step at either end counts by its share within. Raises ValueError where there is no such time.
    """
    begun_s, ended_s = max(ends[0] for ends in sides), min(ends[-1] for ends in sides)
    if ended_s <= begun_s:
        raise ValueError("one side had ended before another had made a step; give more seconds")
    return [(_done(ends, ended_s) - _done(ends, begun_s)) / (ended_s - begun_s) for ends in sides]


def _done(ends: Sequence[float], at_s: float) -> float:
    """Return how many steps were done behind the first that ended, of the one under way its share."""
    after = min(bisect_right(ends, at_s), len(ends) - 1)
    return after - 1 + (at_s - ends[after - 1]) / (ends[after] - ends[after - 1])


def reported(
    alone: Sequence[float], at_once: Sequence[float], in_turn_items_per_s: float, at_once_items_per_s: float, most: float
) -> dict[str, Reported]:
    """Return the values of sides by their steps a second; ``most``: what their shares can be together, as many as sides that are free."""
    kept = [now / before for now, before in zip(at_once, alone, strict=True)]
    return {
        "at_once_items_per_s": at_once_items_per_s,
        "in_turn_items_per_s": in_turn_items_per_s,
        "kept": kept,
        "overlap_efficiency": (sum(kept) - 1) / (most - 1),
    }


def gathered(own: T, instances: int | None) -> list[T]:
    """Return this of each process; all of them have to ask."""
    if not instances:
        return [own]
    found: list[Any] = [None] * instances
    dist.all_gather_object(found, own, group=control_group())
    return found


def _training(device: torch.device, **given: Any) -> Callable[[], object]:
    step = train_step(device, **given).call
    if step is None:
        raise TypeError("a training step is a call")
    return step


def _idle(clock: Clock) -> list[list[float]]:
    """Wait as long as another process computes, which reads the clock as often."""
    clock.now()
    clock.now()
    return []
