"""How a command that judges ends: what it writes for people, programs and CI, and the exit code. ``compare`` and ``ab`` share it."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from dlbench.cli.show_command import FORMATS
from dlbench.core.errors import ExitCode, OutputError, UsageError
from dlbench.core.thresholds import MUST_SEE, check
from dlbench.core.units import one_line

if TYPE_CHECKING:
    from dlbench.analysis.verdict import Comparison
    from dlbench.core.thresholds import Thresholds
    from dlbench.harness.suite import Suite

Command = TypeVar("Command", bound=Callable[..., Any])

_DECORATORS = (
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
        check(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def require_sight(suites: Iterable["Suite"], usual: "Thresholds", given: Mapping[str, str]) -> None:
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
    for decorator in reversed(_DECORATORS):
        command = decorator(command)
    return command


@dataclass(frozen=True, slots=True)
class Wanted:
    """What those options ask for."""

    strict: bool
    junit: Path | None
    verdict: Path | None
    summary: Path | None
    """The summary of the step in GitHub Actions."""
    form: str

    @classmethod
    def of(cls, strict: bool, junit: Path | None, verdict: Path | None, github: bool, form: str) -> Self:
        """Make it before any work is done, so that ``--github`` elsewhere is refused at once. Raises UsageError."""
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if github and not summary:
            raise UsageError("--github is for a step of GitHub Actions, where GITHUB_STEP_SUMMARY names a file; leave it out elsewhere")
        return cls(strict, junit, verdict, Path(summary) if github and summary else None, form)


def conclude(comparisons: Sequence["Comparison"], notes: Sequence[str], wanted: Wanted) -> ExitCode:
    """Write the cases to stdout, the notes to stderr, and the files that are wanted; return the code to exit with."""
    from dlbench.analysis import compare_terminal, sentences

    code = exit_code(comparisons, wanted.strict)
    conclusion = f"{compare_terminal.summary(comparisons)}; exit {code.value}"
    notes = [*notes, *(line for comparison in comparisons for line in sentences.unpaired(comparison.unpaired))]
    notes += [doubt for comparison in comparisons for doubt in comparison.doubts]
    _print(comparisons, conclusion, wanted.form)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    _write_files(comparisons, code, notes, wanted)
    if wanted.summary:
        _tell_github(comparisons, conclusion, notes, wanted.summary)
    return code


def exit_code(comparisons: Sequence["Comparison"], strict: bool) -> ExitCode:
    """Return the first that holds: 3 something is slower, 5 something failed or is missing, 4 nothing could be, or was, decided."""
    from dlbench.analysis.judge import Verdict

    gate = [each for each in comparisons if not each.report_only]
    found, judged = ({case.verdict for each in some for case in each.cases} for some in (comparisons, gate))
    if Verdict.SLOWER in judged:
        return ExitCode.REGRESSION
    if found & {Verdict.FAILED, Verdict.MISSING}:
        return ExitCode.CASES_FAILED
    if any(each.undecidable for each in comparisons) or (strict and judged & {Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE}):
        return ExitCode.UNDECIDABLE
    return ExitCode.OK


def _print(comparisons: Sequence["Comparison"], conclusion: str, form: str) -> None:
    """Write the cases to stdout, and what they come to: behind a table there too, else to stderr."""
    from dlbench.analysis import compare_terminal

    if form != "table":
        from dlbench.analysis import compare_export, export

        click.echo(export.render(compare_export.as_table(comparisons), form), nl=False)
        click.echo(conclusion, err=True)
        return
    for comparison in comparisons:
        lines = [one_line(comparison.title), "", *compare_terminal.table(comparison), ""]
        if len(comparisons) > 1:
            lines += [compare_terminal.summary([comparison]), ""]
        click.echo("\n".join(lines))
    click.echo(conclusion)


def _write_files(comparisons: Sequence["Comparison"], code: ExitCode, notes: Sequence[str], wanted: Wanted) -> None:
    from dlbench.analysis import compare_export

    if wanted.junit:
        _write(wanted.junit, compare_export.junit(comparisons))
    if wanted.verdict:
        document = compare_export.verdict(comparisons, code, notes)
        _write(wanted.verdict, json.dumps(document, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n")


def _tell_github(comparisons: Sequence["Comparison"], conclusion: str, notes: Sequence[str], path: Path) -> None:
    """Write annotations to stderr, which the runner reads like stdout, and add to the step's summary as much as fits."""
    from dlbench.analysis import github

    for line in github.annotations(comparisons):
        click.echo(line, err=True)
    try:
        with path.open("ab") as file:
            room = github.SUMMARY_LIMIT - file.tell()
            text = github.step_summary(comparisons, conclusion, notes, room).encode(errors="replace")
            if len(text) <= room:
                file.write(text)
            else:  # what stands there already would be lost as well
                click.echo("note: the summary of this step is full, so nothing was added to it", err=True)
    except OSError as error:
        raise OutputError.of(path, error) from error


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputError.of(path, error) from error
