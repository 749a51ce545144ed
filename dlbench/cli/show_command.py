"""``dlbench show``: result files as tables again, or their rows paired."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dlbench.analysis.table import Results

FORMATS = ("table", "json", "csv", "md")
_UNBOUNDED = 100_000
"""Columns for output that goes to a file or a pipe, so that nothing is folded or cut."""
_LEAST = 80
"""Columns that the numbers of a row need; a narrower terminal breaks the lines itself, which loses nothing."""


@click.command("show")
@click.argument("files", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--by", metavar="COLUMN", help="Pair the rows that differ in it: device, dtype, mode, run, batch, threads, param.layout, …")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="What to write to stdout.")
def command(files: tuple[Path, ...], by: str | None, form: str) -> None:
    """Print the tables of result files again, or pair their rows.

    With a CPU and an accelerator among the rows, the table also says how many times as fast that is: on the same
    case, and each at its own best batch, precision and layout. Ratios come with intervals, never with a verdict.
    With cases of several ranks it says what more devices bring; --by ranks says that alone. Of a folder of result files it
    also says which stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show results/fleet
      dlbench show run.jsonl --by dtype --format csv
    """
    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.sides import are_sides
    from dlbench.analysis.table import collect
    from dlbench.cli.compare_command import fleet_notes, side_notes

    results = collect(files)
    write_results(results, by, form)
    notes = [*results.notes, *(side_notes(results) if are_sides(results) else ())]
    if any(path.is_dir() for path in files):
        notes += fleet_notes(results)
    for note in notes:
        click.echo(f"note: {note}", err=True)


def write_results(results: "Results", by: str | None, form: str) -> None:
    """Write results, or with ``by`` the pairs of their rows, to stdout, and to stderr what stands in no pair."""
    from dlbench.analysis import export, findings, sentences, terminal

    if by and by.removeprefix("param.") == "ranks":
        _write_scaling(results, form)
        return
    pairs = findings.pair(results, by) if by else None
    if form != "table":
        click.echo(export.render(pairs.frame if pairs else results.frame, form), nl=False)
    elif pairs:
        _print(terminal.paired(results, pairs))
    else:
        _print(terminal.overview(results))
    for note in sentences.unpaired(pairs.unpaired) if pairs else ():
        click.echo(f"note: {note}", err=True)


def _write_scaling(results: "Results", form: str) -> None:
    """Write what more devices bring; of the rows that differ in their ranks a ratio alone does not tell that."""
    from rich.console import Group

    from dlbench.analysis import efficiency, export, projection, table, terminal

    rows = projection.projected(results)
    if not rows:
        raise UsageError("no row has ranks to pair it by; measure some: dlbench run scaling")
    if form != "table":
        click.echo(export.render(table.as_frame(rows, efficiency.COLUMNS), form), nl=False)
        return
    answer, tables = terminal.more_devices(rows)
    _print(Group(*answer, *tables))


def _print(renderable: "RenderableType") -> None:
    from rich.console import Console

    console = Console()
    console.width = max(_LEAST, console.width) if sys.stdout.isatty() else _UNBOUNDED
    # Through click, because rich answers a closed pipe with exit code 1.
    with console.capture() as capture:
        console.print(renderable)
    click.echo(capture.get(), nl=False)
