"""``dlbench show``: result files as tables again, or their rows paired."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import click

from dlbench.cli import options
from dlbench.cli.options import files_argument, format_option, option_group, price_options
from dlbench.cli.prices import check_devices, typed_prices
from dlbench.core.errors import UsageError, did_you_mean
from dlbench.core.prices import Prices

_TOPICS = ("cost", "serving", "speed-up")
"""The answers that tell prices and cards."""
_FORMATS = {"--answers": ("table", "md", "json"), "--topic": ("table", "md", "json"), "--card": ("table", "md"), "--details": ("table",)}
"""What they can be written as; all else takes every format."""
_ANSWERED = {"convergence": "precision", "scaling": "devices"}
"""Suites that are called otherwise than the answer that they are for."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is to be shown in place of the cases and the lines."""

    by: str | None
    answers: bool
    topic: str | None
    claims: bool
    card: bool
    details: bool

    @property
    def names(self) -> list[str]:
        """The options that are given."""
        return [f"--{each.name}" for each in fields(self) if getattr(self, each.name)]

    def check(self, form: str) -> None:
        """Raise UsageError where options ask for things that do not go together."""
        chosen, typed = self.names, typed_prices()
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} show something else each; give one of them")
        if chosen and form not in (forms := _FORMATS.get(chosen[0], (form,))):
            raise UsageError(f"{chosen[0]} can't be written as {form}; give --format {' or '.join(forms)}")
        unshown = self.by or self.topic not in (None, *_TOPICS) or (form != "table" and not chosen)
        if typed and unshown:
            raise UsageError(
                f"prices are shown by the answers on cost, serving and speed-up alone; leave out {', '.join(typed)}, or give --topic cost"
            )
        if self.topic not in (None, "speed-up") and "--on" in typed:
            raise UsageError(f"--on is for the answer on speed-up, not for --topic {self.topic}; leave it out, or give --topic speed-up")


@click.command("show")
@files_argument
@option_group(
    "parts",
    Shown,
    click.option(
        "--by",
        metavar="COLUMN",
        shell_complete=options.columns,
        help="Pair the rows that differ in it: device, dtype, mode, run, batch, threads, param.layout, …",
    ),
    click.option("--answers", is_flag=True, help="Only the answers, each with its reasoning; also as --format md or json."),
    click.option(
        "--topic",
        metavar="TOPIC",
        shell_complete=options.topics,
        help="Only one of the answers, with the tables that it stands on: precision, batch, …; also as --format md or json.",
    ),
    click.option(
        "--claims",
        is_flag=True,
        help="Only what others claim of GPUs, precisions and batches, and what was measured; also as md, csv or json.",
    ),
    click.option(
        "--card",
        is_flag=True,
        help="Only a card to paste, in Markdown: machine, versions, the headline of each answer, and the command that measures it again.",
    ),
    click.option("--details", is_flag=True, help="All cases, all tables, and what was in the way of the measurements."),
)
@format_option
@price_options
def show_command(files: tuple[Path, ...], parts: Shown, form: str, given: Prices) -> None:
    """Print what result files say: their cases, and a line for each answer; or pair their rows.

    A terminal shows as many cases as leave these lines in sight, a pipe all of them; --details has the rest. With
    --answers, or --topic for one, the reasoning follows each answer. --by matches rows; ratios have intervals from four rounds on,
    and never a verdict; --by ranks says what more devices bring, with a projection. Of a folder of result files a note says which
    stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl
      dlbench show run.jsonl --topic precision
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show run.jsonl --claims
      dlbench show run.jsonl --card
      dlbench show results/fleet
      dlbench show run.jsonl --by dtype --format csv
      dlbench show run.jsonl --topic cost --price cuda=2.50/h
      dlbench show run.jsonl --topic speed-up --on 'RTX 4090'
    """
    parts.check(form)

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.answers import topics
    from dlbench.analysis.presentation.names import paths_of
    from dlbench.analysis.read.table import collect
    from dlbench.cli.output import devices, notes_on, write_answers, write_card, write_claims, write_pairs, write_results
    from dlbench.cli.terminal import write_notes

    if parts.topic and parts.topic not in (known := topics()):
        near = f"; its answer is '{_ANSWERED[parts.topic]}'" if parts.topic in _ANSWERED else did_you_mean(parts.topic, known)
        raise UsageError(f"there is no topic '{parts.topic}'{near}; the topics are {', '.join(known)}")
    results = replace(collect(files), prices=given)
    check_devices(given, devices(results))
    notes = [*notes_on(results, files), *(paths_of(results.paths) if form == "table" else ())]
    if parts.details or not parts.names:
        write_results(results, form, files, notes, details=parts.details)
        return
    if parts.by:
        write_pairs(results, parts.by, form)
    elif parts.card:
        write_card(results)
    elif parts.claims:
        write_claims(results, form)
    else:
        write_answers(results, form, parts.topic)
    write_notes(notes)
