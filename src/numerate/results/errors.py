"""SQLite's complaints, as one sentence that names the file and the way out."""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numerate.results.folders import refusal
from numerate.results.health import looks_like_ours


class StoreError(RuntimeError):
    """A results file that cannot be used, said in one sentence."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise StoreError in place of sqlite3.DatabaseError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(_sentence(path, str(error))) from error


def damaged(path: Path, what: str) -> str:
    """The sentence for a damaged file."""
    rescue = f"numerate rows rescue {shlex.quote(str(path))} --out DIR"
    return f"the results file {path} is damaged: {what}; to bring its good runs out: {rescue}"


def _sentence(path: Path, text: str) -> str:
    if "not a database" in text:
        if looks_like_ours(path):
            return damaged(path, "its header cannot be read")
        return f"{path} is not a results file (not an SQLite database)"
    if any(word in text for word in ("malformed", "corrupt", "no such", "disk I/O error", "Could not decode")):
        return damaged(path, text)
    if "full" in text:
        return f"the disk of the results file {path} is full: what is stored is kept; make room and start again"
    if "locked" in text:
        return f"the results file {path} has been locked by another process for a minute"
    if "readonly" in text:
        return f"the results file {path} cannot be written: it was opened or lies read-only"
    if "unable to open" in text:
        return f"the results file {path} cannot be opened{_reason(path)}"
    return f"the results file {path} failed: {text}"


def _reason(path: Path) -> str:
    """What SQLite does not say of a file that it cannot open."""
    try:
        if path.exists():
            path.open("rb").close()
    except OSError as error:
        return f": {error.strerror}"
    why = refusal(path.parent)
    return f": nothing can be written to its folder ({why})" if why else ""
