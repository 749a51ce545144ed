"""dlbench: measure what a deep-learning machine really delivers, CPU beside GPU.

From Python: ``dlbench.read(path)`` gives a result file as a tidy pandas table; ``dlbench.workload`` and ``dlbench.Work``
are what a workload of one's own is written with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Parallel", "Unit", "Value", "Work", "__version__", "read", "workload"]

if TYPE_CHECKING:
    from dlbench.analysis.read.table import read
    from dlbench.core.declarations import Parallel, Value
    from dlbench.core.model import Work
    from dlbench.core.schema import Unit
    from dlbench.harness.worker.registry import workload

_HOMES = {
    "Parallel": "dlbench.core.declarations",
    "Unit": "dlbench.core.schema",
    "Value": "dlbench.core.declarations",
    "Work": "dlbench.core.model",
    "read": "dlbench.analysis.read.table",
    "workload": "dlbench.harness.worker.registry",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `dlbench --help` and the measuring process never pay for pandas.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dlbench' has no attribute '{name}'")
