"""Figures of where the time of steps goes: of one step on each device as it is, and of all as shares."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.presentation.fields import Headed, own
from dlbench.analysis.presentation.figures import Figure, drawn, figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import seconds

_LEAST_DRAWN = 0.01
"""Share of a step that its parts have to explain for its bar to show anything but the rest."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step, and what its time is made of."""

    row: Row
    kind: str
    """Of several kinds of steps, which are not mixed."""
    whole_s: float
    parts: Mapping[str, float]
    """Seconds of each, by name: of all steps the same, in the same order, so that a part has one colour; the last is the rest."""

    @property
    def together_s(self) -> float:
        """What its parts come to, which is more than the whole where they overlap."""
        return sum(self.parts.values())

    @property
    def explained(self) -> float:
        """Share of its time that is not the rest."""
        return 1 - list(self.parts.values())[-1] / self.whole_s


class _Piece(NamedTuple):
    named: str
    part: str
    length: float


_SHARE: Headed[_Piece] = own(
    "share of the time of a step",
    "step.share",
    Unit.FRACTION,
    "of the time of a step, or of its parts where they overlap",
    lambda piece: piece.length,
)
_TIME: Headed[_Piece] = own("time", "step.part_s", Unit.SECONDS, "of the time of a step", lambda piece: piece.length)


def step_figures(steps: Sequence[StepTime]) -> list[Figure]:
    """Return the longest step of each kind that ran in several places as bars of seconds, and all steps as bars of equal length.

    Steps that nothing explains are left out of these.
    """
    several = several_runs(steps)
    places = {device_label(step, several) for step in steps}

    def pieces(of: Iterable[StepTime], whole: Callable[[StepTime], float]) -> list[_Piece]:
        return [
            _Piece(f"{_named(step, several, len(places) > 1)}, {seconds(step.whole_s)}", part, part_s / whole(step))
            for step in of
            for part, part_s in step.parts.items()
        ]

    by_step = grouped(steps, lambda step: step.row.key).values()
    on_several = [found for found in by_step if len({device_label(step, several) for step in found}) > 1]
    longest = grouped(sorted(on_several, key=lambda found: -max(step.whole_s for step in found)), lambda found: found[0].kind)
    shown, left_out = drawn([step for step in steps if step.explained >= _LEAST_DRAWN], lambda step: step.whole_s)
    where = "" if len(places) > 1 else f", on {places.pop()}"
    return [
        _stack("Time of a step on each device", pieces(chain.from_iterable(found[0] for found in longest.values()), lambda _: 1.0), _TIME),
        _stack(f"Time of a step, by its parts{where}", pieces(shown, lambda step: step.together_s), _SHARE, left_out),
    ]


def _named(step: StepTime, several: bool, with_place: bool) -> str:
    return f"{short(step.row.key)}{f' on {device_label(step, several)}' if with_place else ''}"


def _stack(title: str, pieces: Sequence[_Piece], length: Headed[_Piece], left_out: str = "") -> Figure:
    about = f"Each bar is the time of one step; arithmetic and memory have what they would take at their measured ceilings.{left_out}"
    step: Headed[_Piece] = own("step", "step.named", Unit.TEXT, "the step, where it ran and how long it took")
    part: Headed[_Piece] = own("part", "step.part", Unit.TEXT, "which part of its time")
    return figure(title, about, "stack", pieces, length, step, part)
