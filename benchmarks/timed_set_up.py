"""A plugin for `benchmarks.isolation_cost`: another workload, whose set-up is timed inside the measuring process."""

import time
from dataclasses import replace

import torch

from dlbench import Dtype, Work, workload
from dlbench.core.model import ParamValue
from dlbench.harness.worker import registry

PARAMS: dict[str, dict[str, ParamValue]] = {"noop": {}, "train_step": {"model": "resnet18", "batch": 1}}


@workload()
def timed_set_up(device: torch.device, *, name: str, number: int, dtype: Dtype = "fp32") -> Work:
    """Set up `name` and carry the seconds that it took out as `items`; `number` tells one repetition from another."""
    started = time.perf_counter()
    timed = registry.get(name)
    # With its precision named, the first round compares it with fp64, as it does any case.
    work = timed.set_up(device, PARAMS[name] | ({"dtype": dtype} if timed.signature.parameter("dtype") else {}))
    return replace(work, items=time.perf_counter() - started)
