"""The options that ``list`` and ``run`` share, and what they mean: suites, and the cases that they plan."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlbench.core.model import Case, Policy, Signature
from dlbench.harness.planning import check, overridden, plan, policy_of, workload_names
from dlbench.harness.selection import compile_expression
from dlbench.harness.suite import Suite, load_all

if TYPE_CHECKING:
    from dlbench.harness.devices import Device

Command = TypeVar("Command", bound=Callable[..., Any])
Hello = Callable[[Sequence[str], Sequence[str]], Mapping[str, Any]]
"""Asks a measuring process, given plugins and workloads, what there is: see `dlbench.harness.worker.hello`."""

_DECORATORS = (
    click.argument("names", nargs=-1, metavar="[SUITE]..."),
    click.option("-k", "expression", metavar="EXPR", help="Only cases whose id matches: words, and, or, not, parentheses."),
    click.option(
        "--set", "settings", multiple=True, metavar="AXIS=V1,V2", help="Replace an axis wherever the workload has it. Repeatable."
    ),
    click.option(
        "--device", "device_words", multiple=True, metavar="DEVICE", help="cpu, cuda or cuda:0 (default: every device). Repeatable."
    ),
    click.option("--plugin", "plugins", multiple=True, metavar="MODULE", help="Module or .py file with workloads of your own. Repeatable."),
)


def planning_options(command: Command) -> Command:
    """Add SUITE…, -k, --set, --device and --plugin; the command gets names, expression, settings, device_words and plugins."""
    for decorator in reversed(_DECORATORS):
        command = decorator(command)
    return command


@dataclass(frozen=True, slots=True)
class Planned:
    """What the options came to."""

    suites: tuple[Suite, ...]
    """With the settings in them: with the devices' ids and ``-k`` all that `plan` needs to plan the same cases again."""
    cases: Iterator[Case]
    """Not kept anywhere, at least one."""
    devices: tuple["Device", ...]
    """Those that take part."""
    signatures: Mapping[str, Signature]
    hello: Mapping[str, Any]

    @property
    def policy(self) -> Policy:
        """The policy of the whole run."""
        return policy_of(self.suites)


def planned(
    names: Sequence[str],
    expression: str | None = None,
    settings: Sequence[str] = (),
    device_words: Sequence[str] = (),
    plugins: Sequence[str] = (),
    hello: Hello | None = None,
) -> Planned:
    """Load, override, check and plan, as the options say; ``hello`` (default: `ask_hello`) is called once.

    Every mistake that an option or a suite can hold is raised here, a plan without cases too: SuiteError, UsageError,
    DeviceAbsent, and WorkerError if the measuring process does not start.
    """
    # Not at the top: without a SUITE, `list` starts no process, and --help needs neither.
    from dlbench.harness import devices, runner

    only = None if expression is None else compile_expression(expression)
    suites = load_all(names)
    answer = (hello or runner.ask_hello)(plugins, workload_names(suites))
    signatures = {each["name"]: Signature.from_json(each) for each in answer["signatures"]}
    suites = overridden(suites, settings, signatures)
    check(suites, signatures)
    chosen = devices.select(devices.describe(answer), device_words)
    cases = plan(suites, signatures, [device.id for device in chosen], only=only, include_absent=not device_words)
    first = next(cases)
    return Planned(suites, itertools.chain((first,), cases), chosen, signatures, answer)
