"""Writing of a result file: by one process at a time, held by a lock, each line on the disk before the next case starts."""

import fcntl
import json
import os
import shlex
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from dlbench.core.errors import OutputError, ResultFileError, UsageError
from dlbench.core.store import SCHEMA, Record


def lock(descriptor: int) -> str | None:
    """Lock an open file until its descriptor is closed; return None, or why the file system has no locks.

    Raises BlockingIOError if another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error.strerror or str(error)
    return None


class ResultWriter:
    """Appends lines and syncs each one; holds the file's lock until it is closed, and never reads the file back."""

    def __init__(self, path: Path, descriptor: int, advice: str, *, ends_torn: bool = False) -> None:
        self.path = path
        self._advice = advice
        """Next step for the user once there is room again."""
        self._descriptor = descriptor
        self._ends_torn = ends_torn
        """Whether the last line may be torn, which the first append mends."""
        try:
            self.unlocked = lock(descriptor)
            """Why the file could not be locked; None where it is."""
        except BlockingIOError as error:
            os.close(descriptor)
            raise _held_error(path) from error

    @classmethod
    def create(cls, path: Path, header: Record) -> Self:
        """Start a new file that begins with this header.

        Raises UsageError if it exists. Raises OutputError, without leaving a file, if it can't be written or another process has locked it.
        """
        is_ab = "sides" in header  # which can't be resumed
        try:
            with suppress(FileExistsError):  # a file is in place of the folder: opening the new one has the better error
                path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if os.path.lexists(path):
                resume = "" if is_ab else f", or go on with it: dlbench run --resume {shlex.quote(str(path))}"
                raise UsageError(f"{path} exists and is never overwritten; choose another name{resume}") from error
            raise OutputError.of(path, error) from error
        with ExitStack() as undo:  # on any error close the file, then remove it
            undo.callback(path.unlink, missing_ok=True)
            writer = cls(path, descriptor, "make room, then start it again" if is_ab else _advice_to_make_room(path))
            undo.callback(writer.close)
            try:
                writer._write(as_line({"kind": "header", "schema": SCHEMA, **header}))
            except OSError as error:
                raise OutputError.of(path, error) from error
            undo.pop_all()  # all went well
        return writer

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open a file to append to, with its lock: a caller that reads it afterwards knows that no other process goes on writing it.

        The file does not change before the first line is appended. The first append also cuts off a last line that is torn; without a lock
        it only ends that line. Raises OutputError if the file can't be written or another process writes it, ResultFileError if nothing or
        a folder is at the path, and UsageError if a pipe or a device is there.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ResultFileError(f"cannot read {path}: {error.strerror}") from error
        except OSError as error:
            raise OutputError(f"{OutputError.of(path, error)}; copy it to where you may write, and go on with the copy") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UsageError(f"{path} is a pipe or a device, and a run goes on in a file; give one that dlbench run wrote")
        return cls(path, descriptor, _advice_to_make_room(path), ends_torn=True)

    def append(self, record: Record) -> None:
        """Write one line and wait until it is on the disk.

        Raises OutputError if it is not, with a locked file cut back to its last whole line.
        """
        try:
            if self._ends_torn:
                _mend_end(self._descriptor, may_cut=self.unlocked is None)
                self._ends_torn = False
            self._write(as_line(record))
        except OSError as error:
            raise OutputError(f"{OutputError.of(self.path, error)}; everything measured before is kept in it: {self._advice}") from error

    def _write(self, line: bytes) -> None:
        """Write a line and sync it. Raises OSError where that fails; without a lock, the beginning that was written stays."""
        written, size = 0, os.fstat(self._descriptor).st_size
        try:
            # A filling disk answers with a short write first, and with an error only on the next one.
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError:
            if self.unlocked is None:  # else another process may have written behind it
                with suppress(OSError):  # it stays torn then, which a reader tells and the next writer mends
                    os.ftruncate(self._descriptor, size)
            raise

    def close(self) -> None:
        """Close the file, which another process may write then. Does nothing the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def as_line(record: Record) -> bytes:
    """Return a record as a result file has it."""
    text = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"  # half of a surrogate pair, as the name of a file may have one, has no encoding


def _advice_to_make_room(path: Path) -> str:
    return f"make room, then dlbench run --resume {shlex.quote(str(path))}"


def _held_error(path: Path) -> OutputError:
    file = shlex.quote(str(path))
    return OutputError(
        f"{path} is being written by another process, here or on a machine that shares the folder; wait until it ends, or end it. "
        f"After a loss of power its lock may last: go on with a copy (cp {file} COPY.jsonl). What is there so far: dlbench show {file}"
    )


def _mend_end(descriptor: int, *, may_cut: bool) -> None:
    """Cut off the text behind the last newline. If it is the header, end it; if nothing may be cut, end it as a damaged line.

    It was read as torn, so it must not count later, even if it only lacks its newline.
    """
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, size, 0).rfind(b"\n") + 1
    if end == size:
        return
    if may_cut and end:
        os.ftruncate(descriptor, end)
    else:
        os.write(descriptor, b"#\n" if end else b"\n")
