"""Operations of small calls whose number is known."""

import subprocess
import sys

import front_door
import torch
from torch import nn

from dlbench.harness.worker.checking.operations import operations_of


def test_what_computes_counts_and_views_and_allocations_do_not():
    a = torch.randn(4, 4)
    assert operations_of(lambda: None) == 0
    assert operations_of(lambda: a.t().reshape(2, 8)[0].unsqueeze(0).detach()) == 1  # reshape has to copy
    assert operations_of(lambda: torch.empty(3, 3).view(9)) == 0
    assert operations_of(lambda: (a @ a).relu_()) == 2


def test_backward_and_the_optimizer_are_part_of_a_step():
    layer = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
    images = torch.randn(2, 4)

    def step():
        optimizer.zero_grad()
        layer(images).sum().backward()
        optimizer.step()

    step()
    # Forward: a product and a sum. Backward: the sum's gradient of ones, which is only expanded, and a product. Update: one addition.
    assert operations_of(step) == 5


def test_a_call_under_inference_mode_counts_as_well():
    layer, images = nn.Linear(4, 3), torch.randn(2, 4)

    def call():
        with torch.inference_mode():
            return torch.relu(layer(images))

    assert operations_of(call) == 2


COUNTED = """
import sys
import torch
from dlbench.harness.worker.checking.operations import operations_of
images = torch.ones(2, 2)
print(operations_of(lambda: images @ images), "torch._dynamo" in sys.modules)
"""


def test_counting_does_not_import_the_compiler():
    """Each case on a CPU counts in a process of its own, which would pay a second for that."""
    counted = subprocess.run([sys.executable, "-c", COUNTED], env=front_door.environment(), capture_output=True, text=True, check=True)
    assert counted.stdout == "1 False\n"
