"""An open results file: one SQLite connection, its transactions, and its complaints in one sentence."""

import logging
import shlex
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from numerate.results import health
from numerate.results.schema import APPLICATION, FORMAT, TABLES

log = logging.getLogger("numerate")
Value = str | int | float | bytes | None


class StoreError(RuntimeError):
    """A results file that cannot be used, said in one sentence."""


class ResultsFile:
    """A results file of ours: it is refused if it is anything else, or damaged beyond its indexes.

    Args:
        path: of the file, made if it is not there.
        readonly: whether the file is never written; it may then lie on a read-only disk.
    """

    def __init__(self, path: Path, readonly: bool) -> None:
        self.path, self.readonly = path, readonly
        self._rows_written = self._lost = False
        self._check_place()
        with self.explained():
            self.db = self._open_readonly() if readonly else self._open()
        try:
            with self.explained():
                self._prepare()
        except BaseException:
            self.db.close()
            raise

    def close(self) -> None:
        """Close the file, and remember that it is sound if nothing but we wrote to it."""
        known = self._sound and not self.readonly and not self.is_lost()
        self.db.close()
        if known:
            health.remember(self.path)

    # Queries

    def execute(self, query: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        with self.explained():
            return self.db.execute(query, values)

    def records(self, query: str, values: Sequence[Value] = ()) -> Iterator[tuple[Any, ...]]:
        """The records of a query, one after the other; a large file never is in memory whole."""
        with self.explained():
            for record in self.db.execute(query, values):  # noqa: UP028 (would close the cursor of a closed file)
                yield record

    def columns(self, table: str) -> list[str]:
        return [name for (name,) in self.records("SELECT name FROM pragma_table_info(?)", (table,))]

    # Writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything done inside reaches the disk together, or not at all.

        May be nested: an inner one that raises is undone alone, the outer one decides about the rest.
        """
        inner = self.db.in_transaction
        with self.explained():
            self.db.execute("SAVEPOINT part" if inner else "BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("RELEASE part" if inner else "COMMIT")
            except BaseException:
                if self.db.in_transaction:  # SQLite may have ended it by itself, on a full disk say
                    self.db.execute("ROLLBACK TO part" if inner else "ROLLBACK")
                    if inner:
                        self.db.execute("RELEASE part")
                raise
            if not inner:
                self._settle()

    def note_rows(self) -> None:
        """The transaction under way adds rows: they are to reach the file itself, not only its log."""
        self._rows_written = True

    def _settle(self) -> None:
        if self._rows_written:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._rows_written = False
        self.check_present()

    def to_single_file(self) -> None:
        """Leave the write-ahead log, so that the file can be carried alone."""
        with self.explained():
            try:
                self._set_journal("DELETE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # the file itself holds all

    # A file that is deleted while it is open

    def is_lost(self) -> bool:
        """Whether the path no longer leads to the file that is open."""
        return self._identity() != self._opened

    def check_present(self) -> None:
        """Raise StoreError if the file was deleted or replaced; all it held is then saved elsewhere first."""
        if self.readonly or self._lost or not self.is_lost():
            return
        self._lost = True
        copy = self._save_elsewhere()
        if copy is None:
            raise StoreError(
                f"the results file {self.path} was deleted, moved or replaced while in use; its runs could not be "
                "saved anywhere else"
            )
        hint = f"numerate rows import {shlex.quote(str(copy))} --out {shlex.quote(str(self.path.parent))}"
        raise StoreError(
            f"the results file {self.path} was deleted, moved or replaced while in use; its runs are saved in {copy}; "
            f"to go on with them: {hint}"
        )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _save_elsewhere(self) -> Path | None:
        """All that the open connection still reads, as a file in the nearest folder that takes it."""
        for folder in (*self.path.absolute().parents, Path(tempfile.gettempdir())):
            copy = next(p for i in count(1) if not (p := folder / f"{self.path.stem}-saved-{i}.sqlite").exists())
            try:
                if not folder.is_dir():
                    continue
                other = sqlite3.connect(copy)
                try:
                    self.db.backup(other)
                    other.execute("PRAGMA journal_mode = DELETE").fetchone()
                finally:
                    other.close()
                return copy
            except (OSError, sqlite3.Error):
                continue
        return None

    # Opening

    def _check_place(self) -> None:
        if str(self.path) == ":memory:":
            raise StoreError("a results file lies on disk; ':memory:' would keep nothing")
        try:
            if self.path.is_dir():
                raise StoreError(f"{self.path} is a folder, not a results file")
            if self.readonly and not self.path.is_file():
                raise StoreError(f"there is no results file {self.path}")
            if not self.readonly:
                self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = "read" if self.readonly else "make"
            raise StoreError(f"cannot {what} the folder of the results file {self.path}: {error.strerror}") from None
        except ValueError:
            raise StoreError(f"{str(self.path)!r} cannot be the path of a file") from None

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def _open_readonly(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        try:
            db = sqlite3.connect(address, timeout=60, isolation_level=None, uri=True)
            db.execute("SELECT count(*) FROM sqlite_master")
            return db
        except sqlite3.OperationalError:
            if health.log_size(self.path):
                raise
            return sqlite3.connect(address + "&immutable=1", isolation_level=None, uri=True)  # on a read-only disk

    def _prepare(self) -> None:
        self.db.execute("PRAGMA trusted_schema = OFF")
        version, tables = self._stamp()
        if version > FORMAT:
            raise StoreError(
                f"the results file {self.path} was written by a newer numerate (format {version}, this one reads "
                f"up to {FORMAT}): update numerate"
            )
        self._check_ours(version, tables)
        if not self.readonly:
            if version == 0:
                self._create()  # before the log is begun: the file itself always has its tables
            self._set_journal("WAL")
            self.db.execute("PRAGMA synchronous = FULL")
            self._upgrade()
        self._opened = self._identity()
        self._sound = self._check_health()
        self.db.text_factory = lambda data: data.decode(errors="replace")  # a damaged run is named by what is left

    def _check_ours(self, version: int, tables: int) -> None:
        if version == 0 and not tables and self.db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            raise StoreError(
                f"the results file {self.path} is empty: the runs of a killed process are in {self.path.name}-wal, "
                f"which is missing; put it beside the file, or delete {self.path.name} to start anew"
            )
        if version == 0 and (tables or self.readonly):
            raise StoreError(f"{self.path} is a database, but not a results file of numerate")
        strange = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE '%VIRTUAL%'"
        if found := self.db.execute(strange).fetchone():
            raise StoreError(f"{self.path} holds a {found[0]} {found[1]!r}, which numerate never writes: not opened")

    def _create(self) -> None:
        with self.transaction_of_own():
            if self._stamp()[0] == 0:  # else another process was first
                for statement in TABLES:
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA application_id = {APPLICATION}")
                self.db.execute(f"PRAGMA user_version = {FORMAT}")

    def _upgrade(self) -> None:
        """Files of format 1 have no digest beside shared labels, and the earliest no shared runs."""
        if self._stamp()[0] == FORMAT and "digest" in self.columns("shared"):
            return
        with self.transaction_of_own():
            for statement in TABLES:
                self.db.execute(statement)
            if "digest" not in self.columns("shared"):
                self.db.execute("ALTER TABLE shared ADD COLUMN digest TEXT")
            self.db.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def transaction_of_own(self) -> Iterator[None]:
        """A transaction while the file is being opened."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def _check_health(self) -> bool:
        """Whether the file is sound once its indexes are repaired, if need be in a copy that is read in its place.

        Raises StoreError if it is damaged otherwise.
        """
        if health.is_remembered(self.path):
            return True
        damage = health.inspect(self.db)
        if damage is None:
            health.remember(self.path)
            return True
        if not damage.only_indexes:
            raise StoreError(self._damaged(damage.text))
        if self.readonly:
            self.db = health.copied(self.db)
        health.repair(self.db)
        done = "it is read through a repaired copy" if self.readonly else "it is repaired"
        log.warning("the results file %s has a damaged index (%s): %s", self.path, damage.text, done)
        return True

    def check(self) -> None:
        """Look through the whole file again. Raises StoreError if it is damaged."""
        with self.explained():
            damage = health.inspect(self.db)
        if damage is not None:
            raise StoreError(self._damaged(damage.text))

    def _stamp(self) -> tuple[int, int]:
        """Format number (0 if the file is not ours, or empty) and number of tables, both of one moment."""
        query = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
                   FROM pragma_application_id, pragma_user_version"""
        application, version, tables = self.db.execute(query).fetchone()
        return (version if application == APPLICATION else 0), tables

    def _set_journal(self, mode: str) -> None:
        """The change of mode does not wait by itself for others that open, use or close the file."""
        for attempt in range(200):
            try:
                self.db.execute(f"PRAGMA journal_mode = {mode}").fetchone()
                return
            except sqlite3.OperationalError:
                if attempt == 199:
                    raise
                time.sleep(0.05)

    # Complaints

    @contextmanager
    def explained(self) -> Iterator[None]:
        """SQLite's complaints as a StoreError that names the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise StoreError(self._sentence(str(error))) from error

    def _sentence(self, text: str) -> str:
        if "not a database" in text:
            if health.looks_like_ours(self.path):
                return self._damaged("its header cannot be read")
            return f"{self.path} is not a results file (not an SQLite database)"
        if any(word in text for word in ("malformed", "corrupt", "no such table", "disk I/O error")):
            return self._damaged(text)
        if "locked" in text:
            return f"the results file {self.path} has been locked by another process for a minute"
        if "readonly" in text:
            return f"the results file {self.path} cannot be written: it was opened or lies read-only"
        if "unable to open" in text:
            return f"the results file {self.path} cannot be opened"
        return f"the results file {self.path} failed: {text}"

    def _damaged(self, what: str) -> str:
        rescue = f"numerate rows rescue {shlex.quote(str(self.path))} --out DIR"
        return f"the results file {self.path} is damaged: {what}; to bring its good runs out: {rescue}"
