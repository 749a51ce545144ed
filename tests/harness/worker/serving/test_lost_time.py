"""What a measuring process says of the CPU time that a case lost."""

from types import SimpleNamespace
from typing import Any

import made_up
import pytest

from dlbench.core.conditions import Throttling
from dlbench.core.errors import Unknown
from dlbench.harness.worker.serving.main import _note_lost_time


@pytest.mark.parametrize(
    ("why", "wait_s"),
    [(None, (0.5, 0.0)), (Unknown.TOO_SHORT, (0.5, 0.0)), (Unknown.WAITING, (0.5, 0.0)), (Unknown.WAITING_OF_CHILDREN, None)],
)
def test_blocks_in_which_threads_may_have_waited_for_processes_of_the_case_have_no_wait(why: Unknown | None, wait_s: object) -> None:
    (result,) = made_up.rounds_of(made_up.case(), [[1.0, 2.0]])
    assert result.samples
    result.samples.wait_s = (0.5, 0.0)
    missing_reasons = {"waiting": [why.reason()]} if why else {}
    lost: Any = SimpleNamespace(shares=lambda own_threads: (Throttling(stolen=0.0), missing_reasons))
    _note_lost_time(result, lost, own_threads=False)
    assert (result.samples.wait_s, result.throttling, result.missing_reasons) == (wait_s, Throttling(stolen=0.0), missing_reasons)
