"""Training step of a small perceptron: as many launches as work, until the batch is large."""

from functools import partial

import torch

from dlbench import Copies, Dtype, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.precision import storage
from dlbench.kit.step_counts import train_counts
from dlbench.models import initialise
from dlbench.models.mlp import block
from dlbench.workloads.cnn import OPTIMIZERS, UPDATE_PASSES, cross_entropy, training_step


@workload(tags=("training",))
def mlp_step(device: torch.device, *, batch: Sweep[Size], width: Size = 256, dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Train two linear layers, width to 4 width to width, by one step of SGD: forward, cross-entropy, backward and update."""
    network = block(width)
    initialise(network)
    network.to(device=device, dtype=storage(dtype))
    (x,) = operands(device, (batch, width), dtype=dtype)
    labels = torch.randint(width, (batch,)).to(device)
    work = Work(
        call=partial(training_step(device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network)), x, labels),
        inputs=(x, labels),
        items=batch,
        **train_counts(network, "mlp", cross_entropy, (x, labels), dtype, UPDATE_PASSES["sgd"]).of_work(),
    )
    return with_copies(device, work, copies)
