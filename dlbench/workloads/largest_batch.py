"""Largest batch of an image classifier that fits into so much memory. docs/memory.md says how it is found and read."""

from typing import Annotated, Literal

import torch

from dlbench import Dtype, Layout, Least, Limit, Searched, Size, Unit, Value, Work, workload
from dlbench.models import Model
from dlbench.workloads.cnn import infer_step, train_step, usual_optimizer


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
