"""``dlbench list``: the built-in suites; with names, the cases that they plan and a guess of the time."""

import click

from dlbench.cli.listing import write_plan, write_suites
from dlbench.cli.options import planned, planning_options
from dlbench.core.errors import UsageError


@click.command()
@planning_options
@click.option("--format", "form", type=click.Choice(["table", "json", "csv", "md"]), default="table", help="What to write to stdout.")
def command(
    names: tuple[str, ...],
    expression: str | None,
    settings: tuple[str, ...],
    device_words: tuple[str, ...],
    plugins: tuple[str, ...],
    form: str,
) -> None:
    """Show the built-in suites; with names, the cases that they plan and an estimate of the time.

    SUITE is the name of a built-in suite, or a path that ends in .toml. Off a terminal the cases are one id a line; their number
    and the estimate go to stderr.
    """
    if not names:
        if expression is not None or settings or device_words or plugins:
            raise UsageError("-k, --set, --device and --plugin need a SUITE, such as dlbench list quick -k resnet18")
        write_suites(form)
        return
    write_plan(planned(names, expression, settings, device_words, plugins), form)
