"""``dlbench compare``: a verdict for every case of two result files, or of one, and an exit code for CI."""

import gc
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.cli.options import CALIBRATIONS, OUTPUT_FILE, PATH, OutputOptions, complete_columns, output_options, threshold_options
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.thresholds import ThresholdSettings

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Map, Read, Results

_LARGE = 1 << 26  # bytes of all files; below, starting processes costs more than it saves
_HUGE = 1 << 30  # bytes of all files; above, reading them at the same time would take too much memory


@click.command("compare")
@click.argument("base", type=PATH)
@click.argument("new", metavar="[NEW|FOLDER]...", nargs=-1, type=PATH)
@click.option(
    "--by", metavar="COLUMN", shell_complete=complete_columns, help="Compare rows within BASE that differ in it: device, dtype, mode, …"
)
@threshold_options("10%, --by 3%", "End with 4 if a case doesn't exclude such a slowdown (25%).")
@click.option("--calibration", type=PATH, metavar="FILE", help="Noise between sessions (default: what dlbench calibrate found here).")
@click.option("--across-machines", is_flag=True, help="Report on files of different machines; slower does not fail then.")
@output_options(click.option("--report", type=OUTPUT_FILE, metavar="PAGE", help="Write a page with a plot, too; never overwritten."))
def compare_command(
    base: Path,
    new: tuple[Path, ...],
    by: str | None,
    thresholds: ThresholdSettings,
    calibration: Path | None,
    across_machines: bool,
    output: OutputOptions,
) -> ExitCode:
    """A verdict for every case of BASE and NEW: slower, faster, same or inconclusive.

    Each NEW, and each file of a FOLDER, is compared with BASE on its own; in a file of pyperf each run is a round. Ends with 3 if
    anything is slower, 5 if a case failed or is missing, and 4 if nothing is decided; docs/compare.md has the rules.

    \b
      dlbench compare before.jsonl after.jsonl --threshold 5% --junit verdicts.xml
      dlbench compare run.jsonl --by dtype
    """
    # Here and not at the top: reading imports more than help may take.
    from dlbench.analysis.compare.provenance import side_notes
    from dlbench.analysis.compare.sides import are_sides, compare_by, compare_sides
    from dlbench.analysis.read.table import collect, files_in
    from dlbench.analysis.scaling.outliers import fleet_notes
    from dlbench.cli.verdicts import conclude

    _refuse_contradictions(base, new, by, calibration, across_machines)
    files = files_in((base, *new))
    with _map_over_files(files) as map_files:
        results = collect(files, map_files)
    compares_runs = by in ("run", "case.run")  # two names of the same column
    # The two sides of an A/B are two runs in one file. Their verdicts have rules of their own: rounds are compared in pairs, and where
    # changes were measured again only the second measurement decides.
    if compares_runs and are_sides(results):
        comparisons = [compare_sides(results, given=thresholds)]
        notes = side_notes(results)
    elif by:
        comparisons = [compare_by(results, by, given=thresholds)]
        notes = []
    else:
        comparisons, notes = _compare_with_first(results, thresholds, calibration, across_machines, output.strict)
        if any(path.is_dir() for path in new):
            notes += fleet_notes(results)  # which files of a folder stand out among those of the same kind of machine
    return conclude(comparisons, notes, output, results)


@contextmanager
def _map_over_files(files: Sequence[Path]) -> Iterator["Map"]:
    """Yield a function like the built-in ``map``: it calls a reader with each path and name, and returns the results in their order.

    It is ``map`` itself, or for large files on Linux a function that reads in parallel: the first file in this process, the others in
    further processes at the same time.
    """
    sizes = [path.stat().st_size for path in files if path.is_file()]
    total_size = sum(sizes)
    if total_size >= _LARGE:
        gc.disable()  # nothing of a file is garbage until the command ends, and looking for it takes a fifth of the time
    parallel_pays = len(sizes) > 1 and _LARGE <= total_size <= _HUGE
    if not parallel_pays or sys.platform != "linux":  # elsewhere a fork is not safe, or does not exist
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    workers = min(len(sizes) - 1, os.cpu_count() or 1)
    ignore_interrupts = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    with ProcessPoolExecutor(workers, get_context("fork"), initializer=signal.signal, initargs=ignore_interrupts) as pool:

        def read_in_parallel(read: "Read", paths: Iterable[Path], names: Iterable[str]) -> "Iterator[Results]":
            first_file, *others = zip(paths, names, strict=True)
            futures = [pool.submit(read, path, name) for path, name in others]
            yield read(*first_file)
            yield from (future.result() for future in futures)

        yield read_in_parallel


def _refuse_contradictions(base: Path, new: Sequence[Path], by: str | None, calibration: Path | None, across_machines: bool) -> None:
    """Raise UsageError for options that exclude each other, and where there is nothing to compare."""
    others = {"NEW": new, "--across-machines": across_machines, "--calibration": calibration}
    if by and (given := [name for name, value in others.items() if value]):
        raise UsageError(f"--by compares the rows of one file, BASE, with each other; leave out {' and '.join(given)}")
    if across_machines and calibration:
        raise UsageError("--calibration is the noise of one machine; leave it out with --across-machines")
    if base.is_dir():
        command = f"dlbench show {shlex.quote(str(base))}"
        raise UsageError(f"{base} is a folder, and BASE is one file; for which of its files stand out: {command}")
    if not by and not new:
        raise UsageError("there is nothing to compare BASE with; give a NEW file, or --by COLUMN")


def _compare_with_first(
    results: "Results", thresholds: ThresholdSettings, calibration: Path | None, across_machines: bool, strict: bool
) -> tuple[list["Comparison"], list[str]]:
    """Compare each further file with the first. Return a comparison for each, and notes on where and when the files were measured.

    Files that were measured more than an hour apart are of different occasions, between which the times of identical code differ. A
    calibration tells by how much. ``calibration`` is its file; None: the one of this machine that dlbench calibrate keeps, if any.
    Raises UsageError for a file of an A/B, for one of another machine without ``across_machines``, and for a calibration of another
    machine; ResultFileError for a damaged calibration.
    """
    from dlbench.analysis.compare import provenance
    from dlbench.analysis.compare.sides import any_sides, compare
    from dlbench.analysis.report.compare_terminal import calibration_note

    if any_sides(results):
        raise UsageError("a file that dlbench ab wrote holds both sides of its comparison; give it alone, with --by run")
    first, *others = results.environments  # the names of the files, in the order of the command line
    on_other_machine, notes = provenance.compare_machines(results, first, others, across_machines)
    on_same_machine = [name for name in others if name not in on_other_machine]
    noise, path = None, None
    if on_same_machine:  # a calibration is of one machine, so it says nothing on files of another
        noise, path = provenance.find_calibration(results, first, CALIBRATIONS, calibration)
    if noise:
        on_other_occasion = set[str]()  # verdicts allow for this noise, so it does not matter which files are of another occasion
        notes.append(calibration_note(noise, path))
    else:
        on_other_occasion, occasion_notes = provenance.find_other_occasions(results, first, on_same_machine)
        notes += occasion_notes
    base = results.of_run(first)

    def compare_file(name: str) -> "Comparison":
        new = results.of_run(name)
        if name in on_other_machine:
            return compare(base, new, across_machines=True, given=thresholds)
        # ``insist``: with --strict nothing is decided if any case is too noisy to show the slowdown of --detect.
        comparison = compare(base, new, given=thresholds, calibration=noise, insist=strict)
        if strict and name in on_other_occasion:  # a difference may be that of the occasions, so --strict does not decide by it
            return replace(comparison, other_occasion=provenance.OTHER_OCCASION)
        return comparison

    return list(map(compare_file, others)), notes
