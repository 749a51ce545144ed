"""Commands on the noise of this machine: is it fit to measure on now, and how much do sessions differ?"""

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from dlbench.cli import defaults
from dlbench.cli import session as sessions
from dlbench.cli.options import (
    CALIBRATIONS,
    PlanOptions,
    device_files_argument,
    device_option,
    format_option,
    planning_options,
    rounds_type,
)
from dlbench.cli.output_files import writing
from dlbench.cli.planning import Plan, load_suites, plan_suites
from dlbench.cli.recording import record
from dlbench.cli.terminal import draw, say, write_notes
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.machine import Finding, Fitness
from dlbench.core.model import Policy
from dlbench.core.store import load
from dlbench.harness.probe.checks import examine
from dlbench.harness.process.launch import Interruption
from dlbench.harness.ranks.machines import refuse_several
from dlbench.harness.schedule import Side, Task

SUITE = "noise"
ROUNDS = 10
"""A side: with fewer, pairs of rounds could show nothing of so many cases."""


@click.command("doctor")
@device_option
@click.option("--rounds", type=rounds_type, metavar="N", help="Fresh processes for each of the two sides (default: 10; of --selftest 14).")
@device_files_argument
@click.option(
    "--selftest",
    is_flag=True,
    is_eager=True,
    callback=defaults.without_defaults("device_words"),
    help="Measure dlbench's own error rates on this machine's CPU instead, in about six minutes.",
)
@format_option
def doctor_command(device_words: tuple[str, ...], rounds: int | None, plugins: tuple[str, ...], selftest: bool, form: str) -> ExitCode:
    """Say whether this machine is fit to measure on now, and what to change.

    Looks at memory, governor, quota, and each accelerator's temperature, clocks and other processes. Then it measures the same small
    cases on two identical sides, alternately, for about 45 seconds: how small a change could be detected here, and is one reported where
    there is none? Changes no setting. Ends with 4 if the machine is unfit to decide anything now.

    With --selftest it measures programs of known speed instead: is identical code called slower, and is slower code detected? Ends
    with 4 if an error rate is above its limit.

    \b
      dlbench doctor
      dlbench doctor --selftest
      dlbench doctor --device cuda:0 --format json
    """
    from dlbench.analysis.doctor import checks
    from dlbench.analysis.doctor.selftest import judge_selftest

    refuse_several("dlbench doctor")
    if selftest and (device_words or plugins):
        raise UsageError("--selftest measures programs of its own on the CPU; give it without --device and FILE.py")
    suite, device_words = ("self", ("cpu",)) if selftest else (SUITE, device_words)
    planning = PlanOptions((suite,), device_words=device_words, plugins=plugins)
    # In an A/A one process a round and side: what counts is that each has a new one.
    suites, settings = load_suites(planning), sessions.settings_for(isolation=None if selftest else "none")
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        opened = stack.enter_context(sessions.open_side(Side(plugins=plugins), suites, settings, interruption))
        plan = plan_suites(suites, opened.hello, planning)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "measured.jsonl"
        findings = [] if selftest else examine(plan.devices)
        side = opened.side.on(plan.devices)
        tasks, policy = _selftest_tasks(plan, side, rounds) if selftest else _two_sides(plan, side, rounds)
        session = sessions.start(plan, tasks, settings, policy, path, sides=None if selftest else {"a": {}, "b": {}})
        with record(session, interruption) as recording:
            recording.measure(session, {session.tasks[0].side.name: opened.worker}, opened.programs)
        if interruption.requested:
            say("interrupted; nothing was judged")
            return interruption.exit_code
        run = load(path)
        findings += judge_selftest(run.measurements) if selftest else checks.judge(run, settings.threads)
    code = write_findings(findings, form, selftest)
    if recording.fault:
        raise recording.fault
    return code


def _two_sides(plan: Plan, side: Side, rounds: int | None) -> tuple[list[Task], Policy]:
    """Return tasks and policy of an A/A: every case whose device is here, on two identical sides."""
    rounds = rounds or ROUNDS
    sides = [replace(side, name=name) for name in ("a", "b")]
    tasks = [task for case in plan.cases for side in sides if (task := Task(case, side)).has_device]
    return tasks, sessions.policy_for(plan, {"rounds": rounds, "max_rounds": rounds})


def _selftest_tasks(plan: Plan, side: Side, rounds: int | None) -> tuple[list[Task], Policy]:
    """Return tasks and policy of the self-test."""
    from dlbench.harness.plan import cases

    policy = replace(cases.SELFTEST_POLICY, rounds=rounds, max_rounds=rounds, budget_s=None) if rounds else cases.SELFTEST_POLICY
    return [Task(case, side) for case in cases.selftest_cases(plan.signatures)], policy


def write_findings(findings: Sequence[Finding], form: str, selftest: bool = False) -> ExitCode:
    """Write findings to stdout, the worst first, and the conclusion; return the exit code."""
    from dlbench.analysis.doctor import checks
    from dlbench.analysis.export import tabular

    fit, unfit = ("self-test passed", "self-test not passed") if selftest else ("fit to measure on now", "unfit to measure on now")
    ordered = sorted(findings, key=lambda each: list(Fitness).index(each.fitness))
    bad = sum(each.fitness is Fitness.UNFIT for each in ordered)
    code = ExitCode.UNDECIDABLE if bad else ExitCode.OK
    conclusion = f"{unfit}: {bad} of {len(ordered)} checks failed" if bad else fit
    if form == "table":
        draw(checks.table(ordered), "")
    else:
        click.echo(tabular.render(checks.as_table(ordered), form), nl=False)
    click.echo(f"{conclusion}; exit {code.value}", err=form != "table")
    return code


_ADVISED = 5
"""Occasions. Student's t for 95 % is 12.7 with two of them, 2.8 with five and 2.3 with ten: from five on, more change little."""


@click.command("calibrate")
@planning_options
def calibrate_command(planning: PlanOptions) -> ExitCode:
    """Measure this machine's noise between sessions, which compare then allows for.

    Each call measures the suites (default: quick) once more, as dlbench run does, into results/calibration, and estimates the noise
    from all sessions there that had the same software. Call it at different hours and on different days: twice at least, better five times.

    \b
      dlbench calibrate
      dlbench calibrate mine.toml -k matmul
    """
    refuse_several("dlbench calibrate")
    for path in sorted(CALIBRATIONS.glob("*.jsonl")):
        load(path)  # a damaged file is better known before measuring than after

    suites, settings = load_suites(planning), sessions.settings_for()
    side = Side(plugins=planning.plugins)
    with Interruption() as interruption, sessions.open_side(side, suites, settings, interruption) as opened:
        plan = plan_suites(suites, opened.hello, planning)
        path = CALIBRATIONS / sessions.default_name(plan.suites)
        session = sessions.start(plan, opened.tasks(plan), settings, plan.policy, path)
        with record(session, interruption) as recording:
            recording.measure(session, {None: opened.worker}, opened.programs)
    failed = _estimate_noise(path)
    if recording.fault:
        raise recording.fault
    return interruption.exit_code or (ExitCode.CASES_FAILED if failed else ExitCode.OK)


def _estimate_noise(latest: Path) -> bool:
    """Estimate the noise from all sessions of the latest one's machine and software, write and save it.

    Return whether a case of the latest session failed.
    """
    from dlbench.analysis.compare import calibration
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.report import compare_terminal

    every = collect(sorted(CALIBRATIONS.glob("*.jsonl")))
    here = every.environments[latest.stem]
    alike = []
    for name, each in every.environments.items():
        if all(each.get(key) == here.get(key) for key in ("machine_key", "stack_key")):
            alike.append(name)
    results = every.of_run(*alike)
    found = calibration.estimate(here["machine_key"], results)
    draw(compare_terminal.noise([*found.cases.items()] if found else []))
    notes = [*every.notes]
    if left_out := len(every.environments) - len(alike):
        notes.append(f"left out, as of another machine or other software: {left_out} of {len(every.environments)} files in {CALIBRATIONS}")
    if found is None:
        notes.append("no case was measured in two sessions yet, so their noise is not known; call dlbench calibrate again at another time")
    elif found.pooled.occasions < _ADVISED:
        notes.append(f"{found.pooled.occasions} sessions are few, and compare allows for that; {_ADVISED} or more tell much better")
    write_notes(notes)
    if found:
        path = CALIBRATIONS / f"{here['machine_key']}.json"
        with writing(path):  # replaced as a whole, so that nobody reads half of one
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found.to_json(), allow_nan=False, indent=1) + "\n")
            part.replace(path)
        say(f"saved in {path}, for dlbench compare")
    return any(row.is_failure for row in results.of_run(latest.stem).rows)
