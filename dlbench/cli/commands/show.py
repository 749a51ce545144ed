"""``dlbench show``: result files as tables again, or their rows paired."""

import sys
from pathlib import Path

import click

from dlbench.cli import completion
from dlbench.cli.options import files_argument, format_option
from dlbench.core.errors import UsageError


@click.command("show")
@files_argument
@click.option(
    "--by",
    metavar="COLUMN",
    shell_complete=completion.columns,
    help="Pair the rows that differ in it: device, dtype, mode, run, batch, threads, param.layout, …",
)
@format_option
@click.option("--answers", is_flag=True, help="Begin with what the files say to each of ten questions; alone with --format md or json.")
@click.option(
    "--details", is_flag=True, help="End with projections, all values of workloads that report many, and bandwidths of collectives."
)
@click.option("--plain/--no-plain", help="On a terminal, too, draw no bars beside ratios and no strips of rounds.")
def command(files: tuple[Path, ...], by: str | None, form: str, answers: bool, details: bool, plain: bool) -> None:
    """Print the tables of result files again, or pair their rows.

    With a CPU and an accelerator among the rows, the table also says how many times as fast that is: on the same
    case, and each at its own best batch, precision, layout and mode. Ratios come with intervals, never with a verdict.
    With cases of several ranks it says what more devices bring; --by ranks says that alone, with a projection. Of a folder of
    result files it also says which stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl --answers
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show results/fleet
      dlbench show run.jsonl --by dtype --format csv
    """
    if by and (answers or details):
        raise UsageError("--by shows pairs alone; leave out --answers and --details, or --by")
    if answers and form == "csv":
        raise UsageError("--answers are sentences and several tables, which csv can't hold; give --format md or json")
    if details and form != "table":
        raise UsageError(f"--details are tables for people, and --format {form} is every column already; leave one of them out")

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.read.table import collect
    from dlbench.cli.output import notes_on, write_answers, write_notes, write_pairs, write_results

    results, pictures = collect(files), not plain and sys.stdout.isatty()
    if answers and form != "table":
        write_answers(results, form)
    elif by:
        write_pairs(results, by, form, pictures=pictures)
    else:
        write_results(results, form, answers=answers, details=details, pictures=pictures)
    write_notes(notes_on(results, files))
