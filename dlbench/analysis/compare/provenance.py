"""Provenance of the files of a comparison: their machines, software, clocks, thresholds, and the calibration that fits."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dlbench.analysis.compare import calibration
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.read import pyperf
from dlbench.analysis.read.header import began
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError
from dlbench.core.machine import differences
from dlbench.core.units import one_line, seconds

_ONE_OCCASION_S = 3600
"""Between two files, up to which they count as one occasion: machines drift within it, too, but what lasts for hours is the same."""


def compare_machines(results: Results, base: str, others: Sequence[str], across_machines: bool) -> tuple[set[str], list[str]]:
    """Return the files of another machine than the base, and sentences on differences of machines, software and thresholds.

    Raises UsageError if there is such a file, unless ``across_machines``.
    """
    environments = results.environments
    on_other_machine = set[str]()
    one = environments[base]
    notes = [
        f"{name} does not say which machine it is of"
        for name in (base, *others)
        if not (environments[name].get("machine_key") or environments[name].get(pyperf.TOOL))
    ]
    for name in others:
        other = environments[name]
        if _differ(one, other, "machine_key"):
            machine = "; ".join(differences(one, other, ("identity",))) or "their machine_key"
            sentence = one_line(f"{base} and {name} are of different machines, which differ in {machine}")
            if not across_machines:
                raise UsageError(f"{sentence}; compare runs of one machine, or have a report without a gate: --across-machines")
            on_other_machine.add(name)
            notes.append(f"{sentence}; slower does not fail here")
        if software := _software_differences(one, other):
            notes.append(f"the software differs, {base} against {name}: {'; '.join(software)}")
        limits, other_limits = results.thresholds[base], results.thresholds[name]
        suites = [suite for suite in {**limits, **other_limits} if limits.get(suite) != other_limits.get(suite)]
        if suites:
            notes.append(f"{base} and {name} were run with other thresholds in {', '.join(suites)}; those of {base} hold")
        if _differ(one, other, pyperf.TOOL) and (metadata := differences(one, other, (pyperf.TOOL,))):
            notes.append(f"{base} and {name} are of different machines or software: {'; '.join(metadata)}")
    return on_other_machine, [*map(one_line, notes)]


def _software_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return how the software of two environments differs, dlbench included: another version may warm up, or count, differently."""
    version, other_version = (part(each, "provenance", "dlbench") for each in (one, other))
    found = [f"dlbench {version} against {other_version}"] if version and other_version and version != other_version else []
    if _differ(one, other, "stack_key"):
        found += differences(one, other, ("stack",)) or ["their stack_key"]
    return found


OTHER_OCCASION = "measured more than an hour from the base, and no calibration tells how far sessions differ"
"""Why a strict comparison of such files is undecided."""


def find_other_occasions(results: Results, base: str, others: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the files of another occasion than the base, and a note that differences may be those of occasions."""
    environments = results.environments
    apart = {name: gap for name in others if (gap := gap_s(environments[base], environments[name]) or 0) > _ONE_OCCASION_S}
    named = few(f"{name} ({seconds(gap)})" for name, gap in apart.items())
    far = f"; more than an hour from {base}, which ends --strict with 4: {named}" if apart else ""
    note = f"no calibration: differences may be session noise (identical code has read 11 % slower){far}"
    return {*apart}, [one_line(f"{note}; run dlbench calibrate, or dlbench ab for both sides alternately")] if others else []


def gap_s(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """Return the seconds from the end of the earlier run to the beginning of the later; None if a file does not record when it began."""
    known = sorted(filter(None, map(_began_and_ended, (one, other))))
    if len(known) < 2:
        return None
    earlier, later = known
    return max(0.0, (later[0] - earlier[1]).total_seconds())


def _began_and_ended(environment: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """Return when a run began and ended, the same if its duration is unknown; None if its beginning is unknown or no time."""
    took_s = environment.get("seconds")
    with suppress(OverflowError):
        if begin := pyperf.in_utc(began(environment)):
            return begin, begin + timedelta(seconds=took_s if isinstance(took_s, int | float) and took_s > 0 else 0)
    return None


def side_notes(results: Results) -> list[str]:
    """Return a sentence on the recorded differences between the sides of an A/B, or that there are none."""
    base, new, *_ = results.environments.values()
    if found := differences(base, new, ("side", "identity", "stack")):
        return [one_line(f"the sides differ, a against b: {'; '.join(found)}")]
    return ["nothing that is recorded differs between the sides: if nothing does at all, slower and faster are false alarms"]


def find_calibration(results: Results, base: str, folder: Path, path: Path | None) -> tuple[calibration.Calibration | None, Path | None]:
    """Return the calibration of the base's machine and its file; None twice if there is none.

    It is read from ``path``, or else from the file in ``folder`` that is named after the machine. Raises ResultFileError for a damaged
    file, UsageError for one of another machine.
    """
    machine = results.environments[base].get("machine_key")
    if path is None:
        path = folder / f"{machine}.json"
        if not (machine and path.parent == folder and path.is_file()):  # a key out of a file may hold anything
            return None, None
    found = calibration.load(path)
    if machine and found.machine_key != machine:
        raise UsageError(f"{path} is the calibration of another machine than {base} was measured on; calibrate here: dlbench calibrate")
    return found, path


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    """Whether both have an entry, and not the same."""
    return bool(one.get(key) and other.get(key) and one[key] != other[key])
