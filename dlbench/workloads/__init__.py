"""dlbench's own workloads; importing this package registers all of them."""

from dlbench.workloads import cnn, conv2d, feed, matmul
from dlbench.workloads.parallel import collective, data_parallel, model_parallel
from dlbench.workloads.self import overhead, slowed

__all__ = ["cnn", "collective", "conv2d", "data_parallel", "feed", "matmul", "model_parallel", "overhead", "slowed"]
