"""The options that several commands share, each group of them gathered into one object."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dlbench.analysis.export import tabular
from dlbench.cli import prices
from dlbench.cli.output_files import check_writable, refuse_same_file
from dlbench.core.errors import UsageError
from dlbench.core.model import DEVICE_KINDS
from dlbench.core.prices import parse_price
from dlbench.core.thresholds import DETECT, check
from dlbench.core.units import parse_duration

if TYPE_CHECKING:
    from dlbench.harness.schedule import Isolation

_PARAMETERS = ("batch", "layout", "ranks", "n")
"""Standard parameters that rows are most often paired by; a suite may have any."""


def completer(
    words: Callable[[], Iterable[str]], fallback: str = ""
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a function that click calls to complete a value: it returns the ``words`` that begin with what is typed so far.

    ``fallback``: what the shell itself completes if no word begins so, such as ``file``; empty: nothing.
    """

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        matching = [CompletionItem(word) for word in dict.fromkeys(words()) if word.startswith(incomplete)]
        if not matching and fallback:
            return [CompletionItem(incomplete, type=fallback)]
        return matching

    return complete


def _suites() -> Iterable[str]:
    from dlbench.harness.plan.suite import builtin_names

    return builtin_names()


def _columns() -> Iterable[str]:
    from dlbench.core.rows.row import MACHINE, WORK

    return (*(setting.name for setting in (*MACHINE, *WORK)), *_PARAMETERS)


complete_suites = completer(_suites, "file")
complete_devices = completer(lambda: (*DEVICE_KINDS, "gpu"))  # which there are here only a process with torch could say
complete_columns = completer(_columns)  # that identify a case


NETWORK_SUITE = "network"
"""The suite that measures the networks of a file."""
CALIBRATIONS = Path("results", "calibration")
"""Where `dlbench calibrate` keeps its sessions and the noise that it finds."""

PATH = click.Path(path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
file_argument = click.argument("file", type=PATH)
files_argument = click.argument("files", metavar="FILE|FOLDER...", nargs=-1, required=True, type=PATH)

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def option_group(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command. The command gets them as one argument, called ``name``, that ``make`` returns.

    ``make`` gets the value of each option in the parameter of the same name. A parameter for which the command has no option keeps its
    default.
    """
    parameters = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_one_argument(**values: Any) -> Any:
            group_values = {parameter: values.pop(parameter) for parameter in parameters if parameter in values}
            return command(**{name: make(**group_values)}, **values)

        decorated: Command = with_one_argument
        for option in reversed(options):  # as decorators above each other are applied from the lowest up
            decorated = option(decorated)
        return decorated

    return decorate


def typed_options() -> set[str]:
    """Return the parameters of this command that its command line gives."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def read_by(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of options whose value is the result of ``parse``; its ValueError becomes the error of the option."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a type of options: a whole number in a range, which help, unlike that of click's own type, does not spell out."""

    def integer(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise click.BadParameter(f"'{text}' is no whole number from {least} to {most}")
        return int(text)

    return integer


duration = read_by(parse_duration)
"""Seconds from ``90s``, ``1.5m`` and the like."""
rounds_type = whole(1, 1000)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Suites, and which of their cases to plan with which values."""

    names: tuple[str, ...]
    expression: str | None = None
    overrides: tuple[str, ...] = ()
    """``axis=v1,v2`` each."""
    device_words: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    """Files of Python with networks, data, workloads or kinds of device of the user's own."""


def _plan_options(names: tuple[str, ...], expression: str | None, overrides: tuple[str, ...], device_words: tuple[str, ...]) -> PlanOptions:
    """Return the options. Files of Python without a suite are measured by the suite that is made for networks."""
    files = [name for name in names if name.endswith(".py")]
    suites = [name for name in names if name not in files]
    if files and not suites:
        suites = [NETWORK_SUITE]
    return PlanOptions(tuple(dict.fromkeys(suites)), expression, overrides, device_words, tuple(dict.fromkeys(files)))


device_option = click.option(
    "--device",
    "device_words",
    multiple=True,
    metavar="DEVICE",
    shell_complete=complete_devices,
    help="cpu, gpu, cuda or cuda:0 (default: every device). Repeatable.",
)
device_files_argument = click.argument("plugins", nargs=-1, metavar="[FILE.py]...")
planning_options = option_group(
    "planning",
    _plan_options,
    click.argument("names", nargs=-1, metavar="[SUITE|FILE.py]...", shell_complete=complete_suites),
    click.option("-k", "expression", metavar="EXPR", help="Only cases whose id matches: words, and, or, not, parentheses."),
    click.option("--set", "overrides", multiple=True, metavar="AXIS=V1,V2", help="Replace an axis of the suites. Repeatable."),
    device_option,
)
"""Adds SUITE… and FILE.py…, -k, --set and --device; the command gets ``planning``."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of measuring and the result file; None for what is left to the suite or to chance."""

    output: Path | None
    rounds: int | None
    budget: float | None
    """Seconds, like the next one."""
    timeout: float | None
    seed: int | None
    isolation: "Isolation | None"

    @property
    def policy(self) -> dict[str, Any]:
        """The fields of a policy that they set."""
        values = {"rounds": self.rounds, "max_rounds": self.rounds, "budget_s": self.budget, "timeout_s": self.timeout}
        return {name: value for name, value in values.items() if value is not None}


def measuring_options(rounds: str, budget: str) -> Decorator:
    """Add -o, --rounds, --budget, --timeout, --seed and --isolation; the command gets ``measuring`` and words the help of two."""
    from dlbench.harness.schedule import Isolation

    return option_group(
        "measuring",
        MeasureOptions,
        click.option("-o", "--output", type=OUTPUT_FILE, metavar="FILE", help="Result file; never overwritten."),
        click.option("--rounds", type=rounds_type, metavar="N", help=rounds),
        click.option("--budget", type=duration, metavar="TIME", help=budget),
        click.option("--timeout", type=duration, metavar="TIME", help="Deadline of a case in a round (default: the suite's, 60s)."),
        click.option("--seed", type=whole(0, 2**32 - 1), metavar="N", help="Of inputs and order (default: a new one, recorded)."),
        click.option("--isolation", type=click.Choice(get_args(Isolation)), help="Of each CPU case: a fork, a new interpreter, nothing."),
    )


def threshold_options(default: str, detect: str) -> Decorator:
    """Add --threshold, whose default is the command's, and --detect with the command's help; the command gets ``thresholds``."""
    meaning = f"Smallest change that matters: 5%, memory=9% (default {default})."
    return option_group(
        "thresholds",
        parse_thresholds,
        click.option("--threshold", "thresholds", multiple=True, metavar="[METRIC=]VALUE", help=meaning),
        detect_option(detect),
    )


def detect_option(meaning: str) -> Decorator:
    """Add --detect with the command's own help; the command gets ``detect``."""
    return click.option("--detect", metavar="PERCENT", help=meaning)


def parse_thresholds(thresholds: Iterable[str], detect: str | None) -> dict[str, str]:
    """Return the values of --threshold as written, by metric, and that of --detect under the key ``detect``.

    A threshold is ``memory=0.1``, or ``5%`` for the metric ``time``. Raises UsageError that names the option: for a bad value, an
    unknown metric, and a metric that is given twice.
    """
    settings: dict[str, str] = {}
    for word in thresholds:
        with _errors_of(f"--threshold {word}"):
            metric_text, equals, value = word.rpartition("=")
            metric = metric_text.strip() if equals else "time"
            if metric in settings:
                raise ValueError(f"the threshold of {metric} is given twice; give it once")
            if metric == DETECT:
                raise ValueError(f"what must be detected is no threshold; give --detect {value}")
            settings[metric] = value
            check(settings)  # after each, so that the error names the option at fault
    if detect is not None:
        settings[DETECT] = detect
        with _errors_of(f"--detect {detect}"):
            check(settings)
    return settings


@contextmanager
def _errors_of(option: str) -> Iterator[None]:
    """Turn a ValueError that is raised inside into a UsageError that begins with the option."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Where verdicts go, and how strictly they become an exit code.

    Raises UsageError for two options of one file, a folder in place of one or none to write it in, a page that exists, and ``--github``
    where there is no step of it.
    """

    strict: bool
    junit: Path | None
    verdict: Path | None
    github: bool
    form: str
    report: Path | None = None

    def __post_init__(self) -> None:
        refuse_same_file(self.files)
        for path in filter(None, self.files.values()):
            check_writable(path, new=path == self.report or path.suffix == ".jsonl")  # a page and a result file are never overwritten
        if self.report:  # what a page needs is missed before anything is measured
            import_module("dlbench.analysis.report.page")
        if self.github and not self.summary:
            raise UsageError("--github is for a step of GitHub Actions, where GITHUB_STEP_SUMMARY names a file; leave it out elsewhere")

    @property
    def files(self) -> dict[str, Path | None]:
        """The files that options name, by option."""
        return {"--junit": self.junit, "--verdict": self.verdict, "--report": self.report}

    @property
    def summary(self) -> Path | None:
        """The file for the summary of a step in GitHub Actions, where one is asked for."""
        path = os.environ.get("GITHUB_STEP_SUMMARY") if self.github else None
        return Path(path) if path else None


format_option = click.option(
    "--format", "form", type=click.Choice(("table", *tabular.FORMATS)), default="table", help="What to write to stdout (default: table)."
)


def output_options(*more: Decorator) -> Decorator:
    """Add --strict, --junit, --verdict, --github, ``more`` of `OutputOptions` and --format; the command gets ``output``."""
    return option_group(
        "output",
        OutputOptions,
        click.option("--strict/--no-strict", help="Exit with 4 if a case is inconclusive or incomparable."),
        click.option("--github", is_flag=True, help="In GitHub Actions, add a summary and annotations."),
        click.option("--junit", type=OUTPUT_FILE, metavar="FILE", help="Write the verdicts as JUnit XML, too."),
        click.option("--verdict", type=OUTPUT_FILE, metavar="FILE", help="Write all of it as one JSON document, too."),
        *more,
        format_option,
    )


_TRAINING = (
    click.option("--samples", type=whole(1, 10**15), metavar="N", help="Samples of a training of yours: how long would it take?"),
    click.option("--epochs", type=whole(1, 10**6), metavar="N", help="How often it passes over them (default: 1)."),
)
training_options = option_group("prices", prices.training, *_TRAINING)
"""Adds --samples and --epochs; the command gets ``prices``, without any."""
price_options = option_group(
    "prices",
    prices.from_options,
    click.option(
        "--price",
        multiple=True,
        type=read_by(parse_price),
        metavar="[DEVICE=]AMOUNT[/h]",
        help="Rent, cuda=2.50/h; electricity, kwh=0.30; to buy, cuda=1600EUR. Repeatable.",
    ),
    *_TRAINING,
    click.option("--on", multiple=True, metavar="CARD", help="What a card would bring that is not here: 'RTX 4090'. Repeatable."),
)
"""Adds prices and a training of one's own, which are not stored; the command gets ``prices``, `core.prices.Prices`."""
