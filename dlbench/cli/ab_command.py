"""``dlbench ab``: two sides measured in turn on this machine, and a verdict for every case."""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from dlbench.cli import session as sessions
from dlbench.cli.ab_sides import NAMES, Asked, Prepared, prepared, side_options, without_what_only_the_other_has
from dlbench.cli.measuring import Recording
from dlbench.cli.options import (
    DEFAULT_SUITE,
    Planned,
    measuring_options,
    must_see_option,
    parse_thresholds,
    plan_suites,
    planning_options,
    require_sight,
    threshold_option,
    verdict_options,
)
from dlbench.cli.output import OutputOptions, conclude, write_results
from dlbench.core.errors import DeviceFault, ExitCode
from dlbench.core.model import CONFIRMING
from dlbench.core.stats import PAIRED_SHARES, rounds_for_gate
from dlbench.harness.host import Host, greet
from dlbench.harness.hosts import Isolation, default_isolation, greeting_mode, layout_seed
from dlbench.harness.interruption import Interruption
from dlbench.harness.machines import refuse_several
from dlbench.harness.planning import workload_names
from dlbench.harness.runner import Settings
from dlbench.harness.selection import compile_expression
from dlbench.harness.side import Side, Task
from dlbench.harness.suite import load_all

if TYPE_CHECKING:
    from dlbench.analysis.verdict import Comparison


LEAST_ROUNDS = 14
"""A side: from here on testing pairs of rounds, too, costs no power where their noise is not shared; docs/validation.md."""
LEAST_FURTHER = 2
"""Rounds more at a time: what a case still lacks is an estimate, and a look at the file costs little beside a round."""
HOPELESS = 4
"""Times the rounds that fit in the time left which a case may need; where it needs more, going on would hardly get there."""


@click.command("ab")
@planning_options
@side_options
@click.option("--confirm", is_flag=True, help="Measure what is called slower or faster again, and let the new rounds alone decide.")
@measuring_options(
    rounds="Fresh processes a side to measure each case in, at first (default: as many as so many cases need, 14 or more).",
    budget="Time for all rounds, such as 10m: after the first none starts that would not fit (default: twice what the first ones take).",
)
@threshold_option("3% of time and 5% of memory")
@must_see_option("Measure on until every case could show such a change, and end with 4 if one can't (default: the suite's, or 25%).")
@verdict_options
def command(
    names: tuple[str, ...],
    expression: str | None,
    settings: tuple[str, ...],
    device_words: tuple[str, ...],
    plugins: tuple[str, ...],
    confirm: bool,
    output: Path | None,
    rounds: int | None,
    budget: float | None,
    timeout: float | None,
    seed: int | None,
    isolation: Isolation | None,
    thresholds: tuple[str, ...],
    must_see: str | None,
    strict: bool,
    junit: Path | None,
    verdict: Path | None,
    github: bool,
    form: str,
    **sides: Any,
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
    options = OutputOptions.of(strict, junit, verdict, github, form)
    given = parse_thresholds(thresholds, must_see)
    names = names or (DEFAULT_SUITE,)
    suites = load_all(names)
    if expression is not None:
        compile_expression(expression)  # like the suites: a mistake there is no side's, and shall not be told as one
    asked = [Asked.of(name, sides[f"{name}_python"], sides[f"{name}_env"], sides[f"{name}_ref"]) for name in NAMES]
    seed = secrets.randbits(32) if seed is None else seed
    isolation = isolation or default_isolation()

    # Not at the top, so that --help stays quick.
    from dlbench.analysis.compare import WITHIN_A_RUN
    from dlbench.harness.devices import describe_cpu

    require_sight(suites, WITHIN_A_RUN, given)
    threads = describe_cpu().usable_threads()
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        present: list[_Present] = []
        for each in asked:
            ready = stack.enter_context(prepared(each, plugins, interruption))
            with ready.named():
                layout = layout_seed(seed, 0, each.name)
                host = stack.enter_context(Host(greeting_mode(isolation), threads, layout, interruption, ready.interpreter))
                present.append(_Present(ready, host, greet(host, ready.plugins, workload_names(suites), threads, ready.root)))
        found = []
        for one, other in (present, present[::-1]):
            with one.ready.named():
                shared = without_what_only_the_other_has(suites, one.answer, other.answer)
                found.append(_Found.of(one, plan_suites(shared, one.answer, expression, settings, device_words)))
        tasks = [task for side in found for task in side.tasks()]
        changes = {"rounds": rounds, "max_rounds": rounds, "budget_s": budget, "timeout_s": timeout}
        policy = sessions.policy_for(found[0].plan, changes, _gate_rounds(len({task.case.id for task in tasks})))
        session = sessions.start(
            found[0].plan,
            tasks,
            Settings(policy, seed, isolation, threads),
            expression=expression,
            include_absent=not device_words,
            plugins=plugins,
            output=output,
            sides=dict(zip(NAMES, (each.told for each in found), strict=True)),
        )
        with Recording(session, interruption) as recording:
            recording.measure(session, {each.side.name: each.host for each in found})
            _measure_until_seen(recording, session, budget, given, interruption)
            if confirm and not interruption.requested and not recording.fault:
                _measure_again(recording, session, rounds, given)
        return _end(recording.path, recording.fault, interruption, given, options)


@dataclass(frozen=True, slots=True)
class _Present:
    """A side that has answered."""

    ready: Prepared
    host: Host
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Found:
    """A side whose cases are planned."""

    side: Side
    plan: Planned
    host: Host
    told: Mapping[str, Any]
    """What the result file says of it."""

    @classmethod
    def of(cls, present: _Present, plan: Planned) -> Self:
        """Make it of what the side answered and of the plan for it."""
        from dlbench.harness.environment import fingerprint

        ready = present.ready
        side = Side.on(plan.devices, ready.plugins, ready.asked.name, interpreter=ready.interpreter, not_from=ready.root)
        where = fingerprint(plan.hello, plan.devices, environ=ready.interpreter.environment())
        told = {key: where[key] for key in ("machine_key", "stack_key", "identity", "stack")}
        return cls(side, plan, present.host, {"side": ready.asked.told(ready.commit), "workloads": plan.declarations(), **told})

    def tasks(self) -> list[Task]:
        """Return what it has to do in each round."""
        return [Task(case, self.side) for case in self.plan.cases]


def _gate_rounds(cases: int) -> int:
    return rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)


def _measure_until_seen(
    recording: Recording, session: sessions.Session, budget_s: float | None, given: Mapping[str, str], interruption: Interruption
) -> None:
    """Measure cases that can't show yet what must be seen in more rounds, while the budget lasts.

    What counts is how well a change is known, never its size, its sign or its verdict, so that further rounds favour none.
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


def _measure_again(recording: Recording, session: sessions.Session, rounds: int | None, given: Mapping[str, str]) -> None:
    """Measure the cases that were called slower or faster in as many fresh rounds as these few need, or as the user said."""
    from dlbench.analysis.sides import FLAGGED

    flagged = {case.case for case in _judged(recording.path, given)[0].cases if case.verdict in FLAGGED}
    if not flagged:
        return
    needed = rounds or _gate_rounds(len(flagged))
    tasks = [Task(task.case, replace(task.side, name=f"{task.side.name}{CONFIRMING}")) for task in session.tasks if task.case.id in flagged]
    click.echo(f"measuring again, in {needed} fresh rounds: {', '.join(sorted(flagged))}", err=True)
    recording.measure(_further(session, recording, tasks, needed), {})


def _further(
    session: sessions.Session, recording: Recording, tasks: Sequence[Task], rounds: int, budget_s: float | None = None
) -> sessions.Session:
    """Return a session of so many further rounds of some tasks, in the same file."""
    policy = replace(session.settings.policy, rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    return replace(session, tasks=tuple(tasks), settings=replace(session.settings, policy=policy), first_round=recording.rounds)


def _judged(path: Path, given: Mapping[str, str]) -> tuple["Comparison", list[str]]:
    """Return the verdicts of the file, and what there is to say beside them."""
    from dlbench.analysis.compare_provenance import side_notes
    from dlbench.analysis.sides import compare_sides
    from dlbench.analysis.table import collect

    results = collect((path,))
    return compare_sides(results, given), [*results.notes, *side_notes(results)]


def _end(path: Path, fault: DeviceFault | None, interruption: Interruption, given: Mapping[str, str], options: OutputOptions) -> ExitCode:
    """Write the verdicts; where not all rounds came to their end, only what was measured, as a test that was cut short is none."""
    from dlbench.analysis.table import collect

    if fault or interruption.requested:
        write_results(collect((path,)), None, options.form)
        code = ExitCode.DEVICE_FAULT
    else:
        comparison, notes = _judged(path, given)
        code = conclude([comparison], notes, options)
    click.echo(f"saved in {path}", err=True)
    if fault:
        raise fault
    if interruption.requested:
        click.echo(f"interrupted, so there is no verdict; for one on what was measured: dlbench compare {path} --by run", err=True)
        return ExitCode(128 + interruption.requested)
    return code
