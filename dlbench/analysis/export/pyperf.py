"""A file of pyperf: a round is a run, with the times of all its blocks."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import IDENTITY, VERSIONS, Timed, known, text_of
from dlbench.analysis.read import pyperf
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content."""
    metadata = {
        "cpu_model_name": text_of(run, *IDENTITY, "cpu", "name"),
        "python_version": text_of(run, *VERSIONS, "python"),
        "torch_version": text_of(run, *VERSIONS, "torch"),
        "dlbench_version": text_of(run, "dlbench"),
    }
    return pyperf.dump([case.measurements for case in cases], known(metadata))
