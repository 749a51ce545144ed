"""``dlbench compare``: a verdict for every case of two result files, or of one, and an exit code for CI."""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlbench.cli.verdicts import Wanted, conclude, must_see_option, parse_thresholds, threshold_option, verdict_options
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.calibration import Calibration
    from dlbench.analysis.table import Map, Results

CALIBRATIONS = Path("results", "calibration")
"""Where `dlbench calibrate` keeps what it finds, beside the runs that it stands on."""
_LARGE = 1 << 26  # bytes; below, starting processes costs more than it saves


@click.command("compare")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", metavar="[NEW|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@threshold_option("10% of time, with --by 3%, and 5% of memory")
@must_see_option("End with 4 if some case could not show such a change (default: the suite's; else 25%, which only --strict insists on).")
@click.option("--by", metavar="COLUMN", help="Compare rows within BASE that differ in it: device, dtype, mode, batch, param.layout, …")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"This machine's noise between occasions (default: {CALIBRATIONS}/MACHINE.json, if dlbench calibrate has made it).",
)
@click.option("--across-machines", is_flag=True, help="Report on files of different machines; slower does not fail then.")
@verdict_options
def command(
    base: Path,
    new: tuple[Path, ...],
    thresholds: tuple[str, ...],
    must_see: str | None,
    by: str | None,
    calibration: Path | None,
    across_machines: bool,
    strict: bool,
    junit: Path | None,
    verdict: Path | None,
    github: bool,
    form: str,
) -> ExitCode:
    """A verdict for every case of BASE and NEW: slower, faster, same, or more than the data can tell.

    Each NEW, and each file of a FOLDER, is compared with BASE on its own. A round is one value, the test is exact, and it is corrected
    for the number of cases; docs/compare.md has the rule. Ends with 3 if anything is slower, 5 if a case failed or is missing, and 4 if no
    case could have shown a change of 25 %, or one could not show what --must-see, the suite or --strict wants to be seen.

    \b
      dlbench compare before.jsonl after.jsonl
      dlbench compare before.jsonl after.jsonl --threshold 5% --strict --junit verdicts.xml
      dlbench compare run.jsonl --by dtype
    """
    if by and new:
        raise UsageError("--by compares the rows of one file; give BASE alone with it")
    if by and across_machines:
        raise UsageError("--across-machines is for several files; leave it out with --by")
    if by and calibration:
        raise UsageError("--calibration is for files of several occasions; leave it out with --by")
    if across_machines and calibration:
        raise UsageError("--calibration is the noise of one machine; leave it out with --across-machines")
    if base.is_dir():
        raise UsageError(f"{base} is a folder, and BASE is one file; for which of its files stand out: dlbench show {base}")
    if not by and not new:
        raise UsageError("there is nothing to compare BASE with; give a NEW file, or --by COLUMN")
    given = parse_thresholds(thresholds, must_see)
    wanted = Wanted.of(strict, junit, verdict, github, form)

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.compare import compare, compare_by
    from dlbench.analysis.compare_terminal import occasions
    from dlbench.analysis.sides import any_sides, are_sides, compare_sides
    from dlbench.analysis.table import collect, files_in

    files = files_in((base, *new))
    with _side_by_side(files) as each:
        results = collect(files, each)
    notes: list[str] = []
    if by and by.removeprefix("case.") == "run" and are_sides(results):
        comparisons = [compare_sides(results, given=given)]
        notes = side_notes(results)
    elif by:
        comparisons = [compare_by(results, by, given=given)]
    elif any_sides(results):
        raise UsageError("a file that dlbench ab wrote holds both sides of its comparison; give it alone, with --by run")
    else:
        first, *others = results.environments
        different, notes = _machines(results, first, others, across_machines)
        notes += [*_versions(results, first, others), *_thresholds(results, first, others)]
        notes += fleet_notes(results) if any(path.is_dir() for path in new) else []
        noise, path = _calibration(results, first, calibration) if different != {*others} else (None, None)
        notes.append(occasions(noise, path))
        one = results.of_run(first)
        comparisons = [
            compare(one, results.of_run(name), across_machines=apart, given=given, calibration=None if apart else noise, insist=strict)
            for name in others
            for apart in (name in different,)
        ]
    return conclude(comparisons, [*results.notes, *notes], wanted)


@contextmanager
def _side_by_side(paths: Sequence[Path]) -> Iterator["Map"]:
    """Return a map that reads large files each in a process of its own, where a process is quickly made, and else the plain one."""
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    if len(sizes) < 2 or sum(sizes) < _LARGE or sys.platform != "linux":
        yield map
        return
    gc.disable()  # nothing of a file is garbage until the command ends, and looking for it takes a fifth of the time
    with ProcessPoolExecutor(min(len(sizes), os.cpu_count() or 1), get_context("fork"), _begin_reading) as pool:
        yield pool.map


def _begin_reading() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer


def _versions(results: "Results", base: str, others: Sequence[str]) -> list[str]:
    """Say which files another version of dlbench measured than the base: it may warm up, or count, in another way."""
    made = {name: (results.environments[name].get("provenance") or {}).get("dlbench") for name in (base, *others)}
    return [
        one_line(f"{base} was measured by dlbench {made[base]} and {name} by {made[name]}; measure both with one version to be sure")
        for name in others
        if made[base] and made[name] and made[base] != made[name]
    ]


def _thresholds(results: "Results", base: str, others: Sequence[str]) -> list[str]:
    """Say of which files the suites set other thresholds than those of the base."""
    notes = []
    for name in others:
        both = [results.thresholds[each] for each in (base, name)]
        suites = [suite for suite in dict.fromkeys([*both[0], *both[1]]) if both[0].get(suite) != both[1].get(suite)]
        if suites:
            notes.append(one_line(f"{base} and {name} were run with other thresholds in {', '.join(suites)}; those of {base} hold"))
    return notes


def _calibration(results: "Results", base: str, path: Path | None) -> tuple["Calibration | None", Path | None]:
    """Return this machine's noise between occasions and where it was found; nothing where it was never measured.

    Raises ResultFileError for a damaged file, UsageError for one of another machine.
    """
    from dlbench.analysis import calibration

    machine = _key(results, base, "machine_key")
    usual = CALIBRATIONS / f"{machine}.json"
    if path is None and machine and usual.parent == CALIBRATIONS and usual.is_file():  # a key out of a file may hold anything
        path = usual
    if path is None:
        return None, None
    found = calibration.load(path)
    if machine and found.machine_key != machine:
        raise UsageError(f"{path} is the calibration of another machine than {base} was measured on; calibrate here: dlbench calibrate")
    return found, path


def side_notes(results: "Results") -> list[str]:
    """Say in what the sides of an A/B differ, as far as anything that is recorded does."""
    from dlbench.harness.environment import differences

    base, new, *_ = results.environments.values()
    if found := differences(base, new, ("side", "identity", "stack")):
        return [one_line(f"the sides differ, a against b: {'; '.join(found)}")]
    return ["nothing that is recorded differs between the sides: if nothing does at all, slower and faster are false alarms"]


def fleet_notes(results: "Results") -> list[str]:
    """Say which files stand out among those of the same kind of machine, and which differ from most of them in machine or software."""
    from dlbench.analysis.fleet import kinds, sentences
    from dlbench.harness.environment import differences

    found = kinds(results)
    notes = sentences(found)
    for kind in found:
        keys = {run: (_key(results, run, "machine_key"), _key(results, run, "stack_key")) for run in kind.runs}
        usual = max(kind.runs, key=lambda run: list(keys.values()).count(keys[run]))
        for run in kind.runs:
            if told := differences(results.environments[usual], results.environments[run]):
                notes.append(one_line(f"{run} is not as {usual} and {'most' if len(kind.runs) > 2 else 'its kind'}: {'; '.join(told)}"))
    return notes


def _machines(results: "Results", base: str, others: Sequence[str], across_machines: bool) -> tuple[set[str], list[str]]:
    """Return which files are of another machine than the base, and what to say about machines and software.

    Raises UsageError if there is one, unless that was asked for.
    """
    from dlbench.analysis.compare_terminal import different_software
    from dlbench.harness.environment import differences

    different: set[str] = set()
    notes = [f"{name} does not say which machine it is of" for name in (base, *others) if not _key(results, name, "machine_key")]
    for name in others:
        found = differences(results.environments[base], results.environments[name])
        if _differ(results, base, name, "machine_key"):
            machine = "; ".join(each for each in found if each.startswith("identity")) or "their machine_key"
            sentence = one_line(f"{base} and {name} are of different machines, which differ in {machine}")
            if not across_machines:
                raise UsageError(f"{sentence}; compare runs of one machine, or have a report without a gate: --across-machines")
            different.add(name)
            notes.append(f"{sentence}; slower does not fail here")
        if _differ(results, base, name, "stack_key"):
            notes.append(different_software(base, name, [each for each in found if each.startswith("stack")]))
    return different, notes


def _key(results: "Results", name: str, key: str) -> Any:
    return results.environments[name].get(key)


def _differ(results: "Results", base: str, name: str, key: str) -> bool:
    one, other = _key(results, base, key), _key(results, name, key)
    return bool(one and other and one != other)
