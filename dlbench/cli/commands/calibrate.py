"""``dlbench calibrate``: session-to-session variation of identical code on this machine, measured and kept."""

import json
from pathlib import Path

import click

from dlbench.cli import session as sessions
from dlbench.cli.options import CALIBRATIONS, PlanOptions, format_option, planning_options
from dlbench.cli.output_files import writing
from dlbench.cli.planning import load_suites, plan_suites
from dlbench.cli.recording import Recording, record
from dlbench.cli.terminal import draw, say, write_notes
from dlbench.core.errors import ExitCode
from dlbench.core.store import load
from dlbench.harness.process.launch import Interruption
from dlbench.harness.ranks.machines import refuse_several
from dlbench.harness.schedule import Side

_ADVISED = 5
"""Occasions. Student's t for 95 % is 12.7 with two of them, 2.8 with five and 2.3 with ten: from five on, more change little."""


@click.command("calibrate")
@planning_options
@format_option
def command(planning: PlanOptions, form: str) -> ExitCode:
    """Measure this machine's noise between sessions, which compare then allows for.

    Each call measures the suites (default: quick) once more, as dlbench run does, into results/calibration, and estimates the noise
    from all sessions there that had the same software. Call it at different hours and on different days: five sessions at least.

    \b
      dlbench calibrate
      dlbench calibrate mine.toml -k matmul
    """
    refuse_several("dlbench calibrate")
    for path in sorted(CALIBRATIONS.glob("*.jsonl")):
        load(path)  # a damaged file is better known before measuring than after

    with Interruption() as interruption:
        latest = _measure(planning, interruption)
    failed = _conclude(latest.path, form)
    if latest.fault:
        raise latest.fault
    return interruption.exit_code or (ExitCode.CASES_FAILED if failed else ExitCode.OK)


def _measure(planning: PlanOptions, interruption: Interruption) -> Recording:
    """Measure one session as a run of its own."""
    suites, settings = load_suites(planning), sessions.settings_for()
    with sessions.open_side(Side(plugins=planning.plugins), suites, settings, interruption) as opened:
        plan = plan_suites(suites, opened.hello, planning)
        path = CALIBRATIONS / sessions.default_name(plan.suites)
        session = sessions.start(plan, opened.tasks(plan), settings, plan.policy, path)
        with record(session, interruption) as recording:
            recording.measure(session, {None: opened.worker}, opened.programs)
        return recording


def _conclude(latest: Path, form: str) -> bool:
    """Estimate the noise from the occasions that are like the latest, write and keep it; return whether a case of the latest failed."""
    from dlbench.analysis.compare import calibration
    from dlbench.analysis.export import tabular
    from dlbench.analysis.presentation.columns import cells
    from dlbench.analysis.read.table import as_frame, collect
    from dlbench.analysis.report import compare_terminal

    every = collect(sorted(CALIBRATIONS.glob("*.jsonl")))
    here = every.environments[latest.stem]
    keys = "machine_key", "stack_key"
    like = [name for name, each in every.environments.items() if "side" not in each and all(each.get(key) == here.get(key) for key in keys)]
    results = every.of_run(*like)
    found = calibration.estimate(here["machine_key"], results)
    cases = [*found.cases.items()] if found else []
    if form == "table":
        draw(compare_terminal.noise(cases))
    else:
        click.echo(tabular.render(as_frame(cells(compare_terminal.NOISE_COLUMNS, cases), compare_terminal.NOISE_COLUMNS), form), nl=False)
    notes = [*every.notes]
    if left_out := len(every.environments) - len(like):
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
