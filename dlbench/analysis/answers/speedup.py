"""Speed-up of accelerators over the CPU: on the same case, and each at its own best."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from dlbench.analysis.answers import pairs
from dlbench.analysis.answers.base import Answer, Missing, Question, answered, both_sides, doubts
from dlbench.analysis.findings import Pairs, best, pair
from dlbench.analysis.table import Results, records
from dlbench.analysis.wording import among, machine_name, middle, number, ratio, several_runs
from dlbench.core.summary import Row

QUESTION = Question("speed-up", "How much faster is the accelerator than the CPU, on the same case and each at its best?")


def answer(results: Results) -> Answer | Missing:
    """Return the speed-up of each accelerator in the case in the middle, and at each one's best."""
    on_cpu = {row["case.device"] == "cpu" for row in results.rows}
    if on_cpu != {True, False}:
        return _missing(results, of="an accelerator" if True in on_cpu else "a CPU")
    same, own_best = pair(results, "device"), best(results)
    lines = headlines(same, own_best)
    if not lines:
        return Missing(QUESTION, "no case went well on both a CPU and an accelerator", "dlbench run")
    rows = both_sides(results, [*records(same.frame), *records(own_best.frame)])
    tables = [pairs.same_case(same), *([] if own_best.frame.empty else [pairs.own_best(own_best)])]
    return answered(QUESTION, lines, rows, doubts(rows), *tables)


def has_accelerator(results: Results) -> bool:
    """Whether any of the machines has an accelerator, as far as its file says."""
    identities = [environment.get("identity") for environment in results.environments.values()]
    listed = any(isinstance(identity, Mapping) and identity.get("accelerators") for identity in identities)
    return listed or any(row["case.device"] != "cpu" for row in results.rows)


def headlines(same: Pairs, own_best: Pairs) -> list[str]:
    """Return one sentence for each accelerator beside each CPU, and none where they share no case.

    It names the case in the middle and not the fastest, because a headline that picks its case says nothing about the others.
    """
    bests = {(_machines(row), row["pair.case"]): row for row in records(own_best.frame)}
    rows = sorted(records(same.frame), key=lambda row: (_machines(row), number(row["ratio.speedup"])))
    several = several_runs(rows, "base", "other")
    sentences = []
    for machines, group in groupby(rows, key=_machines):
        pairs = list(group)
        chosen = middle(pairs)
        accelerator, cpu = (machine_name(chosen, side, several) for side in ("other", "base"))
        sentence = f"{accelerator} runs {chosen['pair.case']} {ratio(chosen)} as fast as {cpu}{among(pairs)}"
        if chosen["other.launch_bound"]:
            sentence += f", and there it waits for launches{_as_often(pairs)}"
        if top := bests.get((machines, chosen["pair.work"])):
            sentence += f"; and at each one's best batch, precision and layout {ratio(top)}"
        sentences.append(f"{sentence}.")
    return sentences


def _as_often(pairs: Sequence[Row]) -> str:
    """Return in how many of several pairs the accelerator is launch-bound."""
    waiting = sum(bool(row["other.launch_bound"]) for row in pairs)
    return f", as in {waiting} of {len(pairs)} cases" if len(pairs) > 1 else ""


def _machines(row: Row) -> tuple[str, ...]:
    return tuple(str(row[f"{side}.{name}"]) for side in ("base", "other") for name in ("run", "device", "device_name", "threads"))


def _missing(results: Results, of: str) -> Missing:
    if has_accelerator(results):
        return Missing(QUESTION, f"no row is of {of}", "dlbench run")
    return Missing(QUESTION, "this machine has no accelerator; run the same suite on one that has, and give both files to dlbench show")
