"""Published networks: parameters, the bytes of their gradients, and the schedules by which they were trained."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path

from dlbench.core.precision import PRECISIONS

PARAMETERS: Mapping[str, int] = {
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception_v3": 27_161_264,
    "bert_base": 110_106_428,
    "gpt2": 124_439_808,
}
"""Parameters of a network by its name in a case, as it is trained; a test counts those of `dlbench.models`."""
_FAMILIAR = ("resnet50", "resnet18")
"""The most trained networks of suites."""


def familiarity(model: object) -> int:
    """Return what sorts networks: those first that a reader asks for first, and all others alike."""
    return _FAMILIAR.index(str(model)) if model in _FAMILIAR else len(_FAMILIAR)


def gradient_bytes(model: str, dtype: str, sent_as: str = "full") -> int | None:
    """Return the bytes of gradients of one step; None for another network or precision.

    ``sent_as`` is the precision that they travel in, ``full`` that of the weights.
    """
    precision = PRECISIONS.get(dtype if sent_as == "full" else sent_as)
    return PARAMETERS[model] * precision.bytes if precision and model in PARAMETERS else None


_TABLE = Path(__file__).with_name("schedules.toml")


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a network was trained, and what that took its authors."""

    model: str
    """Its name in a case."""
    images: int
    """In the training set, or other items."""
    epochs: int
    source: str
    took: str | None
    """In words, with the devices; None where its authors do not say."""
    took_source: str | None
    of: str = "ImageNet"
    """Data set of the training."""
    items: str = "images"

    def seconds(self, images_per_s: float) -> float:
        """Return the time of all steps at that rate, which must be above zero."""
        return self.images * self.epochs / images_per_s


@cache
def schedules() -> Mapping[str, Schedule]:
    """Return the schedule of each network by its name, those first that a summary would rather name."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    shared = {"images": table["images"], "took": None, "took_source": None}
    found = []
    for family in table["schedule"]:
        for place, model in enumerate(family.pop("models")):
            found.append((place, Schedule(model, **{**shared, **family})))
    found.sort(key=itemgetter(0))  # the first of each family come before the second of any
    return {schedule.model: schedule for _, schedule in found}
