"""Sieves: what may pass of a value to others. Numbers, words of a closed set, texts in a form that has no room for a name."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dlbench.core.quantities import MOST

Sieve = Callable[[object], Any]
"""Returns what may pass of a value; None for nothing."""


def number(value: object) -> int | float | bool | None:
    """Let a flag or a finite number pass."""
    # Not math.isfinite, which a whole number of a thousand digits is too large for.
    return value if isinstance(value, int | float) and abs(value) <= MOST else None


def one_of(*words: str) -> Sieve:
    """Let these words pass, also several with commas between them, and lists of them."""

    def pass_on(value: object) -> object:
        if isinstance(value, list):
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
        return {name: each for name, each in found.items() if each is not None}

    return pass_on


def numbers(names: str) -> dict[str, Sieve]:
    """Return a sieve for each of these fields, which hold numbers or flags."""
    return dict.fromkeys(names.split(), number)


VERSION = form(r"\d{1,5}(\.\d{1,5}){0,2}((a|b|rc|dev|post)\d{1,8})?(\+(cpu|xpu|cu\d{1,4}|rocm\d{1,2}(\.\d{1,3}){0,3}))?")
HASH = form(r"[0-9a-f]{16}([0-9a-f]{24})?")
TIME = form(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(\+00:00)?")
_IN_FORCE = "fp32_matmul fp32_conv fp16_reduced_sum bf16_reduced_sum cudnn_benchmark deterministic flush_denormal"
_ARITHMETIC = one_of("none", "ieee", "tf32")
MATH = fields_of(**dict.fromkeys(_IN_FORCE.split(), lambda value: value if isinstance(value, bool) else _ARITHMETIC(value)))
"""torch's flags on arithmetic, as a measurement and the header have them."""
