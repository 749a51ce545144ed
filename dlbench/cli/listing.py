"""Suites and planned cases on stdout: a table on a terminal, else an id a line or rows in a format."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlbench.analysis.export import tabular
from dlbench.analysis.presentation.wording import plural
from dlbench.cli.planning import Plan, left_out
from dlbench.cli.terminal import busy_line, draw, say
from dlbench.core.errors import ExitCode
from dlbench.core.model import Case, Policy
from dlbench.core.units import seconds
from dlbench.harness.plan.adaptive import AdaptivePlan, policy_of_tries
from dlbench.harness.plan.cases import estimate, forecast_s
from dlbench.harness.plan.suite import Suite, builtin_names, load
from dlbench.harness.ranks.placement import NodeCapacity, place_ranks

if TYPE_CHECKING:
    from dlbench.harness.probe.programs import OtherPrograms

_COLUMNS = ("id", "suite", "workload", "device", "params")


def write_plan(plan: Plan, form: str, policy: Policy, programs: "OtherPrograms") -> ExitCode:
    """Write the cases of a plan to stdout as they come, and to stderr how many there are and about how long they take by this policy.

    Cases of devices that are not here are counted only. ``programs``: those that take the CPUs, as a forecast is of a quiet machine.
    """
    from dlbench.harness.probe.devices import describe_cpu  # not at the top, so that --help stays quick

    listed, crowded, searches, tries, present = 0, 0, 0, 0, {device.id for device in plan.devices}
    chosen: list[Case] = []
    absent: Counter[str] = Counter()
    here = NodeCapacity(dict.fromkeys(present), describe_cpu().usable_threads())

    def counted() -> Iterator[Case]:
        nonlocal listed, crowded, searches, tries
        for case in plan.cases:
            if plan.options.expression is not None:
                chosen.append(case)
            if case.device not in present:
                absent[case.device] += 1
                continue
            listed += 1
            crowded += len(place_ranks(case, (here,)).devices) < (case.ranks or 1)
            if search := AdaptivePlan.of(case, plan.signatures[case.workload]):
                searches += 1
                tries += search.usual_tries()
            yield case

    write_cases(counted(), form)
    skipped = f" ({crowded:,} skipped: too few devices or cores for their ranks)" if crowded else ""
    tried = f", {searches:,} search{'' if searches == 1 else 'es'} with about {tries:,} tries" if searches else ""
    most = "" if policy.budget_s is None else f", {seconds(policy.budget_s)} at most"
    say(
        f"{listed:,} case{'' if listed == 1 else 's'}{skipped}{tried}, about {seconds(estimated_s(policy, listed - crowded, tries))} in "
        f"{plural(policy.rounds, 'round')} (estimated from the policy; slow steps take longer{most})"
    )
    if absent:
        say(f"not listed: {plural(absent.total(), 'case')} of what is not here: {', '.join(absent)}")
    if busy := busy_line(programs):
        say(busy)
    if note := left_out(plan, chosen):
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
    from dlbench.harness.probe.installed import Gpus, versions  # not at the top, so that --help stays quick

    devices = Gpus.found(versions()).ids
    rows = [{"suite": suite.name, "minutes": minutes(suite, devices), "about": suite.about} for suite in map(load, builtin_names())]
    if form == "table":
        _draw(rows)
    else:
        _write(tabular.lines(list(rows[0]), rows, form))


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


def _draw(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to stdout as a table, which has headings on a terminal alone."""
    from dlbench.analysis.report.screen import ScreenColumn, ScreenTable  # not at the top, so that --help stays quick

    headed = sys.stdout.isatty()
    columns = [(name if headed else "", [row[name] for row in rows]) for name in rows[0]]
    draw(ScreenTable([ScreenColumn(heading, list(map(str, values)), isinstance(values[0], int), 0) for heading, values in columns]))
