"""One network trained on several devices at once, each with its share of the batch.

Forms whose step is timed: ``ddp`` (gradients averaged while backward still runs, https://arxiv.org/abs/2006.15704), ``fsdp`` (weights,
gradients and optimizer states sharded, too: ZeRO stage 3, https://arxiv.org/abs/1910.02054) and ``replicas`` (nothing is
synchronised: what several devices do at most). Forms that train for a time and say what came of it have modules of their own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlbench import Communicates, Dtype, Duration, Layout, Least, Parallel, Size, Spread, Work, workload
from dlbench.kit.steps import train_counts
from dlbench.models import Model
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import TRAINING, build_on, draw_batch, loss_of, optimizer_of, training_step, usual_optimizer
from dlbench.workloads.parallel.experiments import AVERAGINGS, EXPERIMENTS, STALENESS, STEP_PARTS
from dlbench.workloads.parallel.learner import OUTCOME, Experiment, Learner

Form = Literal["ddp", "fsdp", "tower", "async", "hogwild", "local", "replicas"]
Sent = Literal["full", "bf16", "fp16"]
"""Types that gradients are sent as: their own, or one that torch has a communication hook for."""
Percent = Annotated[int, Least(0)]
Rate = Annotated[float, Least(0)]

ANY_LAYOUT = ("ddp", "replicas")
"""Forms whose weights may be in another memory layout than torch's default."""
SECONDS = 5.0
"""Training time of an experiment by default: a hundred steps at 20 a second."""
LEARNING_RATE = 0.01
"""Rate of an experiment by default; with momentum 0.9, VGG's own (https://arxiv.org/abs/1409.1556, section 3.1)."""
AVERAGE_EVERY = 8
"""Steps of ``local`` from one averaging to the next by default, which leaves an eighth of the communication."""
START_SEED = 1
"""Seed of every experiment. The case's own differs between forms, whose losses are compared, so all have to start from equal weights."""


@workload(
    tags=("cnn", "training", "ranks"),
    values=(*OUTCOME, *STEP_PARTS, STALENESS, AVERAGINGS),
    parallel=Parallel(step=TRAINING, independent=("replicas",), all_reduce=("ddp",)),
)
def data_parallel(
    device: torch.device,
    *,
    form: Spread[Form],
    model: Model,
    batch: Size,
    ranks: Size,
    scaling: Spread[Literal["weak", "strong"]] = "weak",
    dtype: Dtype = "fp32",
    layout: Layout = "nchw",
    bucket_mb: Spread[Size | None] = None,
    gradients: Spread[Sent] = "full",
    synchronise: Spread[Communicates[bool]] = True,
    average_every: Spread[Size | None] = None,
    seconds: Spread[Duration | None] = None,
    learning_rate: Spread[Rate | None] = None,
    straggler: Spread[Percent] = 0,
) -> Work:
    """Train a network on `ranks` devices; `batch` is that of each rank with weak scaling, and of all together with strong scaling."""
    if form != "ddp" and (bucket_mb is not None or gradients != "full" or not synchronise):
        raise ValueError(f"bucket_mb, gradients and synchronise belong to form ddp; leave them out for {form}")
    if layout != "nchw" and form not in ANY_LAYOUT:  # FSDP2 refuses such weights, and the one vector of an experiment has no layout
        raise ValueError(f"layout={layout} belongs to the forms {' and '.join(ANY_LAYOUT)}; leave it out for {form}")
    if form != "local" and average_every is not None:
        raise ValueError(f"average_every belongs to form local; leave it out for {form}")
    if form not in EXPERIMENTS and (seconds is not None or learning_rate is not None or straggler):
        raise ValueError(f"seconds, learning_rate and straggler belong to the forms {', '.join(EXPERIMENTS)}; leave them out for {form}")
    if scaling == "strong" and batch % ranks:
        raise ValueError(f"a batch of {batch} does not split evenly among {ranks} ranks; take a multiple of {ranks}")
    rank_batch = batch // ranks if scaling == "strong" else batch
    if form in EXPERIMENTS:
        torch.manual_seed(START_SEED)
    network = build_on(device, model, dtype, layout)  # equal on all ranks, which have the same seed so far
    torch.manual_seed(torch.initial_seed() + dist.get_rank())  # each rank draws a batch of its own
    inputs, targets = draw_batch(device, model, rank_batch, dtype, layout)
    # Bytes are not reported for several ranks, so the passes of the optimizer are left at 0.
    counts = train_counts(network, partial(loss_of, model=model, inputs=inputs), (inputs, targets), dtype, 0)
    flops = _of_all_ranks(counts["flops"], ranks)
    least_flops = _of_all_ranks(counts["least_flops"], ranks)
    items = rank_batch * ranks
    network.train()
    if form in EXPERIMENTS:
        experiment = Experiment(seconds or SECONDS, learning_rate or LEARNING_RATE, average_every or AVERAGE_EVERY)
        # The last rank is the slow one, because in some forms rank 0 also updates the weights of all ranks.
        straggler_percent = straggler if dist.get_rank() == ranks - 1 else 0
        learner = Learner(network, loss_of(network, model, inputs), (inputs, targets), rank_batch, dtype, straggler_percent)
        return Work(observe=EXPERIMENTS[form](learner, experiment), items=items, flops=flops, unknown=counts["unknown"])
    if form == "fsdp":
        _shard(network, device)
    elif form == "ddp":
        network = _replicate(network, device, bucket_mb, gradients)
    optimizer = optimizer_of(network, model, usual_optimizer(model))
    step = partial(training_step(device, optimizer, dtype, loss_of(network, model, inputs)), inputs, targets)
    if isinstance(network, DistributedDataParallel) and not synchronise:
        step = network.no_sync()(step)  # no call of the wrapped step averages gradients
    tensors = tensors_of((inputs, targets))
    return Work(call=step, inputs=tensors, items=items, flops=flops, least_flops=least_flops, unknown=counts["unknown"])


def _of_all_ranks(operations: float | None, ranks: int) -> float | None:
    """Return the operations of all ranks from those of one; None where they are unknown."""
    return None if operations is None else operations * ranks


def _replicate(network: nn.Module, device: torch.device, bucket_mb: int | None, gradients: Sent) -> DistributedDataParallel:
    """Return the network as one replica of DDP. Raises NotImplementedError where the ranks can't send such gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook

    parallel = DistributedDataParallel(network, device_ids=None if device.index is None else [device.index], bucket_cap_mb=bucket_mb)
    if gradients != "full":
        try:
            parallel.register_comm_hook(None, bf16_compress_hook if gradients == "bf16" else fp16_compress_hook)
        except TypeError as error:  # what torch raises where the backend can't send this type
            raise NotImplementedError(f"gradients={gradients}: {error}") from error
    return parallel


def _shard(network: nn.Module, device: torch.device) -> None:
    """Shard the network in place: each stage on its own, so that its weights arrive while the stage before computes, then the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for stage in list(find_stages(network, count_uses(network))):
        fully_shard(stage, mesh=mesh)
    fully_shard(network, mesh=mesh)


def find_stages(module: nn.Module, network_uses: Mapping[nn.Parameter, int]) -> Iterator[nn.Module]:
    """Yield the outermost modules that have layers in them and can be sharded on their own; ``network_uses``: `count_uses` of the whole.

    A module that is never called, such as a list of others, can't be, and neither can one that shares a weight with the rest.
    """
    for child in module.children():
        if not list(child.children()):  # a single layer
            continue
        is_called = type(child).forward is not nn.Module.forward
        shares_no_weight = all(network_uses[weight] == uses for weight, uses in count_uses(child).items())
        if is_called and shares_no_weight:
            yield child
        else:
            yield from find_stages(child, network_uses)


def count_uses(module: nn.Module) -> Counter[nn.Parameter]:
    """Count how often each weight is in a module: once, unless layers share it."""
    return Counter(weight for _, weight in module.named_parameters(remove_duplicate=False))
