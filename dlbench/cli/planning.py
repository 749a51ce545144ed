"""Plans: suites and their cases on this machine, chosen by the options of planning; and ``dlbench list``, which shows them.

A bench of a suite is a workload with axes: parameters, and the values that each takes. A worker is a process that measures; its hello is
what it says of its devices, versions and workloads. A signature is a workload's parameters and declarations.
"""

import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dlbench.analysis.export import tabular
from dlbench.analysis.presentation.wording import plural
from dlbench.cli.options import PlanOptions, format_option, planning_options, typed_options
from dlbench.cli.terminal import busy_line, draw, say
from dlbench.core.decoding import convert
from dlbench.core.errors import UsageError
from dlbench.core.model import Case, Policy, Signature, declaration_to_json
from dlbench.core.thresholds import DETECT
from dlbench.core.units import Json, seconds
from dlbench.harness.plan.cases import (
    Signatures,
    check,
    estimate,
    forecast_s,
    policy_of,
    with_core_counts,
    with_settings,
    with_user_names,
    workload_names,
)
from dlbench.harness.plan.cases import plan as all_cases
from dlbench.harness.plan.searches import searches_in
from dlbench.harness.plan.suite import Suite, builtin_names, compile_expression, load, load_all
from dlbench.harness.ranks.placement import NodeCapacity, place_ranks

if TYPE_CHECKING:
    from dlbench.core.thresholds import Thresholds
    from dlbench.harness.probe.devices import Device
    from dlbench.harness.probe.programs import OtherPrograms

DEFAULT_SUITE = "quick"
_COLUMNS = ("id", "suite", "workload", "device", "params")


@dataclass(frozen=True, slots=True)
class Plan:
    """Cases to measure, and how."""

    options: PlanOptions
    suites: tuple[Suite, ...]
    """With the overrides in them."""
    cases: tuple[Case, ...]
    """At least one."""
    devices: tuple["Device", ...]
    """Those that take part."""
    signatures: Signatures
    hello: Json
    """The worker's answer to `dlbench.harness.worker.serving.main.hello`."""

    @property
    def policy(self) -> Policy:
        """The policy of the whole run."""
        from dlbench.harness.probe.devices import usable

        return policy_of(self.suites, self.signatures, [device.id for device in usable(self.devices)])

    def declarations(self) -> Json:
        """Return the declarations of each workload that takes part, for the header."""
        return {name: declaration_to_json(self.signatures[name].declared) for name in workload_names(self.suites)}


def load_suites(options: PlanOptions) -> tuple[Suite, ...]:
    """Load the suites (default: quick). Raises SuiteError, and UsageError for a bad ``-k``."""
    if options.expression is not None:
        compile_expression(options.expression)
    if results := [name for name in options.names if name.endswith(".jsonl")]:
        file = shlex.quote(results[0])
        raise UsageError(f"{results[0]} is a result file: dlbench show {file} shows it, dlbench run --resume {file} goes on with it")
    return load_all(options.names or (DEFAULT_SUITE,))


def signatures_of(hello: Json) -> dict[str, Signature]:
    """Return the signatures of a worker's workloads, by name."""
    return {each["name"]: convert(Signature, each) for each in hello["signatures"]}


def plan_suites(suites: tuple[Suite, ...], hello: Json, options: PlanOptions) -> Plan:
    """Return the plan of suites on this machine, by the user's options and the ``hello`` of the worker that is to measure it.

    Raises SuiteError, UsageError or DeviceAbsent for any mistake in an option or a suite, and for a plan without cases.
    """
    from dlbench.harness.probe import devices  # not at the top, so that --help stays quick

    matches_expression = None if options.expression is None else compile_expression(options.expression)
    signatures = signatures_of(hello)
    suites = with_settings(suites, options.overrides, signatures)
    # A value of an axis may be a word. ``own`` is replaced by what the user's files define. ``all`` and ``cores`` are replaced by numbers
    # of this CPU: `usable_threads` counts its cores, `usable_cpus` its logical CPUs.
    suites = with_user_names(suites, signatures, options.plugins)
    devices_here = devices.describe(hello)
    cpu = next(device for device in devices_here if isinstance(device, devices.Processor))
    suites = with_core_counts(suites, cpu.usable_threads(), cpu.usable_cpus())
    check(suites, signatures, hello["kinds"])
    chosen = devices.select(devices_here, options.device_words, devices.why_gpu_unusable(hello["versions"]))
    # Without --device the cases of absent devices are planned as well, and get a row that says so.
    include_absent = not options.device_words
    cases = all_cases(suites, signatures, [device.id for device in chosen], only=matches_expression, include_absent=include_absent)
    return Plan(options, suites, tuple(cases), chosen, signatures, hello)


def check_detect(suites: Iterable[Suite], defaults: "Thresholds", settings: Mapping[str, str]) -> None:
    """Raise UsageError where the change that must be detected is not above the threshold of a workload, so that it would not count.

    ``settings`` of the command line replace those of a suite, and these replace the ``defaults`` of the kind of comparison.
    """
    for suite in suites:
        for workload in dict.fromkeys(bench.workload for bench in suite.benches):
            try:
                defaults.for_workload(workload, suite.thresholds).with_metrics(settings).require_sight()
            except ValueError as error:
                where = f"--detect {settings[DETECT]}" if DETECT in settings else f"{suite.origin}, thresholds"
                raise UsageError(f"{where}: of {workload} {error}") from error


def write_plan(plan: Plan, form: str, programs: "OtherPrograms") -> None:
    """Write the cases of a plan to stdout, and to stderr their number and about how long they take.

    Cases of devices that are not here are only counted. ``programs``: watches who uses the CPUs, as the forecast is for a quiet machine.
    """
    present = {device.id for device in plan.devices}
    cases = [case for case in plan.cases if case.device in present]
    absent = Counter(case.device for case in plan.cases if case.device not in present)
    write_cases(cases, form)
    say(_forecast(plan, cases))
    if absent:
        say(f"not listed: {plural(absent.total(), 'case')} of what is not here: {', '.join(absent)}")
    if busy := busy_line(programs):
        say(busy)


def _forecast(plan: Plan, cases: Sequence[Case]) -> str:
    """Return a sentence with the number of cases on the devices here, and about how long they take by the policy of the plan."""
    from dlbench.harness.probe.devices import describe_cpu  # not at the top, so that --help stays quick

    # Ranks are placed by the ids of devices alone, so their names are left out (None).
    machine = NodeCapacity(dict.fromkeys(device.id for device in plan.devices), describe_cpu().usable_threads())
    # A case of several ranks is measured by as many processes. It is skipped if there are too few devices or cores to place them all.
    skipped = 0
    for case in cases:
        placed_ranks = len(place_ranks(case, (machine,)).devices)
        if placed_ranks < (case.ranks or 1):
            skipped += 1
    searches = searches_in(cases, plan.signatures)
    tries = sum(search.usual_tries() for search in searches)
    policy = plan.policy
    time_s = estimate(policy, len(cases) - skipped, tries)
    skip_text = f" ({skipped:,} skipped: too few devices or cores for their ranks)" if skipped else ""
    search_text = f", {_count(len(searches), 'search', 'searches')} with about {tries:,} tries" if searches else ""
    return (
        f"{_count(len(cases), 'case', 'cases')}{skip_text}{search_text}, about {seconds(time_s)} in {plural(policy.rounds, 'round')} "
        f"(estimated from the policy; slow steps take longer{at_most(policy)})"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def at_most(policy: Policy) -> str:
    """Return ``, 90.0 s at most`` of a policy with a budget, else nothing."""
    return "" if policy.budget_s is None else f", {seconds(policy.budget_s)} at most"


def minutes(suite: Suite, devices: Sequence[str]) -> int:
    """Return the minutes of a suite on these devices, rounded up."""
    return math.ceil(forecast_s(suite, devices) / 60)


def write_suites(form: str) -> None:
    """Write every built-in suite to stdout: its name, minutes on the devices here and question. Needs neither torch nor a process."""
    # Not at the top, so that --help stays quick.
    from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
    from dlbench.harness.probe.devices import Gpus, versions

    devices = Gpus.find(versions()).ids
    rows = [{"suite": suite.name, "minutes": minutes(suite, devices), "about": suite.about} for suite in map(load, builtin_names())]
    if form != "table":
        _write(tabular.lines(list(rows[0]), rows, form))
        return
    has_heading = sys.stdout.isatty()
    columns = []
    for name in rows[0]:
        texts = [str(row[name]) for row in rows]
        is_number = name == "minutes"
        columns.append(ScreenColumn(name if has_heading else "", texts, is_number, priority=0))  # 0: also on a narrow screen
    draw(ScreenTable(columns))


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


@click.command("list")
@planning_options
@format_option
def list_command(planning: PlanOptions, form: str) -> None:
    """Show the built-in suites; with names, the cases that they plan and an estimate of the time.

    SUITE is the name of a built-in suite, or a path that ends in .toml. Off a terminal the cases are one id a line; their number
    and the estimate go to stderr.

    \b
      dlbench list
      dlbench list quick cnn
      dlbench list matmul -k bf16 --device cpu --format csv
    """
    if not planning.names:
        if typed_options() - {"form"}:
            raise UsageError("-k, --set and --device need a SUITE, such as dlbench list quick -k resnet18")
        write_suites(form)
        return
    # Not at the top: without a SUITE no process starts, and --help needs none.
    from dlbench.harness.probe.programs import OtherPrograms
    from dlbench.harness.runner import ask_hello

    suites = load_suites(planning)
    programs = OtherPrograms()  # from here on it watches who uses the CPUs, while torch is started
    hello = ask_hello(planning.plugins, workload_names(suites))
    write_plan(plan_suites(suites, hello, planning), form, programs)
