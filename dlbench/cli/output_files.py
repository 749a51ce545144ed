"""Files that commands write: refused before anything is measured where they can't be, and new ones written whole or not at all."""

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from html import unescape
from pathlib import Path

from dlbench.core.errors import OutputError, UsageError
from dlbench.core.units import one_line


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise OutputError for what the operating system refuses in the block: a name too long, a folder that may not be entered."""
    try:
        yield
    except OSError as error:
        raise OutputError.of(path, error) from error


def refuse_misplaced(*paths: Path | None) -> None:
    """Raise UsageError where a folder stands in a file's place, or none to write it in is there; OutputError where that can't be told."""
    for path in filter(None, paths):
        with writing(path):
            if path.is_dir():
                raise UsageError(f"{path} is a folder; give the name of a file in it")
            try:
                parent = path.parent.stat()
            except (FileNotFoundError, NotADirectoryError) as error:  # nearly always mistyped, so it is not made
                raise UsageError(f"there is no folder {path.parent} for {path.name}; make it, or choose another") from error
            if not stat.S_ISDIR(parent.st_mode):
                raise UsageError(f"{path.parent} is a file and no folder; choose another place for {path.name}")


def make_folder(path: Path) -> None:
    """Make a folder that is asked for, in one that is there. Raises UsageError or OutputError."""
    if not path.is_dir():
        refuse_misplaced(path)
        with writing(path):
            path.mkdir()


def refuse_existing(*paths: Path | None) -> None:
    """Raise UsageError where one of these files, or a link of that name, is there already, and what `refuse_misplaced` raises."""
    for path in filter(None, paths):
        refuse_misplaced(path)
        with writing(path), suppress(FileNotFoundError):
            path.lstat()
            raise _exists(path)


def refuse_same_file(paths: Mapping[str, Path | None]) -> None:
    """Raise UsageError where two of these options name one file: what is written last would replace the other."""
    taken: dict[str, str] = {}
    for option, path in paths.items():
        if path and (first := taken.setdefault(os.path.realpath(path), option)) != option:
            raise UsageError(f"{first} and {option} both name {path}; give each a file of its own")


def create(path: Path, content: bytes, *, replacing: bool = False) -> None:
    """Write a file, whole or not at all; a new one, unless ``replacing``. Raises UsageError or OutputError."""
    if not replacing:
        refuse_existing(path)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    with writing(path):
        try:
            with part.open("xb") as file:
                file.write(content)
            if replacing:
                part.replace(path)
            else:
                _name(part, path)
        finally:
            part.unlink(missing_ok=True)


def _name(part: Path, path: Path) -> None:
    """Give a file its name. Raises UsageError where another has got that name in the meantime."""
    try:
        path.hardlink_to(part)  # unlike a rename it never replaces a file
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # not every filesystem has links
        refuse_existing(path)
        part.rename(path)


def page_of(files: Sequence[Path]) -> Path:
    """Return the name of the page on these files, in the current folder: ``run.html``; of several, or of a folder, ``report.html``."""
    return Path("report.html" if len(files) > 1 or files[0].is_dir() else files[0].with_suffix(".html").name)


def made_from(files: Sequence[Path]) -> str:
    """Return what a page says of the files that it was made from: their names, and of a folder a hash of its name, as pages are sent."""
    return one_line(", ".join(f"folder {_hash(path.resolve().name)}" if path.is_dir() else path.name for path in files))


def _hash(name: str) -> str:
    return sha256(os.fsencode(name)).hexdigest()[:12]


def is_page_of(page: Path, files: Sequence[Path]) -> bool:
    """Whether there is a page that says it was made from these files."""
    try:
        with page.open("rb") as file:
            said = _MADE_FROM.search(file.read(_HEAD).decode(errors="replace"))
    except OSError:
        return False
    return said is not None and not page.is_symlink() and unescape(said[1]) == made_from(files)


_MADE_FROM = re.compile(r'<meta name="dlbench-made-from" content="([^"]*)">')
_HEAD = 1 << 16
"""Bytes in which a page says so."""


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists and is never overwritten; choose another name")


def overwrite(path: Path, content: bytes) -> None:
    """Write a file, in place of one of that name. Raises OutputError."""
    with writing(path):
        path.write_bytes(content)
