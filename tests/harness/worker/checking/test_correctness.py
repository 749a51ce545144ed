"""The tolerance against real roundings, and what a check may cost. What it finds is in tests/cli/test_run_sustained.py."""

import math
import re
from dataclasses import replace

import pytest
import torch

from dlbench import with_copies
from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement, Memory, Samples
from dlbench.core.model import Case, Status
from dlbench.harness.worker import registry
from dlbench.harness.worker.backends.base import find
from dlbench.harness.worker.checking import correctness
from dlbench.harness.worker.checking.correctness import Subject, spot_check
from dlbench.harness.worker.checking.rule import FACTOR, Deviation, distance, largest_deviation, rounding
from dlbench.kit.precision import storage
from dlbench.testing import ManualClock

registry.load_builtins()
BACKEND, CPU = find("cpu")
PARAMS = {"n": 64, "dtype": "fp32", "batch": 1}
MATMUL = registry.get("matmul")
TIMED = Measurement(Case("matmul[n=64]@cpu", "mine", "matmul", PARAMS, "cpu"), 0, Status.OK, samples=Samples(1, (1e-6,), 1e-6, 0.1, True))

WORK = MATMUL.set_up(CPU, PARAMS)
CLOCK = ManualClock()
SUBJECT = Subject(TIMED, WORK, MATMUL, PARAMS, seed=1, backend=BACKEND, device=CPU, setup_s=0.0, clock=CLOCK, deadline=60.0)


def checked(measurement, subject=SUBJECT, left_s=60.0):
    """What becomes of a measurement of a real product of 64 x 64."""
    torch.manual_seed(1)
    work = subject.workload.set_up(CPU, PARAMS)
    return spot_check(replace(subject, result=measurement, work=work, deadline=CLOCK.now() + left_s))


@pytest.mark.parametrize("copies", ["none", "pageable"])
def test_a_real_product_passes_and_follows_what_is_in_host_memory_if_it_copies_that(monkeypatch, copies):
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)  # memory of a device is apart from the host's
    monkeypatch.setattr("dlbench.workloads.matmul.with_copies", lambda _, work, copies: with_copies(torch.device("cuda"), work, copies))
    subject = replace(SUBJECT, params={**PARAMS, "copies": copies})
    assert subject.plain.params["copies"] == "none"
    torch.manual_seed(1)
    found = spot_check(replace(subject, work=MATMUL.set_up(CPU, subject.params)))
    assert (found.status, found.check.follows_input, found.missing_reasons) == (Status.OK, True, {})
    assert 0 < found.check.error < found.check.tolerance
    assert copies == "pageable" or found.check.operations == 1


@pytest.mark.parametrize(
    ("measurement", "subject", "left_s", "reasons"),
    [
        (replace(TIMED, samples=Samples(1, (0.6,), 0.6, 1.0, True)), SUBJECT, 60.0, "inputs: {long}"),
        (TIMED, replace(SUBJECT, setup_s=0.4), 60.0, "fp64: {long}"),
        (TIMED, SUBJECT, 1e-6, "inputs: {long}; fp64: {long}; operations: {long}"),
        (replace(TIMED, memory=Memory(host_peak_bytes=1 << 60)), SUBJECT, 60.0, "fp64: it would take more memory than is left"),
    ],
)
def test_a_check_that_costs_too_much_is_not_made(measurement, subject, left_s, reasons):
    found = checked(measurement, subject, left_s)
    expected = reasons.replace("{long}", r"it would take about \S+ s, and [01] s at most are spent on it")
    assert (found.status, bool(re.fullmatch(expected, explained(found.missing_reasons["check"])))) == (Status.OK, True)


def test_a_call_that_does_not_hand_over_each_operation_is_not_counted():
    found = spot_check(replace(SUBJECT, work=replace(WORK, countable_operations=False)))
    assert found.check.operations is None
    assert explained(found.missing_reasons["check"]).startswith("operations: what is compiled ")


def test_what_is_executed_otherwise_is_held_against_plain_execution():
    params = {"model": "resnet18", "batch": 1, "mode": "graph", "implementation": "fused", "layout": "channels_last", "dtype": "fp32"}
    step = replace(SUBJECT, workload=registry.get("train_step"), params=params)
    assert step.plain.params == {**params, "mode": "eager", "implementation": "default"}


def test_an_error_may_be_so_many_times_that_of_plain_execution_and_a_tolerance():
    exact = dict.fromkeys(("a", "b", "noise"), torch.ones(4))
    usual = {"a": 1e-3, "b": 1e-2, "noise": 0.5}
    case = {"a": torch.ones(4), "b": 1.02 * torch.ones(4), "noise": torch.zeros(4)}
    assert largest_deviation("update", case, exact, usual, 0.01) == ("update of b", pytest.approx(0.02), FACTOR * 1e-2 + 0.01)
    assert largest_deviation("update", {"a": torch.ones(4)}, exact, usual) == ("update of b", math.inf, FACTOR * 1e-2)
    assert largest_deviation("output", {"": case["b"]}, {"": exact["b"]}, {"": 0.5}) is None


@pytest.mark.parametrize(
    ("value", "exact", "expected"),
    [
        ([3.0, 0.0], [3.0, 4.0], 0.8),
        ([1.0, math.nan], [1.0, 1.0], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
        ([0.0, 0.0], [0.0, 0.0], math.inf),
        (2.0, 1.0, math.log(2)),
        (-1.0, 1.0, math.inf),
        (0.0, 1.0, math.inf),
        (None, 1.0, math.inf),
    ],
)
def test_a_distance_is_relative_and_of_single_numbers_a_logarithm(value, exact, expected):
    value = None if value is None else torch.tensor(value)
    assert distance(value, torch.tensor(exact)) == pytest.approx(expected)


def test_the_rounding_to_be_expected_is_that_of_the_formula():
    # A product of 1024 x 1024: one result of 2^20 numbers, each a sum of 1024.
    numbers, flops = 1 << 20, 2 * 1024**3
    assert rounding("fp32", 1, numbers, numbers, flops) == pytest.approx(math.hypot(33, 32) * 2**-24)
    assert rounding("bf16", 1, numbers, numbers, flops) == pytest.approx((32 * 2**-24 + 2**-8), rel=1e-6)
    # Four results of 2^18 numbers, the last of which is one number.
    assert rounding("fp64", 4, numbers, 1, flops) == pytest.approx(math.hypot(2 * 33, 2**14) * 2**-53)


@pytest.mark.parametrize("n", [16, 512])
def test_real_rounding_is_what_is_expected_and_fp32_is_told_from_tf32(n):
    torch.manual_seed(n)
    a, b = torch.randn(n, n, dtype=torch.float64), torch.randn(n, n, dtype=torch.float64)

    def error(operands, sums):
        product = a.to(operands).to(sums) @ b.to(operands).to(sums)
        return (product.to(torch.float64) - a @ b).norm() / (a @ b).norm()

    for dtype in ("fp32", "bf16", "fp16"):
        assert error(storage(dtype), storage(dtype)) < rounding(dtype, 1, n * n, n * n, 2 * n**3)
    # TF32 keeps as many digits of an operand as fp16.
    assert error(torch.float16, torch.float32) > 10 * FACTOR * rounding("fp32", 1, n * n, n * n, 2 * n**3)


LOSS, WRONG = Deviation("loss", 0.1, 0.2), Deviation("gradient of w", 0.6, 0.5)
OFF = "its gradient of w is 0.6 away from fp64, where rounding explains 0.5; it computes something else than it says, or not in fp32"


@pytest.mark.parametrize(
    ("deviations", "expected", "missing"),
    [
        ([LOSS, Deviation("gradient of w", 0.4, 0.5)], (Status.OK, None, 0.1, 0.2), ""),
        ([LOSS, WRONG], (Status.FAILED, OFF, 0.1, 0.2), ""),
        ([WRONG], (Status.FAILED, OFF, None, None), "fp64: rounding in this precision may change it altogether"),  # a loss alone
    ],
)
def test_an_error_is_of_what_a_call_returns_and_a_case_fails_by_what_is_furthest(monkeypatch, deviations, expected, missing):
    monkeypatch.setattr(correctness, "_compare_with_fp64", lambda subject: deviations)
    found = checked(TIMED)
    assert (found.status, found.reason, found.check.error, found.check.tolerance) == expected
    assert explained(found.missing_reasons.get("check", ())) == missing
