"""Measuring conditions: throttling of the device, other work on the machine, and whether they spoil a number.

Result files hold the raw readings. Whether they matter is decided here, for retries during a run and again whenever a file is read. A case
is measured once a round, and its timed calls come in blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from dlbench.core.stats import known
from dlbench.core.units import Amount, Count, PositiveCount, Quantity, percent

THROTTLED = 0.01
"""Share of a case's time from which on a slow-down counts: at half the clock it moves a time by 1 %, the precision of a round."""
OVERRUN = 0.25
"""Share of its time from which on a case that lost CPU time says little of the program: with up to so much most blocks are undisturbed, and
with more they become multiples of the scheduler's turns. Of a case that lost half, a real 15 % read as 0.1 %."""
BUSY = 0.05
"""Share of a case's CPU time from which on it counts that others had it: it is time to wait for, and more than the 3 % that
already are a change where two sides are measured alternately. The system's own housekeeping stays below."""
UNDISTURBED = 0.02
"""Share of a block from which on a thread that waited for a CPU has spoiled it."""
UNDISTURBED_BLOCKS = 10
"""Undisturbed ones from which on a round rests on them alone: as many as its p10 and its interval take."""
SLOWDOWNS = frozenset(("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"))
"""NVML's reasons for a low clock that pass, so that measuring again helps."""
POWER_CAPS = frozenset(("sw_power_cap",))
"""NVML's reasons for a low clock that stay: measured again the case would be the same."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """How far a case was held back while it was measured, from set-up to copies; a field is None where nothing counts it."""

    thermal: Quantity | None = None
    """Share of the time in which it was too hot."""
    quota: Quantity | None = None
    """Share of its threads' time in which the control group's CPU quota stopped them."""
    power_cap: Quantity | None = None
    """Share of the time in which its power limit held the clock down."""
    reasons: tuple[str, ...] | None = None
    """NVML's reasons for a low clock while its blocks ran, or its experiment, of `SLOWDOWNS` and `POWER_CAPS`."""
    tries: PositiveCount = 1
    """Times that the case was measured in this round, while all were held back, here or on its other side; the least counts."""
    waiting: Quantity | None = None
    """Share of its timed part, from the first call to the last block, in which a thread waited for a CPU: of the one that waited most."""
    stolen: Quantity | None = None
    """Share of that in which a hypervisor gave a CPU of it to others: of the CPU that was taken most."""
    clock_hz: Amount | None = None
    """A card's SM clock while its blocks ran, or its experiment: the median of readings, as of the power."""
    power_w: Amount | None = None

    @property
    def throttled(self) -> bool | None:
        """Whether something temporary held it back; None where nothing would have shown it."""
        if self.thermal is None and self.quota is None and self.reasons is None:
            return None
        return _matters(self.thermal) or _matters(self.quota) or not SLOWDOWNS.isdisjoint(self.reasons or ())

    @property
    def power_capped(self) -> bool | None:
        """Whether its power limit held it back; None where nothing would have shown it."""
        if _matters(self.power_cap) or not POWER_CAPS.isdisjoint(self.reasons or ()):
            return True
        return None if self.power_cap is None and self.reasons is None else False

    @property
    def lost(self) -> float | None:
        """Share of its time in which others had a CPU that it needed; None where that is unknown.

        Nor where the CPU quota stopped it: that is time in the run queue, too.
        """
        shares = known((self.waiting, self.stolen))
        return min(1.0, sum(shares)) if shares and not _matters(self.quota) else None

    @property
    def spoiled(self) -> bool:
        """Whether it says little of the program: it was throttled, or lost more than `OVERRUN` of its time."""
        return bool(self.throttled) or (self.lost or 0.0) > OVERRUN

    @property
    def disturbed(self) -> bool | None:
        """Whether it lost enough CPU time to matter; None where nothing would have shown it."""
        return None if self.lost is None else self.lost > BUSY

    @property
    def held_back(self) -> bool:
        """Whether measuring again may help, as far as is known."""
        return bool(self.throttled or self.disturbed)

    def explanation(self) -> str:
        """Return how it was held back, as ``throttled: too hot for 12.0 % of its time``; an empty text if it was not."""
        parts = (f"throttled: {self.causes()}" if self.throttled else "", f"disturbed: {self.disturbances()}" if self.disturbed else "")
        return "; ".join(filter(None, parts))

    def disturbances(self) -> str:
        """Return who had its CPUs, as ``waited for a CPU for 30.0 % of its time``; an empty text if it does not matter."""
        if not self.disturbed:
            return ""
        return " and ".join([*_share_texts("waited for a CPU", self.waiting), *_share_texts("a hypervisor took a CPU", self.stolen)])

    def causes(self) -> str:
        """Return what throttled it, as ``too hot for 12.0 % of its time``; an empty text if nothing did."""
        slowed = sorted(SLOWDOWNS.intersection(self.reasons or ()))
        slowdown = [f"slowed down ({', '.join(slowed)})"] if slowed else []
        return " and ".join([*_share_texts("too hot", self.thermal), *slowdown, *_share_texts("stopped by the CPU quota", self.quota)])

    def to_json(self) -> dict[str, Any]:
        """Return plain data; what is unknown is left out."""
        return _known(self)


def undisturbed(block_s: Sequence[float], wait_s: Sequence[float] | None, calls: int) -> Sequence[int]:
    """Return the indices of the blocks in which no thread waited long for a CPU; of all blocks where ``wait_s`` is unknown.

    ``block_s`` has the seconds of a call in each block of so many ``calls``.
    """
    if wait_s is None:
        return range(len(block_s))
    return [
        index
        for index, (call_s, waited_s) in enumerate(zip(block_s, wait_s, strict=True))
        if not waited_s or waited_s < UNDISTURBED * calls * call_s
    ]


def _matters(share: float | None) -> bool:
    """Whether a share of a case's time is large enough to count; one that is unknown is not."""
    return share is not None and share > THROTTLED


def _share_texts(cause: str, share: float | None) -> list[str]:
    """Return ``too hot for 12.0 % of its time`` as the only text; none if the share does not matter."""
    return [f"{cause} for {percent(share)} of its time"] if share is not None and _matters(share) else []


@dataclass(frozen=True, slots=True)
class RoundState:
    """The machine around one round: one line of the result file."""

    round: Count
    seconds: Quantity
    """Time of the round from when its processes were ready until its last case had ended."""
    other_cpus: Quantity | None = None
    """CPUs that other processes kept busy, on average, of those that this process may run on; None where that is unknown."""
    stolen_cpus: Quantity | None = None
    """CPUs' worth of time that a hypervisor gave to others."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The state as in the header's ``environment``, what is unknown left out, before any case of the round."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """The state right after the last case, while its process still held the device."""

    def other_processes(self, device: str) -> int | None:
        """Return the number of other processes on an accelerator, before or after; None where that is unknown."""
        counts = [each.get("accelerators", {}).get(device, {}).get("other_processes") for each in (self.before, self.after)]
        return max(known(counts), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; what is unknown is left out."""
        return {"kind": "round", **_known(self)}


def _known(record: Throttling | RoundState) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How far the rounds of a case were throttled or disturbed; a field is None where that is unknown."""

    throttled: bool | None = None
    """Whether any round was, as for the next two."""
    power_capped: bool | None = None
    disturbed: bool | None = None
    reason: str | None = None
    """Evidence for these, and what was measured again."""
    lost_share: float | None = None
    """Share of its time in which others had a CPU that it needed, in the worst round."""
    rounds: int | None = None
    """Number of those in which it was throttled or disturbed."""


def summarise_conditions(
    rounds: Sequence[tuple[int, Throttling | None]],
    states: Sequence[RoundState],
    device: str,
    threads: int | None,
    undisturbed_rounds: frozenset[int] = frozenset(),
) -> Circumstances:
    """Return how far a case was throttled or disturbed, and the evidence for it.

    The evidence has two sources. ``rounds`` are pairs of a round's number and how the case's own process was held back in it, None where
    that was not read. ``states`` are readings of the machine around the rounds of the run, which may also have rounds without the case.

    ``threads`` is the number of threads of the case; if it is None, the CPU time that others had is not judged. ``undisturbed_rounds`` have
    enough undisturbed blocks: only these blocks count, so the CPU time that other processes had does not matter in these rounds.
    """
    numbers = {number for number, _ in rounds}
    own_states = [state for state in states if state.round in numbers]
    throttlings = known(throttling for _, throttling in rounds)
    if not throttlings and not own_states:
        return Circumstances()  # nothing was read

    machine_evidence = _evidence_of_machine(own_states, device, threads, undisturbed_rounds)
    cpu_evidence, hypervisor_evidence, accelerator_evidence = machine_evidence

    def is_held_back(number: int, throttling: Throttling | None) -> bool:
        """Whether a case was throttled or disturbed in a round."""
        if number in accelerator_evidence.rounds or (throttling is not None and throttling.held_back):
            return True
        # What its own process lost, by waiting and to a hypervisor, says more than the CPU time that others had in the whole round.
        knows_waiting = throttling is not None and throttling.waiting is not None
        return not knows_waiting and (number in cpu_evidence.rounds or number in hypervisor_evidence.rounds)

    sentences = [*_own_reasons(throttlings, len(rounds)), *(each.sentence for each in machine_evidence)]
    return Circumstances(
        throttled=_any(each.throttled for each in throttlings),
        power_capped=_any(each.power_capped for each in throttlings),
        disturbed=_any([*(each.disturbed for each in throttlings), *(each.disturbed for each in machine_evidence)]),
        reason="; ".join(filter(None, sentences)) or None,
        lost_share=max(known(each.lost for each in throttlings), default=None),
        rounds=sum(is_held_back(number, throttling) for number, throttling in rounds),
    )


class _Evidence(NamedTuple):
    """What one kind of reading of the machine says of the rounds of a case."""

    was_read: bool
    """Whether any of the rounds has such a reading."""
    rounds: frozenset[int] = frozenset()
    """Numbers of the rounds in which the reading is large enough to matter."""
    sentence: str = ""
    """The largest reading, and in how many rounds it matters; empty where it matters in none."""

    @property
    def disturbed(self) -> bool | None:
        """Whether it matters in any round; None where nothing was read."""
        return bool(self.rounds) if self.was_read else None


def _evidence_of_machine(
    states: Sequence[RoundState], device: str, threads: int | None, undisturbed_rounds: frozenset[int]
) -> tuple[_Evidence, _Evidence, _Evidence]:
    """Return the evidence of three readings: CPUs that other processes had, CPUs that a hypervisor took, processes on the accelerator.

    ``states`` are of the rounds of one case; the other parameters are as for `summarise_conditions`.
    """
    # CPU time of others matters if it exceeds a share of what the case's own threads can use. It is not judged without their number.
    states_for_cpus = states if threads else []
    threshold_cpus = BUSY * (threads or 0)
    # In `undisturbed_rounds` only blocks count in which no thread waited long for a CPU, so CPU time of other processes does not matter.
    # Time that a hypervisor took does matter there, as it does not show as waiting.
    cpus_of_others = {each.round: each.other_cpus for each in states_for_cpus if each.round not in undisturbed_rounds}
    stolen_cpus = {each.round: each.stolen_cpus for each in states_for_cpus}
    process_counts = {each.round: each.other_processes(device) for each in states}
    noun = "process" if max(known(process_counts.values()), default=0) == 1 else "processes"
    return (
        _evidence(cpus_of_others, threshold_cpus, "other processes took up to {:.2g} CPUs' time"),
        _evidence(stolen_cpus, threshold_cpus, "the hypervisor took up to {:.2g} CPUs' time"),
        _evidence(process_counts, 0, f"{{}} other {noun} on {device}"),
    )


def _evidence(readings: Mapping[int, float | None], threshold: float, text: str) -> _Evidence:
    """Return the evidence of one reading in each round, which matters above a threshold; ``text`` takes the largest of them."""
    amounts = {number: reading for number, reading in readings.items() if reading is not None}
    rounds = frozenset(number for number, amount in amounts.items() if amount > threshold)
    if not rounds:
        return _Evidence(was_read=bool(amounts))
    sentence = f"{text.format(max(amounts.values()))} in {len(rounds)} of {_count_of_rounds(len(amounts))}"
    return _Evidence(True, rounds, sentence)


def _own_reasons(throttlings: Sequence[Throttling], rounds: int) -> list[str]:
    """Return a sentence for each way in which the case's own process was held back.

    ``throttlings`` are the readings of its rounds, without rounds where nothing was read; ``rounds`` is the number of all its rounds.
    """
    of_rounds = f"of {_count_of_rounds(rounds)}"
    throttled = [each for each in throttlings if each.throttled]
    capped = [each for each in throttlings if each.power_capped]
    disturbed = [each for each in throttlings if each.disturbed]
    # Rounds that were held back at first, but not in their last try. Those that were held back to the last are in the lists above.
    repeated = [each for each in throttlings if each.tries > 1 and not each.held_back]
    reasons: list[str] = []
    if throttled:
        most_throttled = max(throttled, key=lambda each: max(each.thermal or 0.0, each.quota or 0.0))
        reasons.append(f"throttled in {len(throttled)} {of_rounds}: {most_throttled.causes()}")
    if capped:
        longest = max(known(each.power_cap for each in capped), default=None)
        extent = "" if longest is None else f", for up to {percent(longest)} of the time"
        reasons.append(f"at its power limit in {len(capped)} {of_rounds}{extent}")
    if disturbed:
        most_disturbed = max(disturbed, key=lambda each: each.lost or 0.0)
        reasons.append(f"disturbed in {len(disturbed)} {of_rounds}: {most_disturbed.disturbances()}")
    if repeated:
        reasons.append(f"measured again in {len(repeated)} {of_rounds}, as an earlier try was throttled or disturbed")
    return reasons


def _any(values: Iterable[object]) -> bool | None:
    """Return whether any known value is true; None where none is known."""
    found = known(values)
    return any(found) if found else None


def _count_of_rounds(count: int) -> str:
    return f"{count} round{'' if count == 1 else 's'}"
