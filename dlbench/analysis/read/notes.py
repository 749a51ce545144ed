"""Notes on a result file: what it lacks, and what was in the way of all its cases."""

from collections.abc import Sequence

from dlbench.analysis.read.trend import shared_change
from dlbench.core.model import Measurement, Status
from dlbench.core.rows.summary import Rounds
from dlbench.core.store import RunFile


def incomplete(run: RunFile, cases: int) -> list[str]:
    """Return a sentence for each thing that a file with so many measured cases lacks, and what to do about it."""
    resume = "start it again, as an A/B can't be resumed" if "sides" in run.header else f"continue it with: dlbench run --resume {run.path}"
    planned = run.header.get("planned", {}).get("count", cases)
    notes = []
    if run.torn:
        notes.append(f"{run.path}: the last line was cut while it was written and is left out; {resume}")
    if run.footer is None:
        notes.append(f"{run.path}: the run was interrupted or is still going on, at {cases} of {planned} planned cases; {resume}")
    elif cases < planned:
        notes.append(f"{run.path}: {planned - cases} of {planned} planned cases were never measured; {resume}")
    return notes


def circumstances(run: RunFile, name: str) -> list[str]:
    """Return a sentence for each thing that was in the way of all cases of a file, and what to do about it."""
    said = []
    governors = {governor for each in run.states if (governor := each.before.get("cpu", {}).get("governor"))}
    if slow := sorted(governors - {"performance"}):
        said.append(
            f"{name}: the CPU's frequency governor was {' and '.join(slow)}, under which the clock follows the load; "
            "have performance set (as root: cpupower frequency-set -g performance) and measure again"
        )
    if run.discarded:
        cases = len({each.case.id for each in run.discarded})
        of = "of one case" if cases == 1 else f"of {cases} cases"
        said.append(
            f"{name}: {_held_back(run.discarded)} made again, {of}; the file keeps what was discarded, and no number here counts it"
        )
    return said


def trends(run: RunFile, name: str, cases: Sequence[Sequence[Measurement]], rounds: Sequence[Rounds]) -> list[str]:
    """Return a sentence for each device on which all cases changed alike over the rounds; ``rounds[i]`` is of ``cases[i]``.

    Of an A/B the first side tells, as both are measured at the same moments. Another tool's runs of two cases are not: they tell nothing.
    """
    if "seed" not in run.header:
        return []
    times: dict[str, list[dict[int, float]]] = {}
    for measurements, each in zip(cases, rounds, strict=True):
        if measurements[0].side in (None, "a"):
            numbers = [one.round for one in measurements if one.status is Status.OK and one.samples]
            times.setdefault(measurements[0].case.device, []).append(dict(zip(numbers, each.median_s, strict=True)))
    said = {device: sentence for device, of_device in times.items() if (sentence := shared_change(of_device))}
    return [f"{name}{f' on {device}' if len(times) > 1 else ''}: {sentence}" for device, sentence in said.items()]


def _held_back(discarded: Sequence[Measurement]) -> str:
    """Return for example ``2 throttled and 1 disturbed measurements were``, with those of the other side that go with them."""
    throttled = sum(bool(each.throttling and each.throttling.throttled) for each in discarded)
    held_back = sum(bool(each.throttling and each.throttling.held_back) for each in discarded)
    counts = {"throttled": throttled, "disturbed": held_back - throttled}
    said = [f"{count} {how}" for how, count in counts.items() if count]
    if said:
        said[-1] += f" measurement{'' if held_back == 1 else 's'}"
    if beside := len(discarded) - held_back:
        said.append(f"{beside} of the other side")
    return f"{' and '.join(said)} {'was' if len(discarded) == 1 else 'were'}"
