"""Projection of a data-parallel step to more devices than were measured, with its error where that can be checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis.ratios import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import COLUMNS, scaling, share
from dlbench.analysis.wording import number
from dlbench.core.reference.collectives import bus_factor, ring_steps
from dlbench.core.reference.networks import gradient_bytes
from dlbench.core.rows.row import Cells as Row
from dlbench.core.stats import theil_sen

VERDICT = "projection"
"""What stands in place of a verdict in a row that nobody measured."""
_BEYOND = tuple(2**power for power in range(1, 11))
"""Devices that it goes to: nobody would believe more from the few that were measured."""
_BUCKET = 25 << 20
"""Bytes of gradients that DistributedDataParallel sends at once, unless told otherwise (its bucket_cap_mb)."""


@dataclass(frozen=True, slots=True)
class Model:
    """A step, from what was measured on the fewest devices that talk to each other.

    An all-reduce takes what a line through its times against its sizes says: a latency and seconds a byte. For other numbers of ranks both
    change as on a ring (Patarasuk and Yuan, see `core.reference.collectives`).
    """

    ranks: int
    latency_s: float
    byte_s: float
    computing_s: float
    """The step there without the communication that it waits for."""
    exposed_s: float
    """That communication."""
    batch: float
    """Items of each device there."""
    size: int
    """Bytes of gradients."""
    messages: int
    """In which they travel."""
    strong: bool
    """Whether all devices share one batch."""
    fixed: float
    """Part of the computing that does not depend on the items."""
    copying_s: float | None
    """What copying each device its items takes there, to all of them at once; None where there is nothing to copy."""

    def items(self, ranks: int) -> float:
        """Return the items of each of so many devices."""
        return self.batch * self.ranks / ranks if self.strong else self.batch

    def all_reduce_s(self, ranks: int) -> float:
        """Return the seconds in which so many ranks exchange all gradients."""
        steps, crossings = (cost("all_reduce", ranks) / cost("all_reduce", self.ranks) for cost in (ring_steps, bus_factor))
        return self.messages * self.latency_s * steps + self.size * self.byte_s * crossings

    def projected(self, ranks: int) -> Row:
        """Return the seconds of a step on so many devices, and of copying each its items."""
        share = self.items(ranks) / self.batch
        part = self.fixed + (1 - self.fixed) * share
        hidden = self.all_reduce_s(self.ranks) - self.exposed_s
        waiting_s = max(0.0, self.all_reduce_s(ranks) - part * hidden)
        copies_s = None if self.copying_s is None else self.copying_s * share
        return {"scaling.projected_s": part * self.computing_s + waiting_s, "scaling.projected_copies_s": copies_s}


def projected(results: Results) -> list[Row]:
    """Return the rows of `speedup.scaling`, with what the projection says of those it can be checked on, and rows for more devices.

    It takes a form that averages gradients by all-reduces (``ddp``) on two ranks or more with exposed communication, all-reduces of as
    many ranks and two sizes or more, and with strong scaling the computing of two batches. It stands on the fewest ranks that have all
    of it; what was measured on more is its check.
    """
    rows = scaling(results)
    measured = {(str(row["case.run"]), str(row["case.id"])): row for row in results.rows}
    checkable = [
        row
        for row in rows
        if row["scaling.form"] in results.declaration(measured[_key(row)]).parallel.all_reduce and row["scaling.step_s"] is not None
    ]
    groups = grouped(checkable, lambda row: tuple(row[f"scaling.{name}"] for name in ("work", "kind", "device", "run")))
    more: list[Row] = []
    for group in groups.values():
        talking = [row for row in group if number(row["scaling.ranks"]) >= 2 and row["scaling.exposed_s"] is not None]
        anchor = next((row for row in talking if row["scaling.verdict"] != "implausible"), None)
        if anchor and (model := _model(anchor, measured[_key(anchor)], results)):
            more += _project(model, anchor, group)
    checked = {_key(row): row for row in more if row["scaling.case"]}
    return [checked.get(_key(row), row) for row in rows] + [row for row in more if not row["scaling.case"]]


def _key(row: Row) -> tuple[str, str]:
    return str(row["scaling.run"]), str(row["scaling.case"])


def _project(model: Model, anchor: Row, group: Sequence[Row]) -> list[Row]:
    """Return the measured rows that check the model, and those of powers of two beyond them."""
    fewest, most = model.ranks, max(int(number(row["scaling.ranks"])) for row in group)
    found = []
    for row in group:
        if (ranks := int(number(row["scaling.ranks"]))) > fewest:
            says = model.projected(ranks)
            found.append(
                {**row, **says, "scaling.projection_error": number(says["scaling.projected_s"]) / number(row["scaling.step_s"]) - 1}
            )
    kept = ("run", "file", "work", "form", "kind", "device", "device_name", "cores_per_rank")
    for ranks in _BEYOND:
        if ranks > most and model.items(ranks) >= 1:
            says = model.projected(ranks)
            found.append(
                {
                    **dict.fromkeys(COLUMNS),
                    **{f"scaling.{name}": anchor[f"scaling.{name}"] for name in kept},
                    **says,
                    "scaling.ranks": ranks,
                    "scaling.projected_items_per_s": model.items(ranks) * ranks / number(says["scaling.projected_s"]),
                    "scaling.verdict": VERDICT,
                    "scaling.reason": f"projected from {fewest} ranks",
                }
            )
    return found


def _model(anchor: Row, case: Row, results: Results) -> Model | None:
    """Return the model that stands on a case, or None where something that it takes was not measured."""
    ranks, batch = int(number(anchor["scaling.ranks"])), share(case)
    ring = _ring(case, ranks, results)
    size = gradient_bytes(str(case.get("param.model")), str(case["case.dtype"]), str(case.get("param.gradients") or "full"))
    exposed_s = max(0.0, number(anchor["scaling.exposed_s"]))
    computing_s = number(anchor["scaling.step_s"]) - exposed_s
    if ring is None or size is None or batch is None or computing_s <= 0:
        return None
    strong = anchor["scaling.kind"] == "strong"
    fixed = _fixed_part(case, batch, computing_s, results) if strong else 0.0
    bucket = case.get("param.bucket_mb")
    messages = -(-size // (bucket << 20 if type(bucket) is int and bucket > 0 else _BUCKET))
    copying_s = None if case["transfer.h2d_s"] is None else number(case["transfer.h2d_s"])
    return None if fixed is None else Model(ranks, *ring, computing_s, exposed_s, batch, size, messages, strong, fixed, copying_s)


def _ring(case: Row, ranks: int, results: Results) -> tuple[float, float] | None:
    """Return latency and seconds a byte of the all-reduces of so many ranks on the same device, by a line through them."""
    points = [
        (number(row["param.bytes"]), number(row["time.median_s"]))
        for row in results.rows
        if row.get(f"param.{results.declaration(row).parallel.collective}") == "all_reduce"
        and row.get("param.ranks") == ranks
        and (row["case.dtype"], row["case.status"]) == ("fp32", "ok")
        and all(row[name] == case[name] for name in ("case.run", "case.device"))
        and row["time.median_s"] is not None
        and type(row.get("param.bytes")) is int
    ]
    line = theil_sen([size for size, _ in points], [seconds for _, seconds in points])
    return (max(0.0, line[0]), line[1]) if line and line[1] > 0 else None


def _fixed_part(case: Row, batch: float, computing_s: float, results: Results) -> float | None:
    """Return the part of the computing that stays however small the batch, by a line through steps that wait for nobody."""
    same = ["case.run", "case.device", "case.dtype", "case.mode", "param.model"]
    same += ["case.threads"] if case["case.device"] == "cpu" else []
    points = {batch: computing_s}
    for row in results.rows:
        parallel, form = results.declaration(row).parallel, row.get("param.form")
        alone = row.get("param.ranks") == 1 or row.get(f"param.{parallel.synchronise}") is False or form in parallel.independent
        timed = row["case.status"] == "ok" and row["time.median_s"] is not None and form in (*parallel.all_reduce, *parallel.independent)
        if alone and timed and all(row.get(name) == case.get(name) for name in same) and (items := share(row)):
            points.setdefault(items, number(row["time.median_s"]))
    line = theil_sen(list(points), list(points.values()))
    if line is None or line[1] <= 0:
        return None
    fixed_s = max(0.0, line[0])
    return fixed_s / (fixed_s + line[1] * batch)
