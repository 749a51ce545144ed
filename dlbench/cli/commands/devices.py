"""``dlbench devices``: what is in this machine."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from dlbench.core import units

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "–"


@click.command()
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE", help="Module or .py file with a kind of device of your own. Repeatable."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to write to stdout.")
def command(plugins: tuple[str, ...], form: str) -> None:
    """Show what is in this machine: the CPU and every accelerator that torch finds.

    What a device or its driver does not tell is shown as – with the reason. Of one that can't be computed on it says why, and what is
    known of it all the same.
    """
    from dlbench.harness.probe.devices import describe
    from dlbench.harness.runner import ask_hello

    devices = [device.to_json() for device in describe(ask_hello(plugins))]
    if form == "json":
        click.echo(json.dumps({"devices": devices}, indent=2, allow_nan=False))
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        for device in devices:
            console.print(table(device))
    else:
        click.echo("\n\n".join(plain(device) for device in devices))


def table(device: dict[str, Any]) -> "Table":
    """Draw one device, a field a row. Text from the machine is never read as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(device["id"], style="bold"), title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for label, value, reason in rows(device):
        drawn.add_row(label, Text(value) if reason is None else Text.assemble(value, " ", (reason, "dim")))
    return drawn


def plain(device: dict[str, Any]) -> str:
    """Write one device as lines of ``field: value``, of any length."""
    lines = (f"{label}: {value}" if reason is None else f"{label}: {value} ({reason})" for label, value, reason in rows(device))
    return "\n".join([f"id: {device['id']}", *lines])


def rows(device: dict[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Yield label, value with its unit, and for an unknown value the reason."""
    for name, value in device.items():
        if name in ("id", "reasons") or (value is None and device.get("unusable")):
            continue
        stem, _, unit = name.rpartition("_")
        with_unit = unit in _TEXT
        label = (stem if with_unit else name).replace("_", " ")
        if value is None:
            yield label, UNKNOWN, device["reasons"].get(name)
        elif with_unit:
            yield label, _TEXT[unit](value), None
        else:
            yield label, _bare(value), None


_TEXT: dict[str, Callable[[float], str]] = {
    "bytes": units.byte_count,
    "hz": units.hertz,
    "w": lambda watts: f"{watts:.0f} W",
    "c": lambda celsius: f"{celsius:.0f} °C",
}
"""How to write a field, by the unit at the end of its name."""


def _bare(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
