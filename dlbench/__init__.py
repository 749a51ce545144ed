"""dlbench: measure deep-learning workloads on the CPU and every accelerator.

From Python: ``dlbench.read(path)`` gives a result file as a tidy pandas table. All else here is for authors of workloads and of kinds of
device: docs/workloads.md shows it at work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "before_call",
    "caches_of",
    "control_group",
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
    "without_collection",
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
    from dlbench.core.files import __version__
    from dlbench.core.measurement import Memory
    from dlbench.core.model import Clock, Observed, Reported, Work
    from dlbench.core.precision import PRECISIONS, Dtype, InferenceDtype, ProductDtype, TrainingDtype
    from dlbench.core.reference.peaks import link_bytes_per_s_of, peak_of
    from dlbench.core.stats import CLIENT_BOUND, OpenRun, overloaded, percentile, times_for
    from dlbench.core.units import Unit
    from dlbench.harness.probe.linux import caches_of, pci_text, too_little_memory, too_much_to_lock
    from dlbench.harness.worker.backends.base import Backend, register_backend
    from dlbench.harness.worker.measuring.measure import median_time, without_collection
    from dlbench.harness.worker.parent import metered_window, note_stage, scratch_folder
    from dlbench.harness.worker.registry import workload
    from dlbench.harness.worker.serving.ranks import control_group, of_each_rank
    from dlbench.harness.worker.signatures import Cache, Duration, Layout, Least, Size
    from dlbench.harness.worker.user import Data, Network, Tokens, UserDefined, data, find_data, find_network, network
    from dlbench.kit.memory import Copies, before_call, with_copies
    from dlbench.kit.precision import autocast, operands

_HOMES = {
    "dlbench.analysis.read.table": "read",
    "dlbench.core.declarations": "CollectiveOp Communicates Feeding Limit Parallel Role Scratch Searched SearchedCores SearchedLast "
    "Spread Sweep Switch Value",
    "dlbench.core.errors": "UsageError",
    "dlbench.core.files": "__version__",
    "dlbench.core.measurement": "Memory",
    "dlbench.core.model": "Clock Reported Work Observed",
    "dlbench.core.precision": "Dtype InferenceDtype PRECISIONS ProductDtype TrainingDtype",
    "dlbench.core.reference.peaks": "link_bytes_per_s_of peak_of",
    "dlbench.core.stats": "CLIENT_BOUND OpenRun overloaded percentile times_for",
    "dlbench.core.units": "Unit",
    "dlbench.harness.probe.linux": "too_little_memory too_much_to_lock caches_of pci_text",
    "dlbench.harness.worker.backends.base": "Backend register_backend",
    "dlbench.harness.worker.measuring.measure": "median_time without_collection",
    "dlbench.harness.worker.parent": "scratch_folder metered_window note_stage",
    "dlbench.harness.worker.registry": "workload",
    "dlbench.harness.worker.serving.ranks": "control_group of_each_rank",
    "dlbench.harness.worker.signatures": "Cache Duration Layout Least Size",
    "dlbench.harness.worker.user": "UserDefined Data Network Tokens data find_data find_network network",
    "dlbench.kit.memory": "before_call Copies with_copies",
    "dlbench.kit.precision": "autocast operands",
}
"""Modules, and the names that this package takes from each."""


def __getattr__(name: str) -> Any:
    # Lazy, so that `dlbench --help` never pays for torch or pandas, nor the measuring process for pandas.
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'dlbench' has no attribute '{name}'")
