"""``dlbench run``: plan, measure round after round into one file, and print who wins."""

import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import click

from dlbench.cli import session as sessions
from dlbench.cli.list_command import write_plan
from dlbench.cli.options import planned, planning_options
from dlbench.cli.show_command import FORMATS, write_results
from dlbench.core.errors import DeviceFault, ExitCode, UsageError
from dlbench.core.model import Status
from dlbench.core.store import load
from dlbench.core.units import parse_duration
from dlbench.harness.host import Host, greet
from dlbench.harness.interruption import Interruption
from dlbench.harness.runner import Isolation, default_isolation, layout_seed, run_rounds

DEFAULT_SUITE = "quick"


class Duration(click.ParamType[float]):
    """``90s``, ``1.5m`` and the like, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the sentence of `parse_duration`."""
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("run")
@planning_options
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Result file; never overwritten.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Fresh processes to measure each case in (default: the suite's, 7).")
@click.option("--budget", type=Duration(), help="Time for the whole run, such as 90s or 10m; what is left buys more rounds.")
@click.option("--timeout", type=Duration(), help="Deadline of one case in one round (default: the suite's, 60s).")
@click.option("--gate", is_flag=True, help="As many rounds as a later comparison needs to be able to fail: ten or more.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the inputs and the order (default: a new one, recorded).")
@click.option(
    "--isolation",
    type=click.Choice(get_args(Isolation)),
    help="What a CPU case gets: a fork, a new interpreter (spawn), or none of its own (default: fork on Linux, else spawn).",
)
@click.option("--resume", type=click.Path(path_type=Path), metavar="FILE", help="Go on with an interrupted run, as it was planned.")
@click.option("--dry-run", is_flag=True, help="Only print what would be measured, and an estimate of the time.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="What to write to stdout.")
def command(
    names: tuple[str, ...],
    expression: str | None,
    settings: tuple[str, ...],
    device_words: tuple[str, ...],
    plugins: tuple[str, ...],
    output: Path | None,
    rounds: int | None,
    budget: float | None,
    timeout: float | None,
    gate: bool,
    seed: int | None,
    isolation: Isolation | None,
    resume: Path | None,
    dry_run: bool,
    form: str,
) -> ExitCode:
    """Measure: run suites and print who wins.

    SUITE is the name of a built-in suite (default: quick), or a path that ends in .toml. Every result is on the disk before the
    next case starts. The first Ctrl-C ends the current case and prints how to go on; a second ends at once.

    \b
      dlbench run
      dlbench run cnn -k "resnet and not bf16" --device cuda
      dlbench run matmul --set dtype=fp32,bf16 --rounds 10 -o mine.jsonl
      dlbench run --resume results/quick-20260131-120000.jsonl
    """
    if gate and (rounds or budget):
        raise UsageError("--gate chooses the rounds itself; give it without --rounds and --budget")
    others = (names, expression, settings, device_words, plugins, output, rounds, gate, seed is not None, isolation, dry_run)
    if resume and any(others):
        raise UsageError("--resume goes on with what the file planned; beside it only --budget, --timeout and --format can be given")
    changes = {"rounds": rounds, "max_rounds": rounds, "budget_s": budget, "timeout_s": timeout}
    unfinished = load(resume) if resume else None
    if unfinished:
        seed = unfinished.header.get("seed", 0)
    elif seed is None:
        seed = secrets.randbits(32)
    isolation = unfinished.header.get("isolation", "fork") if unfinished else isolation or default_isolation()
    plugins = tuple(unfinished.header.get("plugins", ())) if unfinished else plugins

    # Not at the top, so that --help stays quick.
    from dlbench.harness.devices import describe_cpu

    threads = describe_cpu().usable_threads()
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        # Never the one that forks: this one meets the accelerators, and neither CUDA nor OpenMP survives a fork.
        host = stack.enter_context(Host("stay", threads, layout_seed(seed, 0), interruption))
        if unfinished:
            session = sessions.go_on(unfinished, greet(host, plugins, (), threads), changes, threads)
        else:
            plan = planned(
                names or (DEFAULT_SUITE,),
                expression,
                settings,
                device_words,
                plugins,
                lambda plugins, workloads: greet(host, plugins, workloads, threads),
            )
            if dry_run:
                write_plan(plan, form)
                return ExitCode.OK
            session = sessions.start(
                plan,
                expression=expression,
                include_absent=not device_words,
                plugins=plugins,
                changes=changes,
                gate=gate,
                seed=seed,
                isolation=isolation,
                threads=threads,
                output=output,
            )
        return _measure(session, host, interruption, form)


def _measure(session: sessions.Session, host: Host, interruption: Interruption, form: str) -> ExitCode:
    """Run the rounds, write the footer and the results, and say which code to exit with."""
    from dlbench.analysis.table import collect
    from dlbench.cli.live import screen
    from dlbench.harness.environment import read_state

    writer = session.open_writer()
    started, fault = time.monotonic(), None
    try:
        with screen(session, writer.path) as observer:
            rounds = run_rounds(
                session.cases,
                session.settings,
                interruption,
                lambda measurement: writer.append(measurement.to_json()),
                observer,
                session.done,
                host,
            )
        if not interruption.requested:
            seconds = time.monotonic() - started
            writer.append({"kind": "footer", "rounds": rounds, "seconds": seconds, "state": read_state(session.devices)})
    except DeviceFault as error:
        fault = error
    finally:
        writer.close()
    results = collect((writer.path,))
    write_results(results, None, form)
    click.echo(f"saved in {writer.path}", err=True)
    if fault:
        raise fault
    if interruption.requested:
        click.echo(f"interrupted; go on with: dlbench run --resume {writer.path}", err=True)
        return ExitCode(128 + interruption.requested)
    failed = any(Status(status).is_failure for status in results.frame["case.status"])
    return ExitCode.CASES_FAILED if failed else ExitCode.OK
