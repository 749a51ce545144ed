"""The formats that a result file is exported to: a module of this folder each.

It has an ``export``, and where its files can't go to stdout the reason why, ``NEEDS_NAME``.
"""

from importlib import import_module
from types import ModuleType

from dlbench.core import modules


def names() -> list[str]:
    """Return what the formats are called; no module of theirs is imported, as the command line needs the names for its help."""
    return [name.replace("_", "-") for name in modules.names(__name__)]


def load(name: str) -> ModuleType:
    """Import the module of a format."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
