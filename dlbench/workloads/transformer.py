"""Steps of transformers: BERT-base and GPT-2 in training and inference, and the step in which GPT-2 writes one more token."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from dlbench import Dtype, Size, Sweep, Switch, Work, operands, workload
from dlbench.kit.memory import refuse_more_than_left
from dlbench.kit.modes import INFERENCE_VALUES, VALUES, Execution
from dlbench.kit.precision import storage
from dlbench.kit.steps import forward_counts
from dlbench.kit.user_networks import Loss, forward_of, on_device
from dlbench.models import for_inference, language_models, on_meta, with_random_weights
from dlbench.workloads.cnn import UPDATE_PASSES, Implementation, inference_work, optimizer_of, training_execution, training_work

ModelName = Literal["bert_base", "gpt2"]
Attention = Literal["fused", "math"]
"""One kernel for all of it, or a product, a softmax and a product."""
OPTIMIZER = "adamw"
"""By which both are trained."""
Mode = Literal["eager", "compile", "graph"]
InferenceMode = Literal["eager", "compile", "freeze", "graph"]


class Transformer(NamedTuple):
    """A network of token ids: how it is built, and its inputs, targets and loss."""

    make: Callable[[], nn.Module]
    positions: int
    """Length of its longest sequence."""
    draw: Callable[[int, int], tuple[tuple[Any, ...], Any]]
    """Returns inputs and targets for a batch and a sequence length."""
    loss: Callable[..., Tensor]
    """Returns the loss for output, inputs and targets."""
    inference_inputs: int
    """How many of the inputs inference takes."""

    def loss_of(self, network: nn.Module) -> Loss:
        """Return the loss that a training step minimises."""
        return lambda inputs, targets: self.loss(network(*inputs), inputs, targets)


MODELS: dict[str, Transformer] = {
    "bert_base": Transformer(
        make=language_models.Bert,
        positions=language_models.BERT_POSITIONS,
        draw=language_models.draw_pretraining,
        loss=language_models.pretraining_loss,
        inference_inputs=2,
    ),
    "gpt2": Transformer(
        make=language_models.GPT2,
        positions=language_models.GPT2_POSITIONS,
        draw=language_models.draw_text,
        loss=language_models.next_token_loss,
        inference_inputs=1,
    ),
}


@workload(tags=("transformer", "training", "tokens"), values=VALUES, writes_files=True)
def transformer_train_step(
    device: torch.device,
    *,
    model: ModelName,
    batch: Size,
    seq: Sweep[Size] = 128,
    dtype: Switch[Dtype] = "fp32",
    attention: Switch[Attention] = "fused",
    implementation: Switch[Implementation] = "default",
    mode: Switch[Mode] = "eager",
) -> Work:
    """Train a transformer by one step on sequences of `seq` tokens: BERT by masked words and the next sentence, GPT-2 by next tokens."""
    transformer = MODELS[model]
    refuse_sequence(model, seq, transformer.positions, least=2)  # of a single token there is nothing to predict
    take_attention(attention, device, dtype)  # torch runs these kernels alone from here on
    case = f"{device} {model} {batch} {seq} {dtype} {attention} {implementation}"  # names the compiler's cache
    execution = training_execution(mode, device, dtype, case)
    network = with_random_weights(on_meta(transformer.make)).to(device=device, dtype=storage(dtype))
    inputs_and_targets = on_device(transformer.draw(batch, seq), device, dtype)
    optimizer = optimizer_of(network, model, OPTIMIZER, implementation, in_graph=mode == "graph")
    update_passes = UPDATE_PASSES[OPTIMIZER]  # how often an update goes over the weights: part of the bytes that a step moves
    items = batch * seq
    return training_work(execution, network, transformer.loss_of, inputs_and_targets, dtype, optimizer, items=items, passes=update_passes)


@workload(tags=("transformer", "inference", "tokens"), values=INFERENCE_VALUES, writes_files=True)
def transformer_infer_step(
    device: torch.device,
    *,
    model: ModelName,
    batch: Size,
    seq: Sweep[Size] = 128,
    dtype: Switch[Dtype] = "fp32",
    attention: Switch[Attention] = "fused",
    mode: Switch[InferenceMode] = "eager",
) -> Work:
    """Run a transformer forward on sequences of `seq` tokens: BERT without the heads of its training, GPT-2 to its logits."""
    transformer = MODELS[model]
    refuse_sequence(model, seq, transformer.positions)
    take_attention(attention, device, dtype)  # torch runs these kernels alone from here on
    case = f"{device} {model} {batch} {seq} {dtype} {attention}"  # names the compiler's cache
    execution = Execution(mode, device, case)
    network = for_inference(with_random_weights(on_meta(transformer.make))).to(device=device, dtype=storage(dtype))
    training_inputs, _ = transformer.draw(batch, seq)
    inputs = on_device(training_inputs[: transformer.inference_inputs], device, dtype)
    counts = forward_counts(network, inputs, dtype)
    return inference_work(execution, network, forward_of(network, inputs), inputs, dtype, counts, items=batch * seq)


@workload(tags=("transformer", "inference", "tokens"), values=INFERENCE_VALUES, writes_files=True)
def decode_step(
    device: torch.device,
    *,
    context: Sweep[Size],
    batch: Size = 1,
    layers: Size = language_models.LAYERS,
    width: Size = language_models.WIDTH,
    heads: Size = language_models.HEADS,
    dtype: Switch[Dtype] = "fp32",
    attention: Switch[Attention] = "fused",
    mode: Switch[InferenceMode] = "eager",
) -> Work:
    """Write one more token of each sequence with GPT-2: it attends to `context` tokens, itself the last, whose keys and values are kept."""
    refuse_sequence("gpt2", context, language_models.GPT2_POSITIONS)
    network = on_meta(partial(language_models.GPT2, layers, width, heads))
    weight_count = sum(weight.numel() for weight in network.parameters())
    cached_numbers = 2 * batch * context * width * layers  # a key and a value of each token in each layer
    number_bytes = storage(dtype).itemsize
    if device.type == "cpu":
        refuse_more_than_left((weight_count + cached_numbers) * number_bytes, "weights and kept keys and values take")
    take_attention(attention, device, dtype)  # torch runs these kernels alone from here on
    case = f"{device} {context} {batch} {layers} {width} {heads} {dtype} {attention}"  # names the compiler's cache
    execution = Execution(mode, device, case)
    with_random_weights(network).to(device=device, dtype=storage(dtype)).eval()  # in place
    cache_shape = (2, batch, heads, context, width // heads)  # keys and values of a layer
    caches = operands(device, *[cache_shape] * layers, dtype=dtype)  # one for each layer
    ids = torch.randint(language_models.GPT2_VOCABULARY, (batch, 1)).to(device)
    # The bytes of a step are the weights and the cache, each read once; activations of single tokens are small beside them. The table of
    # positions is left out, as a token reads only one row of it.
    read_weights = weight_count - language_models.GPT2_POSITIONS * width
    moved_bytes = (read_weights + cached_numbers) * number_bytes
    counts = {**forward_counts(network, (ids, caches), dtype), "bytes": moved_bytes, "least_bytes": moved_bytes}
    return inference_work(execution, network, lambda ids: network(ids, caches), ids, dtype, counts, items=batch)


def refuse_sequence(model: str, tokens: int, positions: int, least: int = 1) -> None:
    """Raise ValueError for sequences that a network has no positions for, or that have no token to predict."""
    if not least <= tokens <= positions:
        raise ValueError(f"{model} takes sequences of {least} to {positions} tokens, not of {tokens}")


def take_attention(attention: Attention, device: torch.device, dtype: Dtype) -> None:
    """Let torch use only these kernels of attention, as it would silently choose others; for the next case the harness sets them anew.

    Raises NotImplementedError for fused attention in fp64, which no accelerator has a kernel for.
    """
    is_fused = attention == "fused"
    if is_fused and device.type != "cpu" and storage(dtype) is torch.float64:
        raise NotImplementedError("accelerators have no fused attention in fp64; take attention=math")
    for kind in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kind}_sdp")(is_fused)
    torch.backends.cuda.enable_math_sdp(not is_fused)
