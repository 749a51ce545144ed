"""Machines: findings on whether one is fit to measure on, and differences between two of them and their software.

A fingerprint is nested data in blocks: ``identity`` describes the machine, ``stack`` its software, ``state`` and ``provenance`` one run. An
entry is a leaf of a block, named by its path, such as ``stack.driver``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Fitness(StrEnum):
    """Severity of a finding, the most severe first."""

    UNFIT = "unfit"
    """Numbers measured now would not hold up."""
    NOTE = "note"
    """A fact of the machine that widens intervals or that a comparison has to share."""
    UNKNOWN = "unknown"
    """It can't be read here."""
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    """Name of the check: ``governor``, ``temperature``."""
    device: str
    fitness: Fitness
    found: str
    """In words, with the figures."""
    advice: str = ""
    """Next step for the user; empty where there is nothing to do."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The figures in base units, by name."""
    case: str = ""
    """The id of the case that was measured for it; empty where none was."""


_OTHER_MEMORY = 5
"""A difference of more than one GiB in so many is another machine's: a virtual one may be given more as it uses it."""
_HOST_MEMORY = "identity.cpu.memory_gib"


def differences(
    a: Mapping[str, Any], b: Mapping[str, Any], blocks: Sequence[str] = ("identity", "stack"), *, but_for_restarts: bool = False
) -> list[str]:
    """Return a line for each entry of these blocks that differs between two fingerprints: ``stack.driver: '575.57' against '580.65'``.

    ``but_for_restarts`` leaves out what may differ between two runs on one machine. That is up to a fifth of its memory (of a virtual
    machine any part of it), and what follows the third number of its kernel's release, such as ``-91-generic`` in ``5.15.0-91-generic``.
    """
    entries_a, entries_b = _entries(a, blocks), _entries(b, blocks)
    both_virtual = entries_a.get("identity.virtual") is True and entries_b.get("identity.virtual") is True
    lines = []
    for path in dict.fromkeys([*entries_a, *entries_b]):
        value_a, value_b = entries_a.get(path), entries_b.get(path)
        if value_a is None and value_b is None:
            continue  # unknown on both sides, even if only one names it
        is_memory_of_vm = both_virtual and path == _HOST_MEMORY
        if but_for_restarts and (is_memory_of_vm or _restart_explains(path, value_a, value_b)):
            continue
        text_a, text_b = _shown(entries_a, path), _shown(entries_b, path)
        if text_a != text_b:
            lines.append(f"{path}: {text_a} against {text_b}")
    return lines


def _entries(fingerprint: Mapping[str, Any], blocks: Sequence[str]) -> dict[str, Any]:
    """Return the entries of these blocks by their paths."""
    found: dict[str, Any] = {}
    for name in blocks:
        found |= leaves(name, fingerprint.get(name) or {})
    return found


_VARIABLES = "stack.environ."


def facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the known entries of a fingerprint's machine, software and cards; empty where machine or software is missing.

    If only the hash of a block is known, that is its one entry.
    """
    identity = environment.get("identity") or environment.get("machine_key")
    stack = environment.get("stack") or environment.get("stack_key")
    if not identity or not stack:
        return {}
    provenance = environment.get("provenance")
    cards = provenance.get("cards") if isinstance(provenance, Mapping) else None
    blocks = {"cards": cards, "identity": identity, "stack": stack}
    return {path: end for path, end in _entries(blocks, tuple(blocks)).items() if end is not None}


def contradict(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two sets of `facts` can't be of one machine with one stack: an entry that both have differs by more than a restart changes.

    An entry that only one of them has shows nothing: an accelerator may have taken no part in a run, and a later dlbench may have added
    it. A missing variable of the environment, however, was not set. Two sets with no common entry in either block contradict each other.
    """
    # The cards come first, which tell most machines of a fleet apart.
    if any(path in b and b[path] != value and not _restart_explains(path, value, b[path]) for path, value in a.items()):
        return True
    if any(path.startswith(_VARIABLES) for path in a.keys() ^ b.keys()):
        return True
    return not {"identity", "stack"} <= {path.partition(".")[0] for path in a.keys() & b.keys()}


def _restart_explains(path: str, before: Any, after: Any) -> bool:
    """Whether a restart between two runs on one machine explains that the entry at a path differs, as for memory and the kernel's build."""
    if path.endswith(".memory_gib"):
        # Whole GiB, compared as such: a damaged file may have an integer that no float holds.
        return isinstance(before, int) and isinstance(after, int) and _OTHER_MEMORY * abs(after - before) <= before
    if path == "stack.kernel":
        numbers = [re.match(r"\d+\.\d+\.\d+", str(each)) for each in (before, after)]
        return all(numbers) and len({each[0] for each in numbers if each}) == 1
    return False


def leaves(path: str, value: Any) -> dict[str, Any]:
    """Flatten nested data to one entry a leaf, named by its path: ``identity.accelerators[0].name``."""
    if isinstance(value, Mapping):
        return {leaf: end for key, each in value.items() for leaf, end in leaves(f"{path}.{key}", each).items()}
    if isinstance(value, list):
        return {leaf: end for index, each in enumerate(value) for leaf, end in leaves(f"{path}[{index}]", each).items()}
    return {path: value}


def _shown(entries: Mapping[str, Any], path: str) -> str:
    """Return an entry as text; ``unknown`` for None, and ``nothing`` where there is no such entry."""
    if path not in entries:
        return "nothing"
    return "unknown" if entries[path] is None else repr(entries[path])
