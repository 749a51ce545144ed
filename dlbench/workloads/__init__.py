"""dlbench's own workloads; importing this package registers all of them."""

from dlbench.workloads import (
    ceilings,
    cnn,
    conv2d,
    elementwise,
    fastest,
    feed,
    fit,
    inverse,
    matmul,
    mlp_step,
    overlap,
    reduction,
    small_batch,
    storage,
    transfer,
    vectorised,
)
from dlbench.workloads.parallel import collective, data_parallel, model_parallel
from dlbench.workloads.self import overhead, slowed

__all__ = [
    "ceilings",
    "cnn",
    "collective",
    "conv2d",
    "data_parallel",
    "elementwise",
    "fastest",
    "feed",
    "fit",
    "inverse",
    "matmul",
    "mlp_step",
    "model_parallel",
    "overhead",
    "overlap",
    "reduction",
    "slowed",
    "small_batch",
    "storage",
    "transfer",
    "vectorised",
]
