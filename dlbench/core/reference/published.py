"""Figures that others published, and the estimate for a card without one, by constants fitted to them.

``t = operations / (a · peak) + bytes / (b · bandwidth)``. The constants are no efficiencies: of convolutions libraries compute fewer
operations than the formulas count, so a is above 1. ``python -m benchmarks.what_if`` fits them, and writes them here.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from dlbench.core.decoding import convert
from dlbench.core.model import Params
from dlbench.core.precision import ARITHMETIC, PRECISIONS
from dlbench.core.reference.peaks import DevicePeak

_TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One figure of a workload with these tags and parameters, in base units of what it is of."""

    value: float
    device: str
    """The maker's name of the device."""
    source: str
    date: str
    tags: frozenset[str]
    params: Params = field(default_factory=dict, hash=False)
    kind: str = "cuda"
    dtype: str | None = None
    """None where precision is no matter."""
    batch: int | None = None
    """None where it has none, or its source does not state it."""
    caution: str | None = None
    update: bool | None = None
    """Whether the optimizer's update is in a step; None where the source does not say, or what it is a figure of is no step."""

    @property
    def peak(self) -> str | None:
        """The column of the peaks that its products count by."""
        return ARITHMETIC.get(self.dtype or "")

    @property
    def year(self) -> str | None:
        """The last year that its date names."""
        return max(re.findall(r"\b20\d\d\b", self.date), default=None)


@cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """Return all of them, the latest first."""
    sources = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["source"]
    figures = ({**source, "source": source["name"], **figure} for source in sources for figure in source["figures"])
    rated = [{**each, "value": each["value"] if "value" in each else 1000 * each["batch"] / each["ms"]} for each in figures]
    return convert(tuple[PublishedFigure, ...], rated)


WHAT_IF_TABLE = Path(__file__).with_name("what_if.toml")
KNOWN_CARDS = ("NVIDIA TITAN X (Pascal)", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090")
"""Cards that many have or had: the ones shown where nobody asks for another."""
LAUNCH_S = 1e-5
"""Least time of an operator that Python starts, one after the other; PyTorch takes 5 to 10 µs for most, and a launch as long."""
Kind = Literal["training", "inference"]


@dataclass(frozen=True, slots=True)
class BytesLine:
    """Bytes of a step by its batch."""

    sample: float
    fixed: float

    def of(self, batch: int) -> float:
        """Return those of a step of so many samples."""
        return self.sample * batch + self.fixed


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Operations, bytes and operators of a step of a network."""

    flops: float
    """Operations of a sample."""
    fp32: BytesLine
    half: BytesLine | None = None
    """Where activations have 16 bits; None where nobody counted them."""
    operators: int | None = None
    """Operators that are started for a step, the update's included; None where nobody counted them."""


class Guess(NamedTuple):
    """An estimate of the samples a second of a card."""

    low: float
    middle: float
    high: float
    at_most: bool
    """Whether it waits for launches, so that ``high`` is the most that eager mode reaches."""


@dataclass(frozen=True, slots=True)
class WhatIfFit:
    """The constants, and how far held-out figures are from them."""

    a: float
    b: float
    factor: float
    """Within which nine of ten figures are that the fit had not seen, times and divided by."""
    training: Mapping[str, StepCounts]
    inference: Mapping[str, StepCounts]

    def seconds(self, card: DevicePeak, dtype: str, flops: float, moved: float) -> float | None:
        """Return the time of a step of so many operations and bytes; None where the card has no such peak."""
        peak = card.flops_per_s.get(PRECISIONS[dtype].arithmetic)
        return None if peak is None else flops / (self.a * peak) + moved / (self.b * card.bytes_per_s)

    def guess(self, card: DevicePeak, dtype: str, step: StepCounts, batch: int) -> Guess | None:
        """Return the estimate for a step of so many samples; None where the card has no such peak, or nobody counted its bytes."""
        line = step.fp32 if PRECISIONS[dtype].storage == "float32" and not PRECISIONS[dtype].autocast else step.half
        seconds = self.seconds(card, dtype, step.flops * batch, line.of(batch)) if line else None
        if seconds is None:
            return None
        least = LAUNCH_S * (step.operators or 0)
        low, middle, high = (batch / max(each, least) for each in (seconds * self.factor, seconds, seconds / self.factor))
        return Guess(low, middle, high, least > seconds / self.factor)


@cache
def fitted() -> WhatIfFit:
    """Return what the table has."""
    return convert(WhatIfFit, tomllib.loads(WHAT_IF_TABLE.read_text(encoding="utf-8")))
