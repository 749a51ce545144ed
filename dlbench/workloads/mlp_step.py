"""Training step of a small perceptron: as many launches as work, until the batch is large."""

from functools import partial

import torch

from dlbench import Copies, Dtype, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.precision import output, storage
from dlbench.models import initialise
from dlbench.models.flops import train_flops
from dlbench.models.mlp import block
from dlbench.models.traffic import layer_traffic, train_bytes, weight_bytes
from dlbench.workloads.cnn import OPTIMIZERS, UPDATE_PASSES, cross_entropy, training_step


@workload(tags=("training",))
def mlp_step(device: torch.device, *, batch: Sweep[Size], width: Size = 256, dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Train two linear layers, width to 4 width to width, by one step of SGD: forward, cross-entropy, backward and update."""
    network = block(width)
    initialise(network)
    network.to(device=device, dtype=storage(dtype))
    (x,) = operands(device, (batch, width), dtype=dtype)
    labels = torch.randint(width, (batch,)).to(device)
    updated = UPDATE_PASSES["sgd"] * weight_bytes(network)
    work = Work(
        call=partial(training_step(device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network)), x, labels),
        inputs=(x, labels),
        items=batch,
        flops=batch * train_flops(network, (width,)),  # 5 products of 2 batch x width x 4 width: forward 2, backward 3
        bytes=train_bytes(layer_traffic(network, (width,)), batch, output(dtype).itemsize, updated),
        least_bytes=x.nbytes + updated,  # were all else in caches
    )
    return with_copies(device, work, copies)
