"""Commands that offer a reference run to the project: a branch, the file in its place, a pull request."""

import shlex
from pathlib import Path

REFERENCES = Path("results", "reference")
"""Folder of a checkout that has the reference runs, those of each machine in one of their own."""


def offer(path: Path, machine: str, name: str) -> tuple[str, str, str]:
    """Return three commands, to be typed in the top folder of a checkout, that offer the file at this path.

    ``machine`` and ``name`` are the folder and the file that it is to be there; where another machine's file is called so already, it goes
    on with a number. A file that lies in its place is not copied.
    """
    checkout = _checkout(path)
    place = _place(checkout, path, machine, name)
    copied = [] if checkout and path.resolve() == (checkout / place).resolve() else _copy(checkout, path, place)
    branch, file = f"reference-{machine}-{place.stem}", shlex.quote(str(place))
    adding = [*copied, f"git add {file}", f"git commit -m {shlex.quote(f'Add the reference run {place.stem} of {machine}')}"]
    return f"git checkout -b {branch}", " && ".join(adding), f"git push -u origin {branch} && gh pr create --fill"


def _checkout(path: Path) -> Path | None:
    """Return the checkout that one stands in, or else that the file lies in; None without one."""
    starts = Path.cwd(), path.resolve().parent
    folders = (folder for start in starts for folder in (start, *start.parents))
    return next((folder for folder in folders if (folder / ".git").exists() and (folder / REFERENCES).is_dir()), None)


def _place(checkout: Path | None, path: Path, machine: str, name: str) -> Path:
    places = (REFERENCES / machine / f"{name}{number}.jsonl" for number in ("", *(f"-{each}" for each in range(2, 100))))
    first, *others = places
    if checkout is None:
        return first
    return next((each for each in (first, *others) if not (checkout / each).exists() or (checkout / each).samefile(path)), first)


def _copy(checkout: Path | None, path: Path, place: Path) -> list[str]:
    """Return the commands that put a copy there; the file by its whole path, unless that begins where they are typed."""
    source, home = path.resolve(), _home()
    if checkout and checkout == Path.cwd() and source.is_relative_to(checkout):
        typed = shlex.quote(str(source.relative_to(checkout)))
    elif source.is_relative_to(home):
        typed = f"~/{shlex.quote(str(source.relative_to(home)))}"
    else:
        typed = shlex.quote(str(source))
    return [f"mkdir -p {shlex.quote(str(place.parent))}", f"cp {typed} {shlex.quote(str(place))}"]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # nobody knows it
        return Path("~")
