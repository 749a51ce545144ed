"""Constants of the estimate for a card, fitted to published training figures, and how far held-out figures are off.

``python -m benchmarks.what_if`` writes dlbench/core/reference/what_if.toml and docs/reference/what-if.md; ``--check`` says whether they
are what it would write. It measures nothing: networks are counted on shapes alone, figures come from dlbench/core/reference.
"""

import argparse
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.alternate import ROOT, WIDTH
from dlbench.analysis.export.tabular import markdown_table
from dlbench.core.precision import PRECISIONS, Dtype
from dlbench.core.reference.networks import PARAMETERS
from dlbench.core.reference.peaks import DevicePeak, peak_of
from dlbench.core.reference.published import WHAT_IF_TABLE, BytesLine, PublishedFigure, StepCounts, WhatIfFit, published_figures
from dlbench.kit.steps import Counts, forward_counts, train_counts
from dlbench.models import MODELS, RowName
from dlbench.workloads.cnn import IMAGE, UPDATE_PASSES, cross_entropy

PAGE = ROOT / "docs" / "reference" / "what-if.md"
SHARE = 0.9
"""Share of the held-out figures that the range holds."""
_BATCH = 64
"""Batch of a figure whose source states none."""
_UPDATE = 4 * UPDATE_PASSES["sgd"]
"""Bytes that an update moves for each weight, at least."""


class Sample(NamedTuple):
    """A published figure that the constants are fitted to, as times for one sample."""

    figure: PublishedFigure
    arithmetic_s: float
    """Time of its operations at the peak."""
    memory_s: float
    """Time of its bytes at the bandwidth."""
    taken_s: float
    """The published time."""

    @property
    def model(self) -> str:
        """The network."""
        return str(self.figure.params["model"])


HELD_OUT: Mapping[str, Callable[[Sample, Sample], bool]] = {
    "card": lambda one, other: one.figure.device == other.figure.device,
    "network": lambda one, other: one.model == other.model,
    "source": lambda one, other: one.figure.source == other.figure.source,
    "card and network": lambda one, other: one.figure.device == other.figure.device or one.model == other.model,
}
"""What is held out with a figure: the fit that predicts it leaves out all figures that are alike in this."""


def left_out(figure: PublishedFigure) -> str | None:
    """Return why the fit leaves a figure out; None for a figure that it takes."""
    if figure.kind == "cpu":
        return "a CPU's"
    if figure.dtype is None:
        return "collectives and copies move data and compute nothing"
    if "training" not in figure.tags:
        return "DeepBench has products by themselves"
    if figure.dtype == "fp64":
        return "fp64 has no matrix units on these cards, and nobody trains in it"
    if figure.peak in peak(figure).lacks:
        return "16 bits on Maxwell, which stores them and computes in fp32"
    if figure.dtype == "fp16":
        return "pure fp16 has weights of 16 bits, and none of torch's autocast"
    return None if figure.peak in peak(figure).flops_per_s else "no peak is listed for its precision"


def peak(figure: PublishedFigure) -> DevicePeak:
    """Return the peaks of a figure's card. Raises ValueError for an unknown card."""
    found = peak_of(figure.device)
    if found is None:
        raise ValueError(f"{figure.device} has no peaks")
    return found


def network(model: str, device: Literal["meta", "cpu"]) -> nn.Module:
    """Return a network without numbers: on the meta device, or in untouched memory of the CPU, which autocast needs."""
    with torch.device("meta"):
        built = MODELS[model]()
    return built.to_empty(device=device)


def batch_of(size: int, device: Literal["meta", "cpu"]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels without numbers."""
    return torch.empty(size, *IMAGE, device=device), torch.empty(size, dtype=torch.long, device=device)


def samples() -> list[Sample]:
    """Return the figures that the constants are fitted to."""
    return [sample(each) for each in published_figures() if left_out(each) is None]


def sample(figure: PublishedFigure) -> Sample:
    """Return the times of a training figure. Raises ValueError where its precision has no counts."""
    model, dtype = str(figure.params["model"]), figure.dtype or ""
    batch, card = figure.batch or _BATCH, peak(figure)
    counted = counts_of(model, is_training=True)
    line = counted.half if PRECISIONS[dtype].autocast else counted.fp32
    if line is None or figure.peak is None:
        raise ValueError(f"{model} in {dtype} has no counts")
    moved = line.of(batch) - (_UPDATE * PARAMETERS[model] if figure.update is False else 0)
    return Sample(figure, counted.flops / card.flops_per_s[figure.peak], moved / batch / card.bytes_per_s, 1 / figure.value)


def fit(fitted: Sequence[Sample]) -> tuple[float, float]:
    """Return a and b that minimise the squares of log(estimated / taken time), found by Gauss-Newton steps.

    An estimated time is arithmetic_s / a + memory_s / b.
    """
    logs = [0.0, 1.0]  # of 1/a and 1/b
    for _ in range(100):
        # The normal equations: squares @ steps = slopes, with the residual's derivatives by the logarithms, the shares.
        squares, slopes = [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]
        for each in fitted:
            parts = math.exp(logs[0]) * each.arithmetic_s, math.exp(logs[1]) * each.memory_s
            shares = [part / sum(parts) for part in parts]
            residual = math.log(sum(parts) / each.taken_s)
            for row in (0, 1):
                slopes[row] -= shares[row] * residual
                for column in (0, 1):
                    squares[row][column] += shares[row] * shares[column]
        (first, mixed), (_, second) = squares
        determinant = first * second - mixed * mixed
        steps = (slopes[0] * second - slopes[1] * mixed) / determinant, (first * slopes[1] - mixed * slopes[0]) / determinant
        longest = max(1.0, *map(abs, steps))  # no step is longer than 1, so that none overshoots
        logs = [log + step / longest for log, step in zip(logs, steps, strict=True)]
    return math.exp(-logs[0]), math.exp(-logs[1])


def estimate_ratio(constants: tuple[float, float], each: Sample) -> float:
    """Return the estimated time of a figure over the published one."""
    a, b = constants
    return (each.arithmetic_s / a + each.memory_s / b) / each.taken_s


def held_out_ratios(fitted: Sequence[Sample], alike: Callable[[Sample, Sample], bool]) -> list[float]:
    """Return the ratio of each figure by a fit that leaves out all figures alike."""
    return [estimate_ratio(fit([other for other in fitted if not alike(each, other)]), each) for each in fitted]


def factor_of(ratios: Iterable[float]) -> float:
    """Return the smallest factor, up or down, that holds SHARE of the ratios."""
    sizes = sorted(math.exp(abs(math.log(each))) for each in ratios)
    return sizes[math.ceil(SHARE * len(sizes)) - 1]


def make_fit() -> WhatIfFit:
    """Return the constants, the factor that holds whatever is held out, and the counts of the networks."""
    fitted = samples()
    a, b = fit(fitted)
    factor = max(factor_of(held_out_ratios(fitted, alike)) for alike in HELD_OUT.values())
    training = {model: counts_of(model, is_training=True) for model in get_args(RowName)}
    inference = {model: counts_of(model, is_training=False) for model in get_args(RowName)}
    return WhatIfFit(round(a, 3), round(b, 4), math.ceil(20 * factor) / 20, training, inference)


@cache
def counts_of(model: str, *, is_training: bool) -> StepCounts:
    """Return operations and operators of a step, and the line through its bytes at batches of 1 and 2."""
    built = network(model, "cpu").train(is_training)

    def counted(size: int, dtype: Dtype) -> Counts:
        images, labels = batch_of(size, "cpu")
        if is_training:
            return train_counts(built, cross_entropy, (images, labels), dtype, UPDATE_PASSES["sgd"])
        return forward_counts(built, images, dtype)

    def line(dtype: Dtype) -> BytesLine:
        one, two = (known(counted(size, dtype)["bytes"]) for size in (1, 2))
        return BytesLine(two - one, 2 * one - two)

    def known(count: float | None) -> float:
        if count is None:
            raise ValueError(f"{model} has no counts")
        return count

    flops = known(counted(1, "fp32")["flops"])
    return StepCounts(flops, line("fp32"), line("amp_fp16"), operators(model, is_training=is_training))


class _Started(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts the operators that compute, not those that give a tensor another shape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        self.number += not (views or func.namespace != "aten" or func.overloadpacket.__name__ in ("empty", "empty_like", "detach"))
        return func(*args, **(kwargs or {}))


def operators(model: str, *, is_training: bool) -> int:
    """Count the operators that a step starts, in training with those of SGD's update, each of which takes all weights at once."""
    built, (images, labels) = network(model, "meta").train(is_training), batch_of(2, "meta")
    update = torch.optim.SGD(built.parameters(), lr=1e-9, momentum=0.9, weight_decay=1e-4, foreach=True)
    for is_first in (True, False):  # the first update makes the averages
        with (started := _Started()), torch.set_grad_enabled(is_training):
            update.zero_grad(set_to_none=True)
            if is_training:
                cross_entropy(built)(images, labels).backward()  # type: ignore[no-untyped-call]  # as above
                update.step()
            else:
                built(images)
        if not is_first:
            return started.number
    raise AssertionError


def as_toml(found: WhatIfFit) -> str:
    """Return the table that the package reads."""
    lines = ["# Made by `python -m benchmarks.what_if`; not to be edited."]
    lines += [f"a = {found.a}", f"b = {found.b}", f"factor = {found.factor}"]
    for kind, steps in (("training", found.training), ("inference", found.inference)):
        lines += ["", f"[{kind}]"]
        for model, step in steps.items():
            parts = [
                f"{name} = {{ sample = {line.sample:.0f}, fixed = {line.fixed:.0f} }}"
                for name, line in (("fp32", step.fp32), ("half", step.half))
                if line
            ]
            lines.append(f"{model} = {{ flops = {step.flops:.0f}, {', '.join(parts)}, operators = {step.operators} }}")
    return "\n".join((*lines, ""))


def as_page(found: WhatIfFit) -> str:
    """Return the page with all residuals."""
    return "\n".join(_page(found, samples()))


def _page(found: WhatIfFit, fitted: Sequence[Sample]) -> Iterator[str]:
    constants = fit(fitted)
    yield "# What a card would bring: how far the estimate is off\n"
    yield "<!-- Made by `python -m benchmarks.what_if`; not to be edited. -->\n"
    yield f"t = operations / ({found.a:g} · peak) + bytes / ({found.b:g} · bandwidth), fitted to {len(fitted)} published training"
    yield "figures by the least squares of logarithms. The constants are no efficiencies: libraries compute convolutions with fewer"
    yield "operations than are counted, and caches save bytes that are counted."
    yield f"An estimate is shown as ÷{found.factor:g} to ×{found.factor:g}, which holds nine of ten figures that its fit had not seen.\n"
    ratios_by_kind = {name: held_out_ratios(fitted, alike) for name, alike in HELD_OUT.items()}
    rows = []
    for name, ratios in ratios_by_kind.items():
        sizes = [math.exp(abs(math.log(each))) for each in ratios]
        inside = sum(each <= found.factor for each in sizes)
        rows.append((name, f"{inside} of {len(sizes)}", f"{factor_of(ratios):.2f}", f"{max(sizes):.2f}"))
    yield "".join(markdown_table(("left out with each figure", "within the range", "nine of ten within", "worst"), rows))
    yield "Estimated over published time, by card, above 1 where the estimate is too slow: fitted to all figures, in brackets"
    yield "without those of the same card and those of the same network.\n"
    cards: dict[str, list[str]] = {}
    for number, each in enumerate(fitted):
        factors = f"{estimate_ratio(constants, each):.2f} ({ratios_by_kind['card and network'][number]:.2f})"
        cards.setdefault(each.figure.device, []).append(f"{each.model} {each.figure.dtype} {factors}")
    for card, listed in cards.items():
        yield textwrap.fill(f"- {card}: {', '.join(listed)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield ""
    yield "Left out:\n"
    reasons: dict[str, int] = {}
    for figure in published_figures():
        if reason := left_out(figure):
            reasons[reason] = reasons.get(reason, 0) + 1
    yield "".join(markdown_table(("figures", "why"), [(str(number), reason) for reason, number in reasons.items()]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table and the page. Raises SystemExit where ``--check`` finds that they differ from what would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where the files are others")
    options = parser.parse_args(arguments)
    found = make_fit()
    for path, text in ((WHAT_IF_TABLE, as_toml(found)), (PAGE, as_page(found))):
        if options.check and path.read_text() != text:
            raise SystemExit(f"{path.relative_to(ROOT)} is another than python -m benchmarks.what_if writes")
        if not options.check:
            path.write_text(text)
    print(f"a {found.a}, b {found.b}, ÷{found.factor} to ×{found.factor}")


if __name__ == "__main__":
    main()
