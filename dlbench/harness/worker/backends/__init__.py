"""dlbench's own kinds of device; importing this package registers all of them."""

from dlbench.harness.worker.backends.base import register_backend
from dlbench.harness.worker.backends.builtin import CpuBackend, CudaBackend, MpsBackend, XpuBackend

for backend in (CpuBackend(), CudaBackend(), MpsBackend(), XpuBackend()):
    register_backend(backend)
