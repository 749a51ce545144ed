"""Screen of a bare ``dlbench``: the machine, whether others take its CPUs, whether torch uses a GPU, and what to type."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlbench.analysis.report.screen import Note, ScreenColumn, ScreenTable
from dlbench.cli.options import NETWORK_SUITE
from dlbench.cli.planning import DEFAULT_SUITE, minutes
from dlbench.cli.terminal import draw
from dlbench.core.units import byte_count
from dlbench.harness.plan.suite import load
from dlbench.harness.probe.devices import Gpus, Processor, describe_cpu, versions
from dlbench.harness.probe.programs import OtherPrograms

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOK_S = 0.3
"""For which CPU time is counted, in ticks of 10 ms: short enough to wait for, and long enough to tell half a CPU from an idle one."""


def write() -> None:
    """Write it to stdout."""
    programs, began = OtherPrograms(shortest_s=_LOOK_S), time.monotonic()
    torch = versions()
    cpu, gpus = describe_cpu(), Gpus.found(torch)
    time.sleep(max(0.0, began + _LOOK_S - time.monotonic()))
    draw(*_parts(cpu, gpus, torch["torch"], programs.named()))


def _parts(cpu: Processor, gpus: Gpus, torch: str | None, busy: str | None) -> "Iterator[RenderableType]":
    """Yield a line on the machine, one on who takes its CPUs, and the commands."""
    threads = cpu.usable_threads()
    facts = [cpu.name or "CPU", f"{threads} core{'s' * (threads > 1)}", *([byte_count(cpu.memory_bytes)] if cpu.memory_bytes else ())]
    cards = ", ".join(f"{name}, {byte_count(memory)}" for name, memory in gpus.visible)
    if gpus.why_none:
        gpu = f"no GPU: {gpus.why_none}"
    elif cards:
        gpu = f"{cards}, driver {gpus.driver}; torch {torch} uses {'it' if len(gpus.visible) == 1 else 'them'}"
    else:
        gpu = f"torch {torch}; dlbench devices shows whether it uses a GPU"
    yield Note(f"{', '.join(facts)} · {gpu}", "")
    yield Note(f"busy: {busy}; times would be too long, so stop them first" if busy else "idle", "")
    what = "what this CPU trains, and where the time goes" if gpus.why_none else "is the GPU worth it, and where the time goes"
    commands = {
        "dlbench run": (DEFAULT_SUITE, what),
        "dlbench run mine.py": (NETWORK_SUITE, "the same for your network, which dlbench new mine.py begins"),
        "dlbench ab --help": (None, "is b slower than a? with an exit code for CI"),
    }
    takes = [f"{minutes(load(suite), gpus.ids)} min" if suite else "" for suite, _ in commands.values()]
    abouts = [about for _, about in commands.values()]
    yield ScreenTable([ScreenColumn("", list(commands), priority=0), ScreenColumn("", takes), ScreenColumn("", abouts, priority=0)])
