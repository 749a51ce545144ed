"""``dlbench report``: result files as one self-contained page."""

from dataclasses import replace
from pathlib import Path

import click

from dlbench.cli.options import OUTPUT_FILE, PATH, files_argument, price_options
from dlbench.cli.output_files import check_writable, create, is_page_of, made_from, page_of, writing
from dlbench.cli.prices import check_devices
from dlbench.cli.terminal import say, write_notes
from dlbench.core.prices import Prices


@click.command("report")
@files_argument
@click.option(
    "-o",
    "--output",
    type=OUTPUT_FILE,
    metavar="PAGE",
    help="The page; never overwritten (default: called like its file, run.html, and replacing an earlier page on it).",
)
@click.option("--figures", type=PATH, metavar="FOLDER", help="Write each plot as an SVG file of its own, too.")
@price_options
def command(files: tuple[Path, ...], output: Path | None, figures: Path | None, given: Prices) -> None:
    """Write one page on result files, to look at or to send: answers, plots, tables, environment, warnings.

    The page is one file of HTML that loads nothing and runs no script. It has every case with the command that measures it
    again. For a page on a comparison: dlbench compare --report.

    \b
      dlbench report run.jsonl
      dlbench report cpu.jsonl gpu.jsonl -o both.html
      dlbench report run.jsonl -o run.html --figures figures
      dlbench report run.jsonl --price cuda=2.50EUR/h
    """
    # Here and not at the top: they import more than help may take.
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.report import page
    from dlbench.cli.output import devices, notes_on

    path = output or page_of(files)
    replacing = output is None and is_page_of(path, files)
    if not replacing:
        check_writable(path)
    results = replace(collect(files), prices=given)
    check_devices(given, devices(results))
    notes = notes_on(results, files)
    made = page.report(results, notes, made_from(files))
    if figures:
        check_writable(figures, new=False)
        with writing(figures):
            figures.mkdir(exist_ok=True)
    drawn = {figures / name: picture for name, picture in made.files().items()} if figures else {}
    check_writable(*drawn)
    for drawing, picture in drawn.items():
        create(drawing, picture.encode(errors="replace"))
    if replacing:
        path.unlink(missing_ok=True)
    create(path, made.html.encode(errors="replace"))
    write_notes(notes)
    say(f"saved in {path}" + (f", and {len(drawn)} figures in {figures}" if figures else ""))
