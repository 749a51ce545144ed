"""Findings on whether a machine is fit to measure on, with advice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fitness(StrEnum):
    """Severity of a finding, the most severe first."""

    UNFIT = "unfit"
    """Numbers measured now would not hold up."""
    NOTE = "note"
    """A fact of the machine that widens intervals or that a comparison has to share."""
    UNKNOWN = "unknown"
    """It can't be read here."""
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    """Name of the check: ``governor``, ``temperature``."""
    device: str
    fitness: Fitness
    found: str
    """In words, with the figures."""
    advice: str = ""
    """What to do next; empty where there is nothing to do."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The figures in base units, by name."""
    case: str = ""
    """The id of the case that was measured for it; empty where none was."""
