"""Several at once: trainings that share a device, and a teacher on the CPU while its student trains. docs/concurrency.md reads the values.

Each side is timed alone, one after the other, and while all run: by its own steps in a window in which none has ended yet.
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
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Clock, Dtype, Duration, Reported, Size, Spread, Switch, Unit, Value, Work, of_each_rank, workload
from dlbench.kit.user_networks import forward_of, main_output, on_device, refuse_unfit
from dlbench.models import Model
from dlbench.workloads.cnn import build_on, draw_batch, optimizer_of, train_step, training_step, usual_optimizer
from dlbench.workloads.transfer import streams_of

Launch = Literal["thread_each", "one_thread"]
"""Whether each side has a thread, all of which share the interpreter's lock, or one thread launches the steps of all in turn."""
Cpus = Sequence[int]
"""Places of a side: logical CPUs, one of each core, and as many threads."""
Step = Callable[[], object]
AHEAD = 2
"""Steps that a device is given before the host waits for the first of them, and batches that a teacher may be ahead of its student."""
SECONDS, WARMUP_S = 4.0, 0.5
TEMPERATURE = 4.0
"""Temperature of soft targets: Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, take 2.5 to 20."""
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
        role="efficiency",
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
    launch: Spread[Launch] = "thread_each",
    instances: Spread[Size | None] = None,
    dtype: Switch[Dtype] = "fp32",
    seconds: Duration = SECONDS,
) -> Work:
    """Train several networks on one device at once: `networks` in each process, on streams of their own, in so many `instances`.

    On a CPU each has its share of the cores, and alone all of them.
    """
    if networks * (instances or 1) < 2:
        raise ValueError("one training is not several; give networks or instances, 2 or more in all")
    module, own = streams(device, launch), cores()
    cpus = [own if module else part(own, at, networks) for at in range(networks)]
    optimizer = usual_optimizer(model)
    lanes: list[Step] = [
        Lane(train_step(device, model=model, batch=batch, dtype=dtype, optimizer=optimizer).call, module) for _ in range(networks)
    ]
    sides = lanes if launch == "thread_each" else [lambda: [lane() for lane in lanes]]
    whole = sorted({cpu for each in of_each_rank(own) for cpu in each})

    def observe(clock: Clock) -> dict[str, Reported]:
        in_window(clock, sides, cpus, WARMUP_S)
        first = not instances or dist.get_rank() == 0
        alone = in_window(clock, lanes[:first], [whole], seconds)
        ends = of_each_rank((alone, in_window(clock, sides, cpus, seconds)))
        (alone_per_s,) = rates(ends[0][0])
        per_s = rates([each for _, own in ends for each in own]) * (networks // len(sides))
        pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")  # noqa: S108  # where NVIDIA has it
        mps = {"mps": pipe.exists()} if instances and device.type == "cuda" else {}
        return mps | reported([alone_per_s] * len(per_s), per_s, batch * alone_per_s, batch * sum(per_s), len(per_s))

    return Work(observe=observe, joins_instances=True)


@workload(tags=("cnn", "training"), values=VALUES)
def distillation(
    device: torch.device,
    *,
    teacher: Model,
    student: Model,
    batch: Size,
    launch: Spread[Launch] = "thread_each",
    free_core: Spread[bool] = False,
    dtype: Switch[Dtype] = "fp32",
    seconds: Duration = SECONDS,
) -> Work:
    """Train a student on the logits of a teacher, which the CPU computes batch by batch; `free_core`: it leaves one to the launches.

    On a CPU alone each of the two has half of the cores.
    """
    module, every = streams(device, launch), cores()
    if free_core and not module:
        raise ValueError("free_core is for the thread that launches on an accelerator; on a CPU alone leave it out")
    cpus = [every, part(every[free_core:], 0, 1)] if module else [part(every, at, 2) for at in range(2)]
    knower, learner = build_on(CPU, teacher, "fp32", "nchw").eval(), build_on(device, student, dtype, "nchw").train()
    inputs, _ = draw_batch(device, student, batch, dtype, "nchw")
    host_inputs = on_device(inputs, CPU, "fp32")
    refuse_unfit(knower, teacher, host_inputs)
    know, answer = forward_of(knower, host_inputs), forward_of(learner, inputs)
    teach: Callable[[], Tensor] = torch.no_grad()(lambda: main_output(know(host_inputs)))
    logits = teach()
    with torch.no_grad():
        given, wanted = (tuple(each.shape[1:]) for each in (main_output(answer(inputs)), logits))
    if given != wanted:
        raise ValueError(
            f"student {student} answers with {given} numbers and its teacher {teacher} with {wanted}; it needs its teacher's classes"
        )

    def loss_of(inputs: Any, logits: Tensor) -> Tensor:
        found, wanted = (each.float().flatten(0, -2) / TEMPERATURE for each in (main_output(answer(inputs)), logits))
        return TEMPERATURE**2 * F.cross_entropy(found, wanted.softmax(-1))

    update = optimizer_of(learner, student, usual_optimizer(student))
    step = training_step(device, update, dtype, loss_of)
    learn = Lane(lambda logits: step(inputs, logits.pin_memory().to(device, non_blocking=True) if module else logits), module)

    def observe(clock: Clock) -> dict[str, Reported]:
        def alone(side: Step, seconds: float = seconds) -> float:
            return rates(in_window(clock, [side], [every], seconds))[0]

        in_turn = partial(alone, lambda: learn(teach(), ahead=0))
        in_turn(WARMUP_S)
        sides, turn_per_s = (alone(lambda: learn(logits)), alone(teach)), in_turn()
        per_s = [alone(lambda: learn(teach()))] * 2 if launch == "one_thread" else rates(overlapped(clock, teach, learn, cpus, seconds))
        return reported(sides, per_s, batch * turn_per_s, batch * per_s[0], 1 + min(sides) / max(sides))

    return Work(observe=observe)


class Lane:
    """Steps on a stream of their own, of which the host gives only a few ahead; where there are no streams, steps as they are."""

    def __init__(self, step: Any, module: Any) -> None:
        self._step, self._module, self._given = step, module, deque[Any]()
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


def streams(device: torch.device, launch: Launch) -> Any:
    """Return torch's module of streams; None on a CPU, where each side computes on its thread. Raises NotImplementedError otherwise."""
    return None if device.type == "cpu" and launch == "thread_each" else streams_of(device)


def cores() -> Cpus:
    """Return the CPUs of this process; where the system places no threads, numbers."""
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return found[: torch.get_num_threads()]


def part(cpus: Cpus, at: int, of: int) -> Cpus:
    """Return one of so many equal parts. Raises NotImplementedError where there are fewer."""
    if not (each := len(cpus) // of):
        raise NotImplementedError(f"{of} at once need as many cores, and there are {len(cpus)} to use")
    return cpus[each * at : each * (at + 1)]


def take(cpus: Cpus) -> None:
    """Have this thread, and those that it starts, compute there."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    torch.set_num_threads(len(cpus))


def in_window(clock: Clock, sides: Sequence[Step], cpus: Sequence[Cpus], seconds: float) -> list[list[float]]:
    """Return when steps of each side ended, each on a thread of its own, which goes on for so long behind its first."""
    begin = Barrier(len(sides) or 1)

    def run(side: Step, cpus: Cpus) -> list[float]:
        begin.wait()
        take(cpus)
        ends = list[float]()
        while len(ends) < 2 or ends[-1] < ends[0] + seconds:
            side()
            ends.append(perf_counter())
        return ends

    clock.now()
    with ThreadPoolExecutor(len(sides) or 1) as pool:
        found = list(pool.map(run, sides, cpus))
    clock.now()
    return found


def overlapped(
    clock: Clock, teach: Callable[[], Tensor], learn: Callable[[Tensor], object], cpus: Sequence[Cpus], seconds: float
) -> list[list[float]]:
    """Return when steps of a student ended and when those of its teacher, which is a few batches ahead: they wait for nothing else."""
    taught, ahead = list[float](), deque[Future[Tensor]]()

    def teaching() -> Tensor:
        logits = teach()
        taught.append(perf_counter())
        return logits

    def step() -> None:
        while len(ahead) <= AHEAD:
            ahead.append(pool.submit(teaching))
        learn(ahead.popleft().result())

    with ThreadPoolExecutor(1, initializer=partial(take, cpus[1])) as pool:
        (learnt,) = in_window(clock, [step], cpus, seconds)
        pool.shutdown(cancel_futures=True)
    return [learnt, taught]


def rates(sides: Sequence[Sequence[float]]) -> list[float]:
    """Return the steps a second of each side while all run: from when each has ended one until the first has ended its last.

    A step at either end counts by its share within. Raises ValueError where there is no such time.
    """
    begun_s, ended_s = max(ends[0] for ends in sides), min(ends[-1] for ends in sides)
    if ended_s <= begun_s:
        raise ValueError("one side had ended before another had made a step; give more seconds")

    def done(ends: Sequence[float], at_s: float) -> float:
        after = min(bisect_right(ends, at_s), len(ends) - 1)
        return after + (at_s - ends[after]) / (ends[after] - ends[after - 1])

    return [(done(ends, ended_s) - done(ends, begun_s)) / (ended_s - begun_s) for ends in sides]


def reported(
    alone: Sequence[float], at_once: Sequence[float], in_turn_items_per_s: float, at_once_items_per_s: float, most: float
) -> dict[str, Reported]:
    """Return the values of sides by their steps a second; ``most``: what their shares can be together, of free sides their number."""
    kept = [now / before for now, before in zip(at_once, alone, strict=True)]
    return {
        "at_once_items_per_s": at_once_items_per_s,
        "in_turn_items_per_s": in_turn_items_per_s,
        "kept": kept,
        "overlap_efficiency": (sum(kept) - 1) / (most - 1),
    }
