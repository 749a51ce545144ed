"""Trainings in narrow precisions: whether a network still learns where weights, activations and gradients are narrow.

Small networks of dlbench's own are trained in formats that fp32 emulates. Six seeds are one batched training, and draw the same weights
and batches whatever the format, so that gaps pair seed by seed. They come from generators with seeds of their own: a case ends with the
same numbers in each run on a device. The layers compute in `dlbench.kit.formats`; ReLU, normalisation, the softmax and its loss stay in
fp32 throughout. Networks of the user are trained on batches of the user in torch's own precisions, one seed after the other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Clock, Dtype, Least, Reported, Role, Size, Unit, UserDefined, Value, Work, autocast, find_data, workload
from dlbench.kit.batches import Given, OwnBatches
from dlbench.kit.formats import FORMATS, Format, FormatName, Layer
from dlbench.kit.user_networks import forward_of, main_output, optimizer_of
from dlbench.models import Model
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import build_on, draw_batch, is_classifier, loss_of, network_of, training_step

SEEDS, CLASSES, BATCH, MOMENTUM = 6, 10, 64, 0.9
TRAINED_ON, CHECKED = 32768, 10000
"""Samples to train on, so many that few are seen more than six times; and other samples, to take accuracy and loss of."""
POINTS = 40
"""Points of the loss curve."""
DIVERGED = 10.0
"""A training has diverged where the mean loss of a point exceeds this multiple of the loss of guessing, ln 10, or is no number."""
FIRST_SCALE, GROW_EVERY = 65536.0, 2000
"""As in torch's GradScaler: the scale halves where a gradient is not finite, and doubles after so many steps without one."""

MOST_BATCHES, MOST_BATCH_BYTES = 256, 1 << 30
"""Batches of a user's epoch that are kept at most, and about how much memory they fill at most."""
HELD_OUT = 5
"""One batch in so many is held out from training, for accuracy and loss."""
RATE = 0.02
"""Learning rate for a user's network that has no optimizer of its own, where the case gives none."""

_of_seeds = partial(Value, series=True, points=tuple(f"seed_{each}" for each in range(SEEDS)))
VALUES = (
    _of_seeds(
        "accuracy",
        Unit.FRACTION,
        "higher",
        "part of other samples that each seed's network classifies correctly in the end; guessing, and a diverged one, gives 0.1",
        optional=True,  # of your own network with a loss of its own
        role="seed_accuracy",
        margin=0.01,
        paired=True,
    ),
    _of_seeds("loss", Unit.NUMBER, None, "their mean loss; that of a diverged one as the largest that counts as none", role="seed_loss"),
    _of_seeds(
        "diverged",
        Unit.COUNT,
        None,
        "1 where a seed's loss was no number or more than 10 times that of guessing, or of your own network at first",
        role="seed_diverged",
    ),
    Value("loss_curve", Unit.NUMBER, None, "median loss of the seeds over the training, at equal steps", series=True, role="loss_curve"),
    Value("weight_bytes", Unit.BYTES, None, "weights of one seed as the format keeps them, and as many for its momenta", optional=True),
)


@workload(tags=("numerics",), values=VALUES)
def convergence(
    device: torch.device,
    *,
    network: Literal["mlp", "cnn"] = "mlp",
    format: Annotated[FormatName, Role("format", "fp32")],  # noqa: A002  # what it is to a user, who meets no builtins
    rate: Annotated[float, Least(0)] | None = None,
    steps: Size = 2000,
    model: Model | None = None,
    source: Annotated[str, UserDefined("data")] | None = None,
    batch: Size = BATCH,
) -> Work:
    """Train six seeds of a small network by SGD with momentum, in numbers of a format that fp32 emulates.

    With `model`, train your own network instead, on your own batches, `source`, in torch's own precision `format`.
    """
    if model:
        train_seed = own_training(device, model, source, batch, format, rate, steps)
        return Work(observe=lambda clock: _train_own_network(train_seed))
    if rate is None or source or batch != BATCH:
        raise ValueError(f"network={network} takes a rate, and neither source nor batch, which belong to a model")
    seeded_network: SeededNetwork = Perceptron() if network == "mlp" else Convolutions()
    samples = seeded_network.draw(TRAINED_ON + CHECKED, torch.Generator().manual_seed(0))
    inputs, labels = (each.to(device) for each in samples)

    def observe(clock: Clock) -> Mapping[str, Reported]:
        training = SeededTraining(seeded_network, FORMATS[format], device)
        curve = training.run(inputs[:TRAINED_ON], labels[:TRAINED_ON], rate, steps)
        losses, accuracies = training.check(inputs[TRAINED_ON:], labels[TRAINED_ON:])
        values = summarise_seeds(curve, losses, accuracies)
        return {**values, "weight_bytes": training.kept_bytes}

    return Work(observe=observe)


def _train_own_network(train_seed: Callable[[int], tuple[Tensor, ...]]) -> dict[str, Reported]:
    """Return the values of a user's network from six trainings, each by ``train_seed``, which `own_training` returns."""
    outcomes = map(train_seed, range(1, SEEDS + 1))
    losses, final_losses, *accuracies = (torch.stack(of_seeds).cpu() for of_seeds in zip(*outcomes, strict=True))
    points = losses.tensor_split(min(POINTS, losses.shape[1]), 1)
    curve = torch.stack([point.mean(1) for point in points])
    first_loss = curve[0].nan_to_num(0, 0, 0).abs().max().item()
    values = summarise_seeds(curve, final_losses, most=DIVERGED * max(first_loss, math.log(CLASSES)))
    if accuracies:
        values["accuracy"] = tuple(accuracies[0].tolist())
    return values


def summarise_seeds(
    curve: Tensor, losses: Tensor, accuracies: Tensor | None = None, most: float = DIVERGED * math.log(CLASSES)
) -> dict[str, Reported]:
    """Return the values that a case reports of six trainings.

    ``curve``: the mean loss of each seed from one point of the loss curve to the next, (points, seeds). ``losses`` and ``accuracies``:
    those of each seed at the end, (seeds,); without accuracies none are returned. A training has diverged if one of its losses exceeds
    ``most`` or is no number. Such a loss counts as ``most``, and the accuracy of a diverged training as that of guessing.
    """
    all_losses = torch.cat((curve, losses[None]))
    converged = (all_losses <= most).all(0)  # false for a loss that is no number, too
    values: dict[str, Reported] = {}
    if accuracies is not None:
        values["accuracy"] = tuple(torch.where(converged, accuracies, 1 / CLASSES).tolist())  # guessing is right once in CLASSES times
    values["loss"] = tuple(_limit(losses, most).tolist())
    values["diverged"] = tuple((~converged).int().tolist())
    values["loss_curve"] = tuple(_limit(curve, most).median(1).values.tolist())
    return values


def _limit(losses: Tensor, most: float) -> Tensor:
    """Return the losses, with ``most`` in place of each that exceeds it or is no number."""
    return losses.nan_to_num(most, most).clamp_max(most)


class Perceptron:
    """Four linear layers without biases. Its data: points around 320 centres in 64 dimensions, so many that no plane parts the classes."""

    shapes = ((64, 96), (96, 96), (96, 96), (96, CLASSES))
    """Shape of the weights of each layer: in, out."""
    CENTRES, NOISE = 320, 0.6

    def draw(self, samples: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs (samples, 64), each at a centre plus noise, and the classes of the centres."""
        centres = torch.randn(self.CENTRES, self.shapes[0][0], generator=chance)
        chosen = torch.randint(self.CENTRES, (samples,), generator=chance)
        return _add_noise(centres[chosen], self.NOISE, chance), chosen % CLASSES

    def forward(self, inputs: Tensor, weights: Sequence[Tensor], layers: Sequence[Layer]) -> Tensor:
        """Return logits (seeds, batch, classes). Each inner layer is followed by ReLU and a normalisation over its 96 outputs."""
        *inner, (last_layer, last_weight) = zip(layers, weights, strict=True)
        for layer, weight in inner:
            inputs = _normalise(layer.multiply(layer.enter(inputs), weight).relu())
        return last_layer.multiply(last_layer.enter(inputs), last_weight)


class Convolutions:
    """Three 3 x 3 convolutions and a linear layer without biases. Its data: 12 x 12 images of 20 patterns, moved down and right by 0 to 2.

    Each seed has its own filters, so a convolution is computed as a batched product of its patches; channels come last.
    """

    strides = (2, 1, 1)
    """Strides of the convolutions, which leave 5 x 5, 3 x 3 and 1 x 1 positions."""
    shapes = ((9, 16), (9 * 16, 32), (9 * 32, 64), (64, CLASSES))
    SIZE, PATTERNS, NOISE = 12, 20, 0.8

    def draw(self, samples: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (samples, 12, 12, 1), each a shifted pattern plus noise, and the classes of the patterns."""
        patterns = torch.randn(self.PATTERNS, self.SIZE, self.SIZE, 1, generator=chance)
        shifted = torch.stack([patterns.roll((down, right), (1, 2)) for down in range(3) for right in range(3)])
        pattern = torch.randint(self.PATTERNS, (samples,), generator=chance)
        shift = torch.randint(len(shifted), (samples,), generator=chance)
        return _add_noise(shifted[shift, pattern], self.NOISE, chance), pattern % CLASSES

    def forward(self, inputs: Tensor, weights: Sequence[Tensor], layers: Sequence[Layer]) -> Tensor:
        """Return logits (seeds, batch, classes). Each convolution is followed by ReLU and a normalisation over channels and positions."""
        for layer, weight, stride in zip(layers, weights, self.strides, strict=False):
            patches = _patches(layer.enter(inputs), stride)
            maps = layer.multiply(patches.flatten(1, 3), weight).relu().view(*patches.shape[:4], -1)
            inputs = _normalise(maps)
        return layers[-1].multiply(layers[-1].enter(inputs.flatten(2)), weights[-1])


SeededNetwork = Perceptron | Convolutions


def _patches(images: Tensor, stride: int) -> Tensor:
    """Return the 3 x 3 patches, (seeds, batch, rows, columns, 9 channels), of images (seeds, batch, side, side, channels)."""
    last = images.shape[2] - 2
    shifts = range(3)
    return torch.cat([images[:, :, down : last + down : stride, right : last + right : stride] for down in shifts for right in shifts], 4)


def _add_noise(values: Tensor, noise: float, chance: torch.Generator) -> Tensor:
    """Add normal numbers of standard deviation ``noise`` to values of variance 1, and scale the sum to variance 1."""
    return (values + noise * torch.randn(values.shape, generator=chance)) / math.hypot(1, noise)


def _normalise(activations: Tensor) -> Tensor:
    """Scale activations (seeds, batch, …) to mean 0 and variance 1 in each sample, so that formats need no larger range for them."""
    return F.layer_norm(activations, activations.shape[2:])


class SeededTraining:
    """Six trainings of one network in numbers of a format, computed at once: weights are (seeds, in, out).

    Each seed draws its weights and then its batches from a generator of its own, on the CPU, so that they are the same in all formats.
    """

    def __init__(self, network: SeededNetwork, number_format: Format, device: torch.device) -> None:
        """Draw the weights of all seeds, and round them to the format; the momenta begin at 0."""
        self._network, self._format, self._device = network, number_format, device
        self._generators = [torch.Generator().manual_seed(1 + seed) for seed in range(SEEDS)]  # the data are drawn from 0
        rounding_generator = torch.Generator(device).manual_seed(0)  # for stochastic roundings, which draw numbers on the device
        last_index = len(network.shapes) - 1
        self._layers: list[Layer] = []
        self._weights: list[Tensor] = []
        self._momenta: list[Tensor] = []
        for index, shape in enumerate(network.shapes):
            is_inner = 0 < index < last_index  # only inner layers are binary in binary formats
            layer = Layer(number_format, is_inner, rounding_generator)
            # He et al. 2015, https://arxiv.org/abs/1502.01852, take sqrt(2 / inputs). The last layer takes half of it: its logits are then
            # so small that the first loss is near that of guessing.
            deviation = math.sqrt(2 / shape[0]) * (0.5 if index == last_index else 1)
            drawn = torch.stack([deviation * torch.randn(shape, generator=each) for each in self._generators]).to(device)
            self._layers.append(layer)
            self._weights.append(layer.round_kept_weights(drawn))
            self._momenta.append(torch.zeros_like(drawn))
        self._scale = LossScale(device) if number_format.loss == "scaled" else None

    @property
    def kept_bytes(self) -> float:
        """Bytes of the weights of one seed; their momenta take as many again."""
        return sum(math.prod(shape) for shape in self._network.shapes) * self._format.kept_bits / 8

    def run(self, inputs: Tensor, labels: Tensor, rate: float, steps: int) -> Tensor:
        """Train for so many steps at a learning rate; return the mean loss from each point of the curve to the next, (points, seeds)."""
        order = torch.stack([torch.randint(len(inputs), (steps, BATCH), generator=each) for each in self._generators], 1).to(self._device)
        points = min(POINTS, steps)
        last_steps = {(point + 1) * steps // points for point in range(points)}
        curve: list[Tensor] = []
        losses: list[Tensor] = []
        for step, batch in enumerate(order, 1):
            losses.append(self._step(inputs[batch], labels[batch], rate))
            if step in last_steps:
                curve.append(torch.stack(losses).mean(0))
                losses.clear()
        return torch.stack(curve).cpu()

    def _step(self, inputs: Tensor, labels: Tensor, rate: float) -> Tensor:
        """Train each seed on its batch by one step, and return the losses (seeds,) before the update."""
        weights = [each.requires_grad_() for each in self._weights]
        losses = _losses(self._network.forward(inputs, weights, self._layers), labels)
        summed = BATCH if self._format.loss == "sum" else 1  # the sum has gradients as many times as large, so the rate shrinks by it
        scale = self._scale.scale.flatten() if self._scale else summed
        gradients = torch.autograd.grad((losses * scale).sum(), weights)
        self._update([each.detach() for each in weights], gradients, rate / summed)
        return losses.detach()

    @torch.no_grad()
    def _update(self, weights: Sequence[Tensor], gradients: Sequence[Tensor], rate: float) -> None:
        """Update weights and momenta by SGD with momentum."""
        finite: Tensor | None = None
        if self._scale:
            gradients, finite = self._scale.unscale(gradients)
        for at, layer in enumerate(self._layers):
            momentum = layer.round_kept_momentum(MOMENTUM * self._momenta[at] + gradients[at])
            updated = layer.round_kept_weights(weights[at] - rate * momentum)
            if finite is not None:  # a training that overflowed skips the step
                momentum, updated = torch.where(finite, momentum, self._momenta[at]), torch.where(finite, updated, weights[at])
            self._momenta[at], self._weights[at] = momentum, updated

    @torch.no_grad()
    def check(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the accuracy of each seed on these samples, (seeds,) each."""
        batches = torch.split(inputs, 16 * BATCH)  # some at a time, to save memory
        outputs = [self._network.forward(batch.expand(SEEDS, *batch.shape), self._weights, self._layers) for batch in batches]
        logits = torch.cat(outputs, 1)
        labels = labels.expand(SEEDS, -1)
        return _losses(logits, labels).cpu(), (logits.argmax(2) == labels).float().mean(1).cpu()


class LossScale:
    """Factor of each training's loss, (seeds, 1, 1), so that gradients in fp16 are not too small, nor overflow."""

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((SEEDS, 1, 1), FIRST_SCALE, device=device)
        self._finite_steps = torch.zeros_like(self.scale)
        """Steps of each training since its scale changed last."""

    def unscale(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return gradients without the scale, and for each training whether all are finite, (seeds, 1, 1); then adapt the scale."""
        finite = torch.stack([each.isfinite().flatten(1).all(1) for each in gradients]).all(0).view(-1, 1, 1)
        unscaled = [each / self.scale for each in gradients]
        self._finite_steps = (self._finite_steps + 1) * finite
        grown = torch.where(self._finite_steps == GROW_EVERY, 2 * self.scale, self.scale)
        self.scale = torch.where(finite, grown, self.scale / 2)
        self._finite_steps *= self._finite_steps < GROW_EVERY
        return unscaled, finite


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of each seed, (seeds,), from logits (seeds, batch, classes) and labels (seeds, batch)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def own_training(
    device: torch.device, model: str, source: str | None, batch: int, precision: str, rate: float | None, steps: int
) -> Callable[[int], tuple[Tensor, ...]]:
    """Return a function that trains the user's network ``model`` from a seed, on batches of the user's data ``source``.

    The function takes ``steps`` steps at the learning rate ``rate``; None means that of the network's own optimizer, or else `RATE`. It
    returns the losses of the steps, (steps,), the loss on the held-out batches at the end, and for a classifier also the accuracy on
    these. All seeds draw from the same batches, each in an order of its own.

    Raises ValueError for data that is missing or too little, and NotImplementedError for a precision that is only emulated.
    """
    data = find_data(source or "")  # no data has an empty name, so this is None without a source
    definition = network_of(model)
    if data is None:
        raise ValueError(f"model={model} is trained on batches of your own; give source=…, the name of a function below @dlbench.data")
    if precision not in get_args(Dtype):
        raise NotImplementedError(f"format={precision} is emulated in dlbench's own networks; yours take fp32, bf16, fp16 and amp_…")
    dtype = cast("Dtype", precision)
    torch.manual_seed(0)  # so that a loader that shuffles gives the same batches in each precision
    example = draw_batch(device, model, batch, dtype, "nchw")
    example_inputs, _ = example
    loader = OwnBatches(data, example, definition.takes_targets, device, dtype, batch, workers=0)
    batches = _first_epoch(loader)
    held_out_batches = batches[::HELD_OUT]
    training_batches = [each for index, each in enumerate(batches) if index % HELD_OUT]  # all others
    if not training_batches:
        raise ValueError(f"data '{source}' has 1 batch of {batch} an epoch, and one is held out; give a smaller batch")

    def train_seed(seed: int) -> tuple[Tensor, ...]:
        torch.manual_seed(seed)  # the weights are drawn from it
        module = build_on(device, model, dtype, "nchw").train()
        if definition.optimizer:
            optimizer = optimizer_of(definition, module, rate)
        else:
            optimizer = torch.optim.SGD(module.parameters(), lr=rate or RATE, momentum=MOMENTUM)
        step = training_step(device, optimizer, dtype, loss_of(module, model, example_inputs))
        # The order has a generator of its own, so that no layer that draws numbers, such as dropout, changes it.
        order = torch.randint(len(training_batches), (steps,), generator=torch.Generator().manual_seed(seed))
        losses = [step(*loader.copy(training_batches[index])) for index in order.tolist()]
        module.eval()
        with torch.no_grad():
            return torch.stack(losses).float(), *check_held_out(module)

    def check_held_out(module: nn.Module) -> tuple[Tensor, ...]:
        """Return the loss of the held-out batches, and for a classifier their accuracy."""
        held_out = map(loader.copy, held_out_batches)  # each is copied when its turn comes
        if not is_classifier(model):
            loss = autocast(device, dtype, loss_of(module, model, example_inputs))
            losses = [loss(*each).float() for each in held_out]
            return (torch.stack(losses).mean(),)
        forward = autocast(device, dtype, forward_of(module, example_inputs))
        logits_and_targets = [(main_output(forward(inputs)).float(), targets) for inputs, targets in held_out]
        logits, targets = map(torch.cat, zip(*logits_and_targets, strict=True))  # of all batches, one after the other
        return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).float().mean()

    return train_seed


def _first_epoch(loader: OwnBatches) -> list[Given]:
    """Return the batches of a loader's first epoch, or as many of them as MOST_BATCHES and MOST_BATCH_BYTES allow."""
    batches: list[Given] = [loader.fetch()]
    while len(batches) < MOST_BATCHES and sum(each.nbytes for each in tensors_of(batches)) < MOST_BATCH_BYTES:
        fetched = loader.fetch()
        if loader.whole == 1:  # it is the first of the next epoch
            break
        batches.append(fetched)
    return batches
