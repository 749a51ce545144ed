"""A plugin for `benchmarks.isolation_cost`: another workload, whose set-up is timed inside the measuring process."""

import time
from dataclasses import replace

import torch

from dlbench import Work, workload
from dlbench.core.model import ParamValue
from dlbench.harness.worker import registry

PARAMS: dict[str, dict[str, ParamValue]] = {"noop": {}, "train_step": {"model": "resnet18", "batch": 1}}


@workload()
def timed_set_up(device: torch.device, *, name: str, number: int) -> Work:
    """Set up `name` and carry the seconds that it took out as `items`; `number` tells one repetition from another."""
    started = time.perf_counter()
    work = registry.get(name).set_up(device, PARAMS[name])
    return replace(work, items=time.perf_counter() - started)
