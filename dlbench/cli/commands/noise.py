"""Commands on the noise of this machine: is it fit to measure on now, and how much do sessions differ?

An A/A measures two identical sides, ``a`` and ``b``, so that each difference between them is noise. A side is where cases are measured: an
interpreter, its environment and its devices. A finding says whether one property of the machine is fit.
"""

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
from dlbench.core.units import Json
from dlbench.harness.probe.checks import examine
from dlbench.harness.process.launch import Interruption
from dlbench.harness.ranks.machines import refuse_several
from dlbench.harness.schedule import Side, Task

SUITE = "noise"
_SELFTEST_SUITE = "self"
ROUNDS = 10
"""Rounds a side: with fewer, no pairs of rounds could be significant among so many cases."""


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

    refuse_several("dlbench doctor")  # several machines, under torchrun
    if selftest and (device_words or plugins):
        raise UsageError("--selftest measures programs of its own on the CPU; give it without --device and FILE.py")
    if selftest:
        planning = PlanOptions((_SELFTEST_SUITE,), device_words=("cpu",))
    else:
        planning = PlanOptions((SUITE,), device_words=device_words, plugins=plugins)
    # An A/A compares whole processes: in each round one process measures all cases of a side (isolation none).
    suites, settings = load_suites(planning), sessions.settings_for(isolation=None if selftest else "none")
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        opened = stack.enter_context(sessions.open_side(Side(plugins=plugins), suites, settings, interruption))
        plan = plan_suites(suites, opened.hello, planning)
        side = opened.side.on(plan.devices)
        findings = [] if selftest else examine(plan.devices)  # before the rounds, which would keep the devices busy
        tasks, policy = _selftest_tasks(plan, side, rounds) if selftest else _two_sides(plan, side, rounds)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "measured.jsonl"
        sides: Json | None = None if selftest else {"a": {}, "b": {}}  # the header says of each side what makes it differ: nothing
        session = sessions.start(plan, tasks, settings, policy, path, sides=sides)
        with record(session, interruption) as recording:
            # The worker that is running measures the first round of one side: that of the first task. The self-test has a single side.
            first_side = session.tasks[0].side.name
            recording.measure(session, {first_side: opened.worker}, opened.programs)
        if interruption.requested:
            say("interrupted; nothing was judged")
            return interruption.exit_code
        run = load(path)
        findings += judge_selftest(run.measurements) if selftest else checks.judge(run, settings.threads)
    code = write_findings(findings, form, selftest)
    if recording.fault:  # the findings on what was measured before it are of use, too
        raise recording.fault
    return code


def _two_sides(plan: Plan, side: Side, rounds: int | None) -> tuple[list[Task], Policy]:
    """Return tasks and policy of an A/A: every case whose device is here, on two identical sides, in a fixed number of rounds."""
    rounds = rounds or ROUNDS
    sides = [replace(side, name=name) for name in ("a", "b")]
    tasks = [task for case in plan.cases for side in sides if (task := Task(case, side)).has_device]
    return tasks, sessions.policy_for(plan, {"rounds": rounds, "max_rounds": rounds})


def _selftest_tasks(plan: Plan, side: Side, rounds: int | None) -> tuple[list[Task], Policy]:
    """Return tasks and policy of the self-test, in its own number of rounds unless the user gave one."""
    from dlbench.harness.plan import cases

    policy = replace(cases.SELFTEST_POLICY, rounds=rounds, max_rounds=rounds, budget_s=None) if rounds else cases.SELFTEST_POLICY
    return [Task(case, side) for case in cases.selftest_cases(plan.signatures)], policy


def write_findings(findings: Sequence[Finding], form: str, selftest: bool = False) -> ExitCode:
    """Write findings, the worst first, and a conclusion. Return the exit code: 4 if a finding is unfit, else 0.

    The findings go to stdout as ``form`` says. The conclusion follows a table to stdout; with any other form it goes to stderr.
    """
    from dlbench.analysis.doctor import checks
    from dlbench.analysis.export import tabular

    fit_text = "self-test passed" if selftest else "fit to measure on now"
    unfit_text = "self-test not passed" if selftest else "unfit to measure on now"
    severities = list(Fitness)  # the worst first
    worst_first = sorted(findings, key=lambda finding: severities.index(finding.fitness))
    unfit_count = [finding.fitness for finding in findings].count(Fitness.UNFIT)
    code = ExitCode.UNDECIDABLE if unfit_count else ExitCode.OK
    conclusion = f"{unfit_text}: {unfit_count} of {len(findings)} checks failed" if unfit_count else fit_text
    if form == "table":
        draw(checks.table(worst_first), "")
    else:
        click.echo(tabular.render(checks.as_table(worst_first), form), nl=False)
    click.echo(f"{conclusion}; exit {code.value}", err=form != "table")
    return code


_ADVISED_SESSIONS = 5
"""Sessions from which on more change an estimate little: Student's t for 95 % is 12.7 with two of them, 2.8 with five and 2.3 with ten."""


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
    refuse_several("dlbench calibrate")  # several machines, under torchrun
    for path in sorted(CALIBRATIONS.glob("*.jsonl")):
        load(path)  # a file that can't be read is reported now, and not after minutes of measuring

    suites, settings = load_suites(planning), sessions.settings_for()
    side = Side(plugins=planning.plugins)
    with Interruption() as interruption, sessions.open_side(side, suites, settings, interruption) as opened:
        plan = plan_suites(suites, opened.hello, planning)
        path = CALIBRATIONS / sessions.default_name(plan.suites)
        session = sessions.start(plan, opened.tasks(plan), settings, plan.policy, path)
        with record(session, interruption) as recording:
            recording.measure(session, {side.name: opened.worker}, opened.programs)
    # This is done after an interruption or a fault of a device, too: what was measured until then counts.
    has_failed_case = _estimate_noise(path)
    if recording.fault:
        raise recording.fault
    if interruption.requested:
        return interruption.exit_code
    return ExitCode.CASES_FAILED if has_failed_case else ExitCode.OK


def _estimate_noise(latest: Path) -> bool:
    """Estimate the noise from all sessions with the machine and software of the ``latest``; show it, and save it for compare.

    Return whether a case of the latest session failed.
    """
    from dlbench.analysis.compare import calibration
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.report import compare_terminal

    all_sessions = collect(sorted(CALIBRATIONS.glob("*.jsonl")))
    # The latest file lies in the same folder. Results know each file by its name without the ending.
    latest_environment = all_sessions.environments[latest.stem]
    comparable_sessions = []
    for name, environment in all_sessions.environments.items():
        if all(environment.get(key) == latest_environment.get(key) for key in ("machine_key", "stack_key")):
            comparable_sessions.append(name)
    results = all_sessions.of_run(*comparable_sessions)
    machine_key = latest_environment["machine_key"]
    estimate = calibration.estimate(machine_key, results)
    noise_by_case = [*estimate.cases.items()] if estimate else []
    draw(compare_terminal.noise(noise_by_case))
    notes = [*all_sessions.notes]
    if left_out := len(all_sessions.environments) - len(comparable_sessions):
        files = f"{len(all_sessions.environments)} files in {CALIBRATIONS}"
        notes.append(f"left out, as of another machine or other software: {left_out} of {files}")
    if estimate is None:
        notes.append("no case was measured in two sessions yet, so their noise is not known; call dlbench calibrate again at another time")
    elif (sessions_so_far := estimate.pooled.occasions) < _ADVISED_SESSIONS:  # each session is an occasion of the estimate
        notes.append(f"{sessions_so_far} sessions are few, and compare allows for that; {_ADVISED_SESSIONS} or more tell much better")
    write_notes(notes)
    if estimate:
        _save(estimate.to_json(), CALIBRATIONS / f"{machine_key}.json")
    return any(row.is_failure for row in results.of_run(latest.stem).rows)


def _save(estimate: Json, path: Path) -> None:
    """Write the file of a calibration, in place of an earlier one, and say where it is."""
    with writing(path):
        # Renamed when it is complete, so that nobody reads half of one.
        part = path.with_suffix(".part")
        part.write_text(json.dumps(estimate, allow_nan=False, indent=1) + "\n")
        part.replace(path)
    say(f"saved in {path}, for dlbench compare")
