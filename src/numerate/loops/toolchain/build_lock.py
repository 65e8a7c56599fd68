"""One process of a machine builds an entry of the cache; the others wait for it and take what it built."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 300.0
"""Seconds after which a waiting process builds the entry itself."""
_PAUSE = 0.02


@contextmanager
def build_lock(folder: Path, key: str) -> Iterator[None]:
    """Hold the lock of an entry; the system frees that of a killed process.

    Where files cannot be locked or written, everybody builds, as if there were no lock.
    """
    handle = _acquired(folder / f"build-{key}.lock", time.monotonic() + PATIENCE)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                (folder / f"build-{key}.lock").unlink()  # while it is held: see _is_current
            os.close(handle)


def _acquired(path: Path, until: float) -> int | None:
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    while time.monotonic() < until:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(handle, path):
                return handle
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks
            os.close(handle)
            return None
        os.close(handle)
        time.sleep(_PAUSE)
    return None


def _is_current(handle: int, path: Path) -> bool:
    """Whether the path still leads to the file that is locked; its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
