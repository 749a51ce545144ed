"""``dlbench contribute``: a run as a reference for others, without anything private."""

from pathlib import Path

import click

from dlbench.cli.options import OUTPUT_FILE, file_argument
from dlbench.cli.output_files import check_writable, create
from dlbench.cli.terminal import say, say_unbroken
from dlbench.core.errors import UsageError


@click.command("contribute")
@file_argument
@click.option("-o", "--output", metavar="OUT", type=OUTPUT_FILE, help="File to write, never overwritten (default: after the device).")
def command(file: Path, output: Path | None) -> None:
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
    from dlbench.analysis.read.table import collect
    from dlbench.core.store import load
    from dlbench.core.writer import as_line

    check_writable(output)
    run = load(file)
    if not file.is_file():
        raise UsageError(f"{file} is a pipe, and this reads a file twice; write it to a file first, and give that")
    results = collect((file,))
    if wrong := objections(run, results):
        raise UsageError(f"{file} can't be a reference run: {'; also, '.join(wrong)}")
    records = list(public_records(run))
    content = b"".join(map(as_line, records))
    machine, suites = machine_name(records[0]["devices"]), file_name("-".join(suite["name"] for suite in records[0]["suites"]))
    path = output or Path(f"{machine}-{suites}.jsonl")
    create(path, content)
    click.echo(path)
    measured = plural(len(run.measurements), "measurement")
    say(f"{path} has the {measured} of {file}, with dlbench's words for reasons; look through it, it is plain text")
    say("by itself it is sent nowhere; three commands offer it, in the top folder of a checkout of the project that you have dlbench from:")
    for line in offer(path, machine, suites):
        say_unbroken(f"  {line}")
