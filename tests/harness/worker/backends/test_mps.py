"""Names of the GPU of Apple silicon, on a Mac that is made up."""

import pytest
import torch

from dlbench.harness.probe import processor
from dlbench.harness.probe.devices import describe
from dlbench.harness.worker.backends.builtin import MpsBackend

GIB = 2**30


@pytest.mark.parametrize(
    ("chip", "cores", "name"),
    [
        ("Apple M2 Max", 38, "Apple M2 Max, 38 GPU cores"),
        ("Apple M2 Max", -1, "Apple M2 Max GPU"),  # as torch says it where it could not tell
        ("Apple M2 Max", None, "Apple M2 Max GPU"),  # a torch that tells none
        (None, 38, "Apple silicon, 38 GPU cores"),
    ],
)
def test_a_device_is_named_by_its_chip(monkeypatch, chip, cores, name):
    monkeypatch.setattr(processor, "model_name", lambda: chip)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 24 * GIB)
    if cores is None:
        monkeypatch.delattr(torch.backends.mps, "get_core_count", raising=False)
    else:
        monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: cores, raising=False)
    (gpu,) = describe({"devices": [{"id": "mps:0", "kind": "mps", **MpsBackend().describe(0)}]})
    assert (gpu.name, gpu.vendor, gpu.memory_bytes) == (name, "apple", 24 * GIB)
