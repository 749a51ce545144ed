"""Lock of a file that one process may write at a time.

A `flock`, and no POSIX lock, which vanishes as soon as a reader of the same process closes the file. It ends with its process, however that
ends, and leaves nothing behind.
"""


def lock(descriptor: int) -> str | None:
    """Lock an open file until its descriptor is closed; return why it can't be locked, where the system or the file system has no locks.

    Raises BlockingIOError where another process holds the lock.
    """
    try:
        import fcntl  # Windows has none
    except ImportError:
        return "this system has no flock"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error.strerror or str(error)
    return None
