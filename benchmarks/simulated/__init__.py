"""Verdicts on made-up noise whose truth is known: one module a question, each asked of dlbench's own functions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """How often something happened in simulated comparisons, and how often it may, or has to."""

    what: str
    count: int
    of: int
    at_least: float | None = None
    """Share of them that is the aim; None where there is none from below."""
    at_most: float | None = None

    @property
    def share(self) -> float:
        """The share of them in which it happened."""
        return self.count / self.of

    @property
    def reached(self) -> bool:
        """Whether the share is where it has to be."""
        return (self.at_least is None or self.share >= self.at_least) and (self.at_most is None or self.share <= self.at_most)

    @property
    def aim(self) -> str:
        """The aim, for people."""
        limits = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{word} {100 * limit:g} %" for word, limit in limits if limit is not None)
