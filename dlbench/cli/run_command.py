"""``dlbench run``: plan, measure round after round into one file, and print who wins."""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlbench.cli import session as sessions
from dlbench.cli.listing import write_plan
from dlbench.cli.measuring import Recording
from dlbench.cli.options import (
    DEFAULT_SUITE,
    measuring_options,
    must_see_option,
    parse_thresholds,
    planned,
    planning_options,
    require_sight,
)
from dlbench.cli.output import FORMATS, write_results
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.model import Status
from dlbench.core.stats import TESTS_A_CASE, rounds_for_gate
from dlbench.core.store import load
from dlbench.core.thresholds import Settings
from dlbench.harness.host import Host, greet
from dlbench.harness.hosts import Isolation, default_isolation, greeting_mode, layout_seed
from dlbench.harness.interruption import Interruption
from dlbench.harness.machines import Offer, Place, gathered, serve
from dlbench.harness.runner import Settings as RunSettings
from dlbench.harness.side import Side, Task

if TYPE_CHECKING:
    from dlbench.analysis.table import Results
    from dlbench.analysis.verdict import Comparison


@click.command("run")
@planning_options
@measuring_options(
    rounds="Fresh processes to measure each case in (default: the suite's, 7).",
    budget="Time for the whole run, such as 90s or 10m; what is left buys more rounds.",
)
@click.option("--gate", is_flag=True, help="Make a baseline: ten rounds or more, enough for a later comparison to call a case slower.")
@must_see_option("With --gate: end with 4 if, compared with a run like this one, a case could not show such a change (default: 25%).")
@click.option("--resume", type=click.Path(path_type=Path), metavar="FILE", help="Go on with a run as it was planned, or to more --rounds.")
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
    seed: int | None,
    isolation: Isolation | None,
    gate: bool,
    must_see: str | None,
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
    if must_see is not None and not gate:
        raise UsageError("--must-see says what a baseline has to be able to show; give it with --gate")
    given = parse_thresholds((), must_see)
    others = (names, expression, settings, device_words, plugins, output, gate, seed is not None, isolation, dry_run)
    if resume and any(others):
        raise UsageError(
            "--resume goes on with what the file planned; beside it only --rounds, --budget, --timeout and --format can be given"
        )
    changes = {"rounds": rounds, "max_rounds": rounds, "budget_s": budget, "timeout_s": timeout}
    place = Place.of_torchrun(os.environ)
    if resume and place:
        raise UsageError("--resume goes on with a run on one machine; give it without torchrun")
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
        host = stack.enter_context(Host(greeting_mode(isolation), threads, layout_seed(seed, 0), interruption))
        if place and place.number:
            return _take_part(place, greet(host, plugins, (), threads), device_words, threads, interruption)
        machines = stack.enter_context(gathered(place)) if place else ()
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
            if gate:
                from dlbench.analysis.compare import ACROSS_RUNS

                require_sight(plan.suites, ACROSS_RUNS, given)
            if dry_run:
                write_plan(plan, form)
                return ExitCode.OK
            side = Side.on(plan.devices, plugins, machines=machines)
            tasks = [Task(case, side) for case in plan.cases]
            policy = sessions.policy_for(plan, changes, rounds_for_gate(TESTS_A_CASE * len(tasks)) if gate else None)
            session = sessions.start(
                plan,
                tasks,
                RunSettings(policy, seed, isolation, threads),
                expression=expression,
                include_absent=not device_words,
                plugins=plugins,
                output=output,
                machines=[machine.environment for machine in machines],
                gate=given if gate else None,
            )
        return _measure(session, host, interruption, form)


def _take_part(place: Place, hello: Mapping[str, Any], device_words: Sequence[str], threads: int, interruption: Interruption) -> ExitCode:
    """Start ranks here for the first of several machines, which plans, measures and writes."""
    from dlbench.harness import devices, environment

    chosen = devices.usable(devices.select(devices.describe(hello), device_words))
    click.echo(f"machine {place.number} of {place.count - 1} beside the first, {place.host}, which writes the results", err=True)
    serve(place, Offer({device.id: device.name for device in chosen}, threads, environment.fingerprint(hello, chosen)), interruption)
    return ExitCode(128 + interruption.requested) if interruption.requested else ExitCode.OK


def _measure(session: sessions.Session, host: Host, interruption: Interruption, form: str) -> ExitCode:
    """Run the rounds, write the results, and say which code to exit with."""
    from dlbench.analysis.table import collect

    with Recording(session, interruption) as recording:
        recording.measure(session, {None: host})
    results = collect((recording.path,))
    write_results(results, None, form, answers=True)
    click.echo(f"saved in {recording.path}", err=True)
    if recording.fault:
        click.echo(f"what was skipped can be measured with: dlbench run --resume {recording.path}", err=True)
        raise recording.fault
    if interruption.requested:
        click.echo(f"interrupted; go on with: dlbench run --resume {recording.path}", err=True)
        return ExitCode(128 + interruption.requested)
    blind = _as_baseline(results, session.gate) if session.gate is not None else None
    if blind and blind.undecidable:
        click.echo(f"note: compared with a run like this one, {blind.undecidable}", err=True)
        click.echo(f"note: more rounds go to the same file with: dlbench run --resume {recording.path} --rounds N", err=True)
    failed = any(Status(status).is_failure for status in results.frame["case.status"])
    return ExitCode.CASES_FAILED if failed else ExitCode.UNDECIDABLE if blind and blind.undecidable else ExitCode.OK


def _as_baseline(results: "Results", gate: Settings) -> "Comparison":
    """Compare a run with itself: what of it could not have shown, in a run like it, the change that must be seen?"""
    from dlbench.analysis.compare import compare

    return compare(results, results, given=gate, insist=True)
