"""Aids for tests of workloads: set one up without a run, and time with a clock that moves only by `ManualClock.advance`."""

from typing import Any

from dlbench.core.errors import UsageError
from dlbench.core.model import Work
from dlbench.harness.worker import registry
from dlbench.harness.worker.backends.base import find
from dlbench.harness.worker.backends.torch_build import set_math


class ManualClock:
    """A `Clock` for tests: ``now`` stays where it is until ``advance``."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> float:
        """Return seconds since it was made."""
        return self._seconds

    stamp = now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds


def set_up(name: str, device: str = "cpu", **params: Any) -> Work:
    """Set a workload up on a device with a fixed seed, and return its Work.

    Its parameters are checked as those of a suite are. Raises UsageError for a parameter that a suite could not give, and whatever the
    workload itself raises.
    """
    import torch

    registry.load_builtins()
    workload = registry.get(name)
    values = {}
    for parameter in workload.signature.parameters:
        if parameter.name in params:
            try:
                # Taken out of `params`: what stays there at the end is no parameter of the workload.
                values[parameter.name] = parameter.check(params.pop(parameter.name))
            except ValueError as error:
                raise UsageError(f"{name}: {parameter.name} must be {error}") from error
        elif parameter.required:
            raise UsageError(f"{name}: {parameter.name} is required")
    if params:
        raise UsageError(f"{name} has no parameter '{next(iter(params))}'")
    _, torch_device = find(device)
    set_math(str(values.get("dtype", "fp32")))  # TF32 on or off, as in a run
    torch.manual_seed(0)
    given = {name: value for name, value in values.items() if value is not None}  # for those that are None the workload's defaults hold
    return workload.set_up(torch_device, given)
