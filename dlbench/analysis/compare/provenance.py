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
"""Longest gap between two files of one occasion: machines drift within an hour, too, but what lasts for hours is the same."""


def compare_machines(results: Results, base: str, others: Sequence[str], across_machines: bool) -> tuple[set[str], list[str]]:
    """Return the files of another machine than the base, and sentences on differences of machines, software and thresholds.

    Raises UsageError if there is such a file, unless ``across_machines``.
    """
    environments = results.environments
    on_other_machine = set[str]()
    base_environment = environments[base]
    # A file of pyperf never has a machine_key; its metadata are compared below.
    notes = [
        f"{name} does not say which machine it is of"
        for name in (base, *others)
        if not (environments[name].get("machine_key") or environments[name].get(pyperf.TOOL))
    ]
    for name in others:
        environment = environments[name]
        if _differ(base_environment, environment, "machine_key"):
            machine = "; ".join(differences(base_environment, environment, ("identity",))) or "their machine_key"
            sentence = one_line(f"{base} and {name} are of different machines, which differ in {machine}")
            if not across_machines:
                raise UsageError(f"{sentence}; compare runs of one machine, or have a report without a gate: --across-machines")
            on_other_machine.add(name)
            notes.append(f"{sentence}; slower does not fail here")
        if software := _software_differences(base_environment, environment):
            notes.append(f"the software differs, {base} against {name}: {'; '.join(software)}")
        base_thresholds, thresholds = results.thresholds[base], results.thresholds[name]  # of each suite
        suites = [suite for suite in {**base_thresholds, **thresholds} if base_thresholds.get(suite) != thresholds.get(suite)]
        if suites:
            notes.append(f"{base} and {name} were run with other thresholds in {', '.join(suites)}; those of {base} hold")
        # A file of pyperf has no keys of machine and software, only metadata, which may differ for either reason.
        if _differ(base_environment, environment, pyperf.TOOL) and (metadata := differences(base_environment, environment, (pyperf.TOOL,))):
            notes.append(f"{base} and {name} are of different machines or software: {'; '.join(metadata)}")
    return on_other_machine, [*map(one_line, notes)]


def _software_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return how the software of two environments differs, dlbench included: another version may warm up, or count, differently."""
    version, other_version = (part(environment, "provenance", "dlbench") for environment in (one, other))
    texts = [f"dlbench {version} against {other_version}"] if version and other_version and version != other_version else []
    if _differ(one, other, "stack_key"):
        texts += differences(one, other, ("stack",)) or ["their stack_key"]
    return texts


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

    It is read from ``path``, or if that is None from the file in ``folder`` that is named after the machine. Raises ResultFileError for a
    file that is damaged or can't be read, UsageError for a calibration of another machine.
    """
    machine_key = results.environments[base].get("machine_key")
    if path is None:
        path = folder / f"{machine_key}.json"
        # The key stands in a result file, so it may be any text, and must not lead to a file outside of the folder.
        if not (machine_key and path.parent == folder and path.is_file()):
            return None, None
    loaded = calibration.load(path)
    if machine_key and loaded.machine_key != machine_key:
        raise UsageError(f"{path} is the calibration of another machine than {base} was measured on; calibrate here: dlbench calibrate")
    return loaded, path


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    """Whether both environments have an entry under the key, and not the same."""
    return bool(one.get(key) and other.get(key) and one[key] != other[key])
