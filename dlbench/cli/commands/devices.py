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
    # The programs are watched for `_LOOK_S`, and the machine is described meanwhile.
    programs, began = OtherPrograms(shortest_s=_LOOK_S), time.monotonic()
    torch = versions()
    cpu, gpus = describe_cpu(), Gpus.find(torch)
    time.sleep(max(0.0, began + _LOOK_S - time.monotonic()))
    draw(*_first_screen(cpu, gpus, torch["torch"], programs.named()))


def _first_screen(cpu: Processor, gpus: Gpus, torch: str | None, busy: str | None) -> "Iterator[RenderableType]":
    """Yield a line on the machine, a line on the programs that use its CPUs, and a table of commands to begin with.

    ``torch`` is the version of torch; None if it is not installed. ``busy`` names those programs; None if none takes much.
    """
    memory = [byte_count(cpu.memory_bytes)] if cpu.memory_bytes else []
    host = ", ".join([cpu.name or "CPU", plural(cpu.usable_threads(), "core"), *memory])
    yield Note(f"{host} · {_gpu_text(gpus, torch)}", "")
    yield Note(f"busy: {busy}; times would be too long, so stop them first" if busy else "idle", "")
    purpose_of_run = "what this CPU trains, and where the time goes" if gpus.why_none else "is the GPU worth it, and where the time goes"
    # Each command with its suite, whose time is forecast, and its purpose. ``dlbench ab --help`` measures nothing, so it has no suite.
    commands = {
        "dlbench run": (DEFAULT_SUITE, purpose_of_run),
        "dlbench run mine.py": (NETWORK_SUITE, "the same for your network, which dlbench new mine.py begins"),
        "dlbench ab --help": (None, "is b slower than a? with an exit code for CI"),
    }
    times = [f"{minutes(load(suite), gpus.ids)} min" if suite else "" for suite, _ in commands.values()]
    purposes = [purpose for _, purpose in commands.values()]
    # On a narrow screen the times are left out; columns of priority 0 stay.
    yield ScreenTable([ScreenColumn("", list(commands), priority=0), ScreenColumn("", times), ScreenColumn("", purposes, priority=0)])


def _gpu_text(gpus: Gpus, torch: str | None) -> str:
    """Return what is known of the GPUs without starting torch: their names, why there is none, or that only torch could say."""
    if gpus.why_none:
        return f"no GPU: {gpus.why_none}"
    if not gpus.visible:
        return f"torch {torch}; dlbench devices shows whether it uses a GPU"
    cards = ", ".join(f"{name}, {byte_count(memory_bytes)}" for name, memory_bytes in gpus.visible)
    return f"{cards}, driver {gpus.driver}; torch {torch} uses {'it' if len(gpus.visible) == 1 else 'them'}"


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

    hello = ask_hello(plugins)  # what a new process with torch says of its versions and devices
    installed = hello["versions"]
    devices = [device.to_json() for device in describe(hello)]
    accelerators = [device["id"] for device in devices if device["kind"] != "cpu" and "unusable" not in device]
    why_none = None
    if not accelerators:
        why_none = why_gpu_unusable(installed) or "torch finds none that it can use"
    if form == "json":
        click.echo(json.dumps({"torch": installed, "why_no_gpu": why_none, "devices": devices}, indent=2, allow_nan=False))
        return
    # torch is shown as if it were a device, before the others.
    torch = {"id": "torch", "version": installed["torch"], "gpu": f"none: {why_none}" if why_none else ", ".join(accelerators)}
    parts = [part for device in (torch, *devices) for part in _parts(device)]
    draw(*parts)


def _parts(device: Json) -> "Iterator[RenderableType]":
    """Yield the heading and the table of a device, a field a row."""
    labels, values = zip(*rows(device), strict=True)
    yield Note(device["id"], "bold")
    yield ScreenTable([ScreenColumn("", labels, priority=0), ScreenColumn("", values, priority=0)])
    yield ""


def rows(device: Json) -> Iterator[tuple[str, str]]:
    """Yield label and text of each field of a device: the value with its unit, or why it is not known.

    Of a device that can't be used only what is known is shown: why it can't be used is a field, and is the reason for all else.
    """
    for name, value in device.items():
        if name in ("id", "reasons") or (value is None and device.get("unusable")):
            continue
        label, text = entry(name, value)
        reason = device["reasons"].get(name) if value is None else None
        yield label.replace("_", " "), f"{text} ({reason})" if reason else text
