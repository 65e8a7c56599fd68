"""Whether a results file is sound: checked when it is opened, repaired where only an index is damaged."""

import json
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

REMEMBERED_FROM = 2**24
"""Bytes. A smaller file is checked whole whenever it is opened, which takes milliseconds."""

MOST_MESSAGES = 100
_INDEX = re.compile(r"(?:missing from|entries in|entry in|values differ from|order in) index (\w+)")
_TREE = re.compile(r"^(?:On tree|Tree) (\d+)\b")


@dataclass(frozen=True)
class Damage:
    """What is wrong with a file, and whether rebuilding its indexes mends it."""

    text: str
    only_indexes: bool


def inspect(db: sqlite3.Connection) -> Damage | None:
    """Read the whole file and compare its tables with its indexes; None if all is sound.

    Raises sqlite3.DatabaseError if the file cannot be read that far.
    """
    found = db.execute(f"PRAGMA integrity_check({MOST_MESSAGES})").fetchall()
    messages = [line.strip() for (text,) in found for line in text.splitlines() if line.strip()]
    messages = [line for line in messages if not line.startswith("***")]
    if messages == ["ok"]:
        return None
    indexes = dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'index'"))
    return Damage(messages[0], all(_is_of(message, indexes) for message in messages))


def _is_of(message: str, indexes: dict[str, int]) -> bool:
    """Whether a message is about one of the indexes."""
    if named := _INDEX.search(message):
        return named[1] in indexes
    tree = _TREE.match(message)
    return tree is not None and int(tree[1]) in indexes.values()


def repair(db: sqlite3.Connection) -> None:
    """Rebuild all indexes from their tables. Raises sqlite3.DatabaseError if that does not mend the file."""
    db.execute("REINDEX")
    if damage := inspect(db):
        raise sqlite3.DatabaseError(f"malformed: {damage.text}")


def copied(db: sqlite3.Connection) -> sqlite3.Connection:
    """A copy in a temporary file that is gone once it is closed; the file itself is closed."""
    copy = sqlite3.connect("", isolation_level=None)
    db.backup(copy)
    db.close()
    return copy


def is_remembered(path: Path) -> bool:
    """Whether a large file was found sound and has the size and times of that moment."""
    try:
        return json.loads(_note(path).read_text()) == _state(path)
    except (OSError, ValueError):
        return False


def remember(path: Path) -> None:
    """Note that a large file is sound as it is now; beside the file, if that can be written."""
    try:
        state = _state(path)
        if state[0] >= REMEMBERED_FROM:
            _note(path).write_text(json.dumps(state))
    except OSError:
        pass  # then it is checked again


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}-checked")


def _state(path: Path) -> list[int]:
    """Size, time and inode of the file, size and time of its log."""
    found = path.stat()
    log = Path(f"{path}-wal")
    behind = [log.stat().st_size, log.stat().st_mtime_ns] if log_size(path) else [0, 0]
    return [found.st_size, found.st_mtime_ns, found.st_ino, *behind]


def log_size(path: Path) -> int:
    """Bytes in the write-ahead log beside the file."""
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def looks_like_ours(path: Path) -> bool:
    """Whether a file that SQLite refuses still holds the table of our runs. Nobody else may have it open."""
    try:
        with path.open("rb") as file:
            return b"config_hash TEXT NOT NULL" in file.read(2**16)
    except OSError:
        return False
