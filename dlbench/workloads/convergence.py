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
from dlbench.kit.formats import FORMATS, Format, FormatName, Layer
from dlbench.kit.user_batches import Given, OwnBatches
from dlbench.kit.user_networks import forward_of, main_output, optimizer_of
from dlbench.models import Model
from dlbench.models.shapes import tensors_of
from dlbench.workloads.cnn import build_on, draw_batch, is_classifier, loss_of, network_of, training_step

SEEDS, CLASSES, BATCH, MOMENTUM = 6, 10, 64, 0.9
TRAINED_ON, CHECKED = 32768, 10000
"""Samples: so many to train on that few are seen more than six times, and others that accuracy and loss are taken of."""
POINTS = 40
"""Points of the loss curve."""
DIVERGED = 10.0
"""How many times the loss of guessing, ln 10, the mean loss of a point may reach; also what is reported of one that is no number."""
FIRST_SCALE, GROW_EVERY = 65536.0, 2000
"""As torch's GradScaler has it: the scale halves where a gradient is not finite, and doubles after so many steps without one."""

DRAWN, DRAWN_BYTES = 256, 1 << 30
"""Batches that are taken of an epoch, and about how much memory they fill, at most."""
HELD_OUT = 5
"""One batch of so many is not trained on: accuracy and loss are of those."""
RATE = 0.02

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

    Or a network of your own, `model`, in that precision itself, on batches of your own, `source`.
    """
    if model:
        train = own_training(device, model, source, batch, format, rate, steps)
        return Work(observe=lambda clock: _of_own(train))
    if rate is None or source or batch != BATCH:
        raise ValueError(f"network={network} takes a rate, and neither source nor batch, which belong to a model")
    trained: SeededNetwork = Perceptron() if network == "mlp" else Convolutions()
    inputs, labels = (each.to(device) for each in trained.draw(TRAINED_ON + CHECKED, torch.Generator().manual_seed(0)))

    def observe(clock: Clock) -> Mapping[str, Reported]:
        training = SeededTraining(trained, FORMATS[format], device)
        curve = training.run(inputs[:TRAINED_ON], labels[:TRAINED_ON], rate, steps)
        losses, accuracies = training.check(inputs[TRAINED_ON:], labels[TRAINED_ON:])
        found = reported(curve, losses, accuracies)
        return {**found, "weight_bytes": training.kept_bytes}

    return Work(observe=observe)


def _of_own(train: Callable[[int], tuple[Tensor, ...]]) -> dict[str, Reported]:
    losses, ended, *accuracies = (torch.stack(each).cpu() for each in zip(*map(train, range(1, SEEDS + 1)), strict=True))
    curve = torch.stack([each.mean(1) for each in losses.tensor_split(min(POINTS, losses.shape[1]), 1)])
    first = curve[0].nan_to_num(0, 0, 0).abs().max().item()
    found = reported(curve, ended, most=DIVERGED * max(first, math.log(CLASSES)))
    return found | ({"accuracy": tuple(accuracies[0].tolist())} if accuracies else {})


def reported(
    curve: Tensor, losses: Tensor, accuracies: Tensor | None = None, most: float = DIVERGED * math.log(CLASSES)
) -> dict[str, Reported]:
    """Return what six trainings came to, of the mean losses at each point (points, seeds) and of what they ended with (seeds,)."""
    sound = (torch.cat((curve, losses[None])) <= most).all(0)
    found: dict[str, Reported] = {
        "loss": tuple(_bounded(losses, most).tolist()),
        "diverged": tuple((~sound).int().tolist()),
        "loss_curve": tuple(_bounded(curve, most).median(1).values.tolist()),
    }
    return found if accuracies is None else {"accuracy": tuple(torch.where(sound, accuracies, 1 / CLASSES).tolist()), **found}


def _bounded(losses: Tensor, most: float) -> Tensor:
    return losses.nan_to_num(most, most).clamp_max(most)


class Perceptron:
    """Four linear layers without biases, and points around so many centres a class that no plane parts them: 320 in 64 dimensions."""

    shapes = ((64, 96), (96, 96), (96, 96), (96, CLASSES))
    """Shapes of the weights of each layer: in, out."""
    CENTRES, NOISE = 320, 0.6

    def draw(self, samples: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs (samples, 64), each at a centre plus noise, and the classes of the centres."""
        centres = torch.randn(self.CENTRES, self.shapes[0][0], generator=chance)
        of = torch.randint(self.CENTRES, (samples,), generator=chance)
        return _noisy(centres[of], self.NOISE, chance), of % CLASSES

    def forward(self, inputs: Tensor, weights: Sequence[Tensor], layers: Sequence[Layer]) -> Tensor:
        """Return logits (seeds, batch, classes); what enters a layer is the one before, through ReLU, normalised over its 96 numbers."""
        *inner, last = zip(layers, weights, strict=True)
        for layer, weight in inner:
            inputs = _normalised(layer.multiply(layer.enter(inputs), weight).relu())
        return last[0].multiply(last[0].enter(inputs), last[1])


class Convolutions:
    """Three 3 x 3 convolutions and a linear layer without biases, and 12 x 12 images of one of 20 patterns, shifted by 0 to 2 both ways.

    A convolution is the product of its patches, as each seed has filters of its own; channels come last.
    """

    strides = (2, 1, 1)
    """They leave 5 x 5, 3 x 3 and 1 x 1 positions."""
    shapes = ((9, 16), (9 * 16, 32), (9 * 32, 64), (64, CLASSES))
    SIZE, PATTERNS, NOISE = 12, 20, 0.8

    def draw(self, samples: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (samples, 12, 12, 1), each a moved pattern plus noise, and the classes of the patterns."""
        patterns = torch.randn(self.PATTERNS, self.SIZE, self.SIZE, 1, generator=chance)
        moved = torch.stack([patterns.roll((down, right), (1, 2)) for down in range(3) for right in range(3)])
        of, move = (torch.randint(most, (samples,), generator=chance) for most in (self.PATTERNS, len(moved)))
        return _noisy(moved[move, of], self.NOISE, chance), of % CLASSES

    def forward(self, inputs: Tensor, weights: Sequence[Tensor], layers: Sequence[Layer]) -> Tensor:
        """Return logits; what enters a layer is the one before, through ReLU, normalised over its channels and positions."""
        for layer, weight, stride in zip(layers, weights, self.strides, strict=False):
            patches = _patches(layer.enter(inputs), stride)
            maps = layer.multiply(patches.flatten(1, 3), weight).relu().view(*patches.shape[:4], -1)
            inputs = _normalised(maps)
        return layers[-1].multiply(layers[-1].enter(inputs.flatten(2)), weights[-1])


SeededNetwork = Perceptron | Convolutions


def _patches(images: Tensor, stride: int) -> Tensor:
    """Return the 3 x 3 patches of images (seeds, batch, side, side, channels), (seeds, batch, rows, columns, 9 channels)."""
    last = images.shape[2] - 2
    shifts = range(3)
    return torch.cat([images[:, :, down : last + down : stride, right : last + right : stride] for down in shifts for right in shifts], 4)


def _noisy(values: Tensor, noise: float, chance: torch.Generator) -> Tensor:
    """Return values of variance 1 plus noise of that standard deviation, of variance 1 again."""
    return (values + noise * torch.randn(values.shape, generator=chance)) / math.hypot(1, noise)


def _normalised(activations: Tensor) -> Tensor:
    """Return activations (seeds, batch, …) of mean 0 and variance 1 in each sample, so that a format needs no range for them."""
    return F.layer_norm(activations, activations.shape[2:])


class SeededTraining:
    """Six trainings of one network in numbers of a format, at once: weights are (seeds, in, out)."""

    def __init__(self, network: SeededNetwork, numbers: Format, device: torch.device) -> None:
        self._network, self._numbers, self._device = network, numbers, device
        self._chances = [torch.Generator().manual_seed(1 + seed) for seed in range(SEEDS)]
        rounding = torch.Generator(device).manual_seed(0)
        last = len(network.shapes) - 1
        self._layers = [Layer(numbers, 0 < at < last, rounding) for at in range(last + 1)]
        # He et al. 2015, https://arxiv.org/abs/1502.01852, and half of it for logits, which begin near guessing then.
        spreads = [math.sqrt(2 / inside) * (0.5 if at == last else 1) for at, (inside, _) in enumerate(network.shapes)]
        drawn = [
            torch.stack([spread * torch.randn(shape, generator=chance) for chance in self._chances]).to(device)
            for spread, shape in zip(spreads, network.shapes, strict=True)
        ]
        self._weights = [layer.keep(weights) for layer, weights in zip(self._layers, drawn, strict=True)]
        self._momenta = [torch.zeros_like(weights) for weights in drawn]
        self._scale = LossScale(device) if numbers.loss == "scaled" else None

    @property
    def kept_bytes(self) -> float:
        """Bytes of the weights of one seed; their momenta take as many again."""
        return sum(math.prod(shape) for shape in self._network.shapes) * self._numbers.kept_bits / 8

    def run(self, inputs: Tensor, labels: Tensor, rate: float, steps: int) -> Tensor:
        """Train for so many steps at a rate; return the mean losses up to each point of the curve, (points, seeds)."""
        order = torch.stack([torch.randint(len(inputs), (steps, BATCH), generator=chance) for chance in self._chances], 1).to(self._device)
        points = min(POINTS, steps)
        ends = {(point + 1) * steps // points for point in range(points)}
        curve: list[Tensor] = []
        since: list[Tensor] = []
        for step, batch in enumerate(order, 1):
            since.append(self._step(inputs[batch], labels[batch], rate))
            if step in ends:
                curve.append(torch.stack(since).mean(0))
                since.clear()
        return torch.stack(curve).cpu()

    def _step(self, inputs: Tensor, labels: Tensor, rate: float) -> Tensor:
        """Train on one batch of each seed, and return the losses (seeds,) before."""
        weights = [each.requires_grad_() for each in self._weights]
        losses = _losses(self._network.forward(inputs, weights, self._layers), labels)
        summed = BATCH if self._numbers.loss == "sum" else 1
        scaled = self._scale.scale.flatten() if self._scale else summed
        gradients = torch.autograd.grad((losses * scaled).sum(), weights)
        self._update([each.detach() for each in weights], gradients, rate / summed)
        return losses.detach()

    @torch.no_grad()
    def _update(self, weights: Sequence[Tensor], gradients: Sequence[Tensor], rate: float) -> None:
        finite: Tensor | None = None
        if self._scale:
            gradients, finite = self._scale.unscale(gradients)
        for at, layer in enumerate(self._layers):
            momentum = layer.keep_momentum(MOMENTUM * self._momenta[at] + gradients[at])
            updated = layer.keep(weights[at] - rate * momentum)
            if finite is not None:  # a training that overflowed skips the step
                momentum, updated = torch.where(finite, momentum, self._momenta[at]), torch.where(finite, updated, weights[at])
            self._momenta[at], self._weights[at] = momentum, updated

    @torch.no_grad()
    def check(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the accuracy of each seed on samples, (seeds,) each."""
        looked = [
            self._network.forward(some.expand(SEEDS, *some.shape), self._weights, self._layers) for some in torch.split(inputs, 16 * BATCH)
        ]
        logits = torch.cat(looked, 1)
        labels = labels.expand(SEEDS, -1)
        return _losses(logits, labels).cpu(), (logits.argmax(2) == labels).float().mean(1).cpu()


class LossScale:
    """Factor of each training's loss, (seeds, 1, 1), so that gradients in fp16 are not too small, nor overflow."""

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((SEEDS, 1, 1), FIRST_SCALE, device=device)
        self._since = torch.zeros_like(self.scale)

    def unscale(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return gradients without the scale, and of which trainings all are finite; the scale follows."""
        finite = torch.stack([each.isfinite().flatten(1).all(1) for each in gradients]).all(0).view(-1, 1, 1)
        unscaled = [each / self.scale for each in gradients]
        self._since = (self._since + 1) * finite
        grown = torch.where(self._since == GROW_EVERY, 2 * self.scale, self.scale)
        self.scale, self._since = torch.where(finite, grown, self.scale / 2), self._since * (self._since < GROW_EVERY)
        return unscaled, finite


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of each seed, (seeds,), of logits (seeds, batch, classes) and labels (seeds, batch)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def own_training(
    device: torch.device, model: str, source: str | None, batch: int, precision: str, rate: float | None, steps: int
) -> Callable[[int], tuple[Tensor, ...]]:
    """Return a function from a seed to the losses of its training, (steps,), and in the end to loss and, of a classifier, accuracy.

    Raises ValueError and NotImplementedError for data and precisions that can't be trained so.
    """
    data, network = find_data(source or ""), network_of(model)
    if data is None:
        raise ValueError(f"model={model} is trained on batches of your own; give source=…, the name of a function below @dlbench.data")
    if precision not in get_args(Dtype):
        raise NotImplementedError(f"format={precision} is emulated in dlbench's own networks; yours take fp32, bf16, fp16 and amp_…")
    dtype = cast("Dtype", precision)
    torch.manual_seed(0)  # a loader that shuffles does so alike in each precision
    example = draw_batch(device, model, batch, dtype, "nchw")
    batches = OwnBatches(data, example, network.takes_targets, device, dtype, batch, 0)
    drawn: list[Given] = [batches.fetch()]
    while len(drawn) < DRAWN and sum(each.nbytes for each in tensors_of(drawn)) < DRAWN_BYTES:
        taken = batches.fetch()
        if batches.whole == 1:  # the next epoch has begun
            break
        drawn.append(taken)
    trained_on = [each for at, each in enumerate(drawn) if at % HELD_OUT]
    if not trained_on:
        raise ValueError(f"data '{source}' has 1 batch of {batch} an epoch, and one is held out; give a smaller batch")

    def train(seed: int) -> tuple[Tensor, ...]:
        torch.manual_seed(seed)
        module = build_on(device, model, dtype, "nchw").train()
        if network.optimizer:
            update = optimizer_of(network, module, rate)
        else:
            update = torch.optim.SGD(module.parameters(), lr=rate or RATE, momentum=MOMENTUM)
        step = training_step(device, update, dtype, loss_of(module, model, example[0]))
        order = torch.randint(len(trained_on), (steps,), generator=torch.Generator().manual_seed(seed))
        losses = torch.stack([step(*batches.copy(trained_on[at])) for at in order.tolist()]).float()
        module.eval()
        with torch.no_grad():
            return losses, *check(module)

    def check(module: nn.Module) -> tuple[Tensor, ...]:
        held_out = map(batches.copy, drawn[::HELD_OUT])
        if not is_classifier(model):
            loss = autocast(device, dtype, loss_of(module, model, example[0]))
            return (torch.stack([loss(*each).float() for each in held_out]).mean(),)
        answer = autocast(device, dtype, forward_of(module, example[0]))
        seen = [(main_output(answer(inputs)).float(), targets) for inputs, targets in held_out]
        logits, targets = map(torch.cat, zip(*seen, strict=True))
        return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).float().mean()

    return train
