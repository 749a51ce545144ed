"""``dlbench compare``: a verdict for every case of two result files, or of one, and an exit code for CI."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.cli.options import CALIBRATIONS, OUTPUT_FILE, PATH, OutputOptions, complete_columns, output_options, threshold_options
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.thresholds import ThresholdSettings

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results


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
    given: ThresholdSettings,
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
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.scaling.outliers import fleet_notes
    from dlbench.cli.verdicts import conclude

    _refuse_contradictions(base, new, by, calibration, across_machines)
    results = collect((base, *new))
    if by and by.removeprefix("case.") == "run" and are_sides(results):
        comparisons, notes = [compare_sides(results, given=given)], side_notes(results)
    elif by:
        comparisons, notes = [compare_by(results, by, given=given)], []
    else:
        comparisons, notes = _across_files(results, given, calibration, across_machines, output.strict)
        notes += fleet_notes(results) if any(path.is_dir() for path in new) else []
    return conclude(comparisons, notes, output, results)


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


def _across_files(
    results: "Results", given: ThresholdSettings, calibration: Path | None, across_machines: bool, strict: bool
) -> tuple[list["Comparison"], list[str]]:
    """Return the verdicts of each file against the first, and notes on where the files come from."""
    from dlbench.analysis.compare import provenance
    from dlbench.analysis.compare.sides import any_sides, compare
    from dlbench.analysis.report.compare_terminal import occasions

    if any_sides(results):
        raise UsageError("a file that dlbench ab wrote holds both sides of its comparison; give it alone, with --by run")
    first, *others = results.environments
    different, notes = provenance.compare_machines(results, first, others, across_machines)
    here = [name for name in others if name not in different]
    noise, path = provenance.find_calibration(results, first, CALIBRATIONS, calibration) if here else (None, None)
    other_sessions, unproven = (set[str](), [occasions(noise, path)]) if noise else provenance.find_other_occasions(results, first, here)
    base = results.of_run(first)
    comparisons = [
        compare(base, results.of_run(name), across_machines=True, given=given)
        if name in different
        else replace(
            compare(base, results.of_run(name), given=given, calibration=noise, insist=strict),
            other_occasion=provenance.OTHER_OCCASION if strict and name in other_sessions else None,
        )
        for name in others
    ]
    return comparisons, [*notes, *unproven]
