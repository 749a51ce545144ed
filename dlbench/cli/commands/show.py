"""``dlbench show``: result files as tables again, or their rows paired."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from dlbench.cli import completion
from dlbench.cli.options import files_argument, format_option, price_options
from dlbench.cli.prices import check_devices, refuse_unused
from dlbench.core.errors import UsageError, did_you_mean
from dlbench.core.prices import Prices

_TOPIC = "cost"
"""The answer that tells prices."""


@click.command("show")
@files_argument
@click.option(
    "--by",
    metavar="COLUMN",
    shell_complete=completion.columns,
    help="Pair the rows that differ in it: device, dtype, mode, run, batch, threads, param.layout, …",
)
@format_option
@click.option("--answers", is_flag=True, help="Only the ten answers, each with its reasoning; also as --format md or json.")
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=completion.topics,
    help="Only one of the ten answers, with the tables that it stands on: precision, batch, …; also as --format md or json.",
)
@click.option("--details", is_flag=True, help="All cases, all tables, and what was in the way of the measurements.")
@click.option("--plain/--no-plain", help="On a terminal, too, draw no bars beside ratios and no strips of rounds.")
@price_options
def command(
    files: tuple[Path, ...], by: str | None, form: str, answers: bool, topic: str | None, details: bool, plain: bool, given: Prices
) -> None:
    """Print what result files say: their cases, and a line for each of ten questions; or pair their rows.

    A terminal shows as many cases as leave the ten lines in sight, a pipe all of them; --details has the rest. With
    --answers, or --topic for one, the reasoning follows each answer. --by pairs rows: ratios come with intervals, never with
    a verdict; --by ranks says what more devices bring, with a projection. Of a folder of result files a note says which
    stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl
      dlbench show run.jsonl --topic precision
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show results/fleet
      dlbench show run.jsonl --by dtype --format csv
      dlbench show run.jsonl --topic cost --price-per-hour cuda=2.50 --currency EUR
    """
    _check(by, form, answers, topic, details)

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.answers import topics
    from dlbench.analysis.read.table import collect
    from dlbench.cli.output import devices, notes_on, write_answers, write_pairs, write_reasoning, write_results
    from dlbench.cli.terminal import write_notes

    if topic and topic not in (known := topics()):
        raise UsageError(f"there is no topic '{topic}'{did_you_mean(topic, known)}; the ten are {', '.join(known)}")
    results, pictures = replace(collect(files), prices=given), not plain and sys.stdout.isatty()
    check_devices(given, devices(results))
    notes = notes_on(results, files)
    if not (answers or topic or by):
        write_results(results, form, files, notes, details=details, pictures=pictures)
        return
    if by:
        write_pairs(results, by, form, pictures=pictures)
    elif form == "table":
        write_reasoning(results, topic, pictures=pictures)
    else:
        write_answers(results, form, topic)
    write_notes(notes)


def _check(by: str | None, form: str, answers: bool, topic: str | None, details: bool) -> None:
    """Raise UsageError for options of which one would do nothing beside another."""
    if by and (answers or topic or details):
        raise UsageError("--by shows pairs alone; leave out --answers, --topic and --details, or --by")
    if (answers or topic) and form == "csv":
        raise UsageError("answers are sentences and several tables, which csv can't hold; give --format md or json")
    if (answers or topic) and details:
        raise UsageError("--details shows all cases, and --answers and --topic none; leave one of them out")
    if details and form != "table":
        raise UsageError(f"--details are tables for people, and --format {form} is every column already; leave one of them out")
    if by:
        refuse_unused("prices are told in the answers, and --by shows pairs alone", leave_out="--by")
    if form != "table" and not (answers or topic):
        refuse_unused(f"prices are told in the answers, and --format {form} has the cases alone", leave_out="add --topic cost")
    if topic not in (None, _TOPIC):
        refuse_unused(f"prices are told in the answer on cost, and --topic {topic} is another", leave_out=f"give --topic {_TOPIC}")
