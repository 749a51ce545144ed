"""Published training schedules of the networks."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("schedules.toml")


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a network was trained, and what that took its authors."""

    model: str
    """By the name that a case gives it."""
    images: int
    """In the training set, or other items."""
    epochs: int
    source: str
    took: str | None
    """In words, with the devices; None where its authors do not say."""
    took_source: str | None
    of: str = "ImageNet"
    """What it was trained on."""
    items: str = "images"

    def seconds(self, images_per_s: float) -> float:
        """Return the time of all steps at that rate, which must be above zero."""
        return self.images * self.epochs / images_per_s


@cache
def schedules() -> Mapping[str, Schedule]:
    """Return the schedule of each network by its name, those first that a summary would rather name."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    families = [each["models"] for each in table["schedule"]]
    defaults = {"images": table["images"], "took": None, "took_source": None}
    return {
        family[place]: Schedule(family[place], **{**defaults, **{name: value for name, value in each.items() if name != "models"}})
        for place in range(max(map(len, families)))  # the first of each family come before the second of any
        for family, each in zip(families, table["schedule"], strict=True)
        if place < len(family)
    }
