"""What more devices bring: throughput, speed-up and efficiency of cases of several ranks against one, and what holds them up."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dlbench.analysis.findings import Entry, entries, identifying, label, speed_ratio
from dlbench.analysis.table import Results
from dlbench.core.rank_test import shift_interval
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import theil_sen
from dlbench.core.summary import Row, ending

COLLECTIVE = "collective"
"""The workload whose rows are bandwidths and not throughput."""
SCALES_FROM = 0.9
"""Efficiency from which on more devices are called well used."""
_STEPS = ("data_parallel", "model_parallel")
"""Workloads that do the same step: either has the base of both."""
# How a step is spread over devices. On one device all of these come to the same step.
_HOW = frozenset(
    f"param.{name}"
    for name in (
        *("ranks", "form", "scaling", "synchronise", "bucket_mb", "gradients", "microbatches"),
        *("seconds", "learning_rate", "straggler"),
    )
)
_UNFILLED = "layers"
"""The pipeline that both others are with one microbatch."""
_PIPELINES = (_UNFILLED, "gpipe", "1f1b")
_WHOLE = {"model_parallel": "strong"}
"""Workloads that say nothing of scaling, because their batch always goes through all devices."""

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
        Column("scaling.speedup_low", Unit.RATIO, "lower end of its 95 % interval; null with fewer than about four rounds a side"),
        Column("scaling.speedup_high", Unit.RATIO, "upper end of it"),
        Column("scaling.confidence", Unit.FRACTION, "the interval's coverage: exact for rounds fixed beforehand, without a budget"),
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


def scaling(results: Results) -> list[Row]:
    """Return a row for each case with ranks that is no collective: columns as in `COLUMNS`, in the order of the work, then of the ranks.

    The base of a case is the ``ok`` row of the same file, device, precision and work at one rank; of several the one most alike. Cases
    without synchronisation serve to tell what synchronising costs, and have no row of their own.
    """
    columns = [name for name in identifying(results.columns) if name not in ("case.threads", "case.math")]
    steps = [each for each in entries(results) if _ranks(each) and each.row["case.workload"] != COLLECTIVE]
    rows = [_row(each, steps, columns, results.environments) for each in steps if each.row.get("param.synchronise") is not False]
    first = {row["scaling.work"]: number for number, row in reversed(list(enumerate(rows)))}
    places = ("scaling.kind", "scaling.device", "scaling.run")
    return sorted(rows, key=lambda row: (first[row["scaling.work"]], *(str(row[name]) for name in places), row["scaling.ranks"]))


def throughput(entry: Entry) -> tuple[float, ...]:
    """Return items a second in each round, of an experiment what it reports; empty where a round lacks it or has none."""
    rates = entry.rounds.items_per_s or entry.rounds.values.get("items_per_s", ())
    return rates if rates and min(rates) > 0 else ()


def share(row: Row) -> float | None:
    """Return the items that each rank of a case has; None where it does not say, or an edited file says what is no number."""
    batch, ranks = _count(row, "batch"), _count(row, "ranks")
    if not batch or not ranks:
        return None
    return batch / ranks if row.get("param.scaling") == "strong" else batch


def _count(row: Row, name: str) -> int:
    """Return a parameter that counts something, zero where there is none; an edited file may hold any value."""
    value = row.get(f"param.{name}")
    return value if type(value) is int and 0 < value < 2**31 else 0


def _ranks(entry: Entry) -> int:
    return _count(entry.row, "ranks")


def _timed(entry: Entry) -> bool:
    """Whether a case went well and has times."""
    return entry.row["case.status"] == "ok" and bool(entry.rounds.median_s)


def _row(entry: Entry, steps: Sequence[Entry], columns: Sequence[str], environments: Mapping[str, Mapping[str, Any]]) -> Row:
    row, ranks, rates = entry.row, _ranks(entry), throughput(entry)
    models = _models(row, ranks, environments)
    on_cpu = row["case.device"] == "cpu"
    gain = _gain(entry, _base(entry, steps, columns), models)
    pipeline, no_bubble = _bubble(entry, steps, columns)
    found = {
        "scaling.case": row["case.id"],
        "scaling.run": row["case.run"],
        "scaling.work": label(row, ("ranks", "scaling")),
        "scaling.form": row.get("param.form"),
        "scaling.kind": row.get("param.scaling") or _WHOLE.get(str(row["case.workload"])),
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


def _alike(one: Entry, other: Entry, columns: Sequence[str], free: Collection[str]) -> bool:
    return all(one.row.get(name) == other.row.get(name) for name in columns if name not in free)


def _base(entry: Entry, steps: Sequence[Entry], columns: Sequence[str]) -> Entry | None:
    """Return the row at one rank that does the same work, the one with the most in common."""
    free = {*_HOW, "case.workload"} if entry.row["case.workload"] in _STEPS else {"param.ranks"}
    alone = [
        each
        for each in steps
        if _ranks(each) == 1
        and throughput(each)
        and each.row["case.status"] == "ok"
        and each.row.get("param.synchronise") is not False
        and (each.row["case.workload"] in _STEPS) == (entry.row["case.workload"] in _STEPS)
        and _alike(each, entry, columns, free)
    ]
    return max(alone, key=lambda each: sum(each.row.get(name) == entry.row.get(name) for name in columns), default=None)


def _gain(entry: Entry, base: Entry | None, models: Sequence[str]) -> Row:
    """Return speed-up and efficiency over the base, or the reason why there is none."""
    rates = throughput(entry)
    if entry.row["case.status"] != "ok":
        return {}
    if len(models) > 1:
        return {"scaling.reason": f"its devices are {' and '.join(models)}: one of them is no measure of the others"}
    if not rates:
        return {"scaling.reason": "it states no items, so it has no throughput"}
    if base is None:
        return {"scaling.reason": "no ok row of the same work with ranks = 1 to set it against"}
    ratio = speed_ratio(throughput(base), rates)
    resources = _resources(entry) / _resources(base)
    return {
        "scaling.base": base.row["case.id"],
        "scaling.speedup": ratio["ratio.speedup"],
        "scaling.speedup_low": ratio.get("ratio.ci_low"),
        "scaling.speedup_high": ratio.get("ratio.ci_high"),
        "scaling.confidence": ratio.get("ratio.confidence"),
        "scaling.resources": resources,
        "scaling.efficiency": float(ratio["ratio.speedup"] or 0) / resources,
        "scaling.reason": ratio.get("ratio.reason") if _ranks(entry) > 1 else None,
    }


def _resources(entry: Entry) -> float:
    """Return the devices of a case, on a CPU its cores: ranks there share one device, and have the fewer cores the more they are."""
    threads = entry.row["case.threads"]
    return _ranks(entry) * (float(threads) if entry.row["case.device"] == "cpu" and threads else 1.0)


def _exposed(entry: Entry, steps: Sequence[Entry], columns: Sequence[str]) -> Row:
    """Set a step that synchronises beside the same one that does not: ``synchronise=false``, else the form ``replicas``.

    Weak and strong scaling are one step where each rank has as many items.
    """
    form = entry.row.get("param.form")
    if form in (None, "replicas") or _ranks(entry) < 2 or not entry.rounds.median_s or entry.row["case.workload"] != "data_parallel":
        return {}
    parted = {"param.synchronise", "param.scaling", "param.batch"}
    others = [each for each in steps if _timed(each) and share(each.row) == share(entry.row)]
    same = [each for each in others if each.row.get("param.synchronise") is False and _alike(each, entry, columns, parted)]
    parted |= {"param.form", "param.bucket_mb", "param.gradients"}
    same += [each for each in others if each.row.get("param.form") == "replicas" and _alike(each, entry, columns, parted)]
    if not same:
        return {}
    shift, interval = shift_interval(same[0].rounds.median_s, entry.rounds.median_s)
    ends = {"scaling.exposed_low_s": interval.low, "scaling.exposed_high_s": interval.high} if interval else {}
    return {"scaling.exposed_s": shift, **ends}


def _bubble(entry: Entry, steps: Sequence[Entry], columns: Sequence[str]) -> tuple[Row, str | None]:
    """Return a pipeline's idle share by theory and as measured, and why it was not.

    Of m microbatches of one batch a step takes w (1 + (p - 1) / m) in theory, so against 1 / m steps lie on a line that meets zero at w,
    the step without a bubble (GPipe: Huang et al., https://arxiv.org/abs/1811.06965, section 2.3).
    """
    form, microbatches, ranks = entry.row.get("param.form"), entry.row.get("param.microbatches"), _ranks(entry)
    if form not in _PIPELINES or ranks < 2 or type(microbatches) is not int or microbatches < 1:
        return {}, None
    theory: Row = {"scaling.bubble_theory": (ranks - 1) / (microbatches + ranks - 1)}
    if not _timed(entry):
        return theory, None
    forms = (_UNFILLED, "gpipe" if form == _UNFILLED else form)
    others = [each for each in steps if _timed(each) and each.row.get("param.form") in forms]
    others = [each for each in others if _alike(each, entry, columns, {"param.form", "param.microbatches"})]
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
