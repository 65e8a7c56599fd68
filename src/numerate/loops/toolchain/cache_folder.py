"""The cache folder: what was emitted and compiled, kept for the next process.

An entry is a folder, named by the digest of all that its content depends on. It appears whole, by a rename, with a list
of the digests of its files (``sha256sum --check sha256`` reads it too). An entry is used only if nobody else can write
to it, nor to the folders above it, and if its files have their digests. The least recently used entries are removed
above a size limit.
"""

import atexit
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

log = logging.getLogger("numerate")

DIGESTS = "sha256"
LIMIT = 1000
"""Megabytes, unless ``$NUMERATE_CACHE_SIZE`` says otherwise; a compiled step takes about 0.2."""
ABANDONED = 3600.0
"""Seconds after which an unfinished entry is one whose process was killed."""
SWEEP_EVERY = 50
"""New entries of a process between two looks at the size of the whole."""

_UNFINISHED = "build-"
_ENTRY = re.compile(r"[0-9a-f]{32}(\.(so|cpp|json|cubin|cu))?")  # files: by versions before 0.9
_NO_HOME = Path("~", ".cache", "numerate")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Entry:
    """One entry: its size in bytes, and when it was used last (seconds since 1970)."""

    path: Path
    size: int
    used: float


class Cache:
    """The entries in one folder, which must be there and belong to this user alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._added = folder, 0

    def path(self, key: str, name: str) -> Path:
        return self.folder / key / name

    def read(self, key: str, name: str) -> bytes | None:
        """A file of an entry; None if there is no such entry, if it is damaged, or if others could write to it."""
        entry = self.folder / key
        try:
            if reason := _exposed(entry):
                notice(f"{entry} is not used: {reason}")
                return None
            content = _content(entry / name)
            if _line(content, name) not in _content(entry / DIGESTS).decode().splitlines(keepends=True):
                return None
            os.utime(entry)
        except (OSError, ValueError):
            return None
        return content

    def add(self, key: str, write: Callable[[Path], None]) -> None:
        """Make an entry: ``write`` is given an empty folder to fill. Another process may do the same; either wins.

        Raises OSError if the entry cannot be kept.
        """
        if self._added % SWEEP_EVERY == 0:
            self.sweep()
        self._added += 1
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        try:
            write(unfinished)
            names = sorted(path.name for path in unfinished.iterdir())
            (unfinished / DIGESTS).write_text("".join(_line((unfinished / name).read_bytes(), name) for name in names))
            for name in (*names, DIGESTS):
                (unfinished / name).chmod(0o600)
            self._move(unfinished, key, names)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _move(self, unfinished: Path, key: str, names: list[str]) -> None:
        try:
            os.rename(unfinished, self.folder / key)
        except OSError:  # there is one already: another process has just made it, or it is damaged
            if all(self.read(key, name) is not None for name in names):
                return
            os.rename(self.folder / key, discarded := self.folder / f"{_UNFINISHED}{key}-{os.getpid()}")
            _remove(discarded)
            os.rename(unfinished, self.folder / key)

    def entries(self) -> list[Entry]:
        """All entries, the least recently used first."""
        paths = [path for path in self.folder.iterdir() if _ENTRY.fullmatch(path.name)]
        return sorted(filter(None, map(_measured, paths)), key=lambda entry: entry.used)

    def leftovers(self, age: float = ABANDONED) -> list[Path]:
        """Unfinished entries of processes that were killed."""
        before, found = time.time() - age, self.folder.glob(f"{_UNFINISHED}*")
        return [entry.path for entry in filter(None, map(_measured, found)) if entry.used <= before]

    def sweep(self, limit: int | None = None) -> None:
        """Remove leftovers, and the least recently used entries until a tenth of ``limit`` bytes is free."""
        limit = size_limit() if limit is None else limit
        for path in self.leftovers():
            _remove(path)
        entries = self.entries()
        size = sum(entry.size for entry in entries)
        if size > limit:
            for entry in entries:
                if size <= 0.9 * limit:
                    break
                _remove(entry.path)
                size -= entry.size

    def summary(self) -> str:
        """How much there is, in words."""
        entries, left = self.entries(), len(self.leftovers(age=0))
        size, limit = sum(entry.size for entry in entries) / 1e6, size_limit() / 1e6
        unfinished = f", {left} unfinished" if left else ""
        count = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
        return f"{count}{unfinished}, {size:.1f} MB of at most {limit:g} (NUMERATE_CACHE_SIZE)"

    def clear(self) -> int:
        """Remove all entries and leftovers; the number of bytes that were freed."""
        found = [*self.entries(), *filter(None, map(_measured, self.leftovers(age=0)))]
        for entry in found:
            _remove(entry.path)
        return sum(entry.size for entry in found)


def _measured(path: Path) -> Entry | None:
    """None if it has just been removed."""
    try:
        used = path.lstat().st_mtime
        files = [path] if not path.is_dir() else list(path.iterdir())
        return Entry(path, sum(file.lstat().st_size for file in files), used)
    except OSError:
        return None


def _remove(path: Path) -> None:
    """Quietly: another process may have removed it, or may not let it go."""
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    except OSError as error:
        log.info("%s stays in the cache: %s", path, error.strerror)


def _line(content: bytes, name: str) -> str:
    """What the list of digests says of a file."""
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n"


def _content(path: Path) -> bytes:
    """A file of this user alone. Raises OSError if it is a link, someone else's, or writable by others."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or _owned_by_another(found) or _others_write(found):
            raise PermissionError(f"{path} could have been written by another user")
        return file.read()


# ---------------------------------------------------------------- who can write there


def _owned_by_another(found: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and found.st_uid != os.geteuid()


def _others_write(found: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and bool(found.st_mode & _OTHERS_WRITE)


def _exposed(folder: Path) -> str | None:
    """Why others could change what is in a folder of this name, or None. Raises OSError if there is none."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if _owned_by_another(found):
        return f"it belongs to another user (number {found.st_uid})"
    return "other users may write to it" if _others_write(found) else None


def _replaceable(folder: Path) -> str | None:
    """Why others could put another folder in the place of this one, or None."""
    for parent in folder.resolve().parents:
        found = parent.stat()
        if hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
            return f"it lies in {parent}, which belongs to another user (number {found.st_uid})"
        if _others_write(found) and not found.st_mode & stat.S_ISVTX:
            return f"it lies in {parent}, to which other users may write"
    return None


# ---------------------------------------------------------------- which folder


def current() -> Cache:
    """The cache in use: ``$NUMERATE_CACHE``, else ``numerate`` in the user's cache folder, else a temporary folder.

    A folder is passed over, with a notice, if nothing can be written to it or if others can. Raises OSError if there
    is not even a place for temporary files.
    """
    return _usable(tuple(_wished()))


def temporary() -> Cache:
    """A cache for the time of this process."""
    return _temporary(os.getpid())


def size_limit() -> int:
    """Bytes that the entries may take."""
    text = os.environ.get("NUMERATE_CACHE_SIZE", "").strip()
    try:
        megabytes = float(text or LIMIT)
        return int(megabytes * 1e6)
    except (ValueError, OverflowError):
        notice(f"NUMERATE_CACHE_SIZE must be a number of megabytes, got {text!r}; {LIMIT} is used")
        return int(LIMIT * 1e6)


def _wished() -> Iterator[Path]:
    if chosen := os.environ.get("NUMERATE_CACHE"):
        yield Path(chosen)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        yield Path(folder, "numerate")
        return
    try:
        yield Path.home() / ".cache" / "numerate"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        yield _NO_HOME


@cache
def _usable(folders: tuple[Path, ...]) -> Cache:
    for folder in folders:
        if (reason := _unusable(folder)) is None:
            return Cache(folder.absolute())
        notice(f"the cache folder {folder} is not used: {reason}; set NUMERATE_CACHE to a folder of your own")
    return temporary()


def _unusable(folder: Path) -> str | None:
    """Why a folder cannot be the cache, or None; it is made if it is not there."""
    if folder is _NO_HOME:
        return "this user has no home folder"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if reason := _exposed(folder.resolve()) or _replaceable(folder):
            return reason
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f"nothing can be written to it ({error.strerror})"
    return None


@cache
def _temporary(process: int) -> Cache:
    folder = Path(tempfile.mkdtemp(prefix="numerate-"))
    atexit.register(lambda: process == os.getpid() and shutil.rmtree(folder, ignore_errors=True))  # not in a fork
    return Cache(folder)


@cache
def notice(text: str) -> None:
    """Say something once per process."""
    log.warning(text)
