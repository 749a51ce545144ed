"""The same product in every way to write it."""

import sys

import pytest
import torch

from dlbench.workloads.primitives import vectorised

CPU = torch.device("cpu")
WAYS = [("loops", "torch"), ("rows", "torch"), ("whole", "torch"), ("rows", "numpy"), ("whole", "numpy")]


@pytest.mark.parametrize(("form", "library"), WAYS)
def test_every_way_gives_the_same_product(form: str, library: str) -> None:
    torch.manual_seed(2)
    a, b = vectorised(CPU, n=5).inputs
    torch.manual_seed(2)
    work = vectorised(CPU, n=5, form=form, library=library)
    torch.testing.assert_close(torch.as_tensor(work.call(), dtype=torch.float64), a @ b)
    assert (work.items, work.flops, work.bytes) == (1, 250, 3 * 25 * 8)
    assert len(work.inputs) == (0 if form == "loops" else 2)


def test_numpy_computes_in_the_precision_and_on_what_is_in_the_inputs() -> None:
    work = vectorised(CPU, n=3, library="numpy", dtype="fp32")
    work.inputs[0].zero_()
    assert work.call().dtype is torch.float32
    assert not work.call().any()


def test_without_numpy_its_cases_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(NotImplementedError, match="NumPy is not installed"):
        vectorised(CPU, n=3, library="numpy")
