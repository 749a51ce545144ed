"""Differences in machine and software between two runs or sides of an A/B, from their headers."""

from collections.abc import Mapping, Sequence
from typing import Any


def differences(a: Mapping[str, Any], b: Mapping[str, Any], blocks: Sequence[str] = ("identity", "stack")) -> list[str]:
    """Name each entry of those blocks that differs between two fingerprints: ``stack.driver: '575.57' against '580.65'``."""
    left, right = ({path: end for name in blocks for path, end in leaves(name, each.get(name) or {}).items()} for each in (a, b))
    paths = dict.fromkeys([*left, *right])
    return [f"{path}: {_shown(left, path)} against {_shown(right, path)}" for path in paths if _shown(left, path) != _shown(right, path)]


def leaves(path: str, value: Any) -> dict[str, Any]:
    """Flatten nested data to one entry a leaf, named by its path: ``identity.accelerators[0].name``."""
    if isinstance(value, Mapping):
        return {leaf: end for key, each in value.items() for leaf, end in leaves(f"{path}.{key}", each).items()}
    if isinstance(value, list):
        return {leaf: end for index, each in enumerate(value) for leaf, end in leaves(f"{path}[{index}]", each).items()}
    return {path: value}


def _shown(leaves: Mapping[str, Any], path: str) -> str:
    if path not in leaves:
        return "nothing"
    return "unknown" if leaves[path] is None else repr(leaves[path])
