"""``dlbench ab``: two sides measured in turn on this machine, and a verdict for every case."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
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
from dlbench.cli.output import conclude, write_results
from dlbench.cli.output_files import refuse_misplaced, refuse_same_file
from dlbench.cli.planning import Plan, load_suites, require_sight
from dlbench.core.errors import DeviceFault, ExitCode
from dlbench.core.measurement import CONFIRMING
from dlbench.core.rank_test import PAIRED_SHARES, rounds_for_gate
from dlbench.core.thresholds import WITHIN_A_RUN, ThresholdSettings
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.ranks.cluster import refuse_several
from dlbench.harness.runner import RunSettings
from dlbench.harness.schedule import Task

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results


LEAST_ROUNDS = 14
"""A side: from here on testing pairs of rounds, too, costs no power where their noise is not shared; docs/validation.md."""
LEAST_FURTHER = 2
"""Rounds added at a time: the need is an estimate, and reading the file costs little beside a round."""
HOPELESS = 4
"""Times the rounds that fit in the time left; for a case that needs more, going on would hardly get there."""


@click.command("ab")
@planning_options
@side_options
@click.option("--confirm", is_flag=True, help="Measure what is called slower or faster again, and let the new rounds alone decide.")
@measuring_options(
    rounds="Fresh processes a side to measure each case in, at first (default: as many as so many cases need, 14 or more).",
    budget="Time for all rounds, such as 10m: after the first none starts that would not fit (default: twice what the first ones take).",
)
@threshold_options(
    "3% of time and 5% of memory",
    "Measure on until every case could show such a change, and end with 4 if one can't (default: the suite's, or 25%).",
)
@output_options
def command(
    planning: PlanOptions,
    sides: tuple[SideOptions, SideOptions],
    confirm: bool,
    measuring: MeasureOptions,
    given: ThresholdSettings,
    output: OutputOptions,
) -> ExitCode:
    """Measure two sides in turn on this machine: interpreters, environments, or states of your code; then judge b against a.

    In each round both sides of every case are measured one after the other, in random order, each in processes of its own. The sides
    differ in what the options of a and b say; a side without an option is as things are here. The result file holds both. Verdicts
    and exit codes are those of compare, which gives them again with --by run.

    \b
      dlbench ab --b-python ../next/.venv/bin/python
      dlbench ab matmul --set n=1024 --device cpu --b-env MKL_CBWR=COMPATIBLE
      dlbench ab mine.toml --plugin mine.py --a-ref main --confirm
    """
    refuse_several("dlbench ab", os.environ)
    refuse_same_file({"--output": measuring.output, **output.files})
    refuse_misplaced([measuring.output])
    suites, settings = load_suites(planning), sessions.settings_for(measuring.seed, measuring.isolation)
    require_sight(suites, WITHIN_A_RUN, given)
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        opened = [stack.enter_context(open_ab_side(each, planning.plugins, suites, settings, interruption)) for each in sides]
        plans = [one.plan(suites, other, planning) for one, other in (opened, opened[::-1])]
        session = _session(opened, plans, settings, measuring)
        with sessions.Recording(session, interruption) as recording:
            recording.measure(session, {each.options.name: each.opened.worker for each in opened})
            _measure_until_seen(recording, session, measuring.budget, given, interruption)
            if confirm and not interruption.requested and not recording.fault:
                _measure_again(recording, session, measuring.rounds, given)
        return _end(recording.path, recording.fault, interruption, given, output)


def _session(sides: Sequence[ABSide], plans: Sequence[Plan], settings: RunSettings, measuring: MeasureOptions) -> sessions.Session:
    """Return the session of both sides; side a's suites say how to measure."""
    tasks = [task for side, plan in zip(sides, plans, strict=True) for task in side.opened.tasks(plan)]
    policy = sessions.policy_for(plans[0], measuring.policy, _gate_rounds(len({task.case.id for task in tasks})))
    header = {side.options.name: side.to_json(plan) for side, plan in zip(sides, plans, strict=True)}
    return sessions.start(plans[0], tasks, replace(settings, policy=policy), measuring.output, sides=header)


def _gate_rounds(cases: int) -> int:
    return rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)


def _measure_until_seen(
    recording: sessions.Recording, session: sessions.Session, budget_s: float | None, given: ThresholdSettings, interruption: Interruption
) -> None:
    """Measure cases that can't show yet what must be seen in more rounds, while the budget lasts.

    Only how well a change is known counts, never its size, sign or verdict, so that further rounds favour none.
    """
    first_s, first_rounds = recording.seconds, max(recording.rounds, 1)
    end_s = 2 * first_s if budget_s is None else budget_s
    while not interruption.requested and not recording.fault:
        needed = {
            case.case: case.rounds_to_see or recording.rounds
            for case in _judged(recording.path, given)[0].cases
            if case.rounds_to_see or (case.unseen and case.changes)
        }
        tasks = [task for task in session.tasks if task.case.id in needed]
        left_s, of_a_round_s = end_s - recording.seconds, first_s / first_rounds * len(tasks) / len(session.tasks)
        fitting = int(left_s / max(of_a_round_s, 1e-9))
        if not tasks or fitting < 1:
            return
        wanted = max(max(needed.values()) - recording.rounds, LEAST_FURTHER)
        if wanted > HOPELESS * fitting:
            return
        rounds = min(wanted, fitting)
        names = f"{len(needed)} case{'' if len(needed) == 1 else 's'}"
        click.echo(f"{rounds} more rounds for {names} whose change is not known as well yet as it must be", err=True)
        recording.measure(_further(session, recording, tasks, rounds, left_s), {})


def _measure_again(recording: sessions.Recording, session: sessions.Session, rounds: int | None, given: ThresholdSettings) -> None:
    """Measure the cases that were called slower or faster in as many fresh rounds as these few need, or as the user said."""
    from dlbench.analysis.compare.ab import FLAGGED

    flagged = {case.case for case in _judged(recording.path, given)[0].cases if case.verdict in FLAGGED}
    if not flagged:
        return
    needed = rounds or _gate_rounds(len(flagged))
    tasks = [Task(task.case, replace(task.side, name=f"{task.side.name}{CONFIRMING}")) for task in session.tasks if task.case.id in flagged]
    click.echo(f"measuring again, in {needed} fresh rounds: {', '.join(sorted(flagged))}", err=True)
    recording.measure(_further(session, recording, tasks, needed), {})


def _further(
    session: sessions.Session, recording: sessions.Recording, tasks: Sequence[Task], rounds: int, budget_s: float | None = None
) -> sessions.Session:
    """Return a session of so many further rounds of some tasks, in the same file."""
    policy = replace(session.settings.policy, rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    settings = replace(session.settings, policy=policy, began=time.monotonic())
    return replace(session, tasks=tuple(tasks), settings=settings, first_round=recording.rounds)


def _judged(path: Path, given: ThresholdSettings) -> tuple["Comparison", "Results"]:
    """Return the verdicts of the file, and what it holds."""
    from dlbench.analysis.compare.ab import compare_sides
    from dlbench.analysis.read.table import collect

    results = collect((path,))
    return compare_sides(results, given), results


def _end(path: Path, fault: DeviceFault | None, interruption: Interruption, given: ThresholdSettings, output: OutputOptions) -> ExitCode:
    """Write the verdicts; after a fault or an interruption only the results, as a test that was cut short is none."""
    from dlbench.analysis.compare.provenance import side_notes
    from dlbench.analysis.read.table import collect

    if fault or interruption.requested:
        write_results(collect((path,)), None, output.form)
        code = ExitCode.DEVICE_FAULT
    else:
        comparison, results = _judged(path, given)
        code = conclude([comparison], [*results.notes, *side_notes(results)], output, results)
    click.echo(f"saved in {path}", err=True)
    if fault:
        raise fault
    if interruption.requested:
        click.echo(f"interrupted, so there is no verdict; for one on what was measured: dlbench compare {path} --by run", err=True)
        return ExitCode(128 + interruption.requested)
    return code
