"""Serving: requests a second of a CPU and an accelerator within a bound of latency, their batch, and what limits them."""

import math
from collections.abc import Hashable, Sequence
from itertools import chain
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
"""Share of requests that have to be within a bound: it is kept if the whole interval of the share is at least this, as p90 is then."""

BUSY = 0.9
"""Share of the throughput of a closed loop from which on an open loop is limited by its server, not by its queue."""


class Serving(NamedTuple):
    """Requests that one device served in one setting."""

    row: Row
    prices: Prices
    larger: "Serving | None"
    """The same at the next larger batch."""
    cpu: "Serving | None" = None
    """For an accelerator: the best of the CPU for the same network and bound."""
    among: int = 1
    """Number of pairs of an accelerator and a CPU in any settings; this one may be the best of them."""

    @property
    def bound(self) -> str:
        """Bound of the latency, as text."""
        return f"{value_text(self.row.params.get('bound_ms', ''))} ms"

    @property
    def kept(self) -> Interval | None:
        """Interval of the share of requests within the bound, from all rounds; None without a bound."""
        shares, calls = self.row.each_round("within"), self.row.each_round("queries")
        total = sum(calls)
        return share_interval(sum(map(mul, shares, calls)) / total, total) if shares and total > 0 else None

    @property
    def outcome(self) -> str:
        """``kept`` or ``missed``, by the lower end of that interval; ``free`` without a bound."""
        if self.kept is None:
            return "free"
        return "kept" if self.kept.low >= KEPT else "missed"

    @property
    def batch(self) -> int:
        """Requests of a call."""
        return self.row.batch or 1

    @property
    def limit(self) -> str:
        """Time of a call at the next larger batch if the bound is kept, else at this one.

        In a closed loop nobody queues, and clients take no time, so this is the latency.
        """
        limiting = self.larger if self.outcome == "kept" else self
        if limiting is None:
            return "no larger batch was measured"
        reason = "next" if limiting.outcome == "kept" else "service"
        return f"{reason}: batch {limiting.batch} takes {units.seconds(limiting.batch / limiting.row.paid_rate)}"

    @property
    def ratio(self) -> Ratio | None:
        """Throughput over that of the CPU."""
        return speed_ratio(self.cpu.row.paid_rates, self.row.paid_rates, among=self.among) if self.cpu else None

    @property
    def paid(self) -> str | None:
        """Least cost of 1,000 requests, or their energy, as text."""
        return estimate_samples(self.row, self.prices).paid


def servings(results: Results) -> list[Serving]:
    """Return the requests served in closed loops, one network and bound after the other, each on accelerators first."""
    rows = [row for row in results.rows if row.is_sound and row.declared.value("served") and row.paid_rate]
    largest_first = sorted(rows, key=lambda row: row.batch or 0, reverse=True)
    by_bound = grouped(largest_first, lambda row: row.differing_from((*MACHINE, *settings_named((*chosen(row), "copies", "seconds")))))
    return list(chain.from_iterable(_against_cpu(_with_larger(alike, results.prices)) for alike in by_bound.values()))


def _with_larger(rows: Sequence[Row], prices: Prices) -> list[Serving]:
    """Return rows, the largest batch first, as records that have that of the next larger batch in the same setting."""
    last: dict[Hashable, Serving] = {}
    found = []
    for row in rows:
        setting = row.differing_from((BATCH, *settings_named(("seconds",))))  # a larger batch takes longer to measure
        last[setting] = Serving(row, prices, larger=last.get(setting))
        found.append(last[setting])
    return found


def _against_cpu(found: Sequence[Serving]) -> list[Serving]:
    """Return the accelerators, each with the best of the CPU, then the CPU; first settings that keep the bound, the highest rate first."""
    best_first = sorted(found, key=lambda each: (not each.row.copies_within_calls, each.outcome == "missed", -each.row.paid_rate))
    cpus = [each for each in best_first if each.row.is_on_cpu]
    accelerators = [each for each in best_first if not each.row.is_on_cpu]
    if cpus:
        among = len(cpus) * len(accelerators)
        accelerators = [each._replace(cpu=cpus[0], among=among) for each in accelerators]
    return [*accelerators, *cpus]


def rates(results: Results) -> list[Row]:
    """Return the searches for the highest rate in an open loop, accelerators first."""
    found = [row for row in results.rows if row.is_sound and row.in_role("highest_rate")]
    return sorted(found, key=lambda row: row.is_on_cpu)


def _rate_limit(row: Row) -> str:
    """Return the limit of the highest rate: ``service`` if the server is busy nearly always, else ``queue``, with its load."""
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
                "free": "{items_per_s} at batch {batch}{more}",
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
                shown("open.limit", "text", "limit", "what ends it, and how near it is to a closed loop", _rate_limit),
            ],
            headline={"": ("{held} keep their bound, {failed} miss it", "{held} keep their bound")},
        ),
    ],
)
