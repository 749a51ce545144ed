"""The options that several commands share, and what they come to: suites with their cases, and thresholds."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from dlbench.cli.output import FORMATS
from dlbench.core.declarations import to_json
from dlbench.core.errors import UsageError
from dlbench.core.model import Case, Policy, Signature
from dlbench.core.records import signature_from_json
from dlbench.core.thresholds import MUST_SEE
from dlbench.core.thresholds import check as check_thresholds
from dlbench.core.units import parse_duration
from dlbench.harness.planning import check, overridden, plan, policy_of, workload_names
from dlbench.harness.selection import compile_expression
from dlbench.harness.suite import Suite, load_all

if TYPE_CHECKING:
    from dlbench.core.thresholds import Thresholds
    from dlbench.harness.devices import Device

    _OfSeconds = click.ParamType[float]
else:
    _OfSeconds = click.ParamType  # can't be subscripted before click 8.4

DEFAULT_SUITE = "quick"
CALIBRATIONS = Path("results", "calibration")
"""Where `dlbench calibrate` keeps what it finds, beside the runs that it stands on."""

Command = TypeVar("Command", bound=Callable[..., Any])
Hello = Callable[[Sequence[str], Sequence[str]], Mapping[str, Any]]
"""Asks a measuring process, given plugins and workloads, what there is: see `dlbench.harness.worker.hello`."""


class Duration(_OfSeconds):
    """``90s``, ``1.5m`` and the like, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the sentence of `parse_duration`."""
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_PLANNING = (
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
    return _decorated(command, _PLANNING)


def measuring_options(rounds: str, budget: str) -> Callable[[Command], Command]:
    """Add -o, --rounds, --budget, --timeout, --seed and --isolation; what rounds and budget do is the command's to say."""
    from dlbench.harness.hosts import Isolation

    isolation = "What a CPU case gets: a fork, a new interpreter (spawn), or none of its own (default: fork on Linux, else spawn)."
    decorators = (
        click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Result file; never overwritten."),
        click.option("--rounds", type=click.IntRange(1, 1000), help=rounds),
        click.option("--budget", type=Duration(), help=budget),
        click.option("--timeout", type=Duration(), help="Deadline of one case in one round (default: the suite's, 60s)."),
        click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the inputs and the order (default: a new one, recorded)."),
        click.option("--isolation", type=click.Choice(get_args(Isolation)), help=isolation),
    )
    return lambda command: _decorated(command, decorators)


_VERDICTS = (
    click.option("--strict", is_flag=True, help="Exit with 4 if any case is inconclusive or incomparable."),
    click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the verdicts as JUnit XML, too."),
    click.option("--verdict", type=click.Path(path_type=Path), metavar="FILE", help="Write all of it as one JSON document, too."),
    click.option("--github", is_flag=True, help="In GitHub Actions, add a summary to the step and annotations to the run."),
    click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="What to write to stdout."),
)


def threshold_option(default: str) -> Callable[[Command], Command]:
    """Add --threshold, whose default is the command's; the command gets thresholds."""
    meaning = "From where on a change matters: 5%, 0.05, memory=10%, throughput=5%, value=20%. Goes before the suite's; the default is"
    return click.option("--threshold", "thresholds", multiple=True, metavar="[METRIC=]VALUE", help=f"{meaning} {default}. Repeatable.")


def must_see_option(meaning: str) -> Callable[[Command], Command]:
    """Add --must-see with the command's own help; the command gets must_see."""
    return click.option("--must-see", metavar="PERCENT", help=meaning)


def parse_thresholds(words: Iterable[str], must_see: str | None = None) -> dict[str, str]:
    """Return the threshold of each metric from ``5%`` and ``memory=0.1``, as written, and what must be seen where that is given.

    A value without a metric is that of time. Raises UsageError for what makes no sense.
    """
    given: dict[str, str] = {}
    for word in words:
        metric, equals, value = word.rpartition("=")
        metric = metric.strip() if equals else "time"
        if metric in given:
            raise UsageError(f"--threshold {word}: the threshold of {metric} is given twice; give it once")
        if metric == MUST_SEE:
            raise UsageError(f"--threshold {word}: what must be seen is no threshold; give --must-see {value}")
        given[metric] = value
        _check(f"--threshold {word}", given)
    if must_see is not None:
        given[MUST_SEE] = must_see
        _check(f"--must-see {must_see}", given)
    return given


def _check(option: str, given: Mapping[str, str]) -> None:
    try:
        check_thresholds(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def require_sight(suites: Iterable[Suite], usual: "Thresholds", given: Mapping[str, str]) -> None:
    """Raise UsageError, before anything is measured, where a workload's change that must be seen is below its threshold."""
    for suite in suites:
        for workload in dict.fromkeys(bench.workload for bench in suite.benches):
            try:
                usual.of_workload(workload, suite.thresholds).with_metrics(given).require_sight()
            except ValueError as error:
                where = f"--must-see {given[MUST_SEE]}" if MUST_SEE in given else f"{suite.origin}, thresholds"
                raise UsageError(f"{where}: of {workload} {error}") from error


def verdict_options(command: Command) -> Command:
    """Add --strict, --junit, --verdict, --github and --format; the command gets strict, junit, verdict, github and form."""
    return _decorated(command, _VERDICTS)


def _decorated(command: Command, decorators: Sequence[Callable[[Command], Command]]) -> Command:
    for decorator in reversed(decorators):
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
        from dlbench.harness.devices import usable

        return policy_of(self.suites, self.signatures, [device.id for device in usable(self.devices)])

    def declarations(self) -> dict[str, Any]:
        """Return what the header of a result file says of each workload that takes part."""
        return {name: to_json(each.values, each.parallel) for name in workload_names(self.suites) if (each := self.signatures[name])}


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
    from dlbench.harness import runner

    if expression is not None:
        compile_expression(expression)  # its mistakes need no process to be found
    suites = load_all(names)
    answer = (hello or runner.ask_hello)(plugins, workload_names(suites))
    return plan_suites(suites, answer, expression, settings, device_words)


def plan_suites(
    suites: tuple[Suite, ...],
    answer: Mapping[str, Any],
    expression: str | None = None,
    settings: Sequence[str] = (),
    device_words: Sequence[str] = (),
) -> Planned:
    """Override, check and plan suites with what a measuring process answered; raises as `planned` does."""
    from dlbench.harness import devices

    only = None if expression is None else compile_expression(expression)
    signatures = {each["name"]: signature_from_json(each) for each in answer["signatures"]}
    suites = overridden(suites, settings, signatures)
    check(suites, signatures, answer["kinds"])
    chosen = devices.select(devices.describe(answer), device_words)
    cases = plan(suites, signatures, [device.id for device in chosen], only=only, include_absent=not device_words)
    first = next(cases)
    return Planned(suites, itertools.chain((first,), cases), chosen, signatures, answer)
