"""Several trainings that share a device, and a teacher on the CPU while its student trains. docs/concurrency.md reads the values.

Each side (a training, or the teacher) is timed alone, and then while all run: by its steps in a window in which no side has ended yet.
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
from dlbench.kit.user_networks import forward_of, main_output, on_device
from dlbench.models import Model
from dlbench.workloads.cnn import build_on, draw_batch, optimizer_of, train_step, training_step, usual_optimizer
from dlbench.workloads.transfer import streams_of

Launch = Literal["thread_each", "one_thread"]
"""Each side has a thread, and all share the interpreter's lock; or one thread launches the steps of all sides in turn."""
Cpus = Sequence[int]
"""Logical CPUs that a side computes on, one of each core, with as many threads."""
Step = Callable[[], object]
AHEAD = 2
"""Steps that are given to a device before the host waits for the first of them; also batches that a teacher is ahead of its student."""
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
    """Train several networks on one device at once: `networks` of them in each process, and as many processes as `instances`.

    On an accelerator each network has a stream of its own. On a CPU each has its share of the cores, and all of them while it runs alone.
    """
    if networks * (instances or 1) < 2:
        raise ValueError("one training is not several; give networks or instances, 2 or more in all")
    streams = streams_or_none(device, launch)
    process_cpus = usable_cpus()
    all_cpus = sorted({cpu for rank_cpus in of_each_rank(process_cpus) for cpu in rank_cpus})  # an instance is a rank
    # On an accelerator threads only launch, so they share the CPUs of the process. On a CPU each computes on a part of them.
    cpus_of_threads = [process_cpus if streams else part_of(process_cpus, index, networks) for index in range(networks)]
    optimizer = usual_optimizer(model)
    # A lane takes the training steps of one network.
    lanes: list[Step] = [
        Lane(train_step(device, model=model, batch=batch, dtype=dtype, optimizer=optimizer).call, streams) for _ in range(networks)
    ]
    # Each thread repeats the step of one network, or a single thread repeats one step of every network in turn.
    threads = lanes if launch == "thread_each" else [lambda: [lane() for lane in lanes]]

    def observe(clock: Clock) -> dict[str, Reported]:
        run_for(clock, threads, cpus_of_threads, WARMUP_S)
        trains_alone = not instances or dist.get_rank() == 0  # the other instances wait meanwhile
        ends_alone = run_for(clock, lanes[:1] if trains_alone else [], [all_cpus], seconds)
        ends_at_once = run_for(clock, threads, cpus_of_threads, seconds)
        (alone_per_s,) = rates(of_each_rank(ends_alone)[0])  # rank 0 alone has trained in this window
        threads_per_s = rates([ends for rank_ends in of_each_rank(ends_at_once) for ends in rank_ends])
        # A step of a thread is one step of each of its networks, so each of them has the rate of the thread. The list is repeated for them.
        networks_per_thread = networks // len(threads)
        networks_per_s = threads_per_s * networks_per_thread
        values: dict[str, Reported] = {}
        if instances and device.type == "cuda":  # MPS runs where its control file exists
            folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")  # noqa: S108  # NVIDIA's default
            values["mps"] = Path(folder, "control").exists()
        return values | compare_speeds(
            alone=[alone_per_s] * len(networks_per_s),
            at_once=networks_per_s,
            in_turn_items_per_s=batch * alone_per_s,
            at_once_items_per_s=batch * sum(networks_per_s),
            most=len(networks_per_s),
        )

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
    """Train a student on the logits of a teacher, which the CPU computes batch by batch.

    With `free_core` the teacher leaves one core to the thread that launches. On a CPU alone each of the two has half of the cores.
    """
    streams = streams_or_none(device, launch)
    all_cpus = usable_cpus()
    student_cpus, teacher_cpus = cpus_of_pair(all_cpus, free_core, on_accelerator=bool(streams))
    teacher_network = build_on(CPU, teacher, "fp32", "nchw").eval()
    student_network = build_on(device, student, dtype, "nchw").train()
    inputs, _ = draw_batch(device, student, batch, dtype, "nchw")
    host_inputs = on_device(inputs, CPU, "fp32")
    teacher_forward = forward_of(teacher_network, host_inputs)
    student_forward = forward_of(student_network, inputs)
    teach: Callable[[], Tensor] = torch.no_grad()(lambda: main_output(teacher_forward(host_inputs)))  # logits of a batch
    teacher_logits = teach()
    with torch.no_grad():
        student_logits = main_output(student_forward(inputs))
    refuse_other_classes(student, student_logits, teacher, teacher_logits)
    optimizer = optimizer_of(student_network, student, usual_optimizer(student))
    step = training_step(device, optimizer, dtype, lambda images, targets: soft_loss(main_output(student_forward(images)), targets))

    def train_student(logits: Tensor) -> None:
        if streams:
            logits = logits.pin_memory().to(device, non_blocking=True)  # page-locked, so that the host need not wait for the copy
        step(inputs, logits)

    learn = Lane(train_student, streams)

    def observe(clock: Clock) -> dict[str, Reported]:
        def steps_per_s(side: Step, seconds: float = seconds) -> float:
            return rates(run_for(clock, [side], [all_cpus], seconds))[0]

        def run_in_turn() -> None:
            learn(teach(), ahead=0)  # and wait for the student before the teacher's next batch

        steps_per_s(run_in_turn, WARMUP_S)
        alone_per_s = steps_per_s(lambda: learn(teacher_logits)), steps_per_s(teach)  # of the student, of the teacher
        in_turn_per_s = steps_per_s(run_in_turn)
        if launch == "one_thread":
            # The device computes student steps while the teacher goes on with its next batches. Each call takes a step of both.
            at_once_per_s = [steps_per_s(lambda: learn(teach()))] * 2
        else:
            at_once_per_s = rates(run_overlapped(clock, teach, learn, teacher_cpus, student_cpus, seconds))
        most = 1 + min(alone_per_s) / max(alone_per_s)  # the slower side keeps all its speed (1), and the faster one goes at that speed
        return compare_speeds(alone_per_s, at_once_per_s, batch * in_turn_per_s, batch * at_once_per_s[0], most)  # [0]: the student's

    return Work(observe=observe)


def cpus_of_pair(cpus: Cpus, free_core: bool, *, on_accelerator: bool) -> tuple[Cpus, Cpus]:
    """Return the CPUs of a student's thread and those of its teacher. Raises ValueError for a free core without accelerator."""
    if not on_accelerator:
        if free_core:
            raise ValueError("free_core is for the thread that launches on an accelerator; on a CPU alone leave it out")
        return part_of(cpus, 0, 2), part_of(cpus, 1, 2)
    # The student's thread only launches, so it may share the CPUs of its teacher.
    return cpus, part_of(cpus[1:] if free_core else cpus, 0, 1)


def refuse_other_classes(student: str, student_logits: Tensor, teacher: str, teacher_logits: Tensor) -> None:
    """Raise ValueError where a student's logits have another shape for a sample than those of its teacher."""
    given, wanted = (tuple(logits.shape[1:]) for logits in (student_logits, teacher_logits))
    if given != wanted:
        raise ValueError(
            f"student {student} answers with {given} numbers and its teacher {teacher} with {wanted}; it needs its teacher's classes"
        )


def soft_loss(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Return the cross-entropy of a student's logits with soft targets, the softened probabilities of its teacher."""
    softened, target = (each.float().flatten(0, -2) / TEMPERATURE for each in (logits, teacher_logits))
    return TEMPERATURE**2 * F.cross_entropy(softened, target.softmax(-1))


class Lane:
    """A step that runs on a stream of its own, with only a few calls given to the device ahead; on a CPU, the step as it is."""

    def __init__(self, step: Any, streams: Any) -> None:
        """Take a step, which is called with what a call gets, and what `streams_or_none` returns."""
        self._step, self._streams = step, streams
        self._stream = streams and streams.Stream()
        self._events = deque[Any]()
        """An event behind each step that may not have ended."""

    def __call__(self, *given: Any, ahead: int = AHEAD) -> None:
        """Start a step, and wait until at most ``ahead`` of the steps have not ended."""
        if not self._streams:
            self._step(*given)
            return
        with self._streams.stream(self._stream):
            self._step(*given)
            event = self._streams.Event()
            event.record(self._stream)
        self._events.append(event)
        while len(self._events) > ahead:
            self._events.popleft().synchronize()


def streams_or_none(device: torch.device, launch: Launch) -> Any:
    """Return torch's module of streams, or None on a CPU with a thread for each side, which needs no streams.

    Raises NotImplementedError where streams are needed and the device has none.
    """
    return None if device.type == "cpu" and launch == "thread_each" else streams_of(device)


def usable_cpus() -> Cpus:
    """Return CPUs of this process, one for each thread of torch; where the system can't place threads, mere numbers."""
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return found[: torch.get_num_threads()]


def part_of(cpus: Cpus, index: int, parts: int) -> Cpus:
    """Return one of so many equal parts of the CPUs, the one at this index. Raises NotImplementedError for too few CPUs."""
    size = len(cpus) // parts
    if not size:
        raise NotImplementedError(f"{parts} at once need as many cores, and there are {len(cpus)} to use")
    return cpus[size * index : size * (index + 1)]


def use_cpus(cpus: Cpus) -> None:
    """Let this thread, and those that it starts, compute on these CPUs."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    torch.set_num_threads(len(cpus))


def run_for(clock: Clock, sides: Sequence[Step], cpus_of_sides: Sequence[Cpus], seconds: float) -> list[list[float]]:
    """Run all sides at once, each on a thread and CPUs of its own, and return the times in s at which the steps of each side ended.

    Each side runs for ``seconds`` from the end of its first step, and takes two steps at least, which `rates` needs. A rank without
    sides takes part because all ranks wait for each other at the clock.
    """
    start = Barrier(len(sides) or 1)  # neither a barrier nor a pool may have a size of 0

    def run_side(side: Step, cpus: Cpus) -> list[float]:
        start.wait()  # until all sides have a thread
        use_cpus(cpus)
        ends = list[float]()
        while len(ends) < 2 or ends[-1] < ends[0] + seconds:
            side()
            ends.append(perf_counter())
        return ends

    clock.now()  # waits for earlier work of the device, and for the other ranks
    with ThreadPoolExecutor(len(sides) or 1) as pool:
        ends_of_sides = list(pool.map(run_side, sides, cpus_of_sides))
    clock.now()  # waits until all ranks have ended
    return ends_of_sides


def run_overlapped(
    clock: Clock,
    teach: Callable[[], Tensor],
    learn: Callable[[Tensor], object],
    teacher_cpus: Cpus,
    student_cpus: Cpus,
    seconds: float,
) -> list[list[float]]:
    """Run a student and its teacher on a thread each, with the teacher up to `AHEAD` batches ahead; return when their steps ended.

    The two lists are the times in s at which the steps of the student ended, and those of the teacher.
    """
    teacher_ends = list[float]()
    pending_logits = deque[Future[Tensor]]()  # of the student's next batches; the teacher computes them

    def teach_and_stamp() -> Tensor:
        logits = teach()
        teacher_ends.append(perf_counter())
        return logits

    def take_student_step() -> None:
        while len(pending_logits) <= AHEAD:  # one batch for this step, and AHEAD more
            pending_logits.append(teacher_thread.submit(teach_and_stamp))
        learn(pending_logits.popleft().result())

    with ThreadPoolExecutor(1, initializer=partial(use_cpus, teacher_cpus)) as teacher_thread:
        (student_ends,) = run_for(clock, [take_student_step], [student_cpus], seconds)
        teacher_thread.shutdown(cancel_futures=True)  # nobody needs the batches that are still to come
    return [student_ends, teacher_ends]


def rates(ends_of_sides: Sequence[Sequence[float]]) -> list[float]:
    """Return the steps a second of each side while all sides run; ``ends_of_sides``: when the steps of each side ended, in s.

    The window of this count begins when every side has ended its first step. It ends when the first side ends its last step. A step that
    is only partly in the window counts by that part. Raises ValueError where there is no such window.
    """
    window_begin_s = max(ends[0] for ends in ends_of_sides)
    window_end_s = min(ends[-1] for ends in ends_of_sides)
    window_s = window_end_s - window_begin_s
    if window_s <= 0:
        raise ValueError("one side had ended before another had made a step; give more seconds")

    def steps_done(ends: Sequence[float], at_s: float) -> float:
        """Return how many steps a side has done by a time, from the end of its first step on; part of a step counts as that part."""
        step = min(bisect_right(ends, at_s), len(ends) - 1)  # index of the step under way: 1 or more, as all first steps have ended
        step_s = ends[step] - ends[step - 1]
        part_to_do = (ends[step] - at_s) / step_s
        return step - part_to_do

    return [(steps_done(ends, window_end_s) - steps_done(ends, window_begin_s)) / window_s for ends in ends_of_sides]


def compare_speeds(
    alone: Sequence[float], at_once: Sequence[float], in_turn_items_per_s: float, at_once_items_per_s: float, most: float
) -> dict[str, Reported]:
    """Return the values of a case from the steps a second of each side, alone and at once.

    ``most``: the largest possible sum of the shares that all sides keep of their speed alone, which for independent sides is their number.
    """
    kept = [now / before for now, before in zip(at_once, alone, strict=True)]
    return {
        "at_once_items_per_s": at_once_items_per_s,
        "in_turn_items_per_s": in_turn_items_per_s,
        "kept": kept,
        "overlap_efficiency": (sum(kept) - 1) / (most - 1),
    }
