"""One network trained on several devices at once, each with a part of it.

Forms that cut it between layers: ``layers`` (one device computes after the other), ``gpipe`` (the batch in parts, so that they compute at
the same time, https://arxiv.org/abs/1811.06965) and ``1f1b`` (each part goes backward as early as it can, so that fewer activations are
kept, https://arxiv.org/abs/2104.04473, section 2.2). One that cuts within layers: ``tensor`` (https://arxiv.org/abs/1909.08053, section 3).
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Dtype, Parallel, Size, Spread, Work, workload
from dlbench.kit.precision import autocast, operands, scales_gradients, storage
from dlbench.kit.step_counts import train_counts
from dlbench.models import MODELS, RowName, initialise
from dlbench.models.splitting import EXPANSION, WIDTH, mlp, stages, width_for
from dlbench.workloads.cnn import CLASSES, IMAGE, OPTIMIZERS, TRAINING, cross_entropy, training_step

Form = Literal["layers", "tensor", "gpipe", "1f1b"]

COPIES = 3
"""A device keeps the value, the gradient and the momentum of each parameter."""


@workload(
    tags=("training", "ranks"),
    parallel=Parallel(step=TRAINING, scaling="strong", pipelines=("layers", "gpipe", "1f1b")),
)
def model_parallel(
    device: torch.device,
    *,
    form: Spread[Form],
    model: Literal[RowName, "mlp"],
    batch: Size,
    ranks: Size,
    dtype: Dtype = "fp32",
    microbatches: Spread[Size] = 1,
    memory_percent: Size | None = None,
) -> Work:
    """Train one network on a batch by one step, with a part of the network on each of `ranks` devices."""
    if form in ("layers", "tensor") and microbatches != 1:
        raise ValueError(f"microbatches belong to the forms gpipe and 1f1b; leave them out for {form}")
    if batch % microbatches:
        raise ValueError(f"a batch of {batch} does not split evenly into {microbatches} microbatches; take a multiple of {microbatches}")
    if form == "1f1b" and microbatches < ranks:
        raise ValueError(f"{microbatches} microbatches can't keep {ranks} ranks busy in turn, as 1f1b does; take {ranks} at least")
    if form == "tensor" and model != "mlp":
        raise ValueError(f"tensor splits linear layers, and most of {model} is convolutions; take the model mlp")
    if scales_gradients(dtype):
        raise NotImplementedError(f"{dtype} needs one scale for all gradients, and here each rank has some of its own; take amp_bf16")
    width = WIDTH if memory_percent is None else _width(device, model, dtype, memory_percent)
    if form == "tensor" and (inner := EXPANSION * width) % ranks:
        raise ValueError(f"{inner} outputs of a layer do not split evenly among {ranks} ranks")
    with torch.device("meta"):  # nobody has to have memory for all of it
        network: nn.Module = mlp(width) if model == "mlp" else MODELS[model]()
    network.train()
    shape, classes = ((width,), width) if model == "mlp" else (IMAGE, CLASSES)
    with torch.device("meta"):
        whole = torch.empty(batch, *shape), torch.empty(batch, dtype=torch.int64)
    counts = train_counts(network, model, cross_entropy, whole, "fp32", None)
    stage = None if form == "tensor" else stages(network, shape, ranks)[dist.get_rank()]
    rank = dist.get_rank()
    samples: tuple[Tensor, ...] = operands(device, (batch, *shape), dtype=dtype) if stage is None or rank == 0 else ()
    labels: tuple[Tensor, ...] = (torch.randint(classes, (batch,)).to(device),) if stage is None or rank == ranks - 1 else ()
    if stage is None:
        step = _split_step(network, samples[0], labels[0], ranks, dtype)
    else:
        torch.manual_seed(torch.initial_seed() + rank)  # no stage has the weights of another
        step = _pipelined_step(form, stage, device, samples, labels, dtype, microbatches)
    return Work(call=step, inputs=(*samples, *labels), items=batch, flops=counts.flops, least_flops=counts.least_flops)


def _width(device: torch.device, model: str, dtype: Dtype, percent: int) -> int:
    """Return the width of an mlp whose parameters fill so many percent of one device's memory in training, or slightly more."""
    if model != "mlp":
        raise ValueError(f"memory_percent sizes the model mlp; leave it out for {model}")
    return width_for(device_memory(device) * percent / 100 / (COPIES * storage(dtype).itemsize))


def device_memory(device: torch.device) -> int:
    """Return the bytes of memory that the device has to itself. Raises NotImplementedError for a CPU, whose ranks share theirs."""
    if device.type == "cpu":
        raise NotImplementedError("ranks on a CPU share its memory, so what is too large for one is too large for all of them")
    total: int = torch.get_device_module(device).get_device_properties(device).total_memory
    return total


def _fill(layer: nn.Module, device: torch.device, dtype: Dtype) -> None:
    """Give a layer without memory random weights on the device, in place."""
    layer.to_empty(device="cpu")
    initialise(layer)
    layer.to(device=device, dtype=storage(dtype))


def _split_step(network: nn.Module, samples: Tensor, labels: Tensor, ranks: int, dtype: Dtype) -> Callable[[], Tensor | None]:
    """Return one step as a call, which gives the loss on every rank; each has the whole batch.

    A rank keeps the same part of a block's inner activations: columns of the first layer, rows of the second. So a block takes one
    all-reduce forward and one backward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(samples.device.type, (ranks,))
    for block in network.children():  # one after the other, for a block is whole before it is split
        _fill(block, samples.device, dtype)
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    step = training_step(samples.device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network))
    return partial(step, samples, labels)


def _pipelined_step(
    form: Form,
    stage: nn.Module,
    device: torch.device,
    samples: tuple[Tensor, ...],
    labels: tuple[Tensor, ...],
    dtype: Dtype,
    microbatches: int,
) -> Callable[[], Tensor | None]:
    """Return one step as a call, which gives the loss on the last rank. The first one has the samples, the last one the labels."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for layer in stage.children():
        _fill(layer, device, dtype)
    # torch runs the stage itself, a part of the batch at a time, and its backward is not for autocast.
    stage.forward = autocast(device, dtype, stage.forward)
    part = PipelineStage(stage, dist.get_rank(), dist.get_world_size(), device)
    kind = Schedule1F1B if form == "1f1b" else ScheduleGPipe  # with one microbatch the latter is one device after the other
    schedule = kind(part, microbatches, loss_fn=autocast(device, dtype, F.cross_entropy))
    update = OPTIMIZERS["sgd"](stage.parameters())

    def step() -> Tensor | None:
        update.zero_grad(set_to_none=True)
        losses: list[Tensor] = []
        try:
            schedule.step(*samples, target=labels[0] if labels else None, losses=losses)
        except RuntimeError as error:
            # What a stage raised is only the cause of what torch raises, and being out of memory has to be seen as that.
            raise (error.__cause__ or error) from None
        update.step()
        return torch.stack(losses).mean().detach() if losses else None

    return step
