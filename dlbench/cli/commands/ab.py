"""``dlbench ab``: two sides measured alternately on this machine, and a verdict for every case."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dlbench.cli import session as sessions
from dlbench.cli.ab_sides import ABSide, SideOptions, open_ab_side, side_options
from dlbench.cli.options import (
    MeasureOptions,
    OutputOptions,
    PlanOptions,
    measuring_options,
    output_options,
    planning_options,
    threshold_options,
)
from dlbench.cli.output_files import check_writable, refuse_same_file
from dlbench.cli.planning import Plan, load_suites, require_sight
from dlbench.cli.recording import LEAST_ROUNDS, Recording, announce_gate, further_rounds, measure_until_seen, record, write_gate
from dlbench.cli.terminal import say, write_notes
from dlbench.core.errors import ExitCode
from dlbench.core.machine import differences
from dlbench.core.measurement import CONFIRMING
from dlbench.core.rank_test import PAIRED_SHARES, rounds_for_gate
from dlbench.core.thresholds import WITHIN_A_RUN, ThresholdSettings, overridden
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.ranks.machines import refuse_several
from dlbench.harness.schedule import RunSettings, Task

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results


@click.command("ab")
@planning_options
@side_options
@click.option("--confirm", is_flag=True, help="Measure what is called slower or faster again, and let the new rounds alone decide.")
@measuring_options(
    rounds="Fresh processes a side to measure each case in (default: 14 or more at first, as so many cases need, then up to 60).",
    budget="Time for all rounds, such as 10m: after the first none starts that would not fit (default: what the rounds take).",
)
@threshold_options(
    "3% of time and 5% of memory",
    "Measure on until every case shows or excludes such a slowdown, and end with 4 if one doesn't (default: the suite's, or 25%).",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be measured, and an estimate of the time.")
@output_options
def command(
    planning: PlanOptions,
    sides: tuple[SideOptions, SideOptions],
    confirm: bool,
    measuring: MeasureOptions,
    given: ThresholdSettings,
    dry_run: bool,
    output: OutputOptions,
) -> ExitCode:
    """Measure two sides alternately on this machine: interpreters, environments, or states of your code; then judge b against a.

    In each round both sides of every case are measured one after the other, each in processes of its own; every second round reverses
    their order. The sides differ in what the options of a and b say, at least one; a side without an option is as things are here. The
    result file holds both. Verdicts and exit codes are those of compare, which gives them again with --by run.

    \b
      dlbench ab --b python=../next/.venv/bin/python
      dlbench ab matmul -k fp32 --b env=MKL_CBWR=COMPATIBLE
      dlbench ab mine.toml --plugin mine.py --a ref=main --confirm
    """
    refuse_several("dlbench ab")
    refuse_same_file({"--output": measuring.output, **output.files})
    check_writable(measuring.output, new=False)
    suites, settings = load_suites(planning), sessions.settings_for(measuring.seed, measuring.isolation)
    require_sight(suites, WITHIN_A_RUN, given)
    suites = tuple(replace(each, thresholds=overridden(each.thresholds, given)) for each in suites)  # so the file has them
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        opened = [stack.enter_context(open_ab_side(each, planning.plugins, suites, settings, interruption)) for each in sides]
        plans = [one.plan(suites, other, planning) for one, other in (opened, opened[::-1])]
        session, alike = _session(opened, plans, settings, measuring)
        goes_on = measuring.rounds is None or measuring.budget is not None
        if dry_run:
            return write_gate(session, goes_on, output.form)
        with record(session, interruption) as recording:
            if alike:
                write_notes(["nothing that is recorded differs between the sides, so this is an A/A"])
            announce_gate(session, goes_on)
            recording.measure(session, {each.opened.side.name: each.opened.worker for each in opened}, opened[0].opened.programs)
            if goes_on:
                measure_until_seen(recording, session, _judge, measuring.budget)
            if confirm and not recording.stopped:
                _measure_again(recording, session, measuring.rounds)
        return _end(recording, output)


def _session(
    sides: Sequence[ABSide], plans: Sequence[Plan], settings: RunSettings, measuring: MeasureOptions
) -> tuple[sessions.Session, bool]:
    """Return the session of both sides, and whether nothing differs between them; side a's suites say how to measure."""
    tasks = [task for side, plan in zip(sides, plans, strict=True) for task in side.opened.tasks(plan)]
    policy = sessions.policy_for(plans[0], measuring.policy, gate_rounds(len({task.case.id for task in tasks})))
    header = {str(side.opened.side.name): side.to_json(plan) for side, plan in zip(sides, plans, strict=True)}
    session = sessions.start(plans[0], tasks, settings, policy, measuring.output, sides=header)
    a, b = header.values()
    return session, not differences(a, b, ("side", "identity", "stack"))


def gate_rounds(cases: int) -> int:
    """Return the rounds a side that so many cases are measured in at first."""
    return rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)


def _measure_again(recording: Recording, session: sessions.Session, rounds: int | None) -> None:
    """Measure the cases that were called slower or faster in fresh rounds: as many as the user said, or as these few need to be seen."""
    flagged = {case.case for case in _judge(recording.results()).cases if case.verdict.is_change}
    if not flagged:
        return
    from dlbench.analysis.presentation.wording import few

    needed = rounds or gate_rounds(len(flagged))
    tasks = [Task(task.case, replace(task.side, name=f"{task.side.name}{CONFIRMING}")) for task in session.tasks if task.case.id in flagged]
    say(f"measuring again, in {needed} fresh rounds: {few(sorted(flagged))}")
    fresh = further_rounds(session, recording, tasks, needed)
    recording.measure(fresh, {})
    if rounds is None:
        measure_until_seen(recording, fresh, _judge)


def _judge(results: "Results") -> "Comparison":
    """Return the verdicts on the sides."""
    from dlbench.analysis.compare.sides import compare_sides  # not at the top, so that --help stays quick

    return compare_sides(results)


def _end(recording: Recording, output: OutputOptions) -> ExitCode:
    """Write the verdicts; after a fault or an interruption only the results, as a test that was cut short is none."""
    from dlbench.analysis.compare.provenance import side_notes
    from dlbench.cli.output import write_results
    from dlbench.cli.verdicts import conclude

    results, path = recording.results(), recording.path
    if not recording.stopped:
        code = conclude([_judge(results)], side_notes(results), output, results)
        say(f"saved in {path}")
        return code
    write_results(results, output.form, [path], saved=True)
    if recording.fault:
        raise recording.fault
    say(f"interrupted, so there is no verdict; for one on what was measured: dlbench compare {path} --by run")
    return recording.interruption.exit_code
