"""Checks of one call after all timing: it is near the same in fp64, and its output follows the inputs. docs/checks.md says how."""

import math
import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dlbench.core.errors import PARTS, Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import Observed, ParamValue, Status, Work
from dlbench.core.precision import PRECISIONS
from dlbench.harness.probe.linux import too_little_memory
from dlbench.harness.worker.backends.base import Backend, find, tensors_in
from dlbench.harness.worker.backends.torch_build import set_math
from dlbench.harness.worker.checking.operations import operations_of
from dlbench.harness.worker.checking.rule import Furthest, distance, furthest, rounding, worst
from dlbench.harness.worker.failures import failure_of, first_line
from dlbench.harness.worker.registry import Workload

BUDGET_S = 1.0
"""Time that each of the checks may take, by estimate."""
COARSE = 1e-4
"""Roundoff of a precision in which other inputs may change an output by less than a rounding."""
_EXECUTION = ("mode", "implementation")
"""Parameters that change how a step is executed, and nothing of what it computes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A timed case that can be set up again, here and on the CPU, how long that took, and how long is left until its deadline."""

    result: Measurement
    work: Work
    workload: Workload
    params: Mapping[str, ParamValue]
    seed: int
    backend: Backend
    device: torch.device
    setup_s: float
    left_s: float

    @property
    def dtype(self) -> str:
        """Its precision; empty where it has none."""
        return str(self.params.get("dtype", ""))

    @property
    def call_s(self) -> float:
        """Seconds of its slowest call."""
        return max(self.result.samples.block_s)  # type: ignore[union-attr]  # it was timed

    @property
    def is_reference(self) -> bool:
        """Whether it is in fp64 on the CPU."""
        return self.dtype == "fp64" and self.backend.is_host

    @property
    def plain(self) -> "Subject":
        """The same in plain execution, with its data on the device from the start."""
        declared = self.workload.signature.declared
        plain = {name: text for name in _EXECUTION if name in self.params and (text := declared.plain_default(name))}
        return replace(self, params={**self.workload.resident(self.params), **plain})

    def set_up(self) -> Work:
        """Return the work afresh, from its seed."""
        torch.manual_seed(self.seed)
        return self.workload.set_up(self.device, self.params)

    def refuse_longer(self, needed_s: float) -> None:
        """Raise Unavailable where a check would take longer than the set-up did and a second, or come near the deadline."""
        most_s = min(max(BUDGET_S, self.setup_s), self.left_s / 10)
        if needed_s > most_s:
            raise Unavailable(Unknown.TOO_LONG, seconds=needed_s, seconds_most=round(most_s, 1))


def spot_checked(subject: Subject) -> Measurement:
    """Return the measurement with its check, failed where rounding can't explain the error. The work's inputs hold other numbers then.

    Raises Unavailable where a second set-up has no memory.
    """
    if subject.params.get(subject.workload.signature.declared.parameter("limit") or "") is not None:
        raise Unavailable(Unknown.WITHIN_LIMIT)
    empty_call_s = min(timeit.repeat(lambda: None, number=1000, repeat=5)) / 1000
    # The first on the inputs as they are, which the second changes.
    checks: dict[str, Callable[[Subject], Any]] = {"fp64": _compare, "inputs": _follows_input, "operations": _operations}
    found: dict[str, Any] = {}
    reasons: dict[str, Reason] = {}
    for part, attempt in checks.items():
        try:
            if subject.result.case.ranks:  # a call that the other processes don't make too would wait for ever
                raise Unavailable(Unknown.TOGETHER)
            found[part] = attempt(subject)
        except Unavailable as unavailable:
            reasons[part] = {"part": part, **unavailable.reason}
        except Exception as raised:  # noqa: BLE001  # what was measured stands, whatever a workload makes of being called once more
            text, ran_out = f"{type(raised).__name__}: {first_line(raised)}", failure_of(raised, "")[0] is Status.OOM
            reasons[part] = {"part": part, **(Unknown.NO_MEMORY_LEFT.reason() if ran_out else Unknown.EXCEPTION.reason(text=text))}
    subject.backend.synchronize(subject.device)  # a device that a check has broken says so here
    what, error, tolerance = found.get("fp64", ("", None, None))
    finite = error is not None and math.isfinite(error)
    check = SpotCheck(found.get("inputs"), error if finite else None, tolerance, empty_call_s, found.get("operations"))
    result = replace(subject.result, check=check).with_reasons("check", *(reasons[part] for part in PARTS if part in reasons))
    if error is None or error <= tolerance:
        return result
    off = f"is {error:.2g} away from fp64, where rounding explains {tolerance:.2g}" if finite else "is missing, or not finite"
    reason = f"its {what} {off}; it computes something else than it says, or not in {subject.dtype}"
    return replace(result, status=Status.FAILED, reason=reason)


def _follows_input(subject: Subject) -> bool:
    if not subject.work.inputs:
        raise Unavailable(Unknown.NO_INPUTS)
    subject.refuse_longer(2 * subject.call_s)
    before = _output(subject)
    subject.backend.synchronize(subject.device)  # copies of the inputs that a call has only started read what comes next
    # The same seed again: what differs is the inputs' doing and not that of dropout.
    after = _output(subject, refill=True)
    if len(before) != len(after) or not all(map(torch.equal, before, after)):
        return True
    precision = PRECISIONS.get(subject.dtype)
    if precision and precision.roundoff >= COARSE:  # in deep networks each layer makes less of what the last one gave, and a bias is left
        raise Unavailable(Unknown.TOO_FAINT, precision=subject.dtype)
    return False


def _output(subject: Subject, *, refill: bool = False) -> list[Tensor]:
    """Return copies of the floating-point numbers that a call gives, as others (a class, a count) may well stay the same; 0 for NaN.

    A product that is exact gives integers.
    """
    work = subject.work
    if work.before:
        work.before()
    if refill:
        _refill(work.inputs)
    torch.manual_seed(subject.seed)
    precision = PRECISIONS.get(subject.dtype)
    exact = precision is not None and not precision.sum_roundoff
    found = [tensor.detach().nan_to_num() for tensor in tensors_in(work.call()) if exact or tensor.is_floating_point()]  # type: ignore[misc]  # has a call
    if not found:
        raise Unavailable(Unknown.NO_FLOATS)
    return found


def _refill(inputs: Sequence[Tensor]) -> None:
    """Put other numbers between their least and greatest into the inputs, which a class or a probability must not leave."""
    refilled = False
    for tensor in inputs:
        values = tensor.detach()
        if values.numel() < 2 or values.dtype is torch.bool or values.is_complex():
            continue
        wide = values.float() if values.is_floating_point() and values.itemsize == 1 else values  # torch computes nothing in fp8
        low, high = (end.item() for end in wide.aminmax())
        if not -math.inf < low < high < math.inf:
            continue
        if values.is_floating_point():
            values.copy_(wide.uniform_(low, high))
        else:
            values.random_(int(low), int(high) + 1)
        refilled = True
    if not refilled:
        raise Unavailable(Unknown.ONE_VALUE)


def _operations(subject: Subject) -> int:
    """Return how many operations one call hands to the device. Raises Unavailable where they can't be counted."""
    work = subject.work
    if not work.countable_operations:
        raise Unavailable(Unknown.COMPILED)
    subject.refuse_longer(subject.call_s)
    if work.before:
        work.before()
    return operations_of(work.call)  # type: ignore[arg-type]  # has a call


def _compare(subject: Subject) -> Furthest:
    """Hold a call against the same in fp64. Raises Unavailable where that would say nothing."""
    precision = PRECISIONS.get(subject.dtype)
    parameter = subject.workload.signature.parameter("dtype")
    if parameter is None or "fp64" not in parameter.choices or precision is None:
        raise Unavailable(Unknown.NO_DTYPE)
    if precision.scaled:
        raise Unavailable(Unknown.SCALED, precision=precision.name)
    is_executed_otherwise = subject.work.reference and subject.params != subject.plain.params
    return (_compare_execution if is_executed_otherwise else _compare_output)(subject)


def _compare_execution(subject: Subject) -> Furthest:
    """Hold a step that is not executed plainly against itself in plain execution and in fp64."""

    def observe(work: Work, exact: Mapping[str, Observed], number: int) -> Mapping[str, Observed]:
        torch.manual_seed(subject.seed + number)  # others drop out each time, so that plain execution shows what that makes
        return work.reference(exact)  # type: ignore[misc]  # the case has one, and these are of its workload

    def observe_plain() -> Mapping[str, Observed]:
        subject.backend.activate(subject.device)
        set_math(subject.dtype)
        with torch.autograd.set_multithreading_enabled(subject.backend.is_host):
            return observe(subject.plain.set_up(), exact, 1)

    in_fp64 = _reference(subject, "device", 6 * subject.call_s, calls=2)
    set_math("fp64")
    work = in_fp64.set_up()
    _refuse_other_inputs(subject, subject.work.inputs, work.inputs)
    exact = observe(work, {}, 0)
    if subject.backend.is_host:
        plain = observe_plain()
    else:  # cuDNN keeps the algorithms that it has tried by thread, for the backward pass too
        with ThreadPoolExecutor(1) as thread:
            plain = thread.submit(observe_plain).result()
    case = observe(subject.work, exact, 2)
    found = []
    for kind, right in exact.items():
        usual = {name: distance(plain[kind].values.get(name), value) for name, value in right.values.items()}
        found.append(furthest(kind, case[kind].values, right.values, usual, plain[kind].tolerance))
    return worst(found)


def _compare_output(subject: Subject) -> Furthest:
    """Hold the output of the first call after a set-up against fp64 on the CPU, where formulas say what rounding explains."""
    if subject.is_reference:
        raise Unavailable(Unknown.IS_FP64)
    # Twice the bytes, so twice the time to set up.
    in_fp64 = _reference(subject, "cpu", 3 * subject.setup_s + subject.call_s)
    flops = subject.work.flops or 0.0
    case, exact = _FirstCall(subject), _FirstCall(in_fp64)
    _refuse_unlike(subject, case, exact)
    tally = exact.tally
    usual = [rounding(subject.dtype, tally.results, tally.numbers, each.numel(), flops) for each in exact.output]

    def of_all(outputs: Sequence[Tensor]) -> Furthest:
        pairs = zip(outputs, exact.output, usual, strict=True)
        return worst([furthest("output", {"": own}, {"": right}, {"": explained}) for own, right, explained in pairs])

    found = of_all(case.output)
    if math.isinf(found[1]) and PRECISIONS[subject.dtype].narrow_range:
        raise Unavailable(Unknown.OUT_OF_RANGE, precision=PRECISIONS[subject.dtype].arithmetic)
    # Before a case fails for its numbers, they have to be the same each time.
    if found[1] > found[2] and (again := of_all(_FirstCall(in_fp64).output))[1] > again[2]:
        raise Unavailable(Unknown.CHANGING)
    return found


def _reference(subject: Subject, where: Literal["cpu", "device"], others_s: float, calls: int = 1) -> Subject:
    """Return it in plain execution and fp64, on the CPU or on its device, where that has fp64.

    Raises Unavailable where so many calls, and ``others_s``, take more time or memory than there is.
    """
    if not (flops := subject.work.flops):
        raise Unavailable(Unknown.NO_FLOPS)
    backend, device = subject.backend, subject.device
    if where == "cpu" or backend.unsupported(device, "fp64"):
        backend, device = find("cpu")
    size = 256 if backend.is_host else 1024
    matrix = torch.rand(size, size, dtype=torch.float64, device=device)

    def multiply() -> None:
        torch.mm(matrix, matrix)
        backend.synchronize(device)

    product_s = max(min(timeit.repeat(multiply, number=1, repeat=3)), 1e-9)
    # Convolutions reach a third of what products do in fp64.
    subject.refuse_longer(others_s + calls * 3 * flops / (2 * size**3 / product_s))
    result, precision = subject.result, PRECISIONS[subject.dtype]
    peak = max(result.memory.peak_bytes or 0, result.memory.host_peak_bytes or 0)
    if backend.is_host and too_little_memory(peak * (1 + 8 // precision.bytes)) is not None:
        raise Unavailable(Unknown.NO_MEMORY_LEFT)
    return replace(subject.plain, params={**subject.plain.params, "dtype": "fp64"}, backend=backend, device=device)


class _Tally(TorchFunctionMode):
    """Counts what torch computes: results, their numbers, and whether any is narrower than fp64."""

    results = 0
    numbers = 0
    narrower = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one torch function and count what it gives."""
        value = func(*args, **(kwargs or {}))
        for tensor in tensors_in(value):
            if tensor.is_floating_point():
                self.results += 1
                self.numbers += tensor.numel()
                # A number on the side, such as an optimizer's count of steps, is in fp32 everywhere.
                self.narrower |= tensor.dtype is not torch.float64 and tensor.dim() > 0
        return value


class _FirstCall:
    """The first call after a set-up: what goes in and comes out, as far as it is floating-point."""

    def __init__(self, subject: Subject) -> None:
        work = subject.set_up()
        self.state = torch.get_rng_state()
        """Of torch's generator on the CPU when the set-up was done."""
        self.inputs = [each.clone() for each in floats_in(work.inputs)]
        if work.before:
            work.before()
        self.tally = _Tally()
        # Only where it is wanted: a compiled call would be compiled once more because of it.
        with self.tally if subject.is_reference else nullcontext():
            output = work.call()  # type: ignore[misc]  # has a call
        self.drew = not torch.equal(self.state, torch.get_rng_state())
        """Whether the call moved it."""
        self.output = [each.clone() for each in floats_in(tensors_in(output))]


def floats_in(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return those with floating-point numbers, without their gradients."""
    return [each.detach() for each in tensors if each.is_floating_point()]


def _refuse_other_inputs(subject: Subject, inputs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Raise Unavailable where inputs differ by more than they may for being in another precision."""
    own, right = floats_in(inputs), floats_in(exact)
    relative = 4 * PRECISIONS[subject.dtype].roundoff
    pairs = [(one.cpu().double(), other.cpu().double()) for one, other in zip(own, right, strict=False) if other.numel()]
    alike = [each.shape for each in own] == [each.shape for each in right]
    if not alike or not all((one - other).abs().max() <= relative * other.abs().max() for one, other in pairs):
        raise Unavailable(Unknown.OTHER_NUMBERS)


def _refuse_unlike(subject: Subject, case: _FirstCall, exact: _FirstCall) -> None:
    """Raise Unavailable where the two don't compute the same thing by design."""
    if not torch.equal(case.state, exact.state):
        raise Unavailable(Unknown.OTHER_NUMBERS)
    _refuse_other_inputs(subject, case.inputs, exact.inputs)
    if exact.drew:
        raise Unavailable(Unknown.RANDOM)
    if exact.tally.narrower:
        raise Unavailable(Unknown.NARROWER)
    if not case.output or [each.shape for each in case.output] != [each.shape for each in exact.output]:
        raise Unavailable(Unknown.OTHER_OUTPUT)
    if not exact.tally.results:
        raise Unavailable(Unknown.COMPUTES_NOTHING)
    if not all(each.isfinite().all() and each.any() for each in exact.output):
        raise Unavailable(Unknown.NO_OUTPUT)
