"""Ratios of each accelerator at its own best over the CPU at its own best."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from dlbench.analysis.answers.parts.headline import kind_of_work
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.ratios.matching import Match, Matches, Unmatched, chosen, grouped, left_out, one_device, settings_named
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE, Row

Speeds = tuple[Callable[[Row], Sequence[float]], Callable[[Row], float | None]]
"""What the best may be chosen by: of each round, and of all."""
_THROUGHPUTS: tuple[Speeds, ...] = (
    (lambda row: row.rounds.items_per_s, lambda row: row.rate.items_per_s),
    (lambda row: row.rounds.flops_per_s, lambda row: row.rate.flops_per_s),
)


def is_untuned(row: Row, rows: Iterable[Row]) -> bool:
    """Whether of what a row of a CPU is at its best in these measured one setting alone, and no search looked for others of that step."""
    if not (row.is_on_cpu and row.batch):
        return False
    free, step = settings_named(chosen(row)), (kind_of_work(row), row.params.get("model"))
    here, work = [each for each in rows if one_device(each) == one_device(row)], row.differing_from(free)
    settings = {choice(each) for each in here if each.differing_from(free) == work}
    return len(settings) == 1 and not any(each.is_tuned and (kind_of_work(each), each.params.get("model")) == step for each in here)


def best(results: Results, by: Sequence[Speeds] = _THROUGHPUTS) -> Matches:
    """Set each accelerator at its best against the CPU at its best: batch, precision, layout, mode and other switches.

    Each side chooses its own. One comparison for each workload and set of parameters other than those (a model, a shape); a case that
    searched for the fastest takes part with what it found. Chosen is the ``ok`` row of highest throughput,
    in items a second, or in FLOP/s where the workload has no items: ``by`` the first that all rows have. Rows flagged implausible
    take no part. The interval allows for both having been chosen for being fast, among all pairs of a row here and a row there.
    """
    pairs: list[Match] = []
    unpaired: list[Unmatched] = []
    for group in grouped(results.rows, lambda row: row.differing_from((*MACHINE, *settings_named(chosen(row))))).values():
        fit = [row for row in group if row.is_sound and row.is_single_rank]
        known = [each for each in by if all(min(each[0](row), default=0) > 0 for row in fit)]
        if not known:
            unpaired += [left_out(row, "no throughput to choose the best by") for row in fit]
            continue
        speeds, rate = known[0]
        champions = [(max(rows, key=lambda row: rate(row) or 0), len(rows)) for rows in grouped(fit, one_device).values()]
        cpus = [each for each in champions if each[0].is_on_cpu]
        accelerators = [each for each in champions if not each[0].is_on_cpu]
        if not cpus or not accelerators:
            unpaired += [left_out(row, f"no {'accelerator' if cpus else 'CPU'} with an ok row of the same work") for row, _ in champions]
        for (cpu, of_cpu), (accelerator, of_accelerator) in product(cpus, accelerators):
            both = speeds(cpu), speeds(accelerator)
            pairs.append(Match(cpu, accelerator, None, chosen(cpu), both, among=of_cpu * of_accelerator))
    return Matches(tuple(pairs), tuple(unpaired))
