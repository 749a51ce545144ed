"""Speed-up of accelerators over the CPU: on the same case, and each at its own best."""

from itertools import groupby

from dlbench.analysis.answers.base import Answer, Missing, Question, answered
from dlbench.analysis.answers.pairs import ELSEWHERE, both_sides, own_best, ratio_figures, reported, same_case, without_accelerator
from dlbench.analysis.ratios import Pairs, best, pair
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, machine_name, middle, ratio, several_runs
from dlbench.core.model import Status
from dlbench.core.rows.summary import Row

QUESTION = Question("speed-up", "How much faster is the accelerator than the CPU, on the same case and each at its best?")


def answer(results: Results) -> Answer | Missing:
    """Return the speed-up of each accelerator in the case in the middle, and at each one's best."""
    if without_accelerator(results):
        return Missing(QUESTION, ELSEWHERE)
    results = _work(results)
    if {row["case.device"] == "cpu" for row in results.rows} != {True, False}:
        return Missing(QUESTION, "only one kind of device was measured", "dlbench run")
    same, bests, (values, reports) = pair(results, "device"), best(results), reported(results, "device")
    if not same.rows and not reports:
        return Missing(QUESTION, "no case went well on both a CPU and an accelerator", "dlbench run")
    rows = both_sides(results, [*same.rows, *bests.rows, *(values.rows if reports else ())])
    of_cases, of_bests = same_case(same, results), own_best(bests)
    tables = [each for each in (of_cases, of_bests, values) if each.rows]
    figures = [*ratio_figures(of_cases), *ratio_figures(of_bests, "pair.work")]
    return answered(QUESTION, headlines(same, bests), rows, (), *tables, reports=reports, figures=figures)


def _work(results: Results) -> Results:
    """Return the rows of devices that were there, without those that measure a launch or a copy, which nobody wants done by itself."""
    apart = ("launch", "synchronisation", "copy")
    return results.where(lambda row: row["case.status"] != Status.SKIPPED and results.declaration(row).ceiling not in apart)


def headlines(same: Pairs, own_best: Pairs) -> list[str]:
    """Return one sentence for each accelerator beside each CPU, and none where they share no case.

    It names the case in the middle and not the fastest, because a headline that picks its case says nothing about the others.
    """
    bests = {(_machines(row), row["pair.case"]): row for row in own_best.rows}
    rows = sorted(same.rows, key=_machines)
    several = several_runs(rows, "base", "other")
    sentences = []
    for machines, group in groupby(rows, key=_machines):
        pairs = list(group)
        chosen = middle(pairs)
        accelerator, cpu = (machine_name(chosen, side, several) for side in ("other", "base"))
        sentence = f"{accelerator} runs {chosen['pair.case']} {ratio(chosen)} as fast as {cpu}{among(pairs)}"
        if chosen["other.launch_bound"]:
            waiting = sum(bool(row["other.launch_bound"]) for row in pairs)
            sentence += f", and there it waits for launches{f', as in {waiting} of {len(pairs)} cases' if len(pairs) > 1 else ''}"
        if top := bests.get((machines, chosen["pair.work"])):
            sentence += f"; and at each one's best batch, precision, layout and mode {ratio(top)}"
        sentences.append(f"{sentence}.")
    return sentences


def _machines(row: Row) -> tuple[str, ...]:
    return tuple(str(row[f"{side}.{name}"]) for side in ("base", "other") for name in ("run", "device", "device_name", "threads"))
