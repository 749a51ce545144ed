"""Serving: how many requests a second a CPU and an accelerator do within a bound of latency, at which batch, and what ends it there."""

import math
from collections.abc import Hashable
from operator import mul
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import estimate_samples
from dlbench.analysis.answers.engine.question import Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import KEY, RATIO, THROUGHPUT, place, spanned, value_columns
from dlbench.analysis.ratios.matching import BATCH, chosen, grouped, settings_named
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.model import value_text
from dlbench.core.prices import Prices
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.stats import Interval, share_interval

KEPT = 0.9
"""Share of the requests from which on a bound is kept, where the whole interval lies there: p90 is within it."""

BUSY = 0.9
"""Share of the throughput of a closed loop from which on a server of an open one is busy rather than its queue long."""


class Serving(NamedTuple):
    """Requests that one device served in one setting."""

    row: Row
    prices: Prices
    larger: "Serving | None"
    """The same at the next larger batch."""
    cpu: "Serving | None" = None
    """Of an accelerator what the CPU serves of the same network, under the same bound, at its best."""
    among: int = 1
    """Matches of settings of both that it may be the best of."""

    @property
    def bound(self) -> str:
        """Latency that requests are to keep."""
        return f"{value_text(self.row.params.get('bound_ms', ''))} ms"

    @property
    def kept(self) -> Interval | None:
        """Interval of the share that kept it, by the calls of all rounds; None without a bound."""
        shares, calls = self.row.each_round("within"), self.row.each_round("queries")
        of = sum(calls)
        return share_interval(sum(map(mul, shares, calls)) / of, of) if shares and of > 0 else None

    @property
    def outcome(self) -> str:
        """Whether it was kept, as far as that is shown."""
        return "free" if self.kept is None else "kept" if self.kept.low >= KEPT else "missed"

    @property
    def batch(self) -> int:
        """Requests of a call."""
        return self.row.batch or 1

    @property
    def limit(self) -> str:
        """What keeps a larger batch from its bound, or this one. In a closed loop nobody queues, and clients take no time."""
        over = self.larger if self.outcome == "kept" else self
        if over is None:
            return "no larger batch was measured"
        return (
            f"{'next' if over.outcome == 'kept' else 'service'}: batch {over.batch} takes {units.seconds(over.batch / over.row.paid_rate)}"
        )

    @property
    def ratio(self) -> Ratio | None:
        """Throughput over that of the CPU."""
        return speed_ratio(self.cpu.row.paid_rates, self.row.paid_rates, among=self.among) if self.cpu else None

    @property
    def paid(self) -> str | None:
        """What 1,000 requests cost at least."""
        return estimate_samples(self.row, self.prices).paid


def servings(results: Results) -> list[Serving]:
    """Return what was served: of each network and bound accelerators first, and on each device what does most within the bound."""
    rows = [row for row in results.rows if row.is_sound and row.declared.value("served") and row.paid_rate]
    rows.sort(key=lambda row: row.batch or 0, reverse=True)
    every: list[Serving] = []
    for alike in grouped(rows, lambda row: row.differing_from((*MACHINE, *settings_named((*chosen(row), "copies", "seconds"))))).values():
        larger: dict[Hashable, Serving] = {}
        found = []
        for row in alike:
            setting = row.differing_from((BATCH, *settings_named(("seconds",))))  # a larger batch takes longer to measure
            larger[setting] = Serving(row, results.prices, larger.get(setting))
            found.append(larger[setting])
        found.sort(key=lambda each: (each.row.is_on_cpu, not each.row.copies_within_calls, each.outcome == "missed", -each.row.paid_rate))
        cpus = [each for each in found if each.row.is_on_cpu]
        pairs = len(cpus) * (len(found) - len(cpus))
        every += [each._replace(cpu=cpus[0], among=pairs) if cpus and not each.row.is_on_cpu else each for each in found]
    return every


def rates(results: Results) -> list[Row]:
    """Return the searches for the highest rate of requests that come when they like, accelerators first."""
    found = [row for row in results.rows if row.is_sound and row.in_role("highest_rate")]
    return sorted(found, key=lambda row: row.is_on_cpu)


def _ends(row: Row) -> str:
    """Return what ends a rate: a server that is busy nearly always, or the queue of one that is not."""
    load = (row.in_role("highest_rate") or 0.0) / (row.in_role("saturation") or math.inf)
    return f"{'service' if load >= BUSY else 'queue'}: {units.percent(load)} of a closed loop"


ORDER = 80
QUESTION = Question(
    "serving",
    "For serving: CPU or accelerator, at which batch and latency?",
    command="dlbench run serving",
    missing=["no requests were served"],
    sections=[
        Section(
            records=servings,
            title="Requests in a closed loop: as many clients as the batch",
            columns=[
                KEY.headed("requests"),
                place,
                THROUGHPUT,
                lambda found: [each for each in value_columns(found) if each.attribute not in ("items_per_s", "within")],
                spanned(
                    detail(
                        "serving.within",
                        "fraction",
                        "within",
                        "share of the requests within their bound",
                        lambda each: each.row.in_role("within"),
                    ),
                    lambda each: each.kept or (None, None),
                ),
                detail("serving.limit", "text", "limit", "why a larger batch does not keep the bound, or this one"),
                RATIO.headed("over the CPU"),
                detail("serving.paid", "text", "1,000 cost", "what 1,000 requests cost"),
            ],
            notes=["within: by the calls of all rounds, with its 95 % interval (Wilson), which lies above 90 % where a bound is kept"],
            foremost=lambda found: [found[0], found[0].cpu] if found[0].cpu else found[:1],
            by=lambda each: each.outcome,
            headline={
                "kept": ("{items_per_s} within {bound} at batch {batch}{more}", "{items_per_s} within {bound}{more}"),
                "missed": "none within {bound} is shown; {items_per_s} at batch {batch}",
                "free": ("{items_per_s} at batch {batch}{more}"),
            },
            more=dict.fromkeys(("kept", "free"), "; CPU {items_per_s}"),
            second=(
                "{speedup} the CPU; 1,000 requests {paid}",
                "{speedup} the CPU; {limit}",
                "{limit}; 1,000 requests {paid}",
                "{limit}",
            ),
            tags={Tag.FEW_ROUNDS: lambda each: each.row.rate.items_per_s_low is None},
        ),
        Section(
            records=rates,
            title="Requests that come when they like: the highest rate within the bound",
            columns=[
                KEY.headed("requests"),
                place,
                shown(
                    "open.held",
                    "items/s",
                    "kept at",
                    "highest rate that kept the bound",
                    lambda row: row.in_role("highest_rate"),
                ),
                shown("open.failed", "items/s", "missed at", "lowest rate that missed it", lambda row: row.in_role("failing_rate")),
                shown("open.limit", "text", "limit", "what ends it, and how near it is to a closed loop", _ends),
            ],
            headline={"": ("{held} keep their bound, {failed} miss it", "{held} keep their bound")},
        ),
    ],
)
