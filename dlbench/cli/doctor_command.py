"""``dlbench doctor``: is this machine fit to measure on now, and what to change."""

import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from dlbench.cli import session as sessions
from dlbench.cli.measuring import Recording
from dlbench.cli.options import planned
from dlbench.cli.show_command import FORMATS
from dlbench.core.errors import ExitCode
from dlbench.core.fitness import Finding, Fitness
from dlbench.core.store import load
from dlbench.harness.host import Host, greet
from dlbench.harness.interruption import Interruption
from dlbench.harness.runner import Settings, layout_seed
from dlbench.harness.side import Side, Task

SUITE = "noise"


@click.command("doctor")
@click.option("--device", "device_words", multiple=True, metavar="DEVICE", help="cpu, cuda or cuda:0 (default: every device). Repeatable.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=7, show_default=True, help="Rounds: fresh processes for each of the two sides."
)
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE", help="Module or .py file with a kind of device of your own. Repeatable."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="What to write to stdout.")
def command(device_words: tuple[str, ...], rounds: int, plugins: tuple[str, ...], form: str) -> ExitCode:
    """Say whether this machine is fit to measure on now, and what to change.

    Looks at memory, governor, quota, and each accelerator's temperature, clocks and other processes. Then it measures the same small
    cases on two sides, in turn, for about half a minute: how small a change could be seen here, and is one seen where there is none?
    Changes no setting. Ends with 4 if the machine is unfit: what is measured now could not decide.

    \b
      dlbench doctor
      dlbench doctor --device cuda:0 --format json
    """
    # Not at the top, so that --help stays quick.
    from dlbench.harness.devices import describe_cpu
    from dlbench.harness.health import examine

    threads, seed = describe_cpu().usable_threads(), secrets.randbits(32)
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        host = stack.enter_context(Host("stay", threads, layout_seed(seed, 0), interruption))
        plan = planned((SUITE,), None, (), device_words, plugins, lambda plugins, workloads: greet(host, plugins, workloads, threads))
        findings = examine(plan.devices)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [Side({device.id: device.name for device in plan.devices}, plugins, name) for name in ("a", "b")]
        policy = sessions.policy_for(plan, {"rounds": rounds, "max_rounds": rounds})
        session = sessions.start(
            plan,
            [Task(case, side) for case in plan.cases for side in sides],
            Settings(policy, seed, "none", threads),  # one process a round and side: what counts is that each has a new one
            expression=None,
            include_absent=False,
            plugins=plugins,
            output=folder / "aa.jsonl",
            sides={"a": {}, "b": {}},
        )
        with Recording(session, interruption) as recording:
            recording.measure(session, {"a": host})
        if interruption.requested:
            click.echo("interrupted; nothing was judged", err=True)
            return ExitCode(128 + interruption.requested)
        findings += _measured(recording.path, threads)
    return report(findings, form)


def _measured(path: Path, threads: int) -> list[Finding]:
    """Say what the file of an A/A tells of the machine."""
    from dlbench.analysis.fitness import judge_rounds, judge_same_code, judge_throttling
    from dlbench.analysis.table import collect

    run, results = load(path), collect((path,))
    same_code = judge_same_code(*(results.of_run(side) for side in results.environments))
    return [*judge_rounds(run.states, threads), *judge_throttling(run.measurements, run.discarded), *same_code]


def report(findings: Sequence[Finding], form: str) -> ExitCode:
    """Write findings to stdout, the worst first, and what they come to; return the exit code that says so."""
    from dlbench.analysis import export, fitness_export

    order = list(Fitness)
    ordered = sorted(findings, key=lambda each: order.index(each.fitness))
    unfit = sum(each.fitness is Fitness.UNFIT for each in ordered)
    code = ExitCode.UNDECIDABLE if unfit else ExitCode.OK
    conclusion = f"unfit to measure on now, {unfit} of {len(ordered)} findings stand in the way" if unfit else "fit to measure on now"
    if form == "table":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo("\n".join([*fitness_export.lines(ordered, width), ""]))
    else:
        click.echo(export.render(fitness_export.as_table(ordered), form), nl=False)
    click.echo(f"{conclusion}; exit {code.value}", err=form != "table")
    return code
