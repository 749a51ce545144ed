"""Commands that turn result files into a page, into another tool's format, or into a reference run for others."""

from dataclasses import replace
from pathlib import Path

import click

from dlbench.analysis.export import formats
from dlbench.analysis.export.tabular import FILE_FORMATS, NEEDS_NAME
from dlbench.cli.options import OUTPUT_FILE, PATH, file_argument, files_argument, price_options
from dlbench.cli.output_files import check_writable, create, is_page_of, made_from, page_of, writing
from dlbench.cli.terminal import drop_stdout, say, say_unbroken, write_notes
from dlbench.core.errors import OutputError, UsageError
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
def report_command(files: tuple[Path, ...], output: Path | None, figures: Path | None, prices: Prices) -> None:
    """Write one page on result files, to look at or to send: answers, plots, tables, environment, warnings.

    The page is one file of HTML that loads nothing and runs no script. It has every case with the command that measures it
    again. For a page on a comparison: dlbench compare --report.

    \b
      dlbench report run.jsonl
      dlbench report cpu.jsonl gpu.jsonl -o both.html
      dlbench report run.jsonl -o run.html --figures figures
      dlbench report run.jsonl --price cuda=2.50EUR/h
    """
    # Here and not at the top: these modules import more than help may take.
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.report import page
    from dlbench.cli.output import check_priced_devices, notes_on

    path = output or page_of(files)
    # A page under its default name is replaced, but only one that was made from the same files.
    replaces_page = output is None and is_page_of(path, files)
    if not replaces_page:
        check_writable(path)
    results = replace(collect(files), prices=prices)
    check_priced_devices(results)
    notes = notes_on(results, files)
    report = page.report(results, notes, made_from(files))
    pictures = {}
    if figures:
        check_writable(figures, new=False)
        with writing(figures):
            figures.mkdir(exist_ok=True)
        pictures = {figures / name: picture for name, picture in report.files().items()}
    check_writable(*pictures)  # all of them before the first is written
    # Below, "replace" is for names of files that are no valid UTF-8.
    for picture_path, picture in pictures.items():
        create(picture_path, picture.encode(errors="replace"))
    if replaces_page:
        path.unlink(missing_ok=True)
    create(path, report.html.encode(errors="replace"))
    write_notes(notes)
    say(f"saved in {path}" + (f", and {len(pictures)} figures in {figures}" if figures else ""))


@click.command("export")
@file_argument
@click.option("--to", "form", type=click.Choice(FILE_FORMATS), metavar="FORMAT", required=True, help="One of the above.")
@click.option("-o", "--output", metavar="OUT", type=PATH, help="File to write, never overwritten (default: stdout).")
def export_command(file: Path, form: str, output: Path | None) -> None:
    """Write a result file, or one of pyperf, in the format of another tool.

    csv and parquet hold the whole table. The other formats hold the cases that are ok and have times; the rest is named on stderr.

    \b
    Formats: bencher, csv, github-action-benchmark, google-benchmark, parquet,
    pyperf.

    parquet needs -o. So does github-action-benchmark, which makes two files, inside OUT and without OUT- where OUT is a folder:

    \b
      OUT-smaller-is-better.json   times
      OUT-bigger-is-better.json    throughputs

    \b
      dlbench export run.jsonl --to csv > run.csv
      dlbench export run.jsonl --to pyperf -o run.json
      dlbench export run.jsonl --to github-action-benchmark -o run
    """
    if output is None and form in NEEDS_NAME:  # its values are the reasons, such as "is not text"
        raise UsageError(f"{form} {NEEDS_NAME[form]}, so it needs a name: add -o OUT")
    # Each part becomes a file. A format has a single part, except github-action-benchmark: it has one of times and one of throughputs.
    parts, notes = formats.export(form, file)
    contents: dict[Path | None, bytes] = {}
    for part, content in parts.items():
        path = _path_of_part(output, part)
        if content is not None:
            contents[path] = content
        else:  # only the part of throughputs can be empty; it is not written, as github-action-benchmark fails on an empty list
            notes.append(f"no case states how many items or operations a call handles, so there is no {path}")
    write_notes(notes)
    if not contents:
        raise UsageError(f"{file} has no case with times, so there is nothing to export to {form}")
    check_writable(*contents)  # all of them before the first is written
    for path, content in contents.items():
        if path is None:
            _write_to_stdout(content)
        else:
            create(path, content)


def _path_of_part(output: Path | None, part: str) -> Path | None:
    """Return where a part of an export goes: into OUT where that is a folder, else next to it; None is stdout.

    A format of one file has a single part without a name, which is OUT itself.
    """
    if output is None or not part:
        return output
    return output / f"{part}.json" if output.is_dir() else output.with_name(f"{output.name}-{part}.json")


def _write_to_stdout(content: bytes) -> None:
    """Write an export to stdout. Raises OutputError if that fails for another reason than a reader that has left."""
    try:
        click.echo(content, nl=False)
    except BrokenPipeError:  # the reader has left, as ``| head`` does; `main` handles it
        raise
    except OSError as error:
        drop_stdout()
        raise OutputError.of(Path("stdout"), error) from error


@click.command("contribute")
@file_argument
@click.option("-o", "--output", metavar="OUT", type=OUTPUT_FILE, help="File to write, never overwritten (default: after the device).")
def contribute_command(file: Path, output: Path | None) -> None:
    """Make a reference run for others out of a result file of `dlbench run`: check it, and strip what is private.

    It has to be complete and quiet: all planned cases, six rounds or more, none failed, few throttled, disturbed or very noisy. The
    copy has every measurement, the makers' names of the devices, the versions, the day and the time. It has no path, command line,
    environment variable, process, user, host, UUID or serial number, and of reasons only what kind they are. FILE stays as it is.
    Nothing is sent anywhere; the last lines are the commands that offer the copy as a pull request.

    \b
      dlbench contribute quick.jsonl
      dlbench contribute quick.jsonl -o reference.jsonl
    """
    # Here and not at the top, so that --help stays quick.
    from dlbench.analysis.contribute.offer import objections, offer
    from dlbench.analysis.contribute.public import file_name, machine_name, public_records
    from dlbench.analysis.presentation.wording import plural
    from dlbench.analysis.read.table import results_of
    from dlbench.core.store import load
    from dlbench.core.writer import as_line

    check_writable(output)
    run = load(file)  # once: a pipe is empty afterwards
    results = results_of(run, run.path.stem)
    if reasons := objections(run, results):
        raise UsageError(f"{file} can't be a reference run: {'; also, '.join(reasons)}")
    records = list(public_records(run))
    header = records[0]
    machine = machine_name(header["devices"])
    run_name = file_name("-".join(suite["name"] for suite in header["suites"]))
    path = output or Path(f"{machine}-{run_name}.jsonl")
    create(path, b"".join(map(as_line, records)))
    click.echo(path)
    measured = plural(len(run.measurements), "measurement")
    say(f"{path} has the {measured} of {file}, with dlbench's words for reasons; look through it, it is plain text")
    say("by itself it is sent nowhere; three commands offer it, in the top folder of a checkout of the project that you have dlbench from:")
    for line in offer(path, machine, run_name):
        say_unbroken(f"  {line}")  # a line to copy must not be broken
