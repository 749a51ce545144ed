"""Plans: suites and their cases on this machine, chosen by the options of planning."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlbench.analysis.presentation.wording import few
from dlbench.cli.options import PlanOptions
from dlbench.core.declared_json import to_json
from dlbench.core.decoding import convert
from dlbench.core.errors import UsageError
from dlbench.core.model import Case, Policy, Signature
from dlbench.core.quantities import Json
from dlbench.core.thresholds import DETECT
from dlbench.harness.plan.cases import Signatures, check, overridden, policy_of, with_core_counts, with_user_names, workload_names
from dlbench.harness.plan.cases import plan as all_cases
from dlbench.harness.plan.selection import compile_expression
from dlbench.harness.plan.suite import Suite, load_all

if TYPE_CHECKING:
    from dlbench.core.thresholds import Thresholds
    from dlbench.harness.probe.devices import Device

DEFAULT_SUITE = "quick"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured."""

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
        return {name: to_json(self.signatures[name].declared) for name in workload_names(self.suites)}


def load_suites(options: PlanOptions) -> tuple[Suite, ...]:
    """Load the suites (default: quick). Raises SuiteError, and UsageError for a bad ``-k`` or one with ``--case``."""
    if options.expression is not None:
        if options.case_ids:
            raise UsageError("-k and --case both choose cases; give one of them")
        compile_expression(options.expression)
    if results := [name for name in options.names if name.endswith(".jsonl")]:
        file = shlex.quote(results[0])
        raise UsageError(f"{results[0]} is a result file: dlbench show {file} shows it, dlbench run --resume {file} goes on with it")
    return load_all(options.names or (DEFAULT_SUITE,))


def signatures_of(hello: Json) -> dict[str, Signature]:
    """Return the signatures of a worker's workloads, by name."""
    return {each["name"]: convert(Signature, each) for each in hello["signatures"]}


def plan_suites(suites: tuple[Suite, ...], hello: Json, options: PlanOptions) -> Plan:
    """Override, check and plan suites for a worker's devices and workloads.

    Raises SuiteError, UsageError or DeviceAbsent for any mistake in an option or a suite, and for a plan without cases.
    """
    from dlbench.harness.probe import devices, installed  # not at the top, so that --help stays quick

    only = None if options.expression is None else compile_expression(options.expression)
    signatures = signatures_of(hello)
    suites, cpu = with_user_names(overridden(suites, options.overrides, signatures), signatures, options.plugins), devices.describe_cpu()
    suites = with_core_counts(suites, cpu.usable_threads(), cpu.usable_cpus())
    check(suites, signatures, hello["kinds"])
    chosen = devices.select(devices.describe(hello), options.device_words, installed.why_none(hello["versions"]))
    ids = [device.id for device in chosen]
    cases = all_cases(suites, signatures, ids, only=only, case_ids=options.case_ids, include_absent=not options.device_words)
    return Plan(options, suites, tuple(cases), chosen, signatures, hello)


def left_out(plan: Plan) -> str | None:
    """Return a note where ``-k`` leaves out plain defaults that cases which it chose are held against; None where it does not."""
    if plan.options.expression is None:
        return None
    wanted = {_plain(case, plan.signatures[case.workload]).id for case in plan.cases} - {case.id for case in plan.cases}
    ids, absent = [device.id for device in plan.devices], not plan.options.device_words
    lacking = [case.id for case in all_cases(plan.suites, plan.signatures, ids, include_absent=absent) if case.id in wanted]
    return f"-k leaves out what others are held against: {few(lacking, 1)}" if lacking else None


def _plain(case: Case, signature: Signature) -> Case:
    """Return a case with the plain default of its precision and of each switch."""
    plain = {name: found.default for name in ("dtype", *signature.declared.having("switch", "way")) if (found := signature.parameter(name))}
    return Case.of(case.suite, signature, {**case.params, **plain}, case.device)


def require_sight(suites: Iterable[Suite], usual: "Thresholds", given: Mapping[str, str]) -> None:
    """Raise UsageError where the change that must be detected is below the threshold of a workload."""
    for suite in suites:
        for workload in dict.fromkeys(bench.workload for bench in suite.benches):
            try:
                usual.of_workload(workload, suite.thresholds).with_metrics(given).require_sight()
            except ValueError as error:
                where = f"--detect {given[DETECT]}" if DETECT in given else f"{suite.origin}, thresholds"
                raise UsageError(f"{where}: of {workload} {error}") from error
