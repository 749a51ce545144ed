"""dlbench's own kinds of device; importing this package registers all of them."""

from dlbench.harness.worker.backends import cpu, cuda, mps, xpu

__all__ = ["cpu", "cuda", "mps", "xpu"]
