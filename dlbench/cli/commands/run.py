"""``dlbench run``: plan, measure round after round into one file, and say what that answers.

With --gate the run is a baseline. Its gate is the setting of --detect: which slowdown a later comparison with it has to be able to show.
If torchrun starts dlbench on several machines, the first one plans, measures and writes; the others start processes for it.
"""

import shlex
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.cli import BEGAN, defaults
from dlbench.cli import session as sessions
from dlbench.cli.options import (
    PATH,
    MeasureOptions,
    PlanOptions,
    detect_option,
    format_option,
    measuring_options,
    parse_thresholds,
    planning_options,
    training_options,
    typed_options,
)
from dlbench.cli.output_files import check_writable
from dlbench.cli.planning import Plan, check_detect, load_suites, plan_suites
from dlbench.cli.recording import LEAST_ROUNDS, Recording, announce_gate, measure_until_seen, record
from dlbench.cli.terminal import say
from dlbench.core.errors import DeviceAbsent, ExitCode, UsageError
from dlbench.core.model import Status
from dlbench.core.prices import Prices
from dlbench.core.rank_test import TESTS_A_CASE, rounds_for_gate
from dlbench.core.store import RunFile, load
from dlbench.core.thresholds import ACROSS_RUNS, ThresholdSettings
from dlbench.core.writer import ResultWriter
from dlbench.harness.probe.devices import why_gpu_unusable
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.process.launch import Interruption
from dlbench.harness.ranks.machines import Node, connect_nodes, serve
from dlbench.harness.ranks.placement import NodeCapacity
from dlbench.harness.schedule import RunSettings, Side

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results


@click.command("run")
@planning_options
@measuring_options(
    rounds="Fresh processes for each case (default: the suite's, 7).",
    budget="Time for the whole run, such as 90s or 10m (default: the suite's); what is left buys more rounds.",
)
@click.option(
    "--gate",
    is_flag=True,
    is_eager=True,
    callback=defaults.without_defaults("rounds", "budget"),
    help="Make a baseline: 14 to 60 rounds, until compare could see a slowdown.",
)
@detect_option("Which slowdown --gate has to see, else it ends with 4 (default: 25%).")
@click.option(
    "--resume",
    type=PATH,
    metavar="FILE",
    is_eager=True,
    callback=defaults.without_defaults(),
    help="Go on with a run as planned; if complete, to more --rounds.",
)
@training_options
@format_option
def run_command(
    planning: PlanOptions,
    measuring: MeasureOptions,
    gate: bool,
    detect: str | None,
    resume: Path | None,
    prices: Prices,
    form: str,
) -> ExitCode:
    """Measure: run suites and say in a few lines what they answer.

    SUITE is the name of a built-in suite (default: quick), or a path that ends in .toml; FILE.py has a network of your own. Every
    result is on the disk before the next case starts. The first Ctrl-C ends the current case; a second ends at once.

    \b
      dlbench run
      dlbench run cnn -k "resnet and not bf16" --device cuda
      dlbench run mine.py --set batch=8,64 --samples 50000 --epochs 30
      dlbench run --resume results/quick-20260131-120000.jsonl
    """
    node = Node.of_torchrun()  # this machine's place among several; None without torchrun, or with a single machine
    _refuse_contradictions(measuring, gate, detect, resume, node)
    gate_settings = parse_thresholds((), detect) if gate else None  # None: no baseline
    with ExitStack() as stack:
        # The writer locks the file before it is read, so that no other process adds to it in between.
        writer = stack.enter_context(closing(ResultWriter.resume(resume))) if resume else None
        unfinished = load(resume) if resume else None
        interruption = stack.enter_context(Interruption())
        if node and node.number > 0:  # the first machine has number 0
            return _take_part(node, planning, measuring, interruption)
        machines = stack.enter_context(connect_nodes(node)) if node else ()
        if node:
            click.get_current_context().meta[BEGAN] = time.monotonic()  # the budget counts from when all machines have connected
        if unfinished:
            suites, settings, side = sessions.recorded_setup(unfinished, measuring.policy)
        else:
            suites, settings = load_suites(planning), sessions.settings_for(measuring.seed, measuring.isolation)
            side = Side(plugins=planning.plugins, machines=machines)
        opened = stack.enter_context(sessions.open_side(side, suites, settings, interruption))
        length_is_given = bool(measuring.rounds or measuring.budget)  # by the command line, as a number of rounds or as a time
        if unfinished and writer:  # both are there with --resume, and neither without it
            session = sessions.resume(unfinished, writer, suites, opened, settings)
            if not length_is_given and sessions.is_complete(unfinished, session):
                return _write_complete(unfinished, session.gate, form, prices)
        else:
            plan = plan_suites(suites, opened.hello, planning)
            session = _new_session(plan, opened, settings, measuring, gate_settings)
        return _measure(session, opened, interruption, form, prices, adds_rounds=not length_is_given)


def _refuse_contradictions(measuring: MeasureOptions, gate: bool, detect: str | None, resume: Path | None, node: Node | None) -> None:
    """Raise UsageError for options that exclude each other, and for an output that can't be a file."""
    if not node or node.number == 0:  # only the first machine writes the results
        check_writable(measuring.output, new=False)  # a file that exists is refused later, by its writer, which offers --resume
    if gate and (measuring.rounds or measuring.budget):
        raise UsageError("--gate chooses the rounds itself; give it without --rounds and --budget")
    if detect is not None and not gate:
        raise UsageError("--detect says which slowdown a baseline has to exclude; give it with --gate")
    if resume and typed_options() - {"resume", "rounds", "budget", "timeout", "samples", "epochs", "form"}:
        raise UsageError(
            "--resume goes on with what the file planned; with it only --rounds, --budget, --timeout, --samples, --epochs and --format "
            "can be given"
        )
    if resume and node:
        raise UsageError("--resume goes on with a run on one machine; give it without torchrun")


def _take_part(node: Node, planning: PlanOptions, measuring: MeasureOptions, interruption: Interruption) -> ExitCode:
    """Start ranks on this machine on request of the first machine, which plans, measures and writes. Return the exit code."""
    from dlbench.harness.probe import devices, fingerprint

    settings = sessions.settings_for(measuring.seed, measuring.isolation)
    with sessions.open_side(Side(plugins=planning.plugins), (), settings, interruption) as opened:
        chosen = devices.usable(devices.select(devices.describe(opened.hello), planning.device_words))
        say(f"machine {node.number} of {node.count - 1} next to the first, {node.host}, which writes the results")
        capacity = NodeCapacity({device.id: device.name for device in chosen}, settings.threads)
        serve(node, capacity, fingerprint.fingerprint(opened.hello, chosen), interruption)
    return interruption.exit_code


def _new_session(
    plan: Plan, opened: sessions.OpenSide, settings: RunSettings, measuring: MeasureOptions, gate: ThresholdSettings | None
) -> sessions.Session:
    """Return the session of a run. A baseline, which ``gate`` has the settings of, gets the rounds that a later comparison needs."""
    tasks = opened.tasks(plan)
    rounds = None
    if gate is not None:
        check_detect(plan.suites, ACROSS_RUNS, gate)  # --detect must be above the threshold: a smaller change does not count
        cases = sum(task.has_device for task in tasks)  # no test is made of one that is skipped on both sides
        rounds = rounds_for_gate(TESTS_A_CASE * cases, least=LEAST_ROUNDS)
    policy = sessions.policy_for(plan, measuring.policy, rounds)
    return sessions.start(plan, tasks, settings, policy, measuring.output, gate=gate)


def _write_complete(run: RunFile, gate: ThresholdSettings | None, form: str, prices: Prices) -> ExitCode:
    """Write the results of a run in which --resume has nothing left to measure, say how to go on, and return the exit code."""
    from dlbench.analysis.read.table import collect
    from dlbench.cli.output import write_results

    results = replace(collect((run.path,)), prices=prices)
    file = shlex.quote(str(run.path))
    write_results(results, form, [run.path])
    say(f"{run.path} is complete; for more rounds: dlbench run --resume {file} --rounds N, or --budget TIME")
    return _conclude(results, gate, file)


def _measure(
    session: sessions.Session, opened: sessions.OpenSide, interruption: Interruption, form: str, prices: Prices, adds_rounds: bool
) -> ExitCode:
    """Run the rounds, write the results, and return the exit code.

    ``adds_rounds``: whether a baseline gets more rounds than planned, until a comparison with it could show the slowdown of --detect.
    """
    with record(session, interruption) as recording:
        gate = session.gate if adds_rounds else None  # a run that is no baseline has no gate anyway
        if gate is not None:
            announce_gate(session, goes_on=True)
        # While the planned rounds are measured, the screen answers questions. While rounds are added it knows these alone, and does not.
        with_answers = replace(session, answered=True)
        recording.measure(with_answers, {None: opened.worker}, opened.programs)  # None: the only side has no name
        if gate is not None:
            measure_until_seen(recording, session, partial(_compare_with_itself, gate))
    return _write_outcome(session, opened, recording, interruption, form, prices)


def _write_outcome(
    session: sessions.Session, opened: sessions.OpenSide, recording: Recording, interruption: Interruption, form: str, prices: Prices
) -> ExitCode:
    """Write the results of the rounds, say how to go on with what is missing, and return the exit code.

    Raises the fault of a device if there was one, and DeviceAbsent if no case has its device on this machine.
    """
    from dlbench.analysis.presentation.wording import plural
    from dlbench.cli.output import write_results  # not before the rounds, whose budget it would take from

    results = replace(recording.results(), prices=prices)
    file = shlex.quote(str(recording.path))
    measured_nothing = all(row.case.status is Status.SKIPPED for row in results.rows)
    if interruption.requested and measured_nothing and not recording.fault and form == "table":  # the table would be empty
        say(f"interrupted before any case was done\ngo on with: dlbench run --resume {file}")
        return interruption.exit_code
    write_results(results, form, [recording.path], _programs_that_disturbed(results, opened.programs), saved=True)
    left_out = [row for row in results.rows if row.case.status is Status.SKIPPED and row.has_device]
    if recording.out_of_budget and left_out:
        say(f"note: the budget left out {plural(len(left_out), 'case')}; go on with: dlbench run --resume {file} --budget TIME")
    if recording.fault:
        say(f"what was skipped can be measured with: dlbench run --resume {file}")
        raise recording.fault
    if interruption.requested:
        say(f"interrupted; go on with: dlbench run --resume {file}")
        return interruption.exit_code
    if measured_nothing and recording.out_of_budget:  # the note above says so
        return ExitCode.UNDECIDABLE
    if measured_nothing and not any(row.has_device for row in results.rows):
        why_no_gpu = why_gpu_unusable(opened.hello["versions"])
        # A plan has at least one case, and each was skipped because its device is absent. The first row's reason stands for all.
        reasons = [results.rows[0].reason]
        if why_no_gpu:
            reasons.append(why_no_gpu)
        raise DeviceAbsent(f"nothing was measured: {'; '.join(reasons)}")
    return _conclude(results, session.gate, file)


def _programs_that_disturbed(results: "Results", programs: OtherPrograms) -> list[str]:
    """Return a sentence on the programs that took CPUs from the cases, if results are not usable because of that; else nothing."""
    lost_share = max((row.time.lost_share or 0.0 for row in results.rows if row.flag.not_usable), default=0.0)
    if not lost_share:
        return []
    sentence = programs.found or programs.named(lost_share)
    return [sentence] if sentence else []


def _compare_with_itself(gate: ThresholdSettings, results: "Results") -> "Comparison":
    """Compare a baseline with itself, which shows what a comparison with a run like it could detect."""
    from dlbench.analysis.compare.sides import compare

    return compare(results, results, given=gate, insist=True)


def _conclude(results: "Results", gate: ThresholdSettings | None, file: str) -> ExitCode:
    """Return the exit code of a run that was measured to its end; of a baseline first say what a comparison with it could not show."""
    undecidable = _compare_with_itself(gate, results).undecidable if gate is not None else None
    if undecidable:
        say(f"note: compared with a run like this one, {undecidable}")
        say(f"note: more rounds go to the same file with: dlbench run --resume {file} --rounds N")
    if any(row.is_failure for row in results.rows):
        return ExitCode.CASES_FAILED
    return ExitCode.UNDECIDABLE if undecidable else ExitCode.OK
