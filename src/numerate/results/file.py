"""An open results file: one SQLite connection, its transactions, its health, and whether it is still there."""

import logging
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from numerate.results import health
from numerate.results.errors import StoreError, damaged, explained
from numerate.results.opening import columns, connect, set_journal

log = logging.getLogger("numerate")
Value = str | int | float | bytes | None


class ResultsFile:
    """A results file of ours: it is refused if it is anything else, or damaged beyond its indexes.

    Args:
        path: of the file, made if it is not there.
        readonly: whether the file is never written; it may then lie on a read-only disk.
    """

    def __init__(self, path: Path, readonly: bool) -> None:
        self.path, self.readonly = path, readonly
        self._rows_written = self._lost = False
        self.db = connect(path, readonly)
        self._opened = self._identity()
        try:
            self._check_health()
        except BaseException:
            self.db.close()
            raise
        self.db.text_factory = lambda data: data.decode(errors="replace")  # a damaged run is named by what is left

    def close(self) -> None:
        """Close the file, and remember that it is sound if nothing but we wrote to it."""
        ours = not self.readonly and not self.is_lost()
        self.db.close()
        if ours:
            health.remember(self.path)

    # Queries

    def execute(self, query: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        with explained(self.path):
            return self.db.execute(query, values)

    def records(self, query: str, values: Sequence[Value] = ()) -> Iterator[tuple[Any, ...]]:
        """The records of a query, one after the other; a large file never is in memory whole."""
        with explained(self.path):
            for record in self.db.execute(query, values):  # noqa: UP028 (would close the cursor of a closed file)
                yield record

    def columns(self, table: str) -> list[str]:
        with explained(self.path):
            return columns(self.db, table)

    # Writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything done inside reaches the disk together, or not at all.

        May be nested: an inner one that raises is undone alone, the outer one decides about the rest.
        """
        inner = self.db.in_transaction
        with explained(self.path):
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
        with explained(self.path):
            try:
                set_journal(self.db, "DELETE")
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

    # Health

    def _check_health(self) -> None:
        """Look through the file; repair its indexes, if need be in a copy that is read in its place.

        Raises StoreError if it is damaged otherwise.
        """
        if health.is_remembered(self.path):
            return
        with explained(self.path):
            damage = health.inspect(self.db)
            if damage is None:
                health.remember(self.path)
                return
            if not damage.only_indexes:
                raise StoreError(damaged(self.path, damage.text))
            if self.readonly:
                self.db = health.copied(self.db)
            health.repair(self.db)
        done = "it is read through a repaired copy" if self.readonly else "it is repaired"
        log.warning("the results file %s has a damaged index (%s): %s", self.path, damage.text, done)

    def check(self) -> None:
        """Look through the whole file again. Raises StoreError if it is damaged."""
        with explained(self.path):
            if damage := health.inspect(self.db):
                raise StoreError(damaged(self.path, damage.text))
