"""Open a results file, make its tables, bring an earlier format up to date; refuse what is not ours."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from numerate.results import health
from numerate.results.errors import StoreError, damaged, explained
from numerate.results.schema import APPLICATION, FORMAT, PAGE_SIZE, TABLES

Connection = sqlite3.Connection


def connect(path: Path, readonly: bool) -> Connection:
    """A connection to a results file, made if it is not there. Raises StoreError if it is not one of ours."""
    _check_place(path, readonly)
    try:
        return _connect(path, readonly)
    except UnicodeDecodeError:  # SQLite's complaint quotes what is no text any more
        raise StoreError(damaged(path, "its list of tables cannot be read")) from None


def _connect(path: Path, readonly: bool) -> Connection:
    with explained(path):
        db = _open_readonly(path) if readonly else sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            _check_ours(db, path, readonly)
            if not readonly:
                _make_tables(db)
        except BaseException:
            db.close()
            raise
    return db


def set_journal(db: Connection, mode: str) -> None:
    """The change of mode does not wait by itself for others that open, use or close the file."""
    for attempt in range(200):
        try:
            db.execute(f"PRAGMA journal_mode = {mode}").fetchone()
            return
        except sqlite3.OperationalError:
            if attempt == 199:
                raise
            time.sleep(0.05)


def columns(db: Connection, table: str) -> list[str]:
    """Of a table; none if there is no such table."""
    return [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _check_place(path: Path, readonly: bool) -> None:
    if str(path) == ":memory:":
        raise StoreError("a results file lies on disk; ':memory:' would keep nothing")
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a results file")
        if readonly and not path.is_file():
            raise StoreError(f"there is no results file {path}")
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "read" if readonly else "make"
        raise StoreError(f"cannot {what} the folder of the results file {path}: {error.strerror}") from None
    except ValueError:
        raise StoreError(f"{str(path)!r} cannot be the path of a file") from None


def _open_readonly(path: Path) -> Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        db = sqlite3.connect(address, timeout=60, isolation_level=None, uri=True)
        db.execute("SELECT count(*) FROM sqlite_master")
        return db
    except sqlite3.OperationalError:
        if health.log_size(path):
            raise
        return sqlite3.connect(address + "&immutable=1", isolation_level=None, uri=True)  # on a read-only disk


def _stamp(db: Connection) -> tuple[int, int]:
    """Format number (0 if the file is not ours, or empty) and number of tables, both of one moment."""
    query = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
               FROM pragma_application_id, pragma_user_version"""
    application, version, tables = db.execute(query).fetchone()
    return (version if application == APPLICATION else 0), tables


def _check_ours(db: Connection, path: Path, readonly: bool) -> None:
    version, tables = _stamp(db)
    if version > FORMAT:
        raise StoreError(
            f"the results file {path} was written by a newer numerate (format {version}, this one reads "
            f"up to {FORMAT}): update numerate"
        )
    if version == 0 and not tables and db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        raise StoreError(
            f"the results file {path} is empty: the runs of a killed process are in {path.name}-wal, which is missing; "
            f"put it beside the file, or delete {path.name} to start anew"
        )
    if version == 0 and (tables or readonly):
        raise StoreError(f"{path} is a database, but not a results file of numerate")
    needed = "SELECT count(*) FROM sqlite_master WHERE name IN ('runs', 'circumstances', 'checkpoints')"
    if version > 0 and db.execute(needed).fetchone() != (3,):
        raise StoreError(damaged(path, "one of its tables is missing"))
    strange = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE '%VIRTUAL%'"
    if found := db.execute(strange).fetchone():
        raise StoreError(f"{path} holds a {found[0]} {found[1]!r}, which numerate never writes: not opened")


def _make_tables(db: Connection) -> None:
    """The tables of a new file, before its log is begun, so that the file itself has them; then what is newer."""
    if _stamp(db)[0] == 0:
        db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        with _transaction(db):
            if _stamp(db)[0] == 0:  # else another process was first
                for statement in TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
    set_journal(db, "WAL")
    db.execute("PRAGMA synchronous = FULL")
    if _stamp(db)[0] < FORMAT or "digest" not in columns(db, "shared"):
        _upgrade(db)


def _upgrade(db: Connection) -> None:
    """Files of format 1 have no digest beside shared labels, and the earliest no shared runs."""
    with _transaction(db):
        for statement in TABLES:
            db.execute(statement)
        if "digest" not in columns(db, "shared"):
            db.execute("ALTER TABLE shared ADD COLUMN digest TEXT")
        db.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def _transaction(db: Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
