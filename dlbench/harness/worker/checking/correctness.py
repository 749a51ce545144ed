"""Checks of one call after all timing: it is near the same in fp64, and its output follows the inputs. docs/checks.md says how."""

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
from dlbench.core.model import Observed, Params, Status, Work
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
    left_s: float
    """Seconds until its deadline."""

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
        params = self.workload.resident(self.params)
        for name in _EXECUTION:
            default = self.workload.signature.declared.plain_default(name)
            if default and name in params:
                params[name] = default
        return replace(self, params=params)

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
        most_s = min(max(BUDGET_S, self.setup_s), self.left_s / 10)
        if needed_s > most_s:
            raise Unavailable(Unknown.TOO_LONG, seconds=needed_s, seconds_most=round(most_s, 1))


def spot_check(subject: Subject) -> Measurement:
    """Return the measurement with its check, failed where rounding can't explain an error. Overwrites the work's inputs.

    A work without a call is left unchecked if it is executed plainly. Raises Unavailable for a case whose memory is limited.
    """
    if not (subject.work.call or subject.is_executed_otherwise):
        return subject.result
    limit = subject.workload.signature.declared.parameter("limit")
    if limit and subject.params.get(limit) is not None:  # a second set-up would not fit into the limit
        raise Unavailable(Unknown.WITHIN_LIMIT)
    empty_call_s = min(timeit.repeat(lambda: None, number=1000, repeat=5)) / 1000
    results, reasons = _run_checks(subject)
    deviations: Sequence[Deviation] = results.get("fp64", ())
    error = explained = None
    for deviation in deviations:
        if deviation.what in RETURNED:
            error = deviation.error if math.isfinite(deviation.error) else None  # as `SpotCheck.error` has it
            explained = deviation.explained
    if deviations and explained is None:
        reasons["fp64"] = {"part": "fp64", **Unknown.TOO_ROUGH.reason()}
    check = SpotCheck(results.get("inputs"), error, explained, empty_call_s, results.get("operations"))
    result = replace(subject.result, check=check).with_reasons("check", *(reasons[part] for part in PARTS if part in reasons))
    if not deviations:
        return result
    largest = worst(deviations)
    if largest.is_right:
        return result
    off = "is missing, or not finite"
    if math.isfinite(largest.error):
        off = f"is {largest.error:.2g} away from fp64, where rounding explains {largest.explained:.2g}"
    reason = f"its {largest.what} {off}; it computes something else than it says, or not in {subject.params['dtype']}"
    return replace(result, status=Status.FAILED, reason=reason)


def _run_checks(subject: Subject) -> tuple[dict[str, Any], dict[str, Reason]]:
    """Run each part of the check. Return two dictionaries by part: the results, and the reasons of those parts that have none.

    An error of the workload, when it is called once more, is such a reason; only a broken device raises.
    """
    checks: dict[str, Callable[[Subject], Any]] = {"fp64": _compare_with_fp64}  # first, as it needs the inputs as they are
    if subject.work.call:
        checks |= {"inputs": _follows_input, "operations": _count_operations}
    results: dict[str, Any] = {}
    reasons: dict[str, Reason] = {}
    for part, check_part in checks.items():
        try:
            results[part] = check_part(subject)
        except Unavailable as unavailable:
            reasons[part] = {"part": part, **unavailable.reason}
        except Exception as error:  # noqa: BLE001  # what was measured is kept, whatever a workload raises when called once more
            reasons[part] = {"part": part, **Unknown.EXCEPTION.reason(text=error_text(error))}
    subject.backend.synchronize(subject.device)  # a device that a check has broken raises here
    return results, reasons


def _follows_input(subject: Subject) -> bool:
    """Return whether other inputs give another output. Raises Unavailable where rounding may hide that they do."""
    if not subject.work.inputs:
        raise Unavailable(Unknown.NO_INPUTS)
    subject.refuse_longer(2 * subject.call_s)
    before = _call_once(subject)
    subject.backend.synchronize(subject.device)  # a call may still be copying its inputs, which are overwritten next
    after = _call_once(subject, refill=True)
    if len(before) != len(after) or not all(map(torch.equal, before, after)):
        return True
    precision = subject.precision
    # Each layer of a deep network may shrink the change, until it is less than a rounding of a coarse precision.
    if precision and precision.roundoff >= COARSE:
        raise Unavailable(Unknown.TOO_FAINT, precision=precision.name)
    return False


def _call_once(subject: Subject, *, refill: bool = False) -> list[Tensor]:
    """Call the work, from the same seed each time, and return copies of its floating-point outputs; in int8 its integers, too.

    In other precisions an integer, such as a class or a count, may stay the same when inputs change. NaN, which equals nothing, becomes 0.
    With ``refill`` the inputs get other numbers before the call.
    """
    work, precision = subject.work, subject.precision
    if work.before:
        work.before()
    if refill:
        _refill(work.inputs)
    torch.manual_seed(subject.seed)  # so that dropout makes no difference between two calls
    sums_are_exact = precision is not None and precision.sum_roundoff == 0
    outputs = tensors_in(work.call())  # type: ignore[misc]  # has a call
    copies = [each.detach().nan_to_num() for each in outputs if sums_are_exact or each.is_floating_point()]
    if not copies:
        raise Unavailable(Unknown.NO_FLOATS)
    return copies


def _refill(inputs: Sequence[Tensor]) -> None:
    """Overwrite each input with random numbers between its least and its greatest, as classes and probabilities have bounds.

    Flags, complex and infinite numbers, and inputs with one value alone are left as they are; Unavailable is raised if all are.
    """
    refilled = False
    for tensor in inputs:
        values = tensor.detach()
        if values.numel() < 2 or values.dtype is torch.bool or values.is_complex():
            continue
        is_fp8 = values.is_floating_point() and values.itemsize == 1
        wide = values.float() if is_fp8 else values  # torch computes nothing in fp8
        low, high = (end.item() for end in wide.aminmax())
        if not -math.inf < low < high < math.inf:  # or NaN
            continue
        if values.is_floating_point():
            values.copy_(wide.uniform_(low, high))
        else:
            values.random_(int(low), int(high) + 1)
        refilled = True
    if not refilled:
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
    """Return how far a call is from the same in fp64, for each kind of tensor, such as the output. Raises Unavailable if nothing tells."""
    precision = subject.precision
    parameter = subject.workload.signature.parameter("dtype")
    if parameter is None or "fp64" not in parameter.choices or precision is None:
        raise Unavailable(Unknown.NO_DTYPE)
    if precision.scaled:
        raise Unavailable(Unknown.SCALED, precision=precision.name)
    return _compare_execution(subject, precision) if subject.is_executed_otherwise else [_compare_output(subject, precision)]


def _compare_execution(subject: Subject, precision: Precision) -> list[Deviation]:
    """Compare a step that is not executed plainly, such as a compiled one, with the same step in fp64, by kind of tensor.

    Rounding explains as much as the same step in plain execution, set up afresh, is away from fp64.
    """
    backend = subject.backend
    # `Work.reference` takes at most two steps. The case takes these, and so does its plain execution, which may be twice as slow.
    in_fp64 = _subject_in_fp64(subject, precision, 6 * subject.call_s, calls=2, on_cpu=False)
    set_math("fp64")
    exact_work = in_fp64.set_up()
    _refuse_other_inputs(precision, subject.work.inputs, exact_work.inputs)
    exact = _observe(exact_work, {}, subject.seed)

    def observe_plain() -> Mapping[str, Observed]:
        backend.activate(subject.device)  # each thread has a current device of its own
        set_math(precision.name)
        with torch.autograd.set_multithreading_enabled(backend.is_host):
            return _observe(subject.plain.set_up(), exact, subject.seed + 1)

    if backend.is_host:
        plain = observe_plain()
    else:  # in a thread of its own, backward too, as cuDNN keeps for each thread the algorithms that it has tried
        with ThreadPoolExecutor(1) as thread:
            plain = thread.submit(observe_plain).result()
    case = _observe(subject.work, exact, subject.seed + 2)
    deviations = []
    for kind, exact_kind in exact.items():
        plain_kind = plain[kind]
        plain_errors = {name: distance(plain_kind.values.get(name), value) for name, value in exact_kind.values.items()}
        deviations.append(largest_deviation(kind, case[kind].values, exact_kind.values, plain_errors, plain_kind.tolerance))
    return comparable(deviations)


def _observe(work: Work, exact: Mapping[str, Observed], seed: int) -> Mapping[str, Observed]:
    """Take the step of a work with a reference, and return its tensors by kind. ``exact`` are those in fp64, empty in fp64 itself.

    Each execution has a seed of its own: dropout then differs in plain execution as well, which shows how much that changes.
    """
    torch.manual_seed(seed)
    return work.reference(exact)  # type: ignore[misc]  # has a reference


def _compare_output(subject: Subject, precision: Precision) -> Deviation:
    """Compare the output of a first call with that of the same in fp64 on the CPU. A formula, `rounding`, gives what rounding explains."""
    if precision.name == "fp64" and subject.backend.is_host:
        raise Unavailable(Unknown.IS_FP64)
    # The case is set up once more, and the same in fp64 has twice the bytes, so it takes twice as long to set up.
    in_fp64 = _subject_in_fp64(subject, precision, 3 * subject.setup_s + subject.call_s)
    flops = subject.work.flops or 0.0
    tally = _Tally()
    case = _FirstCall(subject, nullcontext())  # without the tally, as a compiled call would be compiled once more because of it
    exact = _FirstCall(in_fp64, tally)
    _refuse_unlike(precision, case, exact, tally)
    explained = [rounding(precision.name, tally.results, tally.numbers, each.numel(), flops) for each in exact.output]

    def worst_of(outputs: Sequence[Tensor]) -> Deviation:
        """Return the worst deviation of these outputs; they have no names, so the name of each is empty."""
        deviations = []
        for output, exact_output, error in zip(outputs, exact.output, explained, strict=True):
            deviations.append(largest_deviation("output", {"": output}, {"": exact_output}, {"": error}))
        return worst(comparable(deviations))

    deviation = worst_of(case.output)
    if math.isinf(deviation.error) and precision.narrow_range:
        raise Unavailable(Unknown.OUT_OF_RANGE, precision=precision.arithmetic)
    if not deviation.is_right:
        # If a second set-up in fp64 is as far from the first one, its numbers change each time, and that is no fault of the case.
        repeated = _FirstCall(in_fp64, nullcontext())
        if not worst_of(repeated.output).is_right:
            raise Unavailable(Unknown.CHANGING)
    return deviation


def _subject_in_fp64(subject: Subject, precision: Precision, others_s: float, calls: int = 1, *, on_cpu: bool = True) -> Subject:
    """Return the subject in plain execution and fp64: on the CPU, or, without ``on_cpu``, on its own device if that has fp64.

    Raises Unavailable where ``calls`` of it, after ``others_s`` seconds of other work, take more time or memory than there is.
    """
    flops = subject.work.flops
    if not flops:
        raise Unavailable(Unknown.NO_FLOPS)
    backend, device = subject.backend, subject.device
    if on_cpu or backend.unsupported(device, "fp64"):
        backend, device = find("cpu")
    call_s = flops / _product_flops_per_s(backend, device) * 3  # convolutions reach a third of what products do in fp64
    subject.refuse_longer(others_s + calls * call_s)
    memory = subject.result.memory
    peak_bytes = max(memory.peak_bytes or 0, memory.host_peak_bytes or 0)
    growth = 8 // precision.bytes  # a number in fp64 has 8 bytes
    if backend.is_host and too_little_memory(peak_bytes * (1 + growth)) is not None:  # the case's own tensors stay
        raise Unavailable(Unknown.NO_MEMORY_LEFT)
    return replace(subject.plain, params={**subject.plain.params, "dtype": "fp64"}, backend=backend, device=device)


def _product_flops_per_s(backend: Backend, device: torch.device) -> float:
    """Return the floating-point operations a second of a product of two matrices in fp64."""
    size = 256 if backend.is_host else 1024
    matrix = torch.rand(size, size, dtype=torch.float64, device=device)

    def multiply() -> None:
        torch.mm(matrix, matrix)
        backend.synchronize(device)

    product_s = max(min(timeit.repeat(multiply, number=1, repeat=3)), 1e-9)
    return 2 * size**3 / product_s


class _Tally(TorchFunctionMode):
    """Counts the floating-point tensors that torch computes and their numbers, and notes whether any is narrower than fp64."""

    results = 0
    numbers = 0
    narrower = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one torch function and count its results."""
        value = func(*args, **(kwargs or {}))
        for tensor in tensors_in(value):
            if tensor.is_floating_point():
                self.results += 1
                self.numbers += tensor.numel()
                # A number on the side, such as an optimizer's count of steps, is in fp32 everywhere.
                self.narrower |= tensor.dtype is not torch.float64 and tensor.dim() > 0
        return value


class _FirstCall:
    """Floating-point inputs and outputs of the first call after a set-up, which runs inside ``watch``."""

    def __init__(self, subject: Subject, watch: AbstractContextManager[object]) -> None:
        work = subject.set_up()
        self.state = torch.get_rng_state()
        """State of torch's random generator on the CPU after the set-up."""
        self.inputs = [each.clone() for each in floats_in(work.inputs)]
        if work.before:
            work.before()
        with watch:
            output = work.call()  # type: ignore[misc]  # has a call
        self.drew = not torch.equal(self.state, torch.get_rng_state())
        """Whether the call drew random numbers."""
        self.output = [each.clone() for each in floats_in(tensors_in(output))]


def floats_in(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the floating-point tensors, without their gradients."""
    return [each.detach() for each in tensors if each.is_floating_point()]


def _refuse_other_inputs(precision: Precision, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Raise Unavailable where inputs differ by more than the rounding of another precision."""
    floats, exact_floats = floats_in(inputs), floats_in(exact)
    if [each.shape for each in floats] != [each.shape for each in exact_floats]:
        raise Unavailable(Unknown.OTHER_NUMBERS)
    for tensor, exact_tensor in zip(floats, exact_floats, strict=True):
        values, expected = tensor.cpu().double(), exact_tensor.cpu().double()
        if expected.numel() and not (values - expected).abs().max() <= 4 * precision.roundoff * expected.abs().max():  # or NaN
            raise Unavailable(Unknown.OTHER_NUMBERS)


def _refuse_unlike(precision: Precision, case: _FirstCall, exact: _FirstCall, tally: _Tally) -> None:
    """Raise Unavailable where the case and its form in fp64 are not the same computation, so that comparing them proves nothing."""
    if not torch.equal(case.state, exact.state):  # one set-up drew more random numbers than the other
        raise Unavailable(Unknown.OTHER_NUMBERS)
    _refuse_other_inputs(precision, case.inputs, exact.inputs)
    if exact.drew:
        raise Unavailable(Unknown.RANDOM)
    if tally.narrower:
        raise Unavailable(Unknown.NARROWER)
    if not case.output or [each.shape for each in case.output] != [each.shape for each in exact.output]:
        raise Unavailable(Unknown.OTHER_OUTPUT)
    if not tally.results:
        raise Unavailable(Unknown.COMPUTES_NOTHING)
    if not all(each.isfinite().all() and each.any() for each in exact.output):  # an output of zeros has no relative distance
        raise Unavailable(Unknown.NO_OUTPUT)
