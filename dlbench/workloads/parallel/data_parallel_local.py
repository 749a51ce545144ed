"""Local stochastic gradient descent: each rank trains on its share alone, and all average their weights every k steps.

As in Stich 2019 (https://arxiv.org/abs/1805.09767, algorithm 1), but with momentum, which stays each rank's own.
"""

import torch.distributed as dist
from torch import nn

from dlbench import Clock, Reported, Unit, Value
from dlbench.workloads.parallel.data_parallel_learning import Experiment, Learner, Observe, outcome

AVERAGINGS = Value("averagings", Unit.COUNT, None, "how often all ranks averaged their weights", when={"form": ("local",)})


def local(learner: Learner, experiment: Experiment) -> Observe:
    """Return the experiment: every rank updates the weights on its own device, which all-reduces them.

    Averaged after each step they are those of one process with the whole batch, as an update is linear in gradients and momentum.
    """
    weights = nn.Parameter(learner.weights)  # the same memory
    weights.grad = learner.gradients
    optimizer = experiment.optimizer(weights)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # the first is slower: not what a step takes
        dist.all_reduce(learner.gradients)  # and so is the first message; the weights are to start as those of other forms
        before, begun, steps, planned = learner.mean_loss(), clock.now(), 0, 1
        while planned > 0:
            for _ in range(planned):
                learner.backward(learner.forward())
                optimizer.step()
                steps += 1
                if steps % experiment.average_every == 0:
                    average(learner)
            elapsed_s = clock.now() - begun
            # Half of what still fits, as all wait for each other at the clock: it is read a few times only, however rarely they average.
            planned = (int((experiment.seconds / elapsed_s - 1) * steps) + 1) // 2
        if steps % experiment.average_every:
            average(learner)
        values = outcome(before, learner.mean_loss(), steps, steps * dist.get_world_size() * learner.items, elapsed_s)
        return values | {AVERAGINGS.name: -(-steps // experiment.average_every)}

    return observe


def average(learner: Learner) -> None:
    """Give all ranks the mean of their weights and floating-point buffers."""
    dist.all_reduce(learner.state)
    learner.state.div_(dist.get_world_size())
