"""Sieves: what may pass of a value to others. Numbers, words of a closed set, texts in a form that has no room for a name."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dlbench.core.quantities import MOST

Sieve = Callable[[Any], Any]
"""Returns what may pass of a value; None for nothing."""


def number(value: object) -> int | float | bool | None:
    """Let a flag or a finite number pass."""
    # Not math.isfinite, which a whole number of a thousand digits is too large for.
    return value if isinstance(value, int | float) and abs(value) <= MOST else None


def checked(value: object) -> object:
    """Let pass what was checked before: typed numbers, and names that are plain."""
    return value


def one_of(*words: str) -> Sieve:
    """Let these words pass, also several with commas between them, and lists of them."""

    def pass_on(value: object) -> object:
        if isinstance(value, list | tuple):
            return [each for each in value if each in words]
        return value if isinstance(value, str) and all(word in words for word in value.split(", ")) else None

    return pass_on


def form(pattern: str) -> Sieve:
    """Let what a text begins with pass if it has this form, and no such thing goes on behind it."""
    compiled = re.compile(pattern, re.ASCII)

    def pass_on(value: object) -> str | None:
        match = compiled.match(value) if isinstance(value, str) else None
        return match[0] if match and not re.match(r"[\w.]", match.string[match.end() :]) else None

    return pass_on


def fields_of(**sieves: Sieve) -> Sieve:
    """Let of an object those fields pass that have a sieve, each as far as that lets it."""

    def pass_on(value: object) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            return None
        found = {name: sieve(value[name]) for name, sieve in sieves.items() if name in value}
        return {name: each for name, each in found.items() if each is not None and (each != {} or value[name] == {})}

    return pass_on


def plainly_named(sieve: Sieve) -> Sieve:
    """Let of an object those fields pass whose name is a plain word, each as far as the sieve lets it."""

    def pass_on(value: object) -> object:
        return fields_of(**dict.fromkeys(filter(is_word, value), sieve))(value) if isinstance(value, Mapping) else None

    return pass_on


def setting(value: object) -> str | None:
    """Let a plain word pass, as a parameter has one."""
    return value if isinstance(value, str) and is_setting(value) else None


def each_of(sieve: Sieve) -> Sieve:
    """Let the items of a list pass, each as far as the sieve lets it."""
    return lambda value: [found for each in value if (found := sieve(each)) is not None] if isinstance(value, list | tuple) else None


def numbers(names: str) -> dict[str, Sieve]:
    """Return a sieve for each of these fields, which hold numbers or flags."""
    return dict.fromkeys(names.split(), number)


def is_word(text: str) -> bool:
    """Whether a text is a plain word: of letters, digits and ``_``."""
    return re.fullmatch(r"\w{1,80}", text, re.ASCII) is not None


def is_setting(text: str) -> bool:
    """Whether a text is a plain word as a parameter has one: ``adamw``, ``1.5``. With more points it may be a host's name."""
    return re.fullmatch(r"[\w+]{0,80}\.?[\w+]{0,80}", text, re.ASCII) is not None
