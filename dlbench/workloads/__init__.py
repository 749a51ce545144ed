"""dlbench's own workloads; importing this package registers all of them."""

from dlbench.workloads import cnn, conv2d, data_parallel, matmul, overhead, slowed

__all__ = ["cnn", "conv2d", "data_parallel", "matmul", "overhead", "slowed"]
