"""The callbacks of a run, for what is shown while it measures."""

from collections.abc import Sequence

from dlbench.core.measurement import Measurement, Series


class Observer:
    """Callbacks of a run. These do nothing."""

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Round ``number`` (from 0) begins, in which these are measured."""

    def case_started(self, series: Series, number: int) -> None:
        """A case is about to be measured."""

    def case_tried(self, measurement: Measurement) -> None:
        """A search has made one of its tries."""

    def case_postponed(self, measurement: Measurement) -> None:
        """A case is measured again in this round, as it was held back on one of its sides."""

    def case_ended(self, measurement: Measurement) -> None:
        """A case was measured, or ended otherwise."""

    def case_left_out(self, series: Series) -> None:
        """A case is not measured in this round, or was not done, as the budget is spent; in the first round it would have a row."""
