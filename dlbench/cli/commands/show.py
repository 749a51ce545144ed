"""``dlbench show``: result files as tables again, or their rows paired."""

from dataclasses import replace
from pathlib import Path

import click

from dlbench.cli.options import complete_columns, completer, files_argument, format_option, price_options, typed_options
from dlbench.core.errors import UsageError, did_you_mean
from dlbench.core.prices import Prices

_OTHER_TOPICS = {"all": ("table", "md", "json"), "claims": ("table", "csv", "json", "md"), "card": ("table", "md"), "details": ("table",)}
"""Topics that are no single answer, and the formats of each. A single answer has the formats of ``all``."""
_PRICED = ("cost", "serving", "speed-up")
"""The answers that use prices."""
_ANSWER_OF_SUITE = {"convergence": "precision", "scaling": "devices"}
"""Suites that have another name than the answer that they are for."""


def _topics() -> list[str]:
    from dlbench.analysis import answers

    return [*answers.topics(), *_OTHER_TOPICS]


@click.command("show")
@files_argument
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=completer(_topics),
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
def show_command(files: tuple[Path, ...], topic: str | None, by: str | None, form: str, prices: Prices) -> None:
    """Print what result files say: their cases, and a line for each answer; or pair their rows.

    --by matches rows; ratios have intervals from four rounds on, and never a verdict; --by ranks says what more devices bring. Of a
    folder of result files a note says which stand out among those of the same kind of machine.

    \b
      dlbench show run.jsonl --topic all
      dlbench show cpu.jsonl gpu.jsonl --by device
      dlbench show run.jsonl --topic cost --price cuda=2.50/h
      dlbench show run.jsonl --topic speed-up --on 'RTX 4090'
    """
    _refuse_contradictions(topic, by, form)

    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis.presentation.names import paths_of
    from dlbench.analysis.read.table import collect
    from dlbench.cli import output
    from dlbench.cli.terminal import write_notes

    results = replace(collect(files), prices=prices)
    output.check_priced_devices(results)
    notes = output.notes_on(results, files)
    if form == "table":  # a table names a file without its folders, so notes tell files of the same name apart
        notes = [*notes, *paths_of(results.paths)]
    if by is None and topic in (None, "details"):
        output.write_results(results, form, files, notes, details=topic == "details")  # writes the notes, too
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


def _refuse_contradictions(topic: str | None, by: str | None, form: str) -> None:
    """Raise UsageError for an unknown topic, for a format that it does not have, and for options that exclude each other."""
    if topic:
        topics = _topics()
        forms = _OTHER_TOPICS.get(topic, _OTHER_TOPICS["all"])
        if topic not in topics:
            hint = f"; its answer is '{_ANSWER_OF_SUITE[topic]}'" if topic in _ANSWER_OF_SUITE else did_you_mean(topic, topics)
            raise UsageError(f"there is no topic '{topic}'{hint}; the topics are {', '.join(topics)}")
        if by:
            raise UsageError("--topic and --by show something else each; give one of them")
        if form not in forms:
            raise UsageError(f"--topic {topic} can't be written as {form}; give --format {' or '.join(forms)}")
        # Topics that are no single answer may show prices. Of the single answers only a few do.
        shows_prices = topic in (*_OTHER_TOPICS, *_PRICED)
    else:  # without a topic the table has all answers; other formats and --by have none
        shows_prices = form == "table" and not by
    price_options_given = [f"--{name}" for name in ("price", "samples", "epochs", "on") if name in typed_options()]
    if price_options_given and not shows_prices:
        raise UsageError(
            "prices are shown by the answers on cost, serving and speed-up alone; "
            f"leave out {', '.join(price_options_given)}, or give --topic cost"
        )
    if "--on" in price_options_given and topic in ("cost", "serving"):
        raise UsageError(f"--on is for the answer on speed-up, not for --topic {topic}; leave it out, or give --topic speed-up")
