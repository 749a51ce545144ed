"""``dlbench export``: a result file in the format of another tool."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from dlbench.core.errors import OutputError, UsageError
from dlbench.core.store import make_folder_of

# Static text, so that --help imports none of the modules that know the formats.
_ONE_FILE = ("pyperf", "pytest-benchmark", "google-benchmark", "bencher")
_TWO_FILES = "github-action-benchmark"
FORMATS = ("csv", "parquet", *_ONE_FILE, _TWO_FILES)


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(FORMATS), required=True, help="The format.")
@click.option("-o", "--output", metavar="OUT", type=click.Path(path_type=Path), help="File to write, never overwritten (default: stdout).")
def command(file: Path, form: str, output: Path | None) -> None:
    """Write a result file, or one of pyperf, in the format of another tool.

    csv and parquet hold the whole table. The other formats hold the cases that are ok and have times; the rest is named on stderr.

    parquet needs -o. So does github-action-benchmark, which makes two files, inside OUT and without OUT- where OUT is a folder:

    \b
      OUT-smaller-is-better.json   times
      OUT-bigger-is-better.json    throughputs

    \b
      dlbench export run.jsonl --to csv > run.csv
      dlbench export run.jsonl --to pyperf -o run.json
      dlbench export run.jsonl --to github-action-benchmark -o run
    """
    if output is None and form in ("parquet", _TWO_FILES):
        what = "makes two files" if form == _TWO_FILES else "is not text"
        raise UsageError(f"{form} {what}, so it needs a name: add -o OUT")
    contents, notes = _table(file, form, output) if form in ("csv", "parquet") else _measured(file, form, output)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if not contents:
        raise UsageError(f"{file} has no case with times, so there is nothing to export to {form}")
    _write(contents)


_Contents = Mapping[Path | None, bytes]
"""What goes into which file; None is stdout."""


def _table(file: Path, form: str, output: Path | None) -> tuple[_Contents, list[str]]:
    # Here and not at the top: pandas takes longer to import than help may take.
    from dlbench.analysis import export
    from dlbench.analysis.table import collect

    results = collect([file])
    content = export.parquet(results.frame) if form == "parquet" else export.render(results.frame, form).encode()
    return {output: content}, list(results.notes)


def _measured(file: Path, form: str, output: Path | None) -> tuple[_Contents, list[str]]:
    from dlbench.analysis import exportable, interchange, table
    from dlbench.analysis.read.notes import incomplete

    run = table.load(file)
    timed, untimed = exportable.split(run)
    count = len(timed) + len(untimed)
    notes = [*incomplete(run, count), *exportable.left_out(untimed, count)]
    if not timed:
        return {}, notes
    if output is None or form != _TWO_FILES:
        return {output: _json(interchange.ONE_FILE[form](run, timed))}, notes
    contents: dict[Path | None, bytes] = {}
    for direction, entries in interchange.github_action_benchmark(timed).items():
        path = output / f"{direction}.json" if output.is_dir() else output.with_name(f"{output.name}-{direction}.json")
        if entries:
            contents[path] = _json(entries)
        else:  # an empty list would fail that action
            notes.append(f"no case states how many items or operations a call handles, so there is no {path}")
    return contents, notes


def _json(data: object) -> bytes:
    return json.dumps(data, allow_nan=False).encode() + b"\n"


def _write(contents: _Contents) -> None:
    """Write all files or, where one of them exists, none. Raises UsageError or OutputError."""
    for path in contents:
        if path is not None and path.exists():
            raise UsageError(f"{path} exists and is never overwritten; choose another name")
    for path, content in contents.items():
        if path is None:
            _print(content)
            continue
        try:
            _create(path, content)
        except OSError as error:
            raise OutputError.of(path, error) from error


def _create(path: Path, content: bytes) -> None:
    make_folder_of(path)
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            path.unlink()  # half of it is of no use, and would stand in the way of the next try
            raise


def _print(content: bytes) -> None:
    try:
        click.echo(content, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        # What could not be written stays in the buffer, and Python's own flush at exit would fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError.of(Path("stdout"), error) from error
