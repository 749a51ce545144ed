"""The installed torch and the NVIDIA cards, as their files and driver tell: importing torch takes a second."""

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.harness.probe import nvml

_HIDDEN = ("", "-1")
"""Values of CUDA_VISIBLE_DEVICES that leave no card."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the NVIDIA driver says of its cards."""

    visible: tuple[tuple[str, int], ...] = ()
    """Name and bytes of memory of each card that torch sees."""
    driver: str | None = None
    why_none: str | None = None
    """Why torch uses none of them; None where it should, and where only torch itself could say."""

    @property
    def ids(self) -> list[str]:
        """What torch calls all devices: the CPU and these."""
        return ["cpu", *(f"cuda:{number}" for number, _ in enumerate(self.visible))]

    @classmethod
    def found(cls, versions: Mapping[str, str | None]) -> "Gpus":
        """Look for those that a torch of these versions can use."""
        if why := why_none(versions):
            return cls(why_none=why)
        try:
            with nvml.session() as session:
                driver, cuda, cards = session.cards()
        except nvml.NvmlUnavailable:
            return cls()
        built_for = versions.get("cuda") or ""
        if cards and built_for and int(built_for.partition(".")[0]) > cuda[0]:  # within a major version any driver will do
            old = f"the NVIDIA driver {driver} goes up to CUDA {cuda[0]}.{cuda[1]}, and torch {versions['torch']} needs {built_for}"
            return cls(driver=driver, why_none=old)
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return cls(tuple(cards[: len(cards) if shown is None else len(shown.split(","))]), driver)


def versions() -> dict[str, str | None]:
    """Return the version of the installed torch and what it was built for, by the names of a hello; all None where there is no torch."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = file.read_text() if file and file.is_file() else ""
    stated = dict(re.findall(r"""^(\w+)[^=\n]* = ['"]([^'"]*)['"]""", text, re.MULTILINE))
    return {"torch": stated.get("__version__"), **{name: stated.get(name) for name in ("cuda", "hip", "xpu")}}


def why_none(versions: Mapping[str, Any]) -> str | None:
    """Say why a torch of these versions can't use a GPU; None where nothing is known to be in the way."""
    torch, cuda = versions.get("torch"), versions.get("cuda")
    named = f"torch {torch}"
    if torch is None:
        return "torch is not installed"
    driver = bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia/version").exists()
    if not (cuda or versions.get("hip") or "xpu" in torch or Path("/System/Library").exists()):  # on a Mac any build has Metal
        return f"{named} is built for CPUs alone" + ("; install one for CUDA" if driver else ", and there is no NVIDIA driver")
    if cuda and os.environ.get("CUDA_VISIBLE_DEVICES", "0") in _HIDDEN:
        return "CUDA_VISIBLE_DEVICES hides them all"
    if cuda and not driver:
        return f"there is no NVIDIA driver for {named}"
    if versions.get("hip") and not Path("/dev/kfd").exists():
        return f"there is no AMD driver for {named}"
    return None
