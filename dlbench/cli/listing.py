"""Suites and planned cases on stdout: a table on a terminal, else an id a line or rows in a format."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from dlbench.analysis.export import tabular
from dlbench.cli.planning import Plan
from dlbench.core.model import Case
from dlbench.core.units import seconds
from dlbench.harness.plan.cases import estimate
from dlbench.harness.plan.suite import builtin_names, load

if TYPE_CHECKING:
    from rich.table import Table

_TABLE_AT_MOST = 300
"""Cases that one still scrolls through; more are plain lines on a terminal, too."""

_CASE = ("id", "suite", "workload", "device", "params")

Row = Mapping[str, Any]
Item = TypeVar("Item")


def write_plan(plan: Plan, form: str) -> None:
    """Write the cases of a plan to stdout, and to stderr how many there are and about how long they take."""
    cases = Counted(plan.cases)
    write_cases(cases, form)
    number = f"{cases.seen:,} case{'' if cases.seen == 1 else 's'}"
    time = seconds(estimate(plan.policy, cases.seen))
    click.echo(f"{number}, about {time} in {plan.policy.rounds} rounds (estimated from the policy; slow steps take longer)", err=True)


class Counted(Generic[Item]):
    """Passes items on and remembers only how many there were."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self.seen = 0

    def __iter__(self) -> Iterator[Item]:
        """Yield each item."""
        for item in self._items:
            self.seen += 1
            yield item


def write_suites(form: str) -> None:
    """Write every built-in suite to stdout: its name, number of benches and question. Needs neither torch nor a process."""
    rows = [{"suite": suite.name, "benches": len(suite.benches), "about": suite.about} for suite in map(load, builtin_names())]
    if form != "table":
        _write_rows(list(rows[0]), rows, form)
    elif sys.stdout.isatty():
        _draw(rows)
    else:
        width = max(map(len, builtin_names()))
        _write(f"{row['suite']:<{width}}  {row['benches']:>3}  {row['about']}\n" for row in rows)


def write_cases(cases: Iterable[Case], form: str) -> None:
    """Write cases to stdout as they come: a table on a terminal if they are few, else an id a line, or the rows of ``form``."""
    if form != "table":
        _write_rows(_CASE, map(_case_row, cases), form)
        return
    cases = iter(cases)
    few = list(itertools.islice(cases, _TABLE_AT_MOST + 1)) if sys.stdout.isatty() else []
    if 0 < len(few) <= _TABLE_AT_MOST:
        _draw([{"case": case.id, "suite": case.suite} for case in few])
    else:
        _write(f"{case.id}\n" for case in itertools.chain(few, cases))


def _case_row(case: Case) -> Row:
    return dict(zip(_CASE, (case.id, case.suite, case.workload, case.device, case.params), strict=True))


def _write_rows(columns: Sequence[str], rows: Iterable[Row], form: str) -> None:
    _write(tabular.lines(columns, rows, form))


def _write(chunks: Iterable[str]) -> None:
    sys.stdout.writelines(chunks)
    # Here and not at exit, where Python answers a reader that has left (`| head`) with a message of its own.
    sys.stdout.flush()


def _draw(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    Console().print(table(rows))


def table(rows: list[dict[str, Any]]) -> "Table":
    """Draw rows for a terminal. Ids and questions are never read as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD)
    for name, value in rows[0].items():
        drawn.add_column(name, overflow="fold", justify="right" if isinstance(value, int) else "left")
    for row in rows:
        drawn.add_row(*(Text(str(value)) for value in row.values()))
    return drawn
