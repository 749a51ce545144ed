"""dlbench: measure deep-learning workloads on the CPU and every accelerator.

From Python: ``dlbench.read(path)`` gives a result file as a tidy pandas table. All else here is for authors of workloads and of kinds of
device: docs/workloads.md shows it at work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "CLIENT_BOUND",
    "PRECISIONS",
    "Backend",
    "Cache",
    "Clock",
    "CollectiveOp",
    "Communicates",
    "Copies",
    "Data",
    "Dtype",
    "Duration",
    "Feeding",
    "InferenceDtype",
    "Layout",
    "Least",
    "Limit",
    "Memory",
    "Network",
    "Observed",
    "OpenRun",
    "Parallel",
    "ProductDtype",
    "Reported",
    "Role",
    "Scratch",
    "Searched",
    "SearchedCores",
    "SearchedLast",
    "Size",
    "Spread",
    "Sweep",
    "Switch",
    "Tokens",
    "TrainingDtype",
    "Unit",
    "UsageError",
    "UserDefined",
    "Value",
    "Work",
    "__version__",
    "autocast",
    "available_memory",
    "before_call",
    "caches_of",
    "control_group",
    "cpus_of_nodes",
    "data",
    "find_data",
    "find_network",
    "link_bytes_per_s_of",
    "median_time",
    "metered_window",
    "network",
    "note_stage",
    "of_each_rank",
    "operands",
    "overloaded",
    "pci_text",
    "peak_of",
    "percentile",
    "read",
    "register_backend",
    "scratch_folder",
    "times_for",
    "too_little_memory",
    "too_much_to_lock",
    "with_copies",
    "workload",
]

if TYPE_CHECKING:
    from dlbench.analysis.read.table import read
    from dlbench.core.declarations import (
        CollectiveOp,
        Communicates,
        Feeding,
        Limit,
        Parallel,
        Role,
        Scratch,
        Searched,
        SearchedCores,
        SearchedLast,
        Spread,
        Sweep,
        Switch,
        Value,
    )
    from dlbench.core.errors import UsageError
    from dlbench.core.measurement import Memory
    from dlbench.core.model import Clock, Observed, Reported, Work
    from dlbench.core.open_loop import CLIENT_BOUND, OpenRun, overloaded
    from dlbench.core.precision import PRECISIONS, Dtype, InferenceDtype, ProductDtype, TrainingDtype
    from dlbench.core.reference.peaks import link_bytes_per_s_of, peak_of
    from dlbench.core.schema import Unit
    from dlbench.core.stats import percentile, times_for
    from dlbench.harness.probe.memory import available_memory, too_little_memory, too_much_to_lock
    from dlbench.harness.probe.topology import caches_of, cpus_of_nodes, pci_text
    from dlbench.harness.worker.backends.base import Backend, register_backend
    from dlbench.harness.worker.measuring.measure import median_time
    from dlbench.harness.worker.parent import metered_window, note_stage, scratch_folder
    from dlbench.harness.worker.registry import workload
    from dlbench.harness.worker.serving.ranks import control_group, of_each_rank
    from dlbench.harness.worker.signatures import Cache, Duration, Layout, Least, Size
    from dlbench.harness.worker.user import Data, Network, Tokens, UserDefined, data, find_data, find_network, network
    from dlbench.kit.cache import before_call
    from dlbench.kit.copies import Copies, with_copies
    from dlbench.kit.precision import autocast, operands

_HOMES = {
    "dlbench.analysis.read.table": "read",
    "dlbench.core.declarations": (
        "CollectiveOp Communicates Feeding Limit Parallel Role Scratch Searched SearchedCores SearchedLast Spread Sweep Switch Value"
    ),
    "dlbench.core.errors": "UsageError",
    "dlbench.core.measurement": "Memory",
    "dlbench.core.model": "Clock Observed Reported Work",
    "dlbench.core.open_loop": "CLIENT_BOUND OpenRun overloaded",
    "dlbench.core.precision": "Dtype InferenceDtype PRECISIONS ProductDtype TrainingDtype",
    "dlbench.core.reference.peaks": "link_bytes_per_s_of peak_of",
    "dlbench.core.schema": "Unit",
    "dlbench.core.stats": "percentile times_for",
    "dlbench.harness.probe.memory": "available_memory too_little_memory too_much_to_lock",
    "dlbench.harness.probe.topology": "caches_of cpus_of_nodes pci_text",
    "dlbench.harness.worker.backends.base": "Backend register_backend",
    "dlbench.harness.worker.user": "UserDefined Data Network Tokens data find_data find_network network",
    "dlbench.harness.worker.measuring.measure": "median_time",
    "dlbench.harness.worker.serving.ranks": "control_group of_each_rank",
    "dlbench.harness.worker.registry": "workload",
    "dlbench.harness.worker.signatures": "Cache Duration Layout Least Size",
    "dlbench.harness.worker.parent": "metered_window note_stage scratch_folder",
    "dlbench.kit.cache": "before_call",
    "dlbench.kit.copies": "Copies with_copies",
    "dlbench.kit.precision": "autocast operands",
}
"""Of each module the names that stand here."""


def __getattr__(name: str) -> Any:
    # Lazy, so that `dlbench --help` never pays for torch or pandas, nor the measuring process for pandas.
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'dlbench' has no attribute '{name}'")
