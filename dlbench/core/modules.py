"""Modules that take part by being in the folder of their package: no list names them."""

import pkgutil
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType


def names(package: str) -> list[str]:
    """Return the names of the modules in the folder of a package, sorted; none of them is imported."""
    return [each.name for each in pkgutil.iter_modules(import_module(package).__path__)]


@cache
def ordered(package: str) -> tuple[ModuleType, ...]:
    """Import the modules in the folder of a package, and return those that state a place among each other, ``ORDER``, by it."""
    every = [import_module(f"{package}.{name}") for name in names(package)]
    return tuple(sorted((each for each in every if hasattr(each, "ORDER")), key=attrgetter("ORDER")))
