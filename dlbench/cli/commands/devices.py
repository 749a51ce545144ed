"""``dlbench devices`` and a bare ``dlbench``: what is in this machine, and what to type."""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dlbench.analysis.presentation.wording import entry, plural
from dlbench.analysis.report.screen import Note, ScreenColumn, ScreenTable
from dlbench.cli.options import NETWORK_SUITE, device_files_argument
from dlbench.cli.planning import DEFAULT_SUITE, minutes
from dlbench.cli.terminal import draw
from dlbench.core.units import Json, byte_count
from dlbench.harness.plan.suite import load
from dlbench.harness.probe.devices import Gpus, Processor, describe_cpu, versions
from dlbench.harness.probe.programs import OtherPrograms

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOK_S = 0.3
"""Seconds for which CPU time is counted, in ticks of 10 ms: few enough to wait, enough to distinguish half a CPU from an idle one."""


def write_first_screen() -> None:
    """Write the screen of a bare ``dlbench`` to stdout."""
    programs, began = OtherPrograms(shortest_s=_LOOK_S), time.monotonic()
    torch = versions()
    cpu, gpus = describe_cpu(), Gpus.find(torch)
    time.sleep(max(0.0, began + _LOOK_S - time.monotonic()))
    draw(*_first_screen(cpu, gpus, torch["torch"], programs.named()))


def _first_screen(cpu: Processor, gpus: Gpus, torch: str | None, busy: str | None) -> "Iterator[RenderableType]":
    """Yield a line on the machine, one on the programs that use its CPUs (``busy``), and a table of commands."""
    facts = [cpu.name or "CPU", plural(cpu.usable_threads(), "core"), *([byte_count(cpu.memory_bytes)] if cpu.memory_bytes else ())]
    cards = ", ".join(f"{name}, {byte_count(memory)}" for name, memory in gpus.visible)
    if gpus.why_none:
        gpu = f"no GPU: {gpus.why_none}"
    elif cards:
        gpu = f"{cards}, driver {gpus.driver}; torch {torch} uses {'it' if len(gpus.visible) == 1 else 'them'}"
    else:
        gpu = f"torch {torch}; dlbench devices shows whether it uses a GPU"
    yield Note(f"{', '.join(facts)} · {gpu}", "")
    yield Note(f"busy: {busy}; times would be too long, so stop them first" if busy else "idle", "")
    question = "what this CPU trains, and where the time goes" if gpus.why_none else "is the GPU worth it, and where the time goes"
    commands = {  # suite, whose time is forecast, and purpose
        "dlbench run": (DEFAULT_SUITE, question),
        "dlbench run mine.py": (NETWORK_SUITE, "the same for your network, which dlbench new mine.py begins"),
        "dlbench ab --help": (None, "is b slower than a? with an exit code for CI"),
    }
    times = [f"{minutes(load(suite), gpus.ids)} min" if suite else "" for suite, _ in commands.values()]
    purposes = [purpose for _, purpose in commands.values()]
    yield ScreenTable([ScreenColumn("", list(commands), priority=0), ScreenColumn("", times), ScreenColumn("", purposes, priority=0)])


@click.command("devices")
@device_files_argument
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to write to stdout.")
def devices_command(plugins: tuple[str, ...], form: str) -> None:
    """Show what is in this machine: torch and whether it uses a GPU, the CPU and every accelerator that torch finds.

    A field that the device or its driver does not tell is shown as – with the reason. A device that can't compute is listed with the
    reason, too.

    \b
      dlbench devices
      dlbench devices --format json
    """
    from dlbench.harness.probe.devices import describe, why_gpu_unusable
    from dlbench.harness.runner import ask_hello

    hello = ask_hello(plugins)
    installed = hello["versions"]
    devices = [device.to_json() for device in describe(hello)]
    usable = [device["id"] for device in devices if device["kind"] != "cpu" and "unusable" not in device]
    why = None if usable else why_gpu_unusable(installed) or "torch finds none that it can use"
    if form == "json":
        click.echo(json.dumps({"torch": installed, "why_no_gpu": why, "devices": devices}, indent=2, allow_nan=False))
        return
    torch = {"id": "torch", "version": installed["torch"], "gpu": f"none: {why}" if why else ", ".join(usable)}
    draw(*(part for device in (torch, *devices) for part in _parts(device)))


def _parts(device: Json) -> "Iterator[RenderableType]":
    """Yield the heading and the table of a device, a field a row."""
    labels, values = zip(*rows(device), strict=True)
    yield Note(device["id"], "bold")
    yield ScreenTable([ScreenColumn("", labels, priority=0), ScreenColumn("", values, priority=0)])
    yield ""


def rows(device: Json) -> Iterator[tuple[str, str]]:
    """Yield label and text of each field of a device: the value with its unit, or why it is not known."""
    for name, value in device.items():
        if name not in ("id", "reasons") and not (value is None and device.get("unusable")):
            label, text = entry(name, value)
            why = f" ({reason})" if value is None and (reason := device["reasons"].get(name)) else ""
            yield label.replace("_", " "), f"{text}{why}"
