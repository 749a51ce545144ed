"""Concurrency: the speed of several programs at once over one after the other, on one device or on two kinds."""

from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import series
from dlbench.analysis.answers.engine.question import Question, Section, detail, shown
from dlbench.analysis.presentation.columns import KEY, RATIO, over_rounds, place, value_columns
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row


class AtOnce(NamedTuple):
    """Several processes that ran at once."""

    row: Row
    ratio: Ratio
    """Throughput of all at once over that of one after the other."""

    @property
    def memory_bytes(self) -> float | None:
        """Peak of all processes, which take the same each."""
        peak = self.row.memory.host_peak_bytes if self.row.is_on_cpu else self.row.memory.peak_bytes
        return peak and peak * (self.row.count("instances") or 1)


def at_once(results: Results) -> list[AtOnce]:
    """Return the cases in which several ran at once."""
    rows = (row for row in results.rows if row.is_sound and series(row, "kept"))
    return [AtOnce(row, speed_ratio(row.each_round("in_turn"), row.each_round("at_once"))) for row in rows]


ORDER = 65
QUESTION = Question(
    "concurrency",
    "What do several at once bring: trainings on one device, or a teacher on the CPU and its student?",
    command="dlbench run concurrency",
    missing=["nothing was measured at once"],
    sections=[
        Section(
            records=at_once,
            title="Several at once: throughput of all over that of one after the other",
            columns=[
                KEY,
                place,
                shown("at_once.number", "count", "at once", "how many run at once", lambda each: len(series(each.row, "kept"))),
                RATIO,
                shown(
                    "at_once.loses",
                    "fraction",
                    "loses",
                    "of its own speed alone, by the one that loses most",
                    lambda each: 1 - min(series(each.row, "kept")),
                ),
                over_rounds(
                    shown(
                        "at_once.efficiency",
                        "fraction",
                        "efficiency",
                        "0 as one after the other, 1 with all at full speed",
                    ),
                    lambda each: each.row.each_round("efficiency"),
                ),
                detail("at_once.memory_bytes", "bytes", "memory", "peak of all processes, contexts apart"),
                value_columns,
            ],
            foremost=lambda found: sorted(found, key=lambda each: (each.row.is_on_cpu, -each.ratio.speedup)),
            label="at once",
            headline={
                "gain": "{number} at once {speedup} one after the other{span}",
                "loss": "one after the other; {number} at once {speedup}{span}",
                "open": "no gain shown with {number} at once",
            },
        )
    ],
)
