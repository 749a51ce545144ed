"""The options that several commands share, each group of them gathered into one object."""

import inspect
import os
from collections.abc import Callable, Iterable
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
"""Of the standard names of parameters those that rows are most often paired by; a suite may have any."""


def _offering(
    words: Callable[[], Iterable[str]], otherwise: str = ""
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes a word by these; ``otherwise``: what kind of word the shell completes where none begins so."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(word) for word in dict.fromkeys(words()) if word.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type=otherwise)] if otherwise else [])

    return complete


def _suites() -> Iterable[str]:
    from dlbench.harness.plan.suite import builtin_names

    return builtin_names()


def _columns() -> Iterable[str]:
    from dlbench.core.rows.row import MACHINE, WORK

    return (*(setting.name for setting in (*MACHINE, *WORK)), *_PARAMETERS)


def _topics() -> Iterable[str]:
    from dlbench.analysis import answers

    return answers.topics()


suites = _offering(_suites, "file")
devices = _offering(lambda: (*DEVICE_KINDS, "gpu"))  # which there are here only a process with torch could say
columns = _offering(_columns)  # that identify a case
topics = _offering(_topics)


NETWORK_SUITE = "network"
"""The suite that measures the networks of a file."""
CALIBRATIONS = Path("results", "calibration")
"""Where `dlbench calibrate` keeps what it finds, and the runs that it stands on."""

PATH = click.Path(path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
file_argument = click.argument("file", type=PATH)
files_argument = click.argument("files", metavar="FILE|FOLDER...", nargs=-1, required=True, type=PATH)

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def option_group(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Add options whose values the command gets as one argument ``name``: the result of calling ``make`` with them."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gathering(**values: Any) -> Any:
            made = make(**{each: values.pop(each) for each in inspect.signature(make).parameters})
            return command(**{name: made}, **values)

        decorated: Command = gathering
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def typed_options() -> set[str]:
    """Return the parameters of this command that its command line gives."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def read_by(parse: Callable[..., Any], *more: Any) -> Callable[[str], Any]:
    """Return a type of options: what ``parse`` makes of a word, whose ValueError is the user's mistake."""

    def read(text: str) -> Any:
        try:
            return parse(text, *more)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    read.__name__ = parse.__name__.removeprefix("parse_")  # which help shows
    return read


duration = read_by(parse_duration)
"""Seconds from ``90s``, ``1.5m`` and the like."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Suites, and which of their cases to plan with which values."""

    names: tuple[str, ...] = ()
    expression: str | None = None
    case_ids: tuple[str, ...] = ()
    """Of exactly the cases to plan; empty: all that ``expression`` selects."""
    overrides: tuple[str, ...] = ()
    """``axis=v1,v2`` each."""
    device_words: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def _plan_options(
    names: tuple[str, ...],
    expression: str | None,
    case_ids: tuple[str, ...],
    overrides: tuple[str, ...],
    device_words: tuple[str, ...],
    plugins: tuple[str, ...],
) -> PlanOptions:
    """Return the options: a file of Python among the suites is a plugin, and alone stands for the suite that is made for its networks."""
    files = [name for name in names if name.endswith(".py")]
    suites = dict.fromkeys([name for name in names if name not in files] or (files and [NETWORK_SUITE]))
    return PlanOptions(tuple(suites), expression, case_ids, overrides, device_words, tuple(dict.fromkeys((*files, *plugins))))


device_option = click.option(
    "--device",
    "device_words",
    multiple=True,
    metavar="DEVICE",
    shell_complete=devices,
    help="cpu, gpu, cuda or cuda:0 (default: every device). Repeatable.",
)
device_plugin_option = click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE", help="Module or .py file with a kind of device of your own. Repeatable."
)
planning_options = option_group(
    "planning",
    _plan_options,
    click.argument("names", nargs=-1, metavar="[SUITE|FILE.py]...", shell_complete=suites),
    click.option("-k", "expression", metavar="EXPR", help="Only cases whose id matches: words, and, or, not, parentheses."),
    click.option("--case", "case_ids", multiple=True, metavar="ID", help="Exactly this case, by the id that list shows. Repeatable."),
    click.option(
        "--set", "overrides", multiple=True, metavar="AXIS=V1,V2", help="Replace an axis wherever the workload has it. Repeatable."
    ),
    device_option,
    click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="MODULE",
        help="Module or .py file with workloads, networks or data of your own. Repeatable.",
    ),
)
"""Adds SUITE… or FILE.py, -k, --case, --set, --device and --plugin; the command gets ``planning``."""


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

    isolation = "What a CPU case gets: a fork, a new interpreter (spawn), or none of its own (default: fork on Linux, else spawn)."
    return option_group(
        "measuring",
        MeasureOptions,
        click.option("-o", "--output", type=OUTPUT_FILE, metavar="FILE", help="Result file; never overwritten."),
        click.option("--rounds", type=click.IntRange(1, 1000), help=rounds),
        click.option("--budget", type=duration, help=budget),
        click.option("--timeout", type=duration, help="Deadline of one case in one round (default: the suite's, 60s)."),
        click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the inputs and the order (default: a new one, recorded)."),
        click.option("--isolation", type=click.Choice(get_args(Isolation)), help=isolation),
    )


def threshold_options(default: str, detect: str) -> Decorator:
    """Add --threshold, whose default is the command's, and --detect with the command's help; the command gets ``given``."""
    examples = "5%, 0.05, memory=10%, energy=5%, throughput=5%, value=20%"
    meaning = f"Smallest change that matters: {examples}. Goes before the suite's; the default is"
    threshold = click.option("--threshold", "thresholds", multiple=True, metavar="[METRIC=]VALUE", help=f"{meaning} {default}. Repeatable.")
    return option_group("given", parse_thresholds, threshold, detect_option(detect))


def detect_option(meaning: str) -> Decorator:
    """Add --detect with the command's own help; the command gets ``detect``."""
    return click.option("--detect", metavar="PERCENT", help=meaning)


def parse_thresholds(thresholds: Iterable[str], detect: str | None) -> dict[str, str]:
    """Return the threshold of each metric from ``5%`` (of time) and ``memory=0.1``, as written, and what must be detected.

    Raises UsageError for what makes no sense.
    """
    given: dict[str, str] = {}
    try:
        for word in thresholds:
            option = f"--threshold {word}"
            metric, equals, value = word.rpartition("=")
            metric = metric.strip() if equals else "time"
            if metric in given:
                raise ValueError(f"the threshold of {metric} is given twice; give it once")
            if metric == DETECT:
                raise ValueError(f"what must be detected is no threshold; give --detect {value}")
            given[metric] = value
            check(given)
        if detect is not None:
            option = f"--detect {detect}"
            given[DETECT] = detect
            check(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    return given


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
    report: Path | None
    form: str

    def __post_init__(self) -> None:
        refuse_same_file(self.files)
        check_writable(*self.files.values(), new=False)
        check_writable(*(path for path in self.files.values() if path and path.suffix == ".jsonl"))  # a result file
        if self.report:  # before anything is measured
            check_writable(self.report)
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
        return Path(path) if self.github and (path := os.environ.get("GITHUB_STEP_SUMMARY")) else None


format_option = click.option(
    "--format", "form", type=click.Choice(("table", *tabular.FORMATS)), default="table", show_default=True, help="What to write to stdout."
)
output_options = option_group(
    "output",
    OutputOptions,
    click.option(
        "--strict/--no-strict",
        help="Exit with 4 if any case is inconclusive or incomparable, may have lost a round, or is of another, uncalibrated session.",
    ),
    click.option("--junit", type=OUTPUT_FILE, metavar="FILE", help="Write the verdicts as JUnit XML, too."),
    click.option("--verdict", type=OUTPUT_FILE, metavar="FILE", help="Write all of it as one JSON document, too."),
    click.option("--report", type=OUTPUT_FILE, metavar="PAGE", help="Write a page with a plot, too; never overwritten."),
    click.option("--github", is_flag=True, help="In GitHub Actions, add a summary to the step and annotations to the run."),
    format_option,
)
"""Adds --strict, --junit, --verdict, --report, --github and --format; the command gets ``output``."""


_TRAINING = (
    click.option("--samples", type=click.IntRange(1, 10**15), help="Samples of a training of your own, for how long it takes."),
    click.option("--epochs", type=click.IntRange(1, 10**6), help="How often it passes over them (default: 1)."),
)
training_options = option_group("prices", prices.training, *_TRAINING)
"""Adds --samples and --epochs; the command gets ``prices``, without any."""
price_options = option_group(
    "given",
    prices.made,
    click.option(
        "--price",
        multiple=True,
        type=read_by(parse_price),
        metavar="[DEVICE=]AMOUNT[/h]",
        help="Rent of an hour, cuda=2.50/h; electricity, kwh=0.30; to buy, cuda=1600EUR, used 4 years of 8 hours a day: "
        "cuda=1600EUR/4y/8h. Repeatable.",
    ),
    *_TRAINING,
    click.option(
        "--on",
        multiple=True,
        metavar="CARD",
        help="Tell what a card would bring that is not here, such as 'RTX 4090' (speed-up). Repeatable.",
    ),
)
"""Adds what things cost and a training of one's own, none of which is stored; the command gets ``given``, `core.prices.Prices`."""
