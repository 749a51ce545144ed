"""Files that commands write: refused before anything is measured where they can't be, and no half of one stays behind."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from dlbench.core.errors import OutputError, UsageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UsageError if the block finds that a new file exists already, OutputError for any other error of the operating system."""
    try:
        yield
    except FileExistsError as error:
        raise UsageError(f"{path} exists and is never overwritten; choose another name") from error
    except OSError as error:
        raise OutputError.of(path, error) from error


def check_writable(*paths: Path | None, new: bool = True) -> None:
    """Raise UsageError for a path whose folder is missing, and if it has to be ``new`` for one that exists; or OutputError."""
    for path in filter(None, paths):
        with writing(path):
            try:
                path.lstat()
            except (FileNotFoundError, NotADirectoryError) as error:
                if not os.access(f"{path.parent}/", os.W_OK):  # nearly always mistyped, so it is not made
                    raise UsageError(f"there is no folder {path.parent} to write {path.name} in; make it, or choose another") from error
            else:
                if new:
                    raise FileExistsError  # of which `writing` makes the sentence


def refuse_same_file(paths: Mapping[str, Path | None]) -> None:
    """Raise UsageError where two options name the same file, in which the second output would replace the first."""
    taken: dict[str, str] = {}
    for option, path in paths.items():
        first = taken.setdefault(os.path.realpath(path), option) if path else option
        if first != option:
            raise UsageError(f"{first} and {option} both name {path}; give each a file of its own")


def create(path: Path, content: bytes) -> None:
    """Write a new file, whole or not at all. Raises UsageError or OutputError."""
    with writing(path):
        file = path.open("xb")
        try:
            with file:
                file.write(content)
        except BaseException:  # Ctrl-C, too, must leave no half of a file
            path.unlink(missing_ok=True)
            raise


def overwrite(path: Path, content: bytes) -> None:
    """Write a file, in place of one of that name. Raises OutputError."""
    with writing(path):
        path.write_bytes(content)


def page_of(files: Sequence[Path]) -> Path:
    """Return the name of the page on these files, in the current folder: ``run.html``; of several, or of a folder, ``report.html``."""
    return Path("report.html" if len(files) > 1 or files[0].is_dir() else files[0].with_suffix(".html").name)


def made_from(files: Sequence[Path]) -> str:
    """Return the key of files by which a page says that it was made from them: a hash of their names, as pages are sent to others."""
    return sha256(os.fsencode("/".join(path.resolve().name for path in files))).hexdigest()[:12]


def is_page_of(page: Path, files: Sequence[Path]) -> bool:
    """Whether there is a page that says it was made from these files. Raises OutputError where that can't be read."""
    if page.is_symlink() or not page.is_file():
        return False
    with writing(page):
        return f'name="dlbench-made-from" content="{made_from(files)}"'.encode() in page.read_bytes()
