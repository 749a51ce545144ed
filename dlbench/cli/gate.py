"""Rounds of a gate, which `ab` and `run --gate` share: their announcement, and more of them until all is seen that must be."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlbench.analysis.presentation.wording import plural
from dlbench.cli.listing import estimated_s, write_cases
from dlbench.cli.recording import Recording
from dlbench.cli.session import Session
from dlbench.cli.terminal import say
from dlbench.core.errors import ExitCode
from dlbench.core.units import seconds
from dlbench.harness.plan.adaptive import usual_tries
from dlbench.harness.pool import process_for
from dlbench.harness.schedule import Task

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results


LEAST_ROUNDS = 14
"""A side: from here on testing pairs of rounds, too, costs no power where their noise is not shared; docs/validation.md."""


def announce(session: Session, goes_on: bool) -> None:
    """Say on stderr how many cases, process starts and minutes a gate is, with its first rounds and, if it ``goes_on``, with all rounds.

    Rounds that a budget has no time for are left out.
    """
    from dlbench.analysis.compare.power import MOST_FURTHER

    policy, isolation = session.settings.policy, session.settings.isolation
    tasks = [task for task in session.tasks if task.has_device]
    named = [(task, process_for(task.case, isolation, session.signatures)) for task in tasks]
    processes = {(task.side.name, process): task.case.ranks or 1 for task, process in named}
    # A CPU case has a process of its own, which is forked from another one or, with spawn, is all there is.
    own = sum(process == "cpu" for _, process in named)
    starts = sum(processes.values()) + own - (sum(name == "cpu" for _, name in processes) if isolation == "spawn" else 0)
    tries = usual_tries((task.case for task in tasks), session.signatures)
    first, most = policy.rounds, max(policy.rounds, MOST_FURTHER if goes_on else 0)
    ends_s = [estimated_s(replace(policy, rounds=rounds), len(tasks), tries) for rounds in (first, most)]
    # `seconds` says minutes from ten on; both ends are in one unit.
    times = [f"{each / 60:.2g} min" if each < 600 <= max(ends_s) else seconds(each) for each in ends_s]
    if (budget_s := policy.budget_s) is not None:
        unlimited = replace(policy, budget_s=None)
        fit = [each for each in range(1, most + 1) if estimated_s(replace(unlimited, rounds=each), len(tasks), tries) <= budget_s]
        most = max(fit, default=1)
    both = [min(first, most), most]
    cases = len({task.case.id for task in tasks})
    rounds = " to ".join(dict.fromkeys(map(str, both)))
    started = " to ".join(dict.fromkeys(f"{starts * each:,}" for each in both))
    measured = f"{cases:,} case{'' if cases == 1 else 's'} in {rounds} round{'' if rounds == '1' else 's'}"
    a_side = " a side" if len({task.side.name for task in session.tasks}) > 1 else ""
    took = f"about {' to '.join(dict.fromkeys(times))} (estimated from the policy; slow steps take longer)"
    say(f"{measured}{a_side}: {started} process starts, {took}")


def write_gate(session: Session, goes_on: bool, form: str) -> ExitCode:
    """Write the cases of a gate that is not measured to stdout, each once, and to stderr what they would take."""
    write_cases(iter({task.case.id: task.case for task in session.tasks}.values()), form)
    announce(session, goes_on)
    return ExitCode.OK


def measure_until_seen(
    recording: Recording, session: Session, judge: Callable[["Results"], "Comparison"], budget_s: float | None = None
) -> None:
    """Measure the session's cases that can't show yet what must be detected in more rounds, while a budget that was given lasts.

    Only how well a change is known counts, never its size, sign or verdict, so that further rounds favour none.
    """
    from dlbench.analysis.compare.power import MOST_FURTHER, further

    first_s, first_rounds = recording.seconds, max(recording.rounds, 1)
    mine = {task.case.id for task in session.tasks}
    while not recording.stopped:
        judged = judge(recording.results()).cases
        needed = {case.case: case.rounds_to_see for case in judged if case.rounds_to_see and case.case in mine}
        left_s = None if budget_s is None else budget_s - recording.seconds
        share = sum(task.case.id in needed for task in session.tasks) / len(session.tasks)
        round_s = first_s / first_rounds * share
        fitting = MOST_FURTHER if left_s is None else int(left_s / max(round_s, 1e-9))
        rounds, cases = further(needed, recording.rounds - session.first_round, fitting)
        if not rounds:
            return
        say(f"{plural(rounds, 'more round')} for {plural(len(cases), 'case')} whose change is not known well enough yet")
        tasks = [task for task in session.tasks if task.case.id in cases]
        recording.measure(further_rounds(session, recording, tasks, rounds, left_s), {})


def further_rounds(session: Session, recording: Recording, tasks: Sequence[Task], rounds: int, budget_s: float | None = None) -> Session:
    """Return a session of so many further rounds of some tasks, in the same file."""
    policy = replace(session.settings.policy, rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    settings = replace(session.settings, policy=policy, began=time.monotonic())
    return replace(session, tasks=tuple(tasks), settings=settings, first_round=recording.rounds, done=())
