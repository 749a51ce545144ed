"""dlbench's own kinds of device; importing this package registers all of them."""

from dlbench.harness.worker.backends.base import register_backend
from dlbench.harness.worker.backends.cpu import CpuBackend
from dlbench.harness.worker.backends.cuda import CudaBackend
from dlbench.harness.worker.backends.mps import MpsBackend
from dlbench.harness.worker.backends.xpu import XpuBackend

for backend in (CpuBackend(), CudaBackend(), MpsBackend(), XpuBackend()):
    register_backend(backend)
