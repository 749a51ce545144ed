"""``dlbench devices``: what is in this machine."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from dlbench.cli.options import device_plugin_option
from dlbench.cli.terminal import draw
from dlbench.core import units
from dlbench.core.quantities import Json

if TYPE_CHECKING:
    from dlbench.analysis.report.screen_table import ScreenTable

UNKNOWN = "–"


@click.command()
@device_plugin_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to write to stdout.")
def command(plugins: tuple[str, ...], form: str) -> None:
    """Show what is in this machine: the CPU and every accelerator that torch finds.

    A field that the device or its driver does not tell is shown as – with the reason. A device that can't compute is listed with the
    reason, too.

    \b
      dlbench devices
      dlbench devices --format json
    """
    from dlbench.harness.probe.devices import describe
    from dlbench.harness.runner import ask_hello

    devices = [device.to_json() for device in describe(ask_hello(plugins))]
    if form == "json":
        click.echo(json.dumps({"devices": devices}, indent=2, allow_nan=False))
    elif sys.stdout.isatty():
        for device in devices:
            draw(_table(device))
    else:
        click.echo("\n\n".join(map(_lines, devices)))


def _table(device: Json) -> "ScreenTable":
    """Return the table of one device, a field a row. Text from the machine is never read as markup."""
    from rich.text import Text

    from dlbench.analysis.report.screen_table import ScreenColumn, ScreenTable

    fields = list(rows(device))
    values = [Text(value) if reason is None else Text.assemble(value, " ", (reason, "dim")) for _, value, reason in fields]
    return ScreenTable([ScreenColumn("", [Text(label) for label, *_ in fields]), ScreenColumn("", values)], device["id"])


def _lines(device: Json) -> str:
    lines = (f"{label}: {value}" if reason is None else f"{label}: {value} ({reason})" for label, value, reason in rows(device))
    return "\n".join([f"id: {device['id']}", *lines])


def rows(device: Json) -> Iterator[tuple[str, str, str | None]]:
    """Yield label, value with its unit, and for an unknown value the reason."""
    for name, value in device.items():
        if name in ("id", "reasons") or (value is None and device.get("unusable")):
            continue
        stem, _, unit = name.rpartition("_")
        write: Callable[[Any], str] = _WITH_UNIT.get(unit, _bare)
        label = (stem if unit in _WITH_UNIT else name).replace("_", " ")
        yield label, UNKNOWN if value is None else write(value), device["reasons"].get(name) if value is None else None


_WITH_UNIT: dict[str, Callable[[float], str]] = {
    "bytes": units.byte_count,
    "hz": units.hertz,
    "w": lambda watts: f"{watts:.0f} W",
    "c": lambda celsius: f"{celsius:.0f} °C",
}
"""How to write a field, by the unit at the end of its name."""


def _bare(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
