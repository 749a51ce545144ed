"""Checks of one call after all timing: it is near the same in fp64, and its output follows the inputs. docs/checks.md says how.

Plain execution is what torch does by default: one operation after the other, with all data on the device from the start. A compiled step,
or one with a fused update, is executed otherwise. It may be about as far from fp64 as plain execution is.
"""

import math
import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dlbench.core.errors import PARTS, Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import Clock, Observed, Params, Status, Work
from dlbench.core.precision import PRECISIONS, Precision
from dlbench.harness.probe.linux import too_little_memory
from dlbench.harness.worker.backends.base import Backend, find, tensors_in
from dlbench.harness.worker.backends.torch_build import set_math
from dlbench.harness.worker.checking.operations import operations_of
from dlbench.harness.worker.checking.rule import RETURNED, Deviation, comparable, distance, largest_deviation, rounding, worst
from dlbench.harness.worker.failures import error_text
from dlbench.harness.worker.registry import Workload

BUDGET_S = 1.0
"""Time that each of the checks may take, by estimate."""
COARSE = 1e-4
"""Roundoff of a precision in which other inputs may change an output by less than a rounding."""
_EXECUTION = ("mode", "implementation")
"""Parameters that change how a step is executed, but not what it computes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A timed case that can be set up again, here and on the CPU."""

    result: Measurement
    work: Work
    workload: Workload
    params: Params
    seed: int
    backend: Backend
    device: torch.device
    setup_s: float
    """Seconds that its set-up took."""
    clock: Clock
    deadline: float
    """Time on ``clock`` at which everything about the case has to be done."""

    @property
    def precision(self) -> Precision | None:
        """Its precision; None where it has none."""
        return PRECISIONS.get(str(self.params.get("dtype")))

    @property
    def call_s(self) -> float:
        """Seconds of its slowest call; 0 of an experiment, whose calls nobody timed apart."""
        return max(self.result.samples.block_s) if self.result.samples else 0.0

    @property
    def plain(self) -> "Subject":
        """The same in plain execution, with its data on the device from the start."""
        declared = self.workload.signature.declared
        plain = {name: text for name in _EXECUTION if name in self.params and (text := declared.plain_default(name))}
        return replace(self, params={**self.workload.resident(self.params), **plain})

    @property
    def is_executed_otherwise(self) -> bool:
        """Whether its step is not executed plainly, and can be compared with one that is."""
        return self.work.reference is not None and self.params != self.plain.params

    def set_up(self) -> Work:
        """Set the work up once more, from the same seed."""
        torch.manual_seed(self.seed)
        return self.workload.set_up(self.device, self.params)

    def refuse_longer(self, needed_s: float) -> None:
        """Raise Unavailable where a check takes longer than `BUDGET_S` and the set-up did, or a tenth of the time left."""
        left_s = self.deadline - self.clock.now()
        most_s = min(max(BUDGET_S, self.setup_s), left_s / 10)
        if needed_s > most_s:
            raise Unavailable(Unknown.TOO_LONG, seconds=needed_s, seconds_most=round(most_s, 1))


def spot_check(subject: Subject) -> Measurement:
    """Return the measurement with its spot check; its status is failed if rounding can't explain how far its results are from fp64.

    An experiment in plain execution is left unchecked, as it has neither a call nor a step to compare. Overwrites the work's inputs.
    Raises Unavailable for a case with a limit of memory, in which a second set-up would have no room.
    """
    if not (subject.work.call or subject.is_executed_otherwise):
        return subject.result
    limit_parameter = subject.workload.signature.declared.parameter("limit")
    if limit_parameter and subject.params.get(limit_parameter) is not None:
        raise Unavailable(Unknown.WITHIN_LIMIT)
    empty_call_s = min(timeit.repeat(lambda: None, number=1000, repeat=5)) / 1000  # a timed call that is hardly slower looks like no work
    results, reasons = _run_checks(subject)
    subject.backend.synchronize(subject.device)  # a device that a check has broken raises here
    deviations: Sequence[Deviation] = results.get("fp64", ())
    # The columns show how far the output or loss is; gradients and updates only decide the status.
    error = tolerance = None
    returned = [each for each in deviations if each.what in RETURNED]
    if returned:
        _, error, tolerance = returned[0]  # a call returns one of them: an output in inference, a loss in training
        if math.isinf(error):  # no number in JSON
            error = None
    elif deviations:  # rounding was too large to compare what the call returns, but not to compare its gradients
        reasons["fp64"] = {"part": "fp64", **Unknown.TOO_ROUGH.reason()}
    check = SpotCheck(results.get("inputs"), error, tolerance, empty_call_s, results.get("operations"))
    result = replace(subject.result, check=check).with_reasons("check", *(reasons[part] for part in PARTS if part in reasons))
    if all(each.is_right for each in deviations):
        return result
    wrong = worst(deviations)
    mistake = f"is {wrong.error:.2g} away from fp64, where rounding explains {wrong.explained:.2g}"
    if math.isinf(wrong.error):
        mistake = "is missing, or not finite"
    reason = f"its {wrong.what} {mistake}; it computes something else than it says, or not in {subject.params['dtype']}"
    return replace(result, status=Status.FAILED, reason=reason)


def _run_checks(subject: Subject) -> tuple[dict[str, Any], dict[str, Reason]]:
    """Run the parts of the check that the case allows. Return their results, and the reasons for those without one, both by part."""
    # The comparison with fp64 comes first: it needs the inputs as they are, and the check of the inputs overwrites them.
    checks: dict[str, Callable[[Subject], Any]] = {"fp64": _compare_with_fp64}
    if subject.work.call:
        checks |= {"inputs": _follows_input, "operations": _count_operations}
    results: dict[str, Any] = {}
    reasons: dict[str, Reason] = {}
    for part, check in checks.items():
        try:
            results[part] = check(subject)
        except Unavailable as unavailable:
            reasons[part] = {"part": part, **unavailable.reason}
        except Exception as error:  # noqa: BLE001  # what was measured is kept, whatever a workload raises when called once more
            reasons[part] = {"part": part, **Unknown.EXCEPTION.reason(text=error_text(error))}
    return results, reasons


def _follows_input(subject: Subject) -> bool:
    """Return whether the output changes if the inputs do. Raises Unavailable where rounding may hide the change."""
    if not subject.work.inputs:
        raise Unavailable(Unknown.NO_INPUTS)
    subject.refuse_longer(2 * subject.call_s)
    before = _call_once(subject)
    subject.backend.synchronize(subject.device)  # the call may still be copying the inputs, which the next line overwrites
    after = _call_once(subject, refill=True)
    if len(before) != len(after) or not all(map(torch.equal, before, after)):
        return True
    precision = subject.precision
    if precision and precision.roundoff >= COARSE:  # the layers of a deep network may shrink a change until rounding hides it
        raise Unavailable(Unknown.TOO_FAINT, precision=precision.name)
    return False


def _call_once(subject: Subject, *, refill: bool = False) -> list[Tensor]:
    """Call the work once and return copies of those outputs that have to change if its inputs do.

    These are floating-point tensors, and products of integers. Other integers, such as a class or a count, may well stay the same. The
    copies have 0 for NaN, as `torch.equal` never finds NaN equal. With ``refill`` the inputs get other numbers before the call. Raises
    Unavailable if there are no such outputs.
    """
    work = subject.work
    if work.before:
        work.before()
    if refill:
        _refill(work.inputs)
    torch.manual_seed(subject.seed)  # in each call, so that dropout is the same
    # Only the precisions of integers have no roundoff of sums, as their sums are exact.
    multiplies_integers = subject.precision is not None and not subject.precision.sum_roundoff
    outputs = tensors_in(work.call())  # type: ignore[misc]  # has a call
    copies = [each.detach().nan_to_num() for each in outputs if multiplies_integers or each.is_floating_point()]
    if not copies:
        raise Unavailable(Unknown.NO_FLOATS)
    return copies


def _refill(inputs: Sequence[Tensor]) -> None:
    """Overwrite each input with random numbers between its least and its greatest, as classes and probabilities have bounds.

    Raises Unavailable where no input has two different numbers.
    """
    has_refilled = False
    for tensor in inputs:
        values = tensor.detach()
        if values.numel() < 2 or values.dtype is torch.bool or values.is_complex():
            continue
        is_fp8 = values.is_floating_point() and values.itemsize == 1
        numbers = values.float() if is_fp8 else values  # torch computes nothing in fp8
        low, high = (end.item() for end in numbers.aminmax())
        if not -math.inf < low < high < math.inf:  # all are the same number, or one is infinite or NaN
            continue
        if values.is_floating_point():
            values.copy_(numbers.uniform_(low, high))  # onto itself, except in fp8
        else:
            values.random_(int(low), int(high) + 1)
        has_refilled = True
    if not has_refilled:
        raise Unavailable(Unknown.ONE_VALUE)


def _count_operations(subject: Subject) -> int:
    """Return how many operations one call hands to the device. Raises Unavailable where they can't be counted."""
    work = subject.work
    if not work.countable_operations:
        raise Unavailable(Unknown.COMPILED)
    subject.refuse_longer(subject.call_s)
    if work.before:
        work.before()
    return len(operations_of(work.call))  # type: ignore[arg-type]  # has a call


def _compare_with_fp64(subject: Subject) -> list[Deviation]:
    """Return how far a call is from the same in fp64, by kind of tensor. Raises Unavailable where that would prove nothing."""
    precision = subject.precision
    parameter = subject.workload.signature.parameter("dtype")
    if parameter is None or "fp64" not in parameter.choices or precision is None:
        raise Unavailable(Unknown.NO_DTYPE)
    if precision.scaled:
        raise Unavailable(Unknown.SCALED, precision=precision.name)
    return _compare_execution(subject, precision) if subject.is_executed_otherwise else [_compare_output(subject, precision)]


def _compare_execution(subject: Subject, precision: Precision) -> list[Deviation]:
    """Return how far a step in its own execution is from the same step in fp64, by kind of tensor: output, loss, gradients or update.

    The same step runs three times: in fp64, in plain execution, and as the case does. How far plain execution is from fp64 is what
    rounding explains. Raises Unavailable where the steps would take too long, or don't get the same inputs.
    """

    def run_step(work: Work, in_fp64: Mapping[str, Observed], seed_offset: int) -> Mapping[str, Observed]:
        """Return the tensors of a step by their kind.

        ``in_fp64`` are those of the step in fp64, from which a classifier in training takes its labels; empty if this is that step.
        """
        torch.manual_seed(subject.seed + seed_offset)  # dropout differs each time, so that plain execution shows how much that changes
        return work.reference(in_fp64)  # type: ignore[misc]  # the case has one, and these are of its workload

    # `Work.reference` calls the step twice, so there are two calls in fp64, two in plain execution, and two of the case. The last four are
    # estimated at the time of six calls of the case, as plain execution may be slower.
    subject_in_fp64 = _subject_in_fp64(subject, precision, 6 * subject.call_s, calls=2, on_cpu=False)
    set_math("fp64")
    work = subject_in_fp64.set_up()
    _refuse_other_inputs(precision, subject.work.inputs, work.inputs)
    exact = run_step(work, {}, 0)

    def run_plainly() -> Mapping[str, Observed]:
        """Set the case up in plain execution, and return the tensors of its step. It may run in a thread of its own."""
        subject.backend.activate(subject.device)  # each thread has a current device of its own
        set_math(precision.name)
        # On an accelerator the backward pass stays in this thread.
        with torch.autograd.set_multithreading_enabled(subject.backend.is_host):
            return run_step(subject.plain.set_up(), exact, 1)

    if subject.backend.is_host:
        plain = run_plainly()
    else:
        # cuDNN keeps for each thread the algorithms that it has tried. A new thread, which runs the backward pass as well, has none of the
        # case's, so plain execution takes its usual ones.
        with ThreadPoolExecutor(1) as thread:
            plain = thread.submit(run_plainly).result()
    case = run_step(subject.work, exact, 2)  # in its own precision, which `run_plainly` has set
    deviations = []
    for kind, observed in exact.items():
        usual_errors = {name: distance(plain[kind].values.get(name), right) for name, right in observed.values.items()}
        deviations.append(largest_deviation(kind, case[kind].values, observed.values, usual_errors, plain[kind].tolerance))
    return comparable(deviations)


def _compare_output(subject: Subject, precision: Precision) -> Deviation:
    """Return how far the output of a first call is from that in fp64 on the CPU; a formula gives what rounding explains.

    Raises Unavailable where this would take too long, or the two don't compute the same.
    """
    if precision.name == "fp64" and subject.backend.is_host:
        raise Unavailable(Unknown.IS_FP64)
    # The case is set up and called once more. The set-up in fp64 is estimated at twice the time of the case's, for twice the bytes.
    in_fp64 = _subject_in_fp64(subject, precision, 3 * subject.setup_s + subject.call_s)
    flops = subject.work.flops or 0.0
    tally = _Tally()
    case = _FirstCall(subject, nullcontext())  # without the tally, as a compiled call would be compiled once more because of it
    exact = _FirstCall(in_fp64, tally)
    _refuse_unlike(precision, case, exact, tally)
    usual_errors = [rounding(precision.name, tally.results, tally.numbers, each.numel(), flops) for each in exact.output]

    def deviation_of(outputs: Sequence[Tensor]) -> Deviation:
        """Return the worst deviation of these outputs; they have no names, so the name of each is empty."""
        deviations = []
        for own, right, usual_error in zip(outputs, exact.output, usual_errors, strict=True):
            deviations.append(largest_deviation("output", {"": own}, {"": right}, {"": usual_error}))
        return worst(comparable(deviations))

    deviation = deviation_of(case.output)
    if math.isinf(deviation.error) and precision.narrow_range:
        raise Unavailable(Unknown.OUT_OF_RANGE, precision=precision.arithmetic)
    # If a second set-up in fp64 is as far off, the workload's numbers change from one set-up to the next, and the case is not wrong.
    if not deviation.is_right and not deviation_of(_FirstCall(in_fp64, nullcontext()).output).is_right:
        raise Unavailable(Unknown.CHANGING)
    return deviation


def _subject_in_fp64(subject: Subject, precision: Precision, others_s: float, calls: int = 1, *, on_cpu: bool = True) -> Subject:
    """Return the subject in plain execution and fp64: on the CPU, or, without ``on_cpu``, on its own device if that has fp64.

    Raises Unavailable if there is too little time or memory for ``calls`` calls in fp64 and ``others_s`` seconds of other work. The time of
    a call is estimated by its operations, and by the rate of a product of matrices in fp64 that is timed here.
    """
    flops = subject.work.flops
    if not flops:
        raise Unavailable(Unknown.NO_FLOPS)
    backend, device = subject.backend, subject.device
    if on_cpu or backend.unsupported(device, "fp64"):
        backend, device = find("cpu")
    size = 256 if backend.is_host else 1024  # keeps all cores or multiprocessors busy for some milliseconds at most
    matrix = torch.rand(size, size, dtype=torch.float64, device=device)

    def multiply() -> None:
        torch.mm(matrix, matrix)
        backend.synchronize(device)

    product_s = max(min(timeit.repeat(multiply, number=1, repeat=3)), 1e-9)
    flops_per_s = 2 * size**3 / product_s
    subject.refuse_longer(others_s + calls * 3 * flops / flops_per_s)  # convolutions reach a third of what products do in fp64
    memory = subject.result.memory
    peak_bytes = max(memory.peak_bytes or 0, memory.host_peak_bytes or 0)
    growth = 8 // precision.bytes  # a number in fp64 has 8 bytes
    # The case is also set up once more in its own precision, which the 1 is for. Only the host's memory is checked: too much of it would
    # end this process, while an accelerator's allocator just raises an error.
    if backend.is_host and too_little_memory(peak_bytes * (1 + growth)) is not None:
        raise Unavailable(Unknown.NO_MEMORY_LEFT)
    return replace(subject.plain, params={**subject.plain.params, "dtype": "fp64"}, backend=backend, device=device)


class _Tally(TorchFunctionMode):
    """Counts the floating-point tensors that torch computes and their numbers, and notes whether any is narrower than fp64."""

    results = 0
    numbers = 0
    has_narrower = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one torch function and count its results."""
        value = func(*args, **(kwargs or {}))
        for tensor in tensors_in(value):
            if tensor.is_floating_point():
                self.results += 1
                self.numbers += tensor.numel()
                # A number on the side, such as an optimizer's count of steps, is in fp32 everywhere.
                self.has_narrower |= tensor.dtype is not torch.float64 and tensor.dim() > 0
        return value


class _FirstCall:
    """The first call after a set-up, within a context: its floating-point inputs and outputs."""

    def __init__(self, subject: Subject, context: AbstractContextManager[object]) -> None:
        work = subject.set_up()
        self.random_state = torch.get_rng_state()
        """State of torch's random generator on the CPU after the set-up."""
        self.inputs = [each.clone() for each in floats_in(work.inputs)]
        if work.before:
            work.before()
        with context:
            output = work.call()  # type: ignore[misc]  # has a call
        self.has_drawn = not torch.equal(self.random_state, torch.get_rng_state())
        """Whether the call has drawn random numbers."""
        self.output = [each.clone() for each in floats_in(tensors_in(output))]


def floats_in(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the floating-point tensors, without their gradients."""
    return [each.detach() for each in tensors if each.is_floating_point()]


def _refuse_other_inputs(precision: Precision, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Raise Unavailable where inputs differ by more than the rounding of another precision."""
    own, right = floats_in(inputs), floats_in(exact)
    if [each.shape for each in own] != [each.shape for each in right]:
        raise Unavailable(Unknown.OTHER_NUMBERS)
    for one, other in zip(own, right, strict=True):
        value, expected = one.cpu().double(), other.cpu().double()
        if expected.numel() and not (value - expected).abs().max() <= 4 * precision.roundoff * expected.abs().max():  # or NaN
            raise Unavailable(Unknown.OTHER_NUMBERS)


def _refuse_unlike(precision: Precision, case: _FirstCall, exact: _FirstCall, tally: _Tally) -> None:
    """Raise Unavailable where the case and its form in fp64 are not the same computation, so that comparing them proves nothing.

    ``tally`` has counted what torch computed in the call in fp64.
    """
    if not torch.equal(case.random_state, exact.random_state):  # the two set-ups have drawn other random numbers
        raise Unavailable(Unknown.OTHER_NUMBERS)
    _refuse_other_inputs(precision, case.inputs, exact.inputs)
    if exact.has_drawn:  # such as for dropout: each device draws others
        raise Unavailable(Unknown.RANDOM)
    if tally.has_narrower:  # the call in fp64 has rounded on its way, so it is not the exact one
        raise Unavailable(Unknown.NARROWER)
    if not case.output or [each.shape for each in case.output] != [each.shape for each in exact.output]:
        raise Unavailable(Unknown.OTHER_OUTPUT)
    if not tally.results:  # the formula for rounding divides by them
        raise Unavailable(Unknown.COMPUTES_NOTHING)
    if not all(each.isfinite().all() and each.any() for each in exact.output):  # errors are relative to the output
        raise Unavailable(Unknown.NO_OUTPUT)
