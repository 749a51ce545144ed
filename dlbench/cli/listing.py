"""Suites and planned cases on stdout: a table on a terminal, else an id a line or rows in a format."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlbench.analysis.export import tabular
from dlbench.analysis.presentation.wording import plural
from dlbench.cli.planning import Plan, left_out
from dlbench.cli.terminal import busy_line, draw, say
from dlbench.core.errors import ExitCode
from dlbench.core.model import Case, Policy
from dlbench.core.units import seconds
from dlbench.harness.plan.adaptive import AdaptivePlan, policy_of_tries, usual_tries
from dlbench.harness.plan.cases import estimate, forecast_s
from dlbench.harness.plan.suite import Suite, builtin_names, load
from dlbench.harness.ranks.placement import NodeCapacity, place_ranks

if TYPE_CHECKING:
    from dlbench.harness.probe.programs import OtherPrograms

_COLUMNS = ("id", "suite", "workload", "device", "params")


def write_plan(plan: Plan, form: str, policy: Policy, programs: "OtherPrograms") -> ExitCode:
    """Write the cases of a plan to stdout, and to stderr how many there are and about how long they take by this policy.

    Cases of devices that are not here are counted only. ``programs``: those that take the CPUs, as a forecast is of a quiet machine.
    """
    from dlbench.harness.probe.devices import describe_cpu  # not at the top, so that --help stays quick

    present = dict.fromkeys(device.id for device in plan.devices)
    cases = [case for case in plan.cases if case.device in present]
    absent = Counter(case.device for case in plan.cases if case.device not in present)
    here = NodeCapacity(present, describe_cpu().usable_threads())
    crowded = sum(len(place_ranks(case, (here,)).devices) < (case.ranks or 1) for case in cases)
    searches = sum(AdaptivePlan.of(case, plan.signatures[case.workload]) is not None for case in cases)
    tries = usual_tries(cases, plan.signatures)
    write_cases(cases, form)
    skipped = f" ({crowded:,} skipped: too few devices or cores for their ranks)" if crowded else ""
    tried = f", {searches:,} search{'' if searches == 1 else 'es'} with about {tries:,} tries" if searches else ""
    most = "" if policy.budget_s is None else f", {seconds(policy.budget_s)} at most"
    say(
        f"{len(cases):,} case{'' if len(cases) == 1 else 's'}{skipped}{tried}, about "
        f"{seconds(estimated_s(policy, len(cases) - crowded, tries))} in {plural(policy.rounds, 'round')} "
        f"(estimated from the policy; slow steps take longer{most})"
    )
    if absent:
        say(f"not listed: {plural(absent.total(), 'case')} of what is not here: {', '.join(absent)}")
    if busy := busy_line(programs):
        say(busy)
    if note := left_out(plan):
        say(f"note: {note}")
    return ExitCode.OK


def estimated_s(policy: Policy, cases: int, tries: int) -> float:
    """Return the seconds of so many cases, and of tries, which are made once and only while the budget lasts."""
    cases_s, tries_s = estimate(policy, cases), estimate(replace(policy_of_tries(policy), rounds=1, budget_s=None), tries)
    return cases_s + tries_s if policy.budget_s is None else max(cases_s, min(cases_s + tries_s, policy.budget_s))


def minutes(suite: Suite, devices: Sequence[str]) -> int:
    """Return the minutes of a suite on these devices, rounded up."""
    return math.ceil(forecast_s(suite, devices) / 60)


def write_suites(form: str) -> None:
    """Write every built-in suite to stdout: its name, minutes on the devices here and question. Needs neither torch nor a process."""
    # Not at the top, so that --help stays quick.
    from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
    from dlbench.harness.probe.installed import Gpus, versions

    devices = Gpus.found(versions()).ids
    rows = [{"suite": suite.name, "minutes": minutes(suite, devices), "about": suite.about} for suite in map(load, builtin_names())]
    if form != "table":
        _write(tabular.lines(list(rows[0]), rows, form))
        return
    headed = sys.stdout.isatty()
    draw(ScreenTable([ScreenColumn(name * headed, [str(row[name]) for row in rows], name == "minutes", 0) for name in rows[0]]))


def write_cases(cases: Iterable[Case], form: str) -> None:
    """Write cases to stdout as they come: an id a line, which can be copied, or rows of data."""
    if form == "table":
        _write(f"{case.id}\n" for case in cases)
    else:
        _write(tabular.lines(_COLUMNS, ({name: getattr(case, name) for name in _COLUMNS} for case in cases), form))


def _write(chunks: Iterable[str]) -> None:
    sys.stdout.writelines(chunks)
    # Here and not at exit, where Python answers a reader that has left (`| head`) with a message of its own.
    sys.stdout.flush()
