"""Ratios of each accelerator at its own best over the CPU at its own best."""

from itertools import product

from dlbench.analysis.ratios import (
    CHOSEN,
    MACHINE,
    ONE_DEVICE,
    Entry,
    Pairs,
    Unpaired,
    entries,
    grouped,
    identifying,
    left_out,
    root_of,
    roots_of,
    sides,
    speed_ratio,
)
from dlbench.analysis.read.table import Results
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Cells as Row


def best(results: Results) -> Pairs:
    """Set each accelerator at its best beside the CPU at its best: batch, precision, layout, mode and optimizer chosen on each side.

    One comparison for each workload and set of parameters other than those (a model, a shape); a case that searched for the fastest
    takes part with what it found. Chosen is the ``ok`` row of highest throughput,
    in items a second, or in FLOP/s where the workload has no items. Rows flagged implausible take no part.
    The interval allows for both having been chosen for being fast, among all pairs of a row here and a row there.
    """
    free = (*MACHINE, *(f"case.{name}" for name in CHOSEN), *(f"param.{name}" for name in CHOSEN))
    identity = [name for name in identifying(results.columns) if name not in free]
    roots = {name: roots_of(results.rows, name) for name in CHOSEN}

    def work(each: Entry) -> tuple[ParamValue | None, ...]:
        return *(each.row[name] for name in identity), *(root_of(each.row, name, roots[name]) for name in CHOSEN)

    rows: list[Row] = []
    unpaired: list[Unpaired] = []
    for group in grouped(entries(results), work).values():
        ok = [each for each in group if each.row["case.status"] == "ok" and not each.row["flag.implausible"]]
        fit = [each for each in ok if each.row.get("param.ranks") in (None, 1)]
        common = [name for name in ("items_per_s", "flops_per_s") if all(min(getattr(each.rounds, name), default=0) > 0 for each in fit)]
        if not common:
            unpaired += [left_out(each, "no throughput to choose the best by") for each in fit]
            continue
        rate = common[0]
        devices = grouped(fit, lambda each: tuple(each.row[name] for name in ONE_DEVICE))
        champions = [(max(device, key=lambda each: float(each.row[f"rate.{rate}"] or 0)), len(device)) for device in devices.values()]
        cpus = [each for each in champions if each[0].row["case.device"] == "cpu"]
        accelerators = [each for each in champions if each[0].row["case.device"] != "cpu"]
        if not cpus or not accelerators:
            unpaired += [left_out(each, f"no {'accelerator' if cpus else 'CPU'} with an ok row of the same work") for each, _ in champions]
        for (cpu, of_cpu), (accelerator, of_accelerator) in product(cpus, accelerators):
            ratio = speed_ratio(getattr(cpu.rounds, rate), getattr(accelerator.rounds, rate), among=of_cpu * of_accelerator)
            rows.append({**sides(cpu, accelerator, "case.device", CHOSEN), "pair.by": "best", "pair.time": "wall", **ratio})
    return Pairs(tuple(rows), tuple(unpaired))
