"""``dlbench show``: result files as tables again, or their rows paired."""

from dataclasses import replace
from pathlib import Path

import click

from dlbench.cli.options import complete_columns, files_argument, format_option, offering, price_options, typed_options
from dlbench.core.errors import UsageError, did_you_mean
from dlbench.core.prices import Prices

_PARTS = {"all": ("table", "md", "json"), "claims": ("table", "csv", "json", "md"), "card": ("table", "md"), "details": ("table",)}
"""Topics that are no single answer, and the formats of each; a single one has those of all."""
_PRICED = ("cost", "serving", "speed-up")
"""The answers that use prices."""
_ANSWERED = {"convergence": "precision", "scaling": "devices"}
"""Answers by suites that have another name than their answer."""


def _topics() -> list[str]:
    from dlbench.analysis import answers

    return [*answers.topics(), *_PARTS]


@click.command("show")
@files_argument
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=offering(_topics),
    help="One answer with its tables, such as batch; or all, claims, card (to paste), details.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    shell_complete=complete_columns,
    help="Pair the rows that differ in it: device, dtype, mode, run, batch, …",
)
@price_options
@format_option
def show_command(files: tuple[Path, ...], topic: str | None, by: str | None, form: str, given: Prices) -> None:
    """Print what result files say: their cases, and a line for each answer; or pair their rows.

    --by matches rows; ratios have intervals from four rounds on, and never a verdict; --by ranks says what more devices bring. Of a
    folder of result files a note says which stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl --topic all
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show run.jsonl --topic cost --price cuda=2.50/h
      dlbench show run.jsonl --topic speed-up --on 'RTX 4090'
    """
    _check(topic, by, form)

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.presentation.names import paths_of
    from dlbench.analysis.read.table import collect
    from dlbench.cli import output
    from dlbench.cli.terminal import write_notes

    results = replace(collect(files), prices=given)
    output.check_priced_devices(results)
    notes = [*output.notes_on(results, files), *(paths_of(results.paths) if form == "table" else ())]
    if by is None and topic in (None, "details"):
        output.write_results(results, form, files, notes, details=topic is not None)
        return
    if by:
        output.write_pairs(results, by, form)
    elif topic == "card":
        output.write_card(results)
    elif topic == "claims":
        output.write_claims(results, form)
    else:
        output.write_answers(results, form, None if topic == "all" else topic)
    write_notes(notes)


def _check(topic: str | None, by: str | None, form: str) -> None:
    """Raise UsageError for an unknown topic, and for options that exclude each other."""
    if topic:
        known, forms = _topics(), _PARTS.get(topic, _PARTS["all"])
        if topic not in known:
            near = f"; its answer is '{_ANSWERED[topic]}'" if topic in _ANSWERED else did_you_mean(topic, known)
            raise UsageError(f"there is no topic '{topic}'{near}; the topics are {', '.join(known)}")
        if by:
            raise UsageError("--topic and --by show something else each; give one of them")
        if form not in forms:
            raise UsageError(f"--topic {topic} can't be written as {form}; give --format {' or '.join(forms)}")
    typed = [f"--{each}" for each in ("price", "samples", "epochs", "on") if each in typed_options()]
    has_costs = topic in (*_PARTS, *_PRICED) if topic else form == "table" and not by
    if typed and not has_costs:
        raise UsageError(
            f"prices are shown by the answers on cost, serving and speed-up alone; leave out {', '.join(typed)}, or give --topic cost"
        )
    if "--on" in typed and topic in ("cost", "serving"):
        raise UsageError(f"--on is for the answer on speed-up, not for --topic {topic}; leave it out, or give --topic speed-up")
