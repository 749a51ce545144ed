"""Operations of small calls whose number is known."""

import subprocess
import sys

import front_door
import pytest
import torch
from torch import nn

from dlbench.harness.worker.checking.operations import operations_of

A = torch.randn(4, 4)
LAYER = nn.Linear(4, 3, bias=False)
OPTIMIZER = torch.optim.SGD(LAYER.parameters(), lr=0.1, foreach=False)


def infer():
    with torch.inference_mode():
        return torch.relu(LAYER(A))


def train():
    OPTIMIZER.zero_grad()
    LAYER(A).sum().backward()
    OPTIMIZER.step()


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: None, 0),
        (lambda: A.t().reshape(2, 8)[0].unsqueeze(0).detach(), 1),  # reshape has to copy
        (lambda: torch.empty(3, 3).view(9), 0),
        (lambda: (A @ A).relu_(), 2),
        (infer, 2),
        # Forward: a product and a sum. Backward: the sum's gradient of ones, which is only expanded, and a product. Update: one addition.
        (train, 5),
    ],
)
def test_what_computes_counts_and_views_and_allocations_do_not(call, count):
    call()
    assert len(operations_of(call)) == count


COUNTED = """
import sys
import torch
from dlbench.harness.worker.checking.operations import operations_of
images = torch.ones(2, 2)
print(operations_of(lambda: images @ images), "torch._dynamo" in sys.modules)
"""


@pytest.mark.real
def test_counting_does_not_import_the_compiler():
    """Each case on a CPU counts in a process of its own, which would pay a second for that."""
    counted = subprocess.run([sys.executable, "-c", COUNTED], env=front_door.environment(), capture_output=True, text=True, check=True)
    assert counted.stdout == "['mm'] False\n"
