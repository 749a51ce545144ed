"""Ratios of each accelerator at its own best over the CPU at its own best."""

from itertools import product

from dlbench.analysis.ratios.pairing import CHOSEN, Pair, Pairs, Unpaired, grouped, left_out, one_device, settings_named
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE

_FREE = (*MACHINE, *settings_named(CHOSEN))
_RATES = ("items_per_s", "flops_per_s")
"""Fields of `Rounds` and `Rates` that the best may be chosen by."""


def best(results: Results) -> Pairs:
    """Set each accelerator at its best against the CPU at its best: batch, precision, layout, mode and the optimizer's implementation.

    Each side chooses its own. One comparison for each workload and set of parameters other than those (a model, a shape); a case that
    searched for the fastest takes part with what it found. Chosen is the ``ok`` row of highest throughput,
    in items a second, or in FLOP/s where the workload has no items. Rows flagged implausible take no part.
    The interval allows for both having been chosen for being fast, among all pairs of a row here and a row there.
    """
    pairs: list[Pair] = []
    unpaired: list[Unpaired] = []
    for group in grouped(results.rows, lambda row: row.differing_from(_FREE)).values():
        fit = [row for row in group if row.is_sound and row.is_single_rank]
        known = [name for name in _RATES if all(min(getattr(row.rounds, name), default=0) > 0 for row in fit)]
        if not known:
            unpaired += [left_out(row, "no throughput to choose the best by") for row in fit]
            continue
        rate = known[0]
        champions = [(max(rows, key=lambda row: getattr(row.rate, rate) or 0), len(rows)) for rows in grouped(fit, one_device).values()]
        cpus = [each for each in champions if each[0].is_on_cpu]
        accelerators = [each for each in champions if not each[0].is_on_cpu]
        if not cpus or not accelerators:
            unpaired += [left_out(row, f"no {'accelerator' if cpus else 'CPU'} with an ok row of the same work") for row, _ in champions]
        for (cpu, of_cpu), (accelerator, of_accelerator) in product(cpus, accelerators):
            both = getattr(cpu.rounds, rate), getattr(accelerator.rounds, rate)
            pairs.append(Pair(cpu, accelerator, None, CHOSEN, both, among=of_cpu * of_accelerator))
    return Pairs(tuple(pairs), tuple(unpaired))
