"""dlbench's own workloads; importing this package registers all of them."""

from dlbench.workloads import cnn, collective, conv2d, data_parallel, matmul, model_parallel, overhead, slowed

__all__ = ["cnn", "collective", "conv2d", "data_parallel", "matmul", "model_parallel", "overhead", "slowed"]
