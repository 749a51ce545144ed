"""Steps of image classifiers whose settings are searched: for the most throughput, or the largest batch within some memory.

A setting that a case gives is not searched, so a case that gives all of them, with plain defaults, is the baseline of the others.
"""

from typing import Annotated, Any, Literal

import torch

from dlbench import (
    PRECISIONS,
    Dtype,
    InferenceDtype,
    Layout,
    Least,
    Limit,
    Searched,
    SearchedCores,
    SearchedLast,
    Size,
    Switch,
    TrainingDtype,
    Unit,
    Value,
    Work,
    workload,
)
from dlbench.kit.modes import INFERENCE_VALUES, VALUES, InferenceMode, Mode
from dlbench.models import Model
from dlbench.workloads.cnn import Implementation, infer_step, train_step, usual_optimizer


@workload(tags=("cnn", "training", "imagenet"), values=VALUES, writes_files=True)
def fastest_train_step(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    dtype: Searched[Switch[TrainingDtype]] = None,
    layout: Searched[Switch[Layout]] = None,
    implementation: Searched[Switch[Implementation]] = None,
    mode: SearchedLast[Switch[Mode]] = None,  # a compilation takes as long as ten other tries
    threads: SearchedCores[Size] = None,  # the harness sees to them
) -> Work:
    """Train an image classifier by one step, in the fastest way there is for all that the case leaves open."""
    chosen = _chosen(device, batch=batch, dtype=dtype, layout=layout, implementation=implementation, mode=mode)
    return train_step(device, model=model, optimizer=usual_optimizer(model), **chosen)


@workload(tags=("cnn", "inference", "imagenet"), values=INFERENCE_VALUES, writes_files=True)
def fastest_infer_step(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    dtype: Searched[Switch[InferenceDtype]] = None,
    layout: Searched[Switch[Layout]] = None,
    mode: SearchedLast[Switch[InferenceMode]] = None,  # a compilation takes as long as ten other tries
    instances: SearchedCores[Size] = None,  # the harness sees to them, and to threads
    threads: SearchedCores[Size] = None,
) -> Work:
    """Classify a batch of images, in the fastest way there is for all that the case leaves open."""
    return infer_step(device, model=model, **_chosen(device, batch=batch, dtype=dtype, layout=layout, mode=mode))


def _chosen(device: torch.device, *, dtype: Dtype | None, **others: int | str | None) -> dict[str, Any]:
    """Return the settings of a step by name. Raises NotImplementedError for a precision that would take too long on a CPU."""
    if dtype is not None and device.type == "cpu" and PRECISIONS[dtype].narrow_range:
        raise NotImplementedError("some CPUs take 250 times longer in fp16, too long for a search; a suite can plan it alone")
    return {"dtype": dtype, **others}


@workload(
    tags=("cnn", "training"),
    values=(
        Value("largest_batch", Unit.COUNT, "higher", "the largest batch found that fits into the memory", optional=True, role="largest"),
    ),
)
def largest_batch(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    memory_gib: Limit[Annotated[float, Least(0)]] = None,
    step: Literal["train", "infer"] = "train",
    dtype: Dtype = "fp32",
    layout: Layout = "nchw",
) -> Work:
    """Find the largest batch whose step fits into so many GiB, or take the step at a batch within them."""
    if batch is None:
        raise ValueError("a batch is found by a search; give batch=8 to take a step without one")
    if step == "train":
        return train_step(device, model=model, batch=batch, dtype=dtype, layout=layout, optimizer=usual_optimizer(model))
    return infer_step(device, model=model, batch=batch, dtype=dtype, layout=layout)
