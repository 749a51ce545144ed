"""The formats that a result file is exported to: a module of this folder each.

It has a ``document`` of the cases that have times, or the ``content`` of the whole table: see `cases`. Where its files can't go to
stdout it has the reason why, ``NEEDS_NAME``.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dlbench.core import files

if TYPE_CHECKING:
    from dlbench.analysis.export.cases import Exported


def names() -> list[str]:
    """Return what the formats are called; no module of theirs is imported, as the command line needs the names for its help."""
    return [name.replace("_", "-") for name in files.names(__name__)]


def load(name: str) -> ModuleType:
    """Import the module of a format."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def export(name: str, file: Path) -> "Exported":
    """Return a result file in a format. Raises UsageError if it can't be read, or a package is missing."""
    from dlbench.analysis.export import cases

    made_by = load(name)
    if hasattr(made_by, "content"):
        return cases.of_table(file, made_by.content)
    # One JSON document goes to stdout; only several, a file each, need a name.
    return cases.of_cases(file, made_by.document, in_parts=hasattr(made_by, "NEEDS_NAME"))
