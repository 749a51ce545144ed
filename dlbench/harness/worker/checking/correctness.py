"""Checks of one call's output after all timing: it follows the inputs, and is near fp64 on the CPU. docs/checks.md says how."""

import math
import timeit
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dlbench.core.errors import Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import ParamValue, Status, Work
from dlbench.core.precision import PRECISIONS
from dlbench.harness.probe.linux import too_little_memory
from dlbench.harness.worker.backends.base import Backend, find, tensors_in
from dlbench.harness.worker.checking.operations import operations_of
from dlbench.harness.worker.failures import first_line
from dlbench.harness.worker.registry import Workload

BUDGET_S = 1.0
"""Time that each of the checks may take, by estimate."""
MOST_TOLERANCE = 0.9
"""An output of zeros has an error of 1, one of other numbers about 1.4; a tolerance beyond that would let anything pass."""
COARSE = 1e-4
"""Roundoff of a precision in which other inputs may change an output by less than a rounding."""
SPREAD = 10.0
"""How many times the rounding error to be expected is still taken for one: networks amplify it, and so does Winograd's algorithm."""


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
    def plain_mode(self) -> ParamValue | None:
        """The mode that its others are held against, its own where none is."""
        return self.workload.signature.declared.plain_default("mode") or self.params.get("mode")

    def in_fp64(self) -> "Subject":
        """Return the same on the CPU, in fp64 and in the plain mode."""
        backend, device = find("cpu")
        mode = {"mode": plain} if (plain := self.plain_mode) else {}
        return replace(self, params={**self.workload.resident(self.params), "dtype": "fp64", **mode}, backend=backend, device=device)

    def refuse_longer(self, needed_s: float) -> None:
        """Raise Unavailable where a check would take too long for what it is, or come near the deadline."""
        if needed_s > min(BUDGET_S, self.left_s / 10):
            raise Unavailable(Unknown.TOO_LONG, seconds=needed_s, seconds_most=BUDGET_S)


def spot_checked(subject: Subject) -> Measurement:
    """Return the measurement with its check, failed where rounding can't explain the error. The work's inputs hold other numbers then.

    Raises Unavailable where a second set-up has no memory.
    """
    if subject.params.get(subject.workload.signature.declared.parameter("limit") or "") is not None:
        raise Unavailable(Unknown.WITHIN_LIMIT)
    empty_call_s = min(timeit.repeat(lambda: None, number=1000, repeat=5)) / 1000
    checks: dict[str, Callable[[Subject], Any]] = {"inputs": _follows_input, "fp64": _compare, "operations": _operations}
    found: dict[str, Any] = {}
    reasons: list[Reason] = []
    for part, attempt in checks.items():
        try:
            if subject.result.case.ranks:  # a call that the other processes don't make too would wait for ever
                raise Unavailable(Unknown.TOGETHER)
            found[part] = attempt(subject)
        except Unavailable as unavailable:
            reasons.append({"part": part, **unavailable.reason})
        except Exception as raised:  # noqa: BLE001  # what was measured stands, whatever a workload makes of being called once more
            reasons.append({"part": part, **Unknown.EXCEPTION.reason(text=f"{type(raised).__name__}: {first_line(raised)}")})
    subject.backend.synchronize(subject.device)  # a device that a check has broken says so here
    error, tolerance = found.get("fp64", (None, None))
    finite = error is not None and math.isfinite(error)
    check = SpotCheck(found.get("inputs"), error if finite else None, tolerance, empty_call_s, found.get("operations"))
    result = replace(subject.result, check=check).with_reasons("check", *reasons)
    if error is None or error <= tolerance:
        return result
    off = f"is {error:.2g} away from fp64 on the CPU, where rounding explains {tolerance:.2g}" if finite else "is not finite"
    reason = f"its output {off}; it computes something else than it says, or not in {subject.dtype}"
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
    _refuse_faint(subject)
    return False


def _refuse_faint(subject: Subject) -> None:
    """Raise Unavailable where other inputs change the output in fp64, and by no more than what roundings hide in the case's precision.

    Deep networks with random weights can be so: each layer makes less of what the last one gave, and a bias is left.
    """
    precision = PRECISIONS.get(subject.dtype)
    if precision is None or precision.roundoff < COARSE:
        return
    try:
        reference = _reference(subject)
    except Unavailable as unavailable:
        if unavailable.reason["reason"] in _NO_REFERENCE:
            return
        raise
    torch.manual_seed(subject.seed)
    reference = replace(reference, work=reference.workload.set_up(reference.device, reference.params))
    before, after = _output(reference), _output(reference, refill=True)
    changes = [((new - old).norm() / old.norm()).item() for old, new in zip(before, after, strict=True) if old.numel()]
    if 0 < max(changes, default=0.0) <= SPREAD * precision.roundoff:
        raise Unavailable(Unknown.TOO_FAINT, precision=subject.dtype)


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


def _compare(subject: Subject) -> tuple[float, float]:
    """Return `_worst`'s error from fp64 on the CPU and its tolerance. Raises Unavailable where they would say nothing."""
    in_fp64 = _reference(subject)
    precision, flops = PRECISIONS[subject.dtype], subject.work.flops or 0.0
    case, reference = _FirstCall(subject), _FirstCall(in_fp64)
    _refuse_unlike(case, reference, 4 * precision.roundoff)
    error, tolerance = _worst(case, reference, subject.dtype, flops)
    if tolerance > MOST_TOLERANCE:
        raise Unavailable(Unknown.TOO_ROUGH)
    if math.isinf(error) and precision.narrow_range:
        raise Unavailable(Unknown.OUT_OF_RANGE, precision=precision.arithmetic)
    # Before a case fails for its numbers, they have to be the same each time.
    if error > tolerance:
        again, _ = _worst(_FirstCall(in_fp64), reference, subject.dtype, flops)
        if again > tolerance:
            raise Unavailable(Unknown.CHANGING)
    return error, tolerance


def _reference(subject: Subject) -> Subject:
    """Return it in fp64 on the CPU. Raises Unavailable where it can't be so, or takes more time or memory than there is."""
    result, flops = subject.result, subject.work.flops
    parameter, precision = subject.workload.signature.parameter("dtype"), PRECISIONS.get(subject.dtype)
    if parameter is None or "fp64" not in parameter.choices or precision is None:
        raise Unavailable(Unknown.NO_DTYPE)
    if precision.scaled:
        raise Unavailable(Unknown.SCALED, precision=precision.name)
    if subject.is_reference:
        raise Unavailable(Unknown.IS_FP64)
    if not flops:
        raise Unavailable(Unknown.NO_FLOPS)
    call_s = subject.call_s
    if subject.params.get("mode") != subject.plain_mode and result.samples:
        call_s = result.samples.first_call_s or 0.0  # it compiles again
    matrix = torch.rand(256, 256, dtype=torch.float64)
    product_s = max(min(timeit.repeat(lambda: torch.mm(matrix, matrix), number=1, repeat=3)), 1e-9)
    # Twice the bytes, so twice the time to set up; convolutions reach a third of what products do in fp64.
    subject.refuse_longer(3 * subject.setup_s + call_s + 3 * flops / (2 * 256**3 / product_s))
    peak = max(result.memory.peak_bytes or 0, result.memory.host_peak_bytes or 0)
    if too_little_memory(peak * (1 + 8 // precision.bytes)) is not None:
        raise Unavailable(Unknown.NO_MEMORY_LEFT)
    return subject.in_fp64()


_NO_REFERENCE = [each.name.lower() for each in (Unknown.NO_DTYPE, Unknown.SCALED, Unknown.IS_FP64, Unknown.NO_FLOPS)]
"""Why there can't be one, at any cost."""


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
    """What goes into the first call after a set-up and comes out, as far as it is floating-point: on the host, in fp64."""

    def __init__(self, subject: Subject) -> None:
        def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
            floats = [tensor.detach() for tensor in tensors if tensor.is_floating_point()]
            return [tensor.to(torch.float64, copy=True) for tensor in subject.backend.to_host(floats)]

        torch.manual_seed(subject.seed)
        work = subject.workload.set_up(subject.device, subject.params)
        self.state = torch.get_rng_state()
        """Of torch's generator on the CPU when the set-up was done."""
        self.inputs = on_host(work.inputs)
        if work.before:
            work.before()
        self.tally = _Tally()
        # Only where it is wanted: a compiled call would be compiled once more because of it.
        with self.tally if subject.is_reference else nullcontext():
            output = work.call()  # type: ignore[misc]  # has a call
        self.drew = not torch.equal(self.state, torch.get_rng_state())
        """Whether the call moved it."""
        self.output = on_host(tensors_in(output))


def _refuse_unlike(case: _FirstCall, reference: _FirstCall, relative: float) -> None:
    """Raise Unavailable where the two don't compute the same thing by design; ``relative`` is how near the inputs have to be."""
    if not torch.equal(case.state, reference.state) or [each.shape for each in case.inputs] != [each.shape for each in reference.inputs]:
        raise Unavailable(Unknown.OTHER_NUMBERS)
    pairs = zip(case.inputs, reference.inputs, strict=True)
    if not all((own - right).abs().max() <= relative * right.abs().max() for own, right in pairs if right.numel()):
        raise Unavailable(Unknown.OTHER_NUMBERS)
    if reference.drew:
        raise Unavailable(Unknown.RANDOM)
    if reference.tally.narrower:
        raise Unavailable(Unknown.NARROWER)
    if not case.output or [each.shape for each in case.output] != [each.shape for each in reference.output]:
        raise Unavailable(Unknown.OTHER_OUTPUT)
    if not reference.tally.results:
        raise Unavailable(Unknown.COMPUTES_NOTHING)
    if not all(each.isfinite().all() and each.any() for each in reference.output):
        raise Unavailable(Unknown.NO_OUTPUT)


def _worst(case: _FirstCall, reference: _FirstCall, dtype: str, flops: float) -> tuple[float, float]:
    """Return error and tolerance of the output tensor whose error is largest for what rounding explains of it.

    Both are relative and in the 2-norm; the error is infinite where a number is not finite.
    """
    tally = reference.tally
    found = []
    for output, right in zip(case.output, reference.output, strict=True):
        error = ((output - right).norm() / right.norm()).item()
        tolerance = tolerance_of(dtype, tally.results, tally.numbers, right.numel(), flops)
        found.append((error if math.isfinite(error) else math.inf, tolerance))
    return max(found, key=lambda each: each[0] / each[1])


def tolerance_of(dtype: str, results: int, numbers: int, size: int, flops: float) -> float:
    """Return how far an output of ``size`` numbers may be from the exact one by rounding, in the 2-norm and relative.

    ``results``: tensors computed on the way, ``numbers``: their elements, ``flops``: operations that took. So an element of these is a
    sum of k = flops / (2 numbers) products, and one of the output of k_out = flops / (2 results size): it may take more, as the
    gradient of a filter takes all pixels. Sums are rounded in u_sum, and stored in the roundoff u of the precision. Rounding errors are
    independent and of mean zero, more or less, so n of them come to sqrt(n) u and not to n u, with a factor that makes exceptions rare
    (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, section 2):

        SPREAD sqrt(results (sqrt(k) u_sum + u)^2 + k_out u_sum^2)
    """
    precision = PRECISIONS[dtype]
    on_the_way = math.sqrt(max(1.0, flops / (2 * numbers))) * precision.sum_roundoff + precision.roundoff
    at_the_end = math.sqrt(flops / (2 * results * size)) * precision.sum_roundoff
    return SPREAD * math.hypot(math.sqrt(results) * on_the_way, at_the_end)
