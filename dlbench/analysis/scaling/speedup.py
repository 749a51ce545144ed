"""Speed-up of several devices over one: throughput, efficiency, and the communication and idle time that limit them."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dlbench.analysis.ratios import Entry, entries, identifying, label, speed_ratio
from dlbench.analysis.read.places import file_of
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Parallel
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import FEWEST_ROUNDS, shift_interval
from dlbench.core.rows.rounds import Rounds
from dlbench.core.rows.row import Cells as Row
from dlbench.core.rows.row import ending
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import theil_sen

SCALES_FROM = 0.9
"""Efficiency from which on more devices are called well used."""

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("scaling.case", Unit.TEXT, "the case"),
        Column("scaling.run", Unit.TEXT, "the result file it stands in"),
        Column("scaling.work", Unit.TEXT, "the case without ranks and scaling"),
        Column("scaling.form", Unit.TEXT, "the kind of parallelism; null where the workload has only one"),
        Column("scaling.kind", Unit.TEXT, "weak: each device has a batch of its own; strong: they share one; null where not said"),
        Column("scaling.device", Unit.TEXT, "the first of its devices"),
        Column("scaling.device_name", Unit.TEXT, "what they are called by their maker"),
        Column("scaling.ranks", Unit.COUNT, "ranks: devices of an accelerator, on a CPU processes that share it"),
        Column("scaling.cores_per_rank", Unit.COUNT, "on a CPU the cores of each; else null"),
        Column("scaling.rounds", Unit.COUNT, "rounds that the intervals stand on"),
        Column("scaling.step_s", Unit.SECONDS, "one step: median over rounds; null for an experiment", "lower"),
        Column("scaling.items_per_s", Unit.ITEMS_PER_S, "what all of them do together", "higher"),
        Column("scaling.base", Unit.TEXT, "the case on one device that it is set against"),
        Column("scaling.speedup", Unit.RATIO, "throughput over that of the base: Hodges-Lehmann estimate over the rounds", "higher"),
        Column(
            "scaling.speedup_low", Unit.RATIO, f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side"
        ),
        Column("scaling.speedup_high", Unit.RATIO, "upper end of it"),
        Column("scaling.confidence", Unit.FRACTION, "its least coverage, as of `ratio.confidence`"),
        Column("scaling.resources", Unit.RATIO, "how many times the base's devices it has, on a CPU how many times its cores"),
        Column("scaling.efficiency", Unit.FRACTION, "speed-up over resources; its interval is that of the speed-up over them", "higher"),
        Column("scaling.memory_bytes", Unit.BYTES, "peak of one device, on a CPU of one process: the highest of the ranks", "lower"),
        Column("scaling.exposed_s", Unit.SECONDS, "communication that a step waits for: the step less the same one without it", "lower"),
        Column("scaling.exposed_low_s", Unit.SECONDS, "lower end of its 95 % interval"),
        Column("scaling.exposed_high_s", Unit.SECONDS, "upper end of it"),
        Column("scaling.bubble", Unit.FRACTION, "of a pipeline's step: what other numbers of microbatches tell of its idle time", "lower"),
        Column("scaling.bubble_theory", Unit.FRACTION, "(p - 1) / (m + p - 1) of p ranks and m microbatches", "lower"),
        Column("scaling.projected_s", Unit.SECONDS, "what the projection says of the step; a projection is no measurement"),
        Column("scaling.projected_copies_s", Unit.SECONDS, "what copying each device its inputs adds to that where nothing hides it"),
        Column("scaling.projected_items_per_s", Unit.ITEMS_PER_S, "of devices that were not measured: what they would do together by it"),
        Column("scaling.projection_error", Unit.FRACTION, "of a measured step: projected over measured, less one"),
        Column("scaling.verdict", Unit.TEXT, "base, scales, helps, slows, undecided, implausible, projection, or how the case ended"),
        Column("scaling.reason", Unit.TEXT, "why there is no speed-up, no interval, or no measured bubble"),
    )
}


class Step(NamedTuple):
    """A case of several ranks, or of one beside them."""

    row: Row
    rounds: Rounds
    parallel: Parallel
    rates: tuple[float, ...]
    """Items a second in each round; empty where a round does not tell."""

    @property
    def ranks(self) -> int:
        """Zero where it has no parameter of that name."""
        return counted(self.row, "ranks")

    @property
    def form(self) -> ParamValue | None:
        """The kind of parallelism, where its workload has several."""
        return self.row.get("param.form")

    @property
    def timed(self) -> bool:
        """Whether it went well and has times."""
        return self.row["case.status"] == "ok" and bool(self.rounds.median_s)

    @property
    def unsynchronised(self) -> bool:
        """Whether its communication is switched off."""
        return self.row.get(f"param.{self.parallel.synchronise}") is False

    @property
    def spread(self) -> frozenset[str]:
        """The columns that only say how the step is spread over devices."""
        return frozenset(f"param.{name}" for name in ("ranks", *self.parallel.spread))


def scaling(results: Results) -> list[Row]:
    """Return a row for each case with ranks that is no collective: columns as in `COLUMNS`, in the order of the work, then of the ranks.

    The base of a case is the ``ok`` row of the same place, device, precision and work at one rank; of several the one most alike. Cases
    without synchronisation serve to tell what synchronising costs, and have no row of their own.
    """
    columns = [name for name in identifying(results.columns) if name not in ("case.threads", "case.math")]
    every = (Step(each.row, each.rounds, results.declaration(each.row).parallel, _throughput(each, results)) for each in entries(results))
    steps = [each for each in every if each.ranks and not each.parallel.collective]
    rows = [_row(each, steps, columns, results.environments) for each in steps if not each.unsynchronised]
    first = {row["scaling.work"]: number for number, row in reversed(list(enumerate(rows)))}
    places = ("scaling.kind", "scaling.device", "scaling.run")
    return sorted(rows, key=lambda row: (first[row["scaling.work"]], *(str(row[name]) for name in places), row["scaling.ranks"]))


def as_chosen(row: Row, results: Results, among: int) -> Row:
    """Return a row of `scaling` as that of the best among so many, whose interval allows for the choice."""
    rates = {(each.row["case.run"], each.row["case.id"]): _throughput(each, results) for each in entries(results)}
    base, own = (rates[row["scaling.run"], row[f"scaling.{name}"]] for name in ("base", "case"))
    return {**row, **_speed_up(speed_ratio(base, own, among=among)), "ratio.among": among, "time.rounds": min(len(base), len(own))}


def _throughput(entry: Entry, results: Results) -> tuple[float, ...]:
    """Return items a second in each round, of an experiment what it reports in that unit; empty where a round lacks it or has none."""
    reported = [each.name.partition(".")[2] for each in results.declared(entry.row) if each.unit is Unit.ITEMS_PER_S]
    rates = entry.rounds.items_per_s or next((entry.rounds.values.get(name, ()) for name in reported), ())
    return rates if rates and min(rates) > 0 else ()


def share(row: Row) -> float | None:
    """Return the items that each rank of a case has; None where it does not say, or an edited file says what is no number."""
    batch, ranks = counted(row, "batch"), counted(row, "ranks")
    if not batch or not ranks:
        return None
    return batch / ranks if row.get("param.scaling") == "strong" else batch


def counted(row: Row, name: str) -> int:
    """Return a parameter that counts something, zero where there is none; an edited file may hold any value."""
    value = row.get(f"param.{name}")
    return value if type(value) is int and 0 < value < 2**31 else 0


def _row(entry: Step, steps: Sequence[Step], columns: Sequence[str], environments: Mapping[str, Mapping[str, Any]]) -> Row:
    row, ranks, rates = entry.row, entry.ranks, entry.rates
    models = _models(row, ranks, environments)
    on_cpu = row["case.device"] == "cpu"
    gain = _gain(entry, _base(entry, steps, columns), models)
    pipeline, no_bubble = _bubble(entry, steps, columns)
    found = {
        "scaling.case": row["case.id"],
        "scaling.run": row["case.run"],
        "scaling.file": file_of(row),
        "scaling.work": label(row, ("ranks", "scaling")),
        "scaling.form": entry.form,
        "scaling.kind": row.get("param.scaling") or entry.parallel.scaling,
        "scaling.device": row["case.device"],
        "scaling.device_name": " and ".join(models) or row["case.device_name"],
        "scaling.ranks": ranks,
        "scaling.cores_per_rank": row["case.threads"] if on_cpu else None,
        "scaling.rounds": len(rates),
        "scaling.step_s": (row["time.median_s"] or None) if row["case.status"] == "ok" else None,
        "scaling.items_per_s": row["rate.items_per_s"] or (statistics.median(rates) if rates else None),
        "scaling.memory_bytes": row["memory.host_peak_bytes"] if on_cpu else row["memory.peak_bytes"],
        **gain,
        **_exposed(entry, steps, columns),
        **pipeline,
    }
    ended = None if row["case.status"] == "ok" else ": ".join(ending(row))
    reasons = dict.fromkeys(str(each) for each in (ended, gain.get("scaling.reason"), no_bubble) if each)
    return {**dict.fromkeys(COLUMNS), **found, "scaling.verdict": _verdict(row, found), "scaling.reason": "; ".join(reasons) or None}


def _models(row: Row, ranks: int, environments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return how the accelerators are called that the ranks have, each name once; nothing for a CPU, or where the file does not say."""
    identity = environments.get(str(row["case.run"]), {}).get("identity") or {}
    accelerators = identity.get("accelerators")
    kind = str(row["case.device"]).partition(":")[0]
    known = [each for each in accelerators if isinstance(each, Mapping)] if isinstance(accelerators, list) else []
    return list(dict.fromkeys(str(each.get("name")) for each in [each for each in known if each.get("kind") == kind][:ranks]))


def _alike(one: Step, other: Step, columns: Sequence[str], free: Collection[str]) -> bool:
    return all(one.row.get(name) == other.row.get(name) for name in columns if name not in free)


def _base(entry: Step, steps: Sequence[Step], columns: Sequence[str]) -> Step | None:
    """Return the row at one rank that does the same work, the one with the most in common."""
    alone = [
        each
        for each in steps
        if each.ranks == 1
        and each.rates
        and each.row["case.status"] == "ok"
        and not each.unsynchronised
        and each.parallel.step == entry.parallel.step
        and _alike(each, entry, columns, {*each.spread, *entry.spread, *(("case.workload",) if entry.parallel.step else ())})
    ]
    return max(alone, key=lambda each: sum(each.row.get(name) == entry.row.get(name) for name in columns), default=None)


def _gain(entry: Step, base: Step | None, models: Sequence[str]) -> Row:
    """Return speed-up and efficiency over the base, or the reason why there is none."""
    rates = entry.rates
    if entry.row["case.status"] != "ok":
        return {}
    if len(models) > 1:
        return {"scaling.reason": f"its devices are {' and '.join(models)}: one of them is no measure of the others"}
    if not rates:
        return {"scaling.reason": "it states no items, so it has no throughput"}
    if base is None:
        return {"scaling.reason": "no ok row of the same work with ranks = 1 to set it against"}
    ratio = speed_ratio(base.rates, rates)
    resources = _resources(entry) / _resources(base)
    return {
        "scaling.base": base.row["case.id"],
        **_speed_up(ratio),
        "scaling.resources": resources,
        "scaling.efficiency": float(ratio["ratio.speedup"] or 0) / resources,
        "scaling.reason": ratio["ratio.reason"] if entry.ranks > 1 else None,
    }


def _speed_up(ratio: Row) -> Row:
    columns = {"speedup": "speedup", "speedup_low": "ci_low", "speedup_high": "ci_high", "confidence": "confidence"}
    return {f"scaling.{name}": ratio[f"ratio.{of}"] for name, of in columns.items()}


def _resources(entry: Step) -> float:
    """Return the devices of a case, on a CPU its cores: ranks there share one device, and have the fewer cores the more they are."""
    threads = entry.row["case.threads"]
    return entry.ranks * (float(threads) if entry.row["case.device"] == "cpu" and threads else 1.0)


def _exposed(entry: Step, steps: Sequence[Step], columns: Sequence[str]) -> Row:
    """Set a step that communicates beside the same one that does not: unsynchronised, else of an independent form.

    Weak and strong scaling are one step where each rank has as many items.
    """
    if entry.form in (None, *entry.parallel.independent) or entry.ranks < 2 or not entry.rounds.median_s:
        return {}
    others = [each for each in steps if each.timed and share(each.row) == share(entry.row)]
    parted = {f"param.{entry.parallel.synchronise}", "param.scaling", "param.batch"}
    same = [each for each in others if each.unsynchronised and _alike(each, entry, columns, parted)]
    parted |= entry.spread - {"param.ranks"}
    same += [each for each in others if each.form in each.parallel.independent and _alike(each, entry, columns, parted)]
    if not same:
        return {}
    shift, interval = shift_interval(same[0].rounds.median_s, entry.rounds.median_s)
    ends = {"scaling.exposed_low_s": interval.low, "scaling.exposed_high_s": interval.high} if interval else {}
    return {"scaling.exposed_s": shift, **ends}


def _bubble(entry: Step, steps: Sequence[Step], columns: Sequence[str]) -> tuple[Row, str | None]:
    """Return a pipeline's idle share by theory and as measured, and why it was not.

    Of m microbatches of one batch a step takes w (1 + (p - 1) / m) in theory, so against 1 / m steps lie on a line that meets zero at w,
    the step without a bubble (GPipe: Huang et al., https://arxiv.org/abs/1811.06965, section 2.3).
    """
    form, microbatches, ranks = entry.form, entry.row.get("param.microbatches"), entry.ranks
    if form not in entry.parallel.pipelines or ranks < 2 or type(microbatches) is not int or microbatches < 1:
        return {}, None
    theory: Row = {"scaling.bubble_theory": (ranks - 1) / (microbatches + ranks - 1)}
    if not entry.timed:
        return theory, None
    unfilled, *filled = entry.parallel.pipelines
    forms = (unfilled, *filled[:1]) if form == unfilled else (unfilled, form)
    free = {"param.form", "param.microbatches"}
    others = [each for each in steps if each.timed and each.form in forms and _alike(each, entry, columns, free)]
    timed = [(each.row["param.microbatches"], statistics.median(each.rounds.median_s)) for each in (*others, entry)]
    points = {m: seconds for m, seconds in timed if type(m) is int and m > 0}
    line = theil_sen([1 / m for m in points], list(points.values()))
    if line is None:
        return theory, "its bubble takes rows with another number of microbatches"
    measured = 1 - line[0] / points[microbatches] if points[microbatches] else -1.0
    if not 0 <= measured <= 1:
        return theory, "more microbatches did not make it faster, so what small ones cost hides the bubble"
    return {**theory, "scaling.bubble": measured}, None


def _verdict(row: Row, found: Row) -> str | None:
    if row["case.status"] != "ok":
        return str(row["case.status"])
    if row["flag.implausible"]:
        return "implausible"
    if found["scaling.ranks"] == 1:
        return "base"
    if found.get("scaling.speedup") is None:
        return None
    low, high = found["scaling.speedup_low"], found["scaling.speedup_high"]
    if low is None or high is None or float(low) <= 1 <= float(high):
        return "undecided"
    if float(high) < 1:
        return "slows"
    return "scales" if float(low) >= SCALES_FROM * float(found["scaling.resources"] or 1) else "helps"
