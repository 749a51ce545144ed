"""The measuring process, which answers requests on a pipe (`dlbench.harness.process.wire`). torch and the standard library only.

A *hello* asks what there is: devices, versions and workloads. Other requests ask to measure a case, or to prepare for cases.

In mode ``fork`` a fork of this process does each request. The process itself must never run a tensor operation: after one parallel product
every fork hangs, as OpenMP's threads do not survive. In mode ``stay`` the process does requests itself until a device fault leaves it
unfit; only a hello that comes first is still done by a fork.
"""

import ctypes
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import torch

from dlbench.core.errors import DlbenchError, Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Clock, Status, Work, signature_to_json
from dlbench.harness.process.wire import HelloRequest, MeasureRequest, Message, PrepareRequest, Reader, Reply, Request, send
from dlbench.harness.worker import parent, registry, user
from dlbench.harness.worker.backends.base import BACKENDS, Backend, describe_devices, find, take_device_time, tensors_in
from dlbench.harness.worker.backends.torch_build import math_flags, parallelism, set_math, set_threads, versions
from dlbench.harness.worker.checking.correctness import Subject, spot_check
from dlbench.harness.worker.checking.operations import try_plugins
from dlbench.harness.worker.failures import Unmeasurable, error_text, failure_of
from dlbench.harness.worker.measuring.measure import (
    DeviceClock,
    DeviceMemory,
    memory_limit,
    name_out_of_memory,
    take_pinned_transfer,
    take_samples,
    take_transfer,
)
from dlbench.harness.worker.parent import give_scratch, keep_timed, tell_parent_by, timed_part
from dlbench.harness.worker.profiling.profile import with_profile
from dlbench.harness.worker.serving.ranks import BLOCK_S, RankProcess, RanksClock
from dlbench.harness.worker.signatures import mistake_in_values, to_numbers
from dlbench.harness.worker.usage import HostMemory, LostTime, thread_waits

_COPYING_ROUNDS, _MOST_COPIED_BYTES = 2, 1 << 25
"""Copies of more are timed in the first rounds alone: 1 GiB into fresh memory takes 0.8 s each time on the host of an H100."""


def main() -> None:
    """Serve until the requests end. Arguments: mode (fork or stay), then request, reply and lifeline descriptors."""
    stays = sys.argv[1] == "stay"
    requests, replies, lifeline = map(int, sys.argv[2:5])
    faulthandler.enable()
    case_groups: list[int] = []  # the process group of the fork at work, if any; it ends with this process
    parent.die_with_parent(case_groups)
    if stays:
        # The lifeline needs a thread, and a process that forks should have none. So in mode fork each fork depends on the lifeline instead,
        # and this process ends when its requests end.
        parent.depend_on_lifeline(lifeline)

    def fork(request: HelloRequest | MeasureRequest) -> int:
        """Do a request in a fork of this process, which leads a process group of its own, and return the fork's exit code."""
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                parent.die_with_parent([])
                parent.depend_on_lifeline(lifeline)
                _answer(request, replies)
            finally:
                os._exit(0)  # without the exit handlers and buffers that it has inherited
        case_groups[:] = [pid]
        _, status = os.waitpid(pid, 0)
        with suppress(ProcessLookupError, PermissionError):  # end what the case itself has started
            os.killpg(pid, signal.SIGKILL)
        case_groups.clear()
        return os.waitstatus_to_exitcode(status)

    serve(requests, replies, fork, stays=stays)


def serve(
    requests: int,
    replies: int,
    fork: Callable[[HelloRequest | MeasureRequest], int] | None = None,
    rank_process: RankProcess | None = None,
    *,
    stays: bool = True,
) -> None:
    """Answer requests until they end or a device fault leaves this process unfit. With ``rank_process`` it is one of several ranks.

    ``requests`` and ``replies`` are file descriptors. ``fork`` does a request in a fork and returns its exit code; None if this process
    never forks. A process that ``stays`` does requests itself, except each hello before it has measured something. A hello starts all
    accelerators: a fork releases them when it ends, while this process would keep a context on each, which takes memory, and in exclusive
    mode the device itself.
    """
    registry.load_builtins()
    # The collector was off during imports, which saves 0.5 s. Frozen modules are left out of later collections: looking through them takes
    # 0.1 s a case, and in a fork copies every page of them.
    gc.freeze()
    gc.enable()
    for message in Reader(requests):
        request = Request.from_json(message)
        is_fit = True
        code = 0
        # Outside Linux the system's libraries may not survive a fork, so a process that stays does a hello itself.
        belongs_in_fork = not stays or (isinstance(request, HelloRequest) and sys.platform == "linux")
        if isinstance(request, PrepareRequest):
            if request.training:
                # The first optimizer imports this: 0.7 s that every training case would pay again.
                import torch._dynamo  # noqa: F401  # imported for its effect

            with suppress(DlbenchError):  # each case imports the plugin again, and reports its error
                for plugin in request.plugins:
                    registry.load_plugin(plugin)
            gc.freeze()
            send(replies, {"reply": Reply().to_json()})
        elif fork and belongs_in_fork:
            code = fork(request)
        else:
            fork = None  # once this process has computed, its forks would hang
            is_fit = _answer(request, replies, rank_process)
            if is_fit and isinstance(request, MeasureRequest):
                _free_memory(request.devices[rank_process.rank if rank_process else 0])
        send(replies, {"exit": code})
        if not is_fit:
            os._exit(0)  # the exit handlers of a faulted device may hang


def _answer(request: HelloRequest | MeasureRequest, replies: int, rank_process: RankProcess | None = None) -> bool:
    """Do one request in this process and send its reply. Return whether the process is fit for another request."""
    send(replies, {"pid": os.getpid()})
    try:
        if isinstance(request, HelloRequest):
            # The trials come first, as they import the plugins.
            reply = Reply(hello={"trials": try_plugins(request.plugins), **hello(request)})
        else:
            if request.hide_accelerators:
                os.environ.update(parent.NO_DEVICE)
            for plugin in request.plugins:
                registry.load_plugin(plugin)
            tell_parent_by(partial(send, replies))
            reply = measure(request, rank_process)
        registry.refuse_imports_from(request.not_from)  # at the end, as a workload may import modules when it is set up
    except DlbenchError as error:
        reply = Reply(error=str(error))
    send(replies, {"reply": reply.to_json()})
    return not reply.fault


def _free_memory(device_id: str) -> None:
    """Release the memory of the last case for the next one and, in an A/B, for the other side's process."""
    gc.collect()
    # glibc keeps freed memory. A case that takes it again would not grow the process, so `HostMemory` would miss it.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(DlbenchError, RuntimeError):  # a device that is missing or gone is an error of the next case
        backend, device = find(device_id)
        backend.reset_peak(device)


def hello(request: HelloRequest) -> Message:
    """Return what there is: versions, threads and switches of torch, devices, files of users, and signatures of workloads.

    The workloads are dlbench's own and those of the plugin files. Workloads of installed packages are among them only if the request names
    them.
    """
    for name in request.workloads:
        with suppress(DlbenchError):  # reading the suite reports an unknown name, with its place
            registry.get(name)  # imports the installed package that has it
    torch.set_num_threads(request.threads)
    set_math("fp32")  # as for a case that names no dtype
    return {
        "versions": versions(),
        "parallel": parallelism(),
        "math": math_flags(),
        "kinds": list(BACKENDS),
        "devices": list(describe_devices()),
        "user": user.sources(),
        "signatures": [signature_to_json(workload.signature) for workload in registry.all_workloads().values()],
    }


def measure(request: MeasureRequest, rank_process: RankProcess | None = None) -> Reply:
    """Measure one case in one round. Any error becomes the status and the reason of the measurement."""
    unmeasured = Measurement(
        case=request.case,
        round=request.round,
        status=Status.FAILED,
        device_name=request.device_name,
        threads=request.threads,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    try:
        return _measure_case(unmeasured, request, rank_process)
    except Exception as error:  # noqa: BLE001  # any error of a workload or of torch is a row with a sentence
        status, reason = failure_of(error, torch.__version__, request.case.params)
        # After a crash this process can't use the device any more, so it must not measure another case.
        return Reply(measurement=replace(unmeasured, status=status, reason=reason), fault=status is Status.CRASHED)


def _prepare(request: MeasureRequest, rank_process: RankProcess | None) -> tuple[Backend, torch.device, Clock]:
    """Set threads, arithmetic and device for a case, and join its other ranks. Return the backend, the device and the clock.

    Raises Unmeasurable if the device can't compute in the case's precision.
    """
    rank = rank_process.rank if rank_process else 0
    backend, device = find(request.devices[rank])
    dtype = str(request.case.params.get("dtype", "fp32"))
    if reason := backend.unsupported(device, dtype):
        raise Unmeasurable(Status.UNSUPPORTED, reason)
    set_threads(request.threads, request.cpus[rank] if request.cpus else None)
    set_math(dtype)
    backend.activate(device)
    synchronize = partial(backend.synchronize, device)
    if rank_process:
        # Instances may share one device, which NCCL refuses. They only agree on times, and gloo is enough for that.
        rank_process.join("gloo" if request.case.instances else backend.collectives, device)
        return backend, device, RanksClock(synchronize)
    return backend, device, DeviceClock(synchronize)


def _measure_case(unmeasured: Measurement, request: MeasureRequest, rank_process: RankProcess | None) -> Reply:
    """Set a case up, time it, and return a reply whose measurement is a copy of ``unmeasured`` with all columns.

    ``unmeasured`` itself gets its limit of memory alone. Raises Unmeasurable, or whatever torch or the workload raises.
    """
    case = request.case
    backend, device, clock = _prepare(request, rank_process)
    give_scratch(request.scratch)
    host_memory, workload = HostMemory(), registry.get(case.workload)
    declared = workload.signature.declared
    with (
        # The limit is noted in the measurement of a case that fails, too.
        memory_limit(declared, case.params, backend, device, request.memory_bytes) as unmeasured.limit_bytes,
        name_out_of_memory(backend, device),
    ):
        device_memory = DeviceMemory(backend, device)
        torch.manual_seed(request.seed)
        begun_s = clock.now()
        deadline = begun_s + request.policy.timeout_s
        work = workload.set_up(device, case.params)
        setup_s = clock.now() - begun_s
        # With `cudnn_benchmark` set-up tries cuDNN's algorithms, and a compiler tries kernels. Both take memory that no call takes, so the
        # peak of such a set-up must not count. That of any other counts: a graph, for example, takes the memory of its calls in set-up.
        if math_flags()["cudnn_benchmark"] or not work.set_up_memory_counts:
            device_memory.forget_set_up()
        result = replace(unmeasured, status=Status.OK, **work.counts(case))
        lost_time = LostTime()  # from here on
        if work.observe:
            with timed_part():
                values = work.observe(clock)
            result.values = to_numbers(values)
        else:
            # Ranks wait for each other, so their waits would not tell of other programs.
            waits = thread_waits() if backend.is_host and not rank_process else None
            least_block_s = BLOCK_S if rank_process else 0.0
            result.samples = take_samples(work, clock, backend, request.policy, deadline, least_block_s, waits)
        # The peaks are read before the report, which may take more memory than a call.
        result.memory = replace(device_memory.peaks(), host_peak_bytes=host_memory.peak_bytes())
        if work.report:
            result.values = to_numbers(work.report(clock))
        result.math = math_flags()
        # Ranks, and works that run at once, wait for each other, so their waits would not tell of other programs. The clock of a device
        # would not tell the time of several devices.
        if rank_process or declared.value("at_once"):
            why_not_known = [Unknown.WAITING_OF_RANKS.reason()]
            result.missing_reasons = {"waiting": why_not_known, "stolen": why_not_known, "device_s": [Unknown.SEVERAL_DEVICES.reason()]}
        else:
            _note_lost_time(result, lost_time, work.own_threads)
        result = _with_gaps(result, work, backend, device_memory.left_bytes)
        mistake = mistake_in_values(result.values, declared.values, case.params)
        if mistake and not (rank_process and rank_process.rank):  # the values of a case are those of rank 0
            return Reply(measurement=replace(result, status=Status.FAILED, reason=mistake))
        groups = [*_groups_to_add(result, declared.is_step)]  # of columns
        if rank_process:
            return Reply(measurement=_without_extras(result, groups, backend))
        return _with_extras(Subject(result, work, workload, case.params, request.seed, backend, device, setup_s, clock, deadline), groups)


def _groups_to_add(timed: Measurement, is_step: bool) -> Iterator[str]:
    """Yield the groups of columns that a case gets after all its timing."""
    if "device_s" not in timed.missing_reasons:
        yield "device_s"
    yield "transfer"
    if not timed.round:  # a budget may end before another one
        if timed.samples and is_step:
            yield "profile"
        yield "check"


def _without_extras(timed: Measurement, groups: Sequence[str], backend: Backend) -> Measurement:
    """Return the measurement of a rank with the reason why it lacks these groups: the others would wait for what a rank does alone."""
    for group in groups:
        unknown = Unknown.TOGETHER
        if group == "transfer":
            unknown = Unknown.ON_HOST if backend.is_host else Unknown.SEVERAL_DEVICES
        timed = timed.with_reasons(group, unknown.reason())
    return timed


def _with_extras(subject: Subject, groups: Sequence[str]) -> Reply:
    """Add groups of columns to a timed measurement, and return it in a reply. A group that fails has a reason instead.

    Before each group the parent gets the measurement so far, in case this process dies. After a fault of the device the reply has the error
    alone, as the parent has the measurement.
    """
    timed = subject.result
    for position, group in enumerate(groups):
        missing = tuple(groups[position:])
        keep_timed(Reply(measurement=timed, missing=missing).to_json())
        try:
            timed = _EXTRAS[group](replace(subject, result=timed))
        except Unavailable as unavailable:
            timed = timed.with_reasons(group, unavailable.reason)
        except Exception as error:  # noqa: BLE001  # what was timed is kept
            if failure_of(error, torch.__version__)[0] is Status.CRASHED:
                return Reply(error=error_text(error), missing=missing, fault=True)
            timed = timed.with_reasons(group, Unknown.EXCEPTION.reason(text=error_text(error)))
    return Reply(measurement=timed)


def _note_lost_time(result: Measurement, lost_time: LostTime, own_threads: bool) -> None:
    """Note the CPU time that a case has lost. Drop the waits of its blocks if they may be for processes of the case itself."""
    result.throttling, result.missing_reasons = lost_time.shares(own_threads)
    if result.samples and result.missing_reasons.get("waiting") == [Unknown.WAITING_OF_CHILDREN.reason()]:
        result.samples.wait_s = None


def _with_device_time(subject: Subject) -> Measurement:
    """Return the measurement with the seconds of a call by the device's own clock. Raises Unavailable if they can't be read."""
    result = subject.result
    if result.samples:
        backend = subject.backend
        timer = backend.event_timer(subject.device)
        if timer is None:
            raise Unavailable(Unknown.NO_CLOCK) if backend.is_host else Unavailable(Unknown.NO_EVENTS, kind=backend.kind)
        result.samples.device_s = take_device_time(subject.work, result.samples, timer, subject.clock, subject.deadline)
    return result


def _with_transfer(subject: Subject) -> Measurement:
    """Return the measurement with the times of the copies that a call needs: its inputs to the device, and its output to the host.

    Raises Unavailable if there is nothing to copy, if the timed call makes the copies itself, if no call was timed, or if no time is left
    for one more call. It also raises if page-locked memory is not available. By then it has noted the times of the other copies in the
    subject's measurement, which the caller keeps.
    """
    result, work, backend, device, clock = subject.result, subject.work, subject.backend, subject.device, subject.clock
    if backend.is_host:
        raise Unavailable(Unknown.ON_HOST)
    if subject.workload.resident(subject.params) != subject.params:  # the timed call makes the copies itself
        raise Unavailable(Unknown.OWN_COPIES)
    if result.samples is None:
        raise Unavailable(Unknown.EXPERIMENT)
    if clock.now() + max(result.samples.block_s) > subject.deadline:  # there is no output to copy without one more call
        raise Unavailable(Unknown.NO_TIME_TO_COPY)
    if work.before:
        work.before()
    outputs = tensors_in(work.call())  # type: ignore[misc]  # what was timed has a call
    if not (work.inputs or outputs):
        raise Unavailable(Unknown.NOTHING_TO_COPY)
    copied_bytes = sum(tensor.nbytes for tensor in (*work.inputs, *outputs))
    # Copies of many bytes take long, so the first rounds alone time them.
    if result.round < _COPYING_ROUNDS or copied_bytes <= _MOST_COPIED_BYTES:
        result.transfer = take_transfer(work.inputs, outputs, backend, device, clock)
        try:
            result.transfer = take_pinned_transfer(result.transfer, work.inputs, outputs, backend, device, clock)
        except Unavailable as unavailable:
            unavailable.reason = {"part": "pinned", **unavailable.reason}
            raise
    return result


_EXTRAS: dict[str, Callable[[Subject], Measurement]] = {
    "device_s": _with_device_time,
    "transfer": _with_transfer,
    "profile": with_profile,
    "check": spot_check,
}
"""Functions that return a timed case's measurement with one more group of columns, by the group."""


def _with_gaps(result: Measurement, work: Work, backend: Backend, left_bytes: int) -> Measurement:
    """Return the measurement with the reasons for unknown counts of operations and bytes, and for unknown or inexact memory."""
    for group, unknown in (("flops", Unknown.OPERATIONS_NOT_COUNTED), ("bytes", Unknown.BYTES_NOT_COUNTED)):
        if group in work.unknown:
            result = result.with_reasons(group, unknown.reason(text=work.unknown[group]))
    return result.with_reasons("memory", *_memory_reasons(result.memory, backend, left_bytes))


def _memory_reasons(memory: Memory, backend: Backend, left_bytes: int) -> Iterator[Reason]:
    """Yield why columns of memory are unknown or inexact."""
    if memory.peak_bytes is None:
        yield Unknown.NO_OWN_MEMORY.reason() if backend.is_host else Unknown.NO_PEAKS.reason(kind=backend.kind)
    if left_bytes:
        yield Unknown.LEFT_BY_OTHERS.reason(bytes=left_bytes)
    if memory.host_peak_bytes is None:
        yield Unknown.NO_PROC.reason()
