"""Header of a result file: where and how it was measured, what its suites ask for, and notes on what the file lacks."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dlbench.core.measurement import CONFIRMING, Measurement
from dlbench.core.model import Status
from dlbench.core.reference.peaks import OTHER_LINK, link_bytes_per_s
from dlbench.core.rows.row import Row
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ThresholdSettings
from dlbench.core.units import byte_rate


def run_name(file: str, side: str | None) -> str:
    """Return the ``case.run`` of a file, or of a side of it."""
    return file if side is None else f"{file}:{side}"


Sides = Mapping[str | None, Mapping[str, Any]]
"""What a header says of each side; a plain run has the side None."""


def of_sides(run: RunFile, measured: Iterable[str | None]) -> Sides:
    """Return what the header says of each side, those that were ``measured`` too.

    A side that was measured again is still that side.
    """
    sides = run.header.get("sides") or {}
    found = dict.fromkeys([*(sides or [None]), *measured])
    return {side: sides.get((side or "").removesuffix(CONFIRMING), {}) for side in found}


def environments(run: RunFile, name: str, sides: Sides) -> dict[str, Mapping[str, Any]]:
    """Return where each ``case.run`` of a file was measured.

    ``state_after`` is the machine's state after the last case, ``seconds`` what the run took in all, and ``gate`` is there where
    ``run --gate`` measured it.
    """
    footer = run.footer or {}
    gate = {} if (asked := run.header.get("gate")) is None else {"gate": asked}
    after = {key: found for key, name in (("state_after", "state"), ("seconds", "seconds")) if (found := footer.get(name))}
    return {run_name(name, side): {**(run.header.get("environment") or {}), **gate, **after, **of_side} for side, of_side in sides.items()}


_TIMING = ("round_s", "min_blocks", "max_blocks", "warmup_s", "max_warmup_s")
"""Of a policy what the time of a round depends on; how many rounds there are is no matter of theirs."""


def protocol(run: RunFile) -> Mapping[str, str]:
    """Return how a file was measured, as far as its header says.

    That is isolation, order of sides, of the policy what a time depends on, and the code of the user's networks and data. In that the sides
    of an A/B may differ.
    """
    defined = run.header.get("user") or {}
    code = {} if "sides" in run.header else {f"{name} in {each['file']}": f"SHA-256 {each['sha256'][:8]}" for name, each in defined.items()}
    policy = run.header.get("policy") or {}
    timing = {f"policy.{name}": "default" if policy[name] is None else str(policy[name]) for name in _TIMING if name in policy}
    return timing | code | {name: setting for name in ("isolation", "order") if isinstance(setting := run.header.get(name), str)}


ENOUGH_ROUNDS = 7
"""As many as are measured by default, which have an interval."""
_MINUTES_FROM_S = 600


class SpentBudget(NamedTuple):
    """Budget that ended a run before the rounds that were planned."""

    budget_s: float
    rounds: int
    planned: int
    spent_s: float
    measured: tuple[int, ...]
    """The rounds of each case, zero of one that it left out."""

    @property
    def enough(self) -> int:
        """The rounds that give each case an interval, or where all have one those that were planned."""
        return ENOUGH_ROUNDS if min(self.measured) < ENOUGH_ROUNDS else self.planned

    def seconds(self, rounds: int) -> float:
        """Return about what so many rounds of all its cases take: what was spent, and for what is left as much a round of a case."""
        return self.spent_s * (1 + sum(max(0, rounds - each) for each in self.measured) / sum(self.measured))

    def option(self, rounds: int) -> str:
        """Return the budget that so many rounds take, as the command line takes it, ``--budget 140s``; with them if fewer were planned."""
        whole = math.ceil(self.seconds(rounds) / 10) * 10
        more = f"--rounds {rounds} " if self.planned < rounds else ""
        return f"{more}--budget {f'{whole}s' if whole < _MINUTES_FROM_S else f'{math.ceil(whole / 60)}m'}"

    def __str__(self) -> str:
        ended = f"the budget of {self.budget_s:g} s ended the run after {self.rounds} of {self.planned} rounds"
        return f"{ended}; about {self.option(self.enough)} would do"


def spent_budget(run: RunFile, rows: Sequence[Row]) -> SpentBudget | None:
    """Return the budget of a complete run that ended it before its rounds; None where something else did, or there was none."""
    policy, footer = run.header.get("policy") or {}, run.footer or {}
    figures = (policy.get("budget_s"), policy.get("rounds"), footer.get("rounds"), footer.get("seconds"))
    known = [each for each in figures if isinstance(each, int | float) and 0 < each < 2**53]
    if len(known) < len(figures):
        return None
    budget_s, planned, rounds, took_s = known
    devices = {device.get("id") for device in run.header.get("devices", ())}
    left_out = [row for row in rows if row.case.status == Status.SKIPPED and row.case.device in devices]
    # A search for what has no time is made once a run.
    repeated = [row for row in rows if row.is_ok and (row.time.median_s is not None or not row.case.found)]
    measured = (*(row.time.rounds or 0 for row in repeated), *[0] * len(left_out))
    if rounds >= planned or not any(measured):
        return None
    return SpentBudget(budget_s, int(rounds), int(planned), max(took_s, budget_s), measured)


def with_link(row: Row, device: Mapping[str, Any]) -> Row:
    """Return the row with what the PCIe link of the device carries, as the header describes it, and what part of that pinned copies reach.

    Where there are such copies and the header does not tell, or tells of a link that they don't go over, with why that is.
    """
    copies, pinned = row.transfer, row.transfer.pinned_h2d_bytes_per_s
    generation, lanes, reasons = (device.get(name) for name in ("pcie_generation_max", "pcie_width_max", "reasons"))
    most = link_bytes_per_s(generation, lanes) if isinstance(generation, int) and isinstance(lanes, int) else None
    if most and (pinned is None or pinned <= most):
        return replace(row, transfer=replace(copies, link_bytes_per_s=most, link_fraction=pinned and pinned / most))
    if pinned is None:
        return row
    if most:
        why = OTHER_LINK.format(rate=byte_rate(most))
    else:
        missing = reasons.get("pcie_generation_max") if isinstance(reasons, dict) else None
        why = str(missing or "the file tells of no PCIe link of this device that dlbench knows")
    return replace(row, transfer=replace(copies, reason=f"link: {why}" if copies.reason is None else f"{copies.reason}; link: {why}"))


def thresholds(run: RunFile) -> dict[str, ThresholdSettings]:
    """Return the thresholds of each suite that sets any."""
    suites = [suite for suite in run.header.get("suites", ()) if isinstance(suite, dict)]
    return {str(suite.get("name")): suite["thresholds"] for suite in suites if suite.get("thresholds")}


def planned_cases(run: RunFile, cases: int) -> int:
    """Return how many cases were planned; of a file that does not say as many as it has."""
    return int(run.header.get("planned", {}).get("count", cases))


def incomplete(run: RunFile, cases: int) -> list[str]:
    """Return a sentence for each thing that a file with so many measured cases lacks, and what to do about it."""
    going_on = f"continue it with: dlbench run --resume {shlex.quote(str(run.path))}"
    resume = "start it again, as an A/B can't be resumed" if "sides" in run.header else going_on
    planned = planned_cases(run, cases)
    notes = []
    if run.torn:
        remedy = resume if run.footer is None or cases < planned else "all planned cases are there"
        notes.append(f"{run.path}: the last line was cut while it was written and is left out; {remedy}")
    if run.footer is None:
        notes.append(f"{run.path}: the run was interrupted or is still going on, at {cases} of {planned} planned cases; {resume}")
    elif cases < planned:
        notes.append(f"{run.path}: {planned - cases} of {planned} planned cases were never measured; {resume}")
    return notes


_NAMED = 3
"""Lines that a note names; it counts the others."""


def left_out(run: RunFile) -> list[str]:
    """Return a sentence on the lines of a file that are not read, where there are any, and what to do about it."""
    if not (lines := run.left_out):
        return []
    named = [f"line {each.number} ({each.why})" for each in lines[:_NAMED]]
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    count = "1 line is" if len(lines) == 1 else f"{len(lines)} lines are"
    again = "start it again if a round is missing, as no A/B can be resumed"
    resume = f"dlbench run --resume {shlex.quote(str(run.path))} measures what is missing, if anything is"
    return [f"{run.path}: {count} left out: {', '.join(named)}{more}; {again if 'sides' in run.header else resume}"]


def short_of_rounds(run: RunFile, name: str, sides: Iterable[str | None], rows: Sequence[Row]) -> dict[str, frozenset[str]]:
    """Return of each ``case.run`` of a file with damaged lines the ids of the cases that may have lost a round with them.

    Those that lack one before their last, or have fewer than the policy wants and another case has. Empty for any other file. ``sides``
    are those of the file; one of them may have lost all of its rows.
    """
    if not run.left_out:
        return {}
    found = {}
    for side in sides:
        of_run = [row for row in rows if row.case.side == side]
        numbers = [number for row in of_run for number in row.rounds.numbers]
        # Only what is measured again begins later, and of that nothing tells where.
        first = min(numbers, default=0) if (side or "").endswith(CONFIRMING) else 0
        most = max(numbers, default=0)
        wanted = run.header.get("policy", {}).get("rounds")
        least = min(most - first + 1, wanted if isinstance(wanted, int) else 1)
        # A search is made once a run, and what did not go well has its own verdict.
        again = [row for row in of_run if row.is_ok and (row.rounds.numbers or not row.case.found)]
        short = [row for row in again if (row.time.rounds or 0) < max(least, max(row.rounds.numbers, default=0) - first + 1)]
        found[run_name(name, side)] = frozenset(row.case.id for row in short)
    return found


def circumstances(run: RunFile, name: str) -> list[str]:
    """Return a sentence for each thing that was in the way of all cases of a file, and what to do about it."""
    notes = []
    governors = {governor for each in run.states if (governor := each.before.get("cpu", {}).get("governor"))}
    if slow := sorted(governors - {"performance"}):
        notes.append(
            f"{name}: the CPU's frequency governor was {' and '.join(slow)}, so the clock followed the load; "
            "as root: cpupower frequency-set -g performance"
        )
    if run.discarded:
        cases = len({each.case.id for each in run.discarded})
        of = "of one case" if cases == 1 else f"of {cases} cases"
        again = _held_back(run.discarded)
        notes.append(f"{name}: {again} discarded, {of}; no number here counts that")
    return notes


def _held_back(discarded: Sequence[Measurement]) -> str:
    """Return for example ``2 throttled and 1 disturbed measurements were``, with those of the other side that go with them."""
    held_back = [found for each in discarded if (found := each.conditions) and found.held_back]
    throttled = sum(bool(each.throttled) for each in held_back)
    counts = {"throttled": throttled, "disturbed": len(held_back) - throttled}
    parts = [f"{count} {how}" for how, count in counts.items() if count]
    if parts:
        parts[-1] += f" measurement{'' if len(held_back) == 1 else 's'}"
    if of_other := len(discarded) - len(held_back):
        parts.append(f"{of_other} of the other side")
    return f"{' and '.join(parts)} {'was' if len(discarded) == 1 else 'were'}"
