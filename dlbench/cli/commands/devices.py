"""``dlbench devices``: what is in this machine."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dlbench.analysis.presentation.wording import entry
from dlbench.cli.options import device_plugin_option
from dlbench.cli.terminal import draw
from dlbench.core.units import Json

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@device_plugin_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to write to stdout.")
def command(plugins: tuple[str, ...], form: str) -> None:
    """Show what is in this machine: torch and whether it uses a GPU, the CPU and every accelerator that torch finds.

    A field that the device or its driver does not tell is shown as – with the reason. A device that can't compute is listed with the
    reason, too.

    \b
      dlbench devices
      dlbench devices --format json
    """
    from dlbench.harness.probe.devices import describe, why_none
    from dlbench.harness.runner import ask_hello

    hello = ask_hello(plugins)
    versions, devices = hello["versions"], [device.to_json() for device in describe(hello)]
    uses = [device["id"] for device in devices if device["kind"] != "cpu" and "unusable" not in device]
    why = None if uses else why_none(versions) or "torch finds none that it can use"
    if form == "json":
        click.echo(json.dumps({"torch": versions, "why_no_gpu": why, "devices": devices}, indent=2, allow_nan=False))
        return
    torch = {"id": "torch", "version": versions["torch"], "gpu": f"none: {why}" if why else ", ".join(uses)}
    draw(*(part for device in (torch, *devices) for part in _parts(device)))


def _parts(device: Json) -> "Iterator[RenderableType]":
    """Yield what is drawn of one device, a field a row."""
    from dlbench.analysis.report.screen import Note, ScreenColumn, ScreenTable

    labels, values = zip(*rows(device), strict=True)
    yield Note(device["id"], "bold")
    yield ScreenTable([ScreenColumn("", labels, priority=0), ScreenColumn("", values, priority=0)])
    yield ""


def rows(device: Json) -> Iterator[tuple[str, str]]:
    """Yield label and value with its unit, or why that is not known."""
    for name, value in device.items():
        if name not in ("id", "reasons") and not (value is None and device.get("unusable")):
            label, text = entry(name, value)
            why = f" ({reason})" if value is None and (reason := device["reasons"].get(name)) else ""
            yield label.replace("_", " "), f"{text}{why}"
