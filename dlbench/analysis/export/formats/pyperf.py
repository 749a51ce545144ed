"""A file of pyperf: a round is a run, with the times of all its blocks."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import Timed, known, text_of
from dlbench.analysis.read import pyperf
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content."""
    metadata = {
        "cpu_model_name": text_of(run, "environment.identity.cpu.name"),
        "python_version": text_of(run, "environment.stack.versions.python"),
        "torch_version": text_of(run, "environment.stack.versions.torch"),
        "dlbench_version": text_of(run, "dlbench"),
    }
    return pyperf.dump([case.measurements for case in cases], known(metadata))
