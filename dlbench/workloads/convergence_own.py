"""Trainings of a network on batches that users bring, in torch's own precisions: whether one is safe for these.

A seed draws the same weights and the same order of batches whatever the precision, so that gaps pair seed by seed.
"""

from collections.abc import Callable
from typing import cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Dtype, autocast, find_data, find_network
from dlbench.kit.user_batches import Given, OwnBatches
from dlbench.kit.user_networks import forward_of, main_output, optimizer_of
from dlbench.models.shapes import tensors_of
from dlbench.workloads.cnn import build_on, draw_batch, is_classifier, loss_of, training_step

DRAWN, DRAWN_BYTES = 256, 1 << 30
"""Batches that are taken of an epoch, and about how much memory they fill, at most."""
HELD_OUT = 5
"""One batch of so many is not trained on: accuracy and loss are of those."""
RATE, MOMENTUM = 0.02, 0.9


def own_training(
    device: torch.device, model: str, source: str | None, batch: int, precision: str, rate: float | None, steps: int
) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
    """Return a function from a seed to the losses of its training, (steps,), and to loss and accuracy in the end.

    Raises ValueError and NotImplementedError for a network, data and precisions that can't be trained so.
    """
    data, network = find_data(source or ""), find_network(model)
    if data is None:
        raise ValueError(f"model={model} is trained on batches of your own; give source=…, the name of a function below @dlbench.data")
    if precision not in get_args(Dtype):
        raise NotImplementedError(f"format={precision} is emulated in dlbench's own networks; yours take fp32, bf16, fp16 and amp_…")
    if not is_classifier(model):
        raise NotImplementedError(f"network '{model}' has a loss of its own, and accuracy tells whether it converges; give it classes")
    dtype = cast(Dtype, precision)
    torch.manual_seed(0)  # a loader that shuffles does so alike in each precision
    example = draw_batch(device, model, batch, dtype, "nchw")
    way = OwnBatches(data, example, True, device, dtype, batch, 0)
    drawn: list[Given] = [way.fetch()]
    while len(drawn) < DRAWN and sum(each.nbytes for each in tensors_of(drawn)) < DRAWN_BYTES:
        taken = way.fetch()
        if way.whole == 1:  # the next epoch has begun
            break
        drawn.append(taken)
    trained_on = [each for at, each in enumerate(drawn) if at % HELD_OUT]
    if not trained_on:
        raise ValueError(f"data '{source}' has 1 batch of {batch} an epoch, and one is held out; give a smaller batch")

    def train(seed: int) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(seed)
        module = build_on(device, model, dtype, "nchw").train()
        if network and network.optimizer:
            update = optimizer_of(network, module, rate)
        else:
            update = torch.optim.SGD(module.parameters(), lr=rate or RATE, momentum=MOMENTUM)
        step = training_step(device, update, dtype, loss_of(module, model, example[0]))
        order = torch.randint(len(trained_on), (steps,), generator=torch.Generator().manual_seed(seed))
        losses = [step(*way.copy(trained_on[at])) for at in order.tolist()]
        answer = autocast(device, dtype, forward_of(module.eval(), example[0]))
        with torch.no_grad():
            seen = [(main_output(answer(inputs)).float(), targets) for inputs, targets in map(way.copy, drawn[::HELD_OUT])]
        logits, targets = map(torch.cat, zip(*seen, strict=True))
        return torch.stack(losses).float(), F.cross_entropy(logits, targets), (logits.argmax(1) == targets).float().mean()

    return train
