"""Files of the package and of its users: its version and folders, TOML written by hand, and modules found by being in a folder."""

from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from dlbench.core.errors import SuiteError

__version__ = "0.2.0"
PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package."""


def packaged(name: str, checkout: str) -> Path:
    """Return a folder that comes with dlbench: inside the package, as in a wheel, next to which one would be a stranger's; else there."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / checkout


MAX_BYTES = 1 << 20
"""Largest file that is read: it is written by hand, and a bigger one is something else."""


def read_text(path: Path, origin: str) -> str:
    """Return the text of a TOML file. Raises SuiteError where it can't be read, is too large or is not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SuiteError(f"cannot read {origin}: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise SuiteError(f"{origin} is larger than {MAX_BYTES:,} bytes, the most that dlbench reads of a TOML file; shorten it")
    try:
        return content.decode("utf-8-sig")  # an editor's byte-order mark is no mistake of the user
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SuiteError(f"{origin}, line {line}: not UTF-8, as TOML has to be; save the file as UTF-8") from error


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises SuiteError with the file and the place in it."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise SuiteError(f"{origin}: not valid TOML: nested too deeply") from error
    except ValueError as error:  # TOMLDecodeError, and an integer of too many digits
        raise SuiteError(f"{origin}: not valid TOML: {error}") from error


def names(package: str) -> list[str]:
    """Return the names of the modules in the folder of a package, sorted; none of them is imported."""
    import pkgutil  # `dlbench --help` needs the version alone

    return [each.name for each in pkgutil.iter_modules(import_module(package).__path__)]


@cache
def ordered(package: str) -> tuple[ModuleType, ...]:
    """Import the modules in the folder of a package, and return those that state a place among each other, ``ORDER``, by it."""
    every = [import_module(f"{package}.{name}") for name in names(package)]
    return tuple(sorted((each for each in every if hasattr(each, "ORDER")), key=attrgetter("ORDER")))
