"""Files of the project, and none that a user keeps in the checkout."""

import subprocess
import tomllib
from pathlib import Path

import front_door


def project_files(root: Path = front_door.ROOT) -> tuple[str, ...]:
    """Return their paths in the checkout: those that git tracks, or where it can't say, those that a source distribution has."""
    return tuple(name for name in _tracked(root) or _distributed(root) if (root / name).is_file())


def _tracked(root: Path) -> list[str]:
    """Return nothing where there is no git, an export without its records, or a checkout of somebody else, which git refuses to read."""
    if not (root / ".git").exists():  # a folder around an export may be a checkout of something else
        return []
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in listed.decode().split("\0") if name]


def _distributed(root: Path) -> list[str]:
    included = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    always = ("pyproject.toml", ".gitignore")  # whatever is included
    below = [path for name in (*included, *always) for path in (root / name, *(root / name).rglob("*"))]
    return sorted(str(path.relative_to(root)) for path in below if "__pycache__" not in path.parts)
