"""``dlbench export``: a result file in the format of another tool."""

from pathlib import Path

import click

from dlbench.analysis.export.tabular import FILE_FORMATS, NEEDS_NAME
from dlbench.cli.options import PATH, file_argument
from dlbench.cli.output_files import check_writable, create
from dlbench.cli.terminal import drop_stdout, write_notes
from dlbench.core.errors import OutputError, UsageError


@click.command("export")
@file_argument
@click.option("--to", "form", type=click.Choice(FILE_FORMATS), metavar="FORMAT", required=True, help="One of the above.")
@click.option("-o", "--output", metavar="OUT", type=PATH, help="File to write, never overwritten (default: stdout).")
def command(file: Path, form: str, output: Path | None) -> None:
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
    from dlbench.analysis.export import formats  # --help does without

    if output is None and form in NEEDS_NAME:
        raise UsageError(f"{form} {NEEDS_NAME[form]}, so it needs a name: add -o OUT")
    parts, notes = formats.export(form, file)
    contents: dict[Path | None, bytes] = {}
    for part, content in parts.items():
        path = _path(output, part)
        if content is not None:
            contents[path] = content
        else:  # an empty list would fail github-action-benchmark
            notes.append(f"no case states how many items or operations a call handles, so there is no {path}")
    write_notes(notes)
    if not contents:
        raise UsageError(f"{file} has no case with times, so there is nothing to export to {form}")
    check_writable(*contents)  # all or none
    for path, content in contents.items():
        if path is None:
            _print(content)
        else:
            create(path, content)


def _path(output: Path | None, part: str) -> Path | None:
    """Return where a part goes: into OUT where that is a folder, else next to it under its name; None is stdout."""
    if output is None or not part:
        return output
    return output / f"{part}.json" if output.is_dir() else output.with_name(f"{output.name}-{part}.json")


def _print(content: bytes) -> None:
    try:
        click.echo(content, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise OutputError.of(Path("stdout"), error) from error
