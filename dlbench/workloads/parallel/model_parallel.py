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

from dlbench import PRECISIONS, Dtype, Parallel, Size, Spread, Work, workload
from dlbench.kit.precision import autocast, operands, storage
from dlbench.kit.steps import train_counts
from dlbench.models import MODELS, RowName, initialise
from dlbench.models.splitting import EXPANSION, WIDTH, mlp, stages, width_for
from dlbench.workloads.cnn import CLASSES, IMAGE, OPTIMIZERS, TRAINING, cross_entropy, training_step

Form = Literal["layers", "tensor", "gpipe", "1f1b"]

COPIES = 3
"""Numbers that a device keeps for each parameter: its value, its gradient and its momentum."""


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
    _refuse_parameters(form, model, batch, ranks, dtype, microbatches)
    width = WIDTH if memory_percent is None else _width(device, model, dtype, memory_percent)
    inner = EXPANSION * width  # outputs of the first layer of a block
    if form == "tensor" and inner % ranks:
        raise ValueError(f"{inner} outputs of a layer do not split evenly among {ranks} ranks")
    # An mlp takes vectors of its width, and gives logits of as many classes.
    sample_shape, classes = ((width,), width) if model == "mlp" else (IMAGE, CLASSES)
    with torch.device("meta"):  # no device has to have memory for the whole network
        network: nn.Module = mlp(width) if model == "mlp" else MODELS[model]()
        whole_batch = torch.empty(batch, *sample_shape), torch.empty(batch, dtype=torch.int64)
    network.train()
    # Only operations are taken from these counts. They are the same in each precision, and the update's passes belong to bytes.
    counts = train_counts(network, cross_entropy, whole_batch, "fp32", update_passes=None)
    rank = dist.get_rank()
    stage = None if form == "tensor" else stages(network, sample_shape, ranks)[rank]
    # With `tensor` every rank needs the whole batch; of a pipeline the first stage needs samples, and the last one labels.
    needs_samples = stage is None or rank == 0
    needs_labels = stage is None or rank == ranks - 1
    # A tuple of one tensor, or of none for a rank that does not need it.
    samples: tuple[Tensor, ...] = operands(device, (batch, *sample_shape), dtype=dtype) if needs_samples else ()
    labels: tuple[Tensor, ...] = (torch.randint(classes, (batch,)).to(device),) if needs_labels else ()
    if stage is None:  # the form is `tensor`, so this rank has samples and labels
        step = _tensor_parallel_step(network, samples[0], labels[0], ranks, dtype)
    else:
        torch.manual_seed(torch.initial_seed() + rank)  # no stage has the weights of another
        step = _pipeline_step(form, stage, device, samples, labels, dtype, microbatches)
    return Work(call=step, inputs=(*samples, *labels), items=batch, flops=counts["flops"], least_flops=counts["least_flops"])


def _refuse_parameters(form: Form, model: str, batch: int, ranks: int, dtype: Dtype, microbatches: int) -> None:
    """Raise ValueError for parameters that contradict each other, and NotImplementedError for a precision that scales gradients."""
    if form in ("layers", "tensor") and microbatches != 1:
        raise ValueError(f"microbatches belong to the forms gpipe and 1f1b; leave them out for {form}")
    if batch % microbatches:
        raise ValueError(f"a batch of {batch} does not split evenly into {microbatches} microbatches; take a multiple of {microbatches}")
    if form == "1f1b" and microbatches < ranks:
        raise ValueError(f"{microbatches} microbatches can't keep {ranks} ranks busy in turn, as 1f1b does; take {ranks} at least")
    if form == "tensor" and model != "mlp":
        raise ValueError(f"tensor splits linear layers, and most of {model} is convolutions; take the model mlp")
    if PRECISIONS[dtype].scales_gradients:
        raise NotImplementedError(f"{dtype} needs one scale for all gradients, and here each rank has some of its own; take amp_bf16")


def _width(device: torch.device, model: str, dtype: Dtype, percent: int) -> int:
    """Return the width of an mlp that fills ``percent`` of one device's memory in training, or slightly more.

    Raises ValueError for any other model, whose size is fixed.
    """
    if model != "mlp":
        raise ValueError(f"memory_percent sizes the model mlp; leave it out for {model}")
    parameter_bytes = COPIES * storage(dtype).itemsize
    return width_for(device_memory(device) * percent / 100 / parameter_bytes)


def device_memory(device: torch.device) -> int:
    """Return the bytes of an accelerator's memory. Raises NotImplementedError for a CPU, whose ranks share its memory."""
    if device.type == "cpu":
        raise NotImplementedError("ranks on a CPU share its memory, so what is too large for one is too large for all of them")
    total: int = torch.get_device_module(device).get_device_properties(device).total_memory
    return total


def _fill(layer: nn.Module, device: torch.device, dtype: Dtype) -> None:
    """Give a layer of the meta device random weights on this device, in place."""
    layer.to_empty(device="cpu")
    initialise(layer)
    layer.to(device=device, dtype=storage(dtype))


def _tensor_parallel_step(network: nn.Module, samples: Tensor, labels: Tensor, ranks: int, dtype: Dtype) -> Callable[[], Tensor | None]:
    """Return a training step of an mlp whose layers are split among the ranks; calling it gives the loss, on every rank.

    Creates the weights of the network and splits them, in place. Every rank has the whole batch. In each block a rank has some columns
    of the first linear layer and the matching rows of the second, so a block needs one all-reduce forward and one backward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(samples.device.type, (ranks,))
    first_linear, second_linear = "0", "2"  # their names in splitting.block
    # Fill and split one block at a time, so that a device never holds more than one whole block.
    for block in network.children():
        _fill(block, samples.device, dtype)
        parallelize_module(block, mesh, {first_linear: ColwiseParallel(), second_linear: RowwiseParallel()})
    step = training_step(samples.device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network))
    return partial(step, samples, labels)


def _pipeline_step(
    form: Form,
    stage: nn.Module,
    device: torch.device,
    samples: tuple[Tensor, ...],
    labels: tuple[Tensor, ...],
    dtype: Dtype,
    microbatches: int,
) -> Callable[[], Tensor | None]:
    """Return a training step of a pipeline with one stage on each rank; calling it gives the loss on the last rank, None on others.

    Creates the stage's weights in place. ``samples``: one tensor on the first rank, and none on others. ``labels``: one tensor on the last
    rank, and none on others.
    """
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for layer in stage.children():
        _fill(layer, device, dtype)
    # The schedule runs forward, loss and backward in one call. Backward has to stay outside autocast, so it wraps the other two alone.
    stage.forward = autocast(device, dtype, stage.forward)
    pipeline_stage = PipelineStage(stage, dist.get_rank(), dist.get_world_size(), device)
    # The form `layers` is GPipe with one microbatch: then one device computes after the other.
    schedule_class = Schedule1F1B if form == "1f1b" else ScheduleGPipe
    schedule = schedule_class(pipeline_stage, microbatches, loss_fn=autocast(device, dtype, F.cross_entropy))
    optimizer = OPTIMIZERS["sgd"](stage.parameters())

    def step() -> Tensor | None:
        optimizer.zero_grad(set_to_none=True)
        losses: list[Tensor] = []  # on the last rank the schedule adds one for each microbatch
        try:
            schedule.step(*samples, target=labels[0] if labels else None, losses=losses)
        except RuntimeError as error:
            # torch wraps what a stage raises; the worker has to see an out-of-memory error itself.
            raise (error.__cause__ or error) from None
        optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None

    return step
