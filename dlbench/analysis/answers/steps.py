"""Steps: what bounds each of them, by the rules of `analysis.bottleneck` on its measured parts."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, Columns, Findings, Table, by_device, with_device
from dlbench.analysis.bottleneck import ADDS_UP, REMEDIES, Diagnosis, Parts, Resource, diagnose
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import key, number, plural, short
from dlbench.core.declarations import Declaration
from dlbench.core.model import Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent, seconds, three_digits

_TAGS = frozenset(("training", "inference"))
_OF_DLBENCH_ITSELF = "self"
_NAMES: dict[Resource, str] = {
    "arithmetic": "arithmetic",
    "memory": "memory bandwidth",
    "transfer": "copying its batch",
    "input": "waiting for its batch",
    "launch": "launches",
    "host": "other code on the host",
}
_REST = "not explained"
_WOULD_TELL = "dlbench run ceilings measures what arithmetic, memory and launches would take"
_MUCH = 1 / 3
"""Share of a step from which on it is worth a word that nothing explains it."""
_COLUMNS: Columns = (
    ("step", Column("step.case", Unit.TEXT, "the case")),
    DEVICE,
    ("time", BY_NAME["time.median_s"]),
    ("bound by", Column("step.bound", Unit.TEXT, "the part that takes most of its time")),
    *((name, Column(f"step.{part}_s", Unit.SECONDS, f"of its time: {name}")) for part, name in _NAMES.items()),
    (_REST, Column("step.unexplained_s", Unit.SECONDS, "of its time: kernels below the ceilings, and what nothing measures")),
    ("verdict", Column("step.verdict", Unit.TEXT, "what bounds it, with its numbers, and what would help most")),
)
_STEP = Axis("step", Column("step.named", Unit.TEXT, "the step, where it ran and how long it took"))
_PART = Axis("part", Column("step.part", Unit.TEXT, "which part of its time"))
_SHARE = Axis(
    "share of the time of a step", Column("step.share", Unit.FRACTION, "of the time of a step, or of its parts where they overlap")
)


def findings(results: Results) -> Findings:
    """Return a verdict for each step that a part was measured of, and for each device what bounds most of them."""
    ceilings = results.ceilings
    steps = [row for row in results.rows if _is_step(row, results.declaration(row))]
    held_against = [(row, ceilings.get(machine(row, results.environments), {})) for row in steps]
    parts = [(row, _parts(row, results.declaration(row), known), known) for row, known in held_against]
    judged = [(row, found, each, known) for row, each, known in parts if (found := diagnose(each)).seconds]
    devices = by_device([_judged(*each) for each in judged], "case")
    rows = tuple(row for found in devices.values() for row in found)
    doubts: list[str] = []
    if len(judged) < len(steps):
        doubts.append(f"of {plural(len(steps) - len(judged), 'step')} no part was measured; {_WOULD_TELL}")
    if not rows:
        return Findings(weaknesses=tuple(doubts))
    # Those that are fed in several ways on purpose are told of by themselves.
    usual = {where: [row for row in found if not results.declaration(row).feeding] for where, found in devices.items()}
    told = {where: usual[where] or found for where, found in devices.items()}
    known_first = sorted(told.items(), key=lambda each: not any(row["step.bound"] for row in each[1]))
    sentences = tuple(_sentence(where, found) for where, found in known_first)
    without = [where for where, found in devices.items() if not any(ceilings.get(machine(row, results.environments)) for row in found)]
    doubts += [f"no ceiling of {where} was measured; give the file of dlbench run ceilings beside this one" for where in without]
    tables = (Table("What bounds each step", _COLUMNS, rows),)
    return Findings(sentences, tuple(row for row, *_ in judged), tables, (_figure(rows),), tuple(doubts))


def _is_step(row: Row, declared: Declaration) -> bool:
    fit = row["case.status"] == Status.OK and not row["flag.implausible"] and bool(row["time.median_s"])
    alone = row.get("param.ranks") in (None, 1)  # what several ranks wait for each other is none of these parts
    return fit and alone and bool(_TAGS.intersection(declared.tags)) and _OF_DLBENCH_ITSELF not in declared.tags


def _parts(row: Row, declared: Declaration, ceilings: Ceilings) -> Parts:
    whole_s, operations, device_s = number(row["time.median_s"]), row["check.operations"], row["time.device_s"]
    arithmetic, memory, launch = (ceilings.get(kind) for kind in (("arithmetic", computed_in(row) or ""), ("memory", ""), ("launch", "")))
    flops, moved = (number(row[f"rate.{count}_per_s"] or 0) * whole_s for count in ("flops", "bytes"))
    return Parts(
        whole_s=whole_s,
        device_s=None if device_s is None else number(device_s),
        arithmetic_s=flops / arithmetic.per_s if flops and arithmetic else None,
        # Fewer bytes than the ceiling was measured with may come from a cache, and what is faster than it does.
        memory_s=moved / memory.per_s if memory and moved >= memory.least_bytes and not from_caches(row, memory) else None,
        launch_s=number(operations) / launch.per_s if operations is not None and launch else None,
        transfer_s=declared.part(row, "transfer"),
        input_s=declared.part(row, "input"),
        host_s=declared.part(row, "host"),
        on_host=row["case.device"] == "cpu",
    )


def _judged(row: Row, found: Diagnosis, parts: Parts, ceilings: Ceilings) -> Row:
    return {
        **row,
        **{f"step.{part}_s": found.seconds.get(part) for part in _NAMES},
        "step.case": key(row),
        "step.bound": _NAMES[found.bound] if found.bound else None,
        "step.unexplained_s": found.unexplained_s,
        "step.verdict": _verdict(found, parts, _narrower_helps(row, ceilings)),
    }


def _narrower_helps(row: Row, ceilings: Ceilings) -> bool:
    """Whether a precision of fewer bytes has more arithmetic than that of a row, as far as was measured."""
    own = PRECISIONS.get(computed_in(row) or "")
    if own is None:
        return False
    narrower = {each.arithmetic for each in PRECISIONS.values() if each.bytes < own.bytes}
    known = [ceiling.per_s for name in narrower if (ceiling := ceilings.get(("arithmetic", name)))]
    ceiling = ceilings.get(("arithmetic", own.arithmetic))
    return bool(narrower) and (not known or ceiling is None or max(known) > ceiling.per_s)


def _verdict(found: Diagnosis, parts: Parts, narrower_helps: bool) -> str:
    """Return for example ``launches take 3.20 ms of 5.10 ms (62.7 %); a larger batch, … would help most``."""
    whole_s = parts.whole_s
    if found.bound:
        part_s = found.seconds[found.bound]
        helps = "would help most" if part_s >= found.unexplained_s else "would help with that part"
        narrower = "a narrower precision, or " if found.bound == "arithmetic" and narrower_helps else ""
        text = f"{_share(found.bound, part_s, whole_s)}; {narrower}{REMEDIES[found.bound]} {helps}"
    else:
        largest = max(found.seconds, key=found.seconds.__getitem__)
        text = f"{_share(largest, found.seconds[largest], whole_s)}, the most of what was measured, and too little to bound it"
        if None not in (parts.arithmetic_s, parts.memory_s):
            text += "; its kernels run far below the ceilings: other shapes, layout or precision may help"
    if found.unexplained_s >= _MUCH * whole_s:
        text += f"; {seconds(found.unexplained_s)} ({percent(found.unexplained_s / whole_s)}) is not explained"
    if parts.device_s is None and not parts.on_host:
        text += "; the device's own time was not read, so what goes on beside it may count twice"
    if found.over_s > ADDS_UP * whole_s:
        more = three_digits(1 + found.over_s / whole_s)
        text += f"; its parts add up to {more} times its time, so some overlap"
    return text


def _share(part: Resource, part_s: float, whole_s: float) -> str:
    how = " at its measured ceiling" if part in ("arithmetic", "memory") else ""
    verb = "take" if part == "launch" else "takes"
    return f"{_NAMES[part]}{how} {verb} {seconds(part_s)} of {seconds(whole_s)} ({percent(part_s / whole_s)})"


def _sentence(where: str, rows: Sequence[Row]) -> str:
    """Return what bounds how many steps of a device, with the longest of those that are bound by what bounds most.

    What is not known of some comes last, and is no answer.
    """
    bounds = grouped([row for row in rows if row["step.bound"]], lambda row: str(row["step.bound"]))
    most_first = sorted(bounds.items(), key=lambda found: -len(found[1]))
    told = [f"{bound} {'bound' if bound == _NAMES['launch'] else 'bounds'} {len(found)}" for bound, found in most_first]
    if unknown := sum(row["step.bound"] is None for row in rows):
        told.append(f"what bounds {unknown} was not measured")
    most = max(most_first[0][1] if most_first else rows, key=_longest)
    return f"Of {plural(len(rows), 'step')} on {where} {', '.join(told)}; {short(most['step.case'])}: {most['step.verdict']}."


def _longest(row: Row) -> float:
    return number(row["time.median_s"])


def _figure(rows: Sequence[Row]) -> Figure:
    """Return the steps as stacks of their parts, each over its own time."""
    shown, left_out = drawn(rows, _longest)
    parts: list[Row] = []
    for row in with_device(shown, "case"):
        # All of them, in the same order and colours in every figure.
        known = [(name, number(row[f"step.{part}_s"] or 0)) for part, name in _NAMES.items()]
        known += [(_REST, number(row["step.unexplained_s"]))]
        whole_s = sum(part_s for _, part_s in known)
        name = f"{short(row['step.case'])} on {row['place']}, {seconds(number(row['time.median_s']))}"
        parts += [{_STEP.column.name: name, _PART.column.name: part, _SHARE.column.name: part_s / whole_s} for part, part_s in known]
    about = f"Each bar is the time of one step; arithmetic and memory have what they would take at their measured ceilings.{left_out}"
    return Figure("Time of a step, by its parts", about, "stack", _SHARE, _STEP, tuple(parts), _PART)
