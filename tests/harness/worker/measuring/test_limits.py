"""The limit that a case computes within."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from dlbench.core.declarations import Declaration
from dlbench.core.model import Status
from dlbench.harness.worker.backends.base import find
from dlbench.harness.worker.failures import Unmeasurable
from dlbench.harness.worker.measuring import limits
from dlbench.harness.worker.measuring.limits import memory_limit

LIMITED = Declaration(parameters={"memory_gib": {"limit": ""}})


def test_a_search_has_a_limit_where_memory_is_added_on_demand(monkeypatch):
    """Nothing tells how much it could be given in the end."""
    monkeypatch.setattr(limits, "added_memory", lambda: 10 * 2**30)
    monkeypatch.setattr(limits, "memory_in_force", lambda used: None)
    backend, device = find("cpu")
    sentence = "memory_gib=9 is more than the 8.00 GiB that this process can be given"
    with pytest.raises(Unmeasurable, match=sentence) as error, memory_limit(LIMITED, {"memory_gib": 9}, backend, device, None):
        pass
    assert error.value.status is Status.SKIPPED


@pytest.mark.parametrize(
    ("kind", "own", "left", "limit"),
    [("cpu", 0.5, 2**31, 2**29), ("cpu", None, 10 * 2**20, 8 * 2**20), ("card", 0.5, 0, 2**29), ("card", None, 0, 3 * 2**30)],
)
def test_the_limit_that_a_search_has_is_known(monkeypatch, kind, own, left, limit):
    """Its own, or of the host four fifths of what is left, of a card all that is free."""
    monkeypatch.setattr(limits, "memory_in_force", lambda used: None)
    monkeypatch.setattr(limits, "limit_memory", lambda more, used: nullcontext())
    backend, device = find("cpu")
    if kind == "card":
        backend = SimpleNamespace(is_host=False, free_memory=lambda device: 3 * 2**30, limit_memory=lambda device, limit_bytes: None)
    with memory_limit(LIMITED, {"memory_gib": own}, backend, device, left) as found:
        assert found == limit
    with memory_limit(Declaration(), {}, backend, device, left) as found:
        assert found is None
