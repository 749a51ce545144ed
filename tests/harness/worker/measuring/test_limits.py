"""The limit that a case computes within."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from dlbench.core.declarations import Declaration
from dlbench.core.model import Status
from dlbench.harness.worker.backends.base import find
from dlbench.harness.worker.failures import Unmeasurable
from dlbench.harness.worker.measuring import measure
from dlbench.harness.worker.measuring.measure import memory_limit

LIMITED = Declaration(parameters={"memory_gib": {"limit": ""}})
CARD = SimpleNamespace(is_host=False, free_memory=lambda device: 3 * 2**30, limit_memory=lambda device, limit_bytes: None)


@pytest.fixture(autouse=True)
def nothing_in_force(monkeypatch):
    monkeypatch.setattr(measure, "memory_in_force", lambda used: None)
    monkeypatch.setattr(measure, "limit_memory", lambda more, used: nullcontext())


def test_a_search_has_a_limit_where_memory_is_added_on_demand(monkeypatch):
    """Nothing tells how much it could be given in the end."""
    monkeypatch.setattr(measure, "added_memory", lambda: 10 * 2**30)
    sentence = "memory_gib=9 is more than the 8.00 GiB that this process can be given"
    with pytest.raises(Unmeasurable, match=sentence) as error, memory_limit(LIMITED, {"memory_gib": 9}, *find("cpu"), None):
        pass
    assert error.value.status is Status.SKIPPED


@pytest.mark.parametrize(
    ("backend", "own", "left", "limit"),
    [(None, 0.5, 2**31, 2**29), (None, None, 10 * 2**20, 8 * 2**20), (CARD, 0.5, 0, 2**29), (CARD, None, 0, 3 * 2**30)],
)
def test_the_limit_that_a_search_has_is_known(backend, own, left, limit):
    """Its own, or of the host four fifths of what is left, of a card all that is free."""
    host, device = find("cpu")
    for declared, expected in ((LIMITED, limit), (Declaration(), None)):
        with memory_limit(declared, {"memory_gib": own}, backend or host, device, left) as found:
            assert found == expected
