"""A file of pyperf: a round is a run, with the times of all its blocks."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import Timed, texts_of
from dlbench.analysis.read import pyperf
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content."""
    metadata = texts_of(
        run,
        cpu_model_name="environment.identity.cpu.name",
        python_version="environment.stack.versions.python",
        torch_version="environment.stack.versions.torch",
        dlbench_version="dlbench",
    )
    return pyperf.dump([case.measurements for case in cases], metadata)
