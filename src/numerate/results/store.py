"""The rows on disk: one SQLite file, safe against kill -9, two writers and a second start."""

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from numerate.results import frames
from numerate.results.arrays import Array, unpack
from numerate.results.checkpoint import Checkpoint, packed, unpacked
from numerate.results.row import (
    Circumstances,
    Key,
    Row,
    canonical,
    decode_mapping,
    decode_scores,
    decode_weights,
    digest_of,
)

log = logging.getLogger("numerate")
T = TypeVar("T")

SCHEMA = 1
APPLICATION = 0x6E756D72  # "numr": tells our files from other SQLite databases

TABLES = """
CREATE TABLE IF NOT EXISTS runs (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, experiment TEXT NOT NULL, labels TEXT NOT NULL,
  config TEXT NOT NULL, status TEXT NOT NULL, stopped_at INTEGER, reason TEXT NOT NULL,
  curves BLOB NOT NULL, scores TEXT NOT NULL, weights BLOB NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (config_hash, seed)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS circumstances (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, backend TEXT NOT NULL, versions TEXT NOT NULL,
  hardware TEXT NOT NULL, timing TEXT NOT NULL, created TEXT NOT NULL,
  PRIMARY KEY (config_hash, seed)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoints (name TEXT PRIMARY KEY, arrays BLOB NOT NULL, meta TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS runs_by_experiment ON runs (experiment);
"""
SHARED_TABLE = """
CREATE TABLE IF NOT EXISTS shared (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, experiment TEXT NOT NULL, labels TEXT NOT NULL,
  PRIMARY KEY (config_hash, seed, experiment)) WITHOUT ROWID
"""
"""Experiments that use a run which another one stored; not in files of earlier versions."""

RESULT = "config, status, stopped_at, reason, curves, scores, weights, digest"
COLUMNS = f"config_hash, seed, experiment, labels, {RESULT}"
SHARED = f"""SELECT config_hash, seed, shared.experiment, shared.labels, {RESULT}
             FROM shared JOIN runs USING (config_hash, seed)"""


class StoreError(RuntimeError):
    """A results file that cannot be used, said in one sentence."""


@dataclass(frozen=True)
class Added:
    """What became of rows handed to a store: new ones, ones already there, and ones that contradict what is there."""

    new: int = 0
    same: int = 0
    conflicts: tuple[Key, ...] = ()

    def __str__(self) -> str:
        text = f"{self.new} new, {self.same} already there"
        return text + (f", {len(self.conflicts)} contradict stored runs and were left out" if self.conflicts else "")


class Store:
    """A results file. Everything that returns has been written to disk.

    One writer waits for another (up to a minute); a run that is already stored is never overwritten. Use one ``Store``
    per thread and open it after a fork. ``readonly=True`` reads a file that may lie on a read-only disk.
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        if str(self.path) == ":memory:":
            raise StoreError("a results file lies on disk; ':memory:' would keep nothing")
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a folder, not a results file")
        if readonly and not self.path.is_file():
            raise StoreError(f"there is no results file {self.path}")
        if not readonly:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make the folder of the results file {self.path}: {error.strerror}") from None
        with self._explained():
            self._db = self._open_readonly() if readonly else self._open()
        self._db.text_factory = lambda data: data.decode(errors="replace")  # a damaged run is named by what is left
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything done inside reaches the disk together, or not at all.

        May be nested: an inner one that raises is undone alone, the outer one decides about the rest.
        """
        inner = self._db.in_transaction
        with self._explained():
            self._db.execute("SAVEPOINT part" if inner else "BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("RELEASE part" if inner else "COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite may have ended it by itself, on a full disk say
                    self._db.execute("ROLLBACK TO part" if inner else "ROLLBACK")
                    if inner:
                        self._db.execute("RELEASE part")
                raise

    # Finished runs

    def add(self, rows: Iterable[Row]) -> Added:
        """Store finished runs in one transaction."""
        new, same, conflicts = 0, 0, []
        with self.transaction():
            for row in rows:
                key, (config, *result) = row.key, row.result
                values = (*key, row.experiment, canonical(row.labels), config, *result, row.digest)
                if self._db.execute(f"INSERT OR IGNORE INTO runs VALUES ({_marks(values)})", values).rowcount:
                    self._add_circumstances(key, row.circumstances)
                    new += 1
                elif self._digest_of(key) == row.digest:
                    self._share(key, row.experiment, row.labels)
                    same += 1
                else:
                    conflicts.append(key)
        return Added(new, same, tuple(conflicts))

    def share(self, experiment: str, labels: Mapping[Key, Mapping[str, Any]]) -> None:
        """Note that ``experiment`` uses stored runs, key -> what it calls them, whichever experiment stored them."""
        with self.transaction():
            for key, own in labels.items():
                self._share(key, experiment, own)

    def keys(self) -> list[Key]:
        """Of all finished runs."""
        return list(dict.fromkeys(Key(*record) for record in self._select(None, "config_hash, seed")))

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those of ``keys`` that have no finished run yet, in the order given."""
        with self._explained():
            there = set(self._db.execute("SELECT config_hash, seed FROM runs"))
        return [Key(*key) for key in keys if tuple(key) not in there]

    def rows(
        self,
        experiment: str | None = None,
        where: Mapping[str, Any] | Callable[[Mapping[str, Any]], bool] | None = None,
        keys: Iterable[Key] | None = None,
        *,
        lenient: bool = False,
    ) -> list[Row]:
        """Finished runs, ordered by experiment, labels, configuration and seed, whatever the order of their writing.

        ``experiment``: those it stored, and those it shares with another that stored them. A run that is not as it was
        written is refused.
        ``where``: labels a run must have, one value or a list of allowed ones (a range is itself a list: give a list of
        ranges), or a function of the labels. ``keys``: these runs only, whichever experiment stored them.
        ``lenient``: a run that is not as it was written is left out with a notice.
        """
        wanted = None if keys is None else {Key(*key) for key in keys}
        records = (r for r in self._select(experiment) if wanted is None or tuple(r[:2]) in wanted)

        def read(record: Sequence[Any]) -> Row | None:
            labels = self._decoded(record, decode_mapping, record[3])
            fits = where is None or (where(labels) if callable(where) else _matches(labels, where))
            return self._row(record, labels) if fits else None

        return [row for row in _readable(records, read, lenient) if row is not None]

    def drop_damaged(self, keys: Iterable[Key]) -> list[Key]:
        """Those of the runs that :meth:`rows` refuses, removed with a notice so that they can be made anew."""
        damaged = self._refused("runs", {Key(*key) for key in keys})
        with self.transaction():
            for key, error in damaged.items():
                log.warning("%s: it is removed", error)
                for table in ("runs", "circumstances", "shared"):
                    self._db.execute(f"DELETE FROM {table} WHERE config_hash = ? AND seed = ?", key)
        return list(damaged)

    def experiments(self) -> dict[str, int]:
        """Experiment -> number of finished runs, those included that it shares with another."""
        with self._explained():
            query = f"SELECT experiment, count(*) FROM {self._source()} GROUP BY experiment ORDER BY experiment"
            return dict(self._db.execute(query).fetchall())

    def digest(self, experiment: str | None = None) -> str:
        """A hash of every stored result: equal for an interrupted and resumed experiment and an uninterrupted one."""
        whole = hashlib.sha256()
        for record in self._select(experiment, "config_hash, seed, experiment, labels, digest"):
            whole.update(repr(tuple(record)).encode())
        return whole.hexdigest()

    def check(self) -> list[Key]:
        """Runs that :meth:`rows` refuses, in whichever experiment; a damaged file raises.

        Their stored bytes no longer give their stored digest, or their labels or circumstances cannot be read.
        """
        self._check_file()
        return list(self._refused(self._source()))

    def _refused(self, source: str, among: Collection[Key] | None = None) -> dict[Key, StoreError]:
        """Runs that are not as they were written, and why."""
        with self._explained():
            records = self._db.execute(f"SELECT {COLUMNS} FROM {source} ORDER BY config_hash, seed").fetchall()
        refused: dict[Key, StoreError] = {}
        for record in records:
            if among is not None and tuple(record[:2]) not in among:
                continue
            try:
                self._row(record, self._decoded(record, decode_mapping, record[3]))
            except StoreError as error:
                refused[Key(*record[:2])] = error
        return refused

    # State of unfinished groups

    def checkpoint(self, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> None:
        """Keep the state of a partly trained group; replaces the one before."""
        written = (name, *packed(name, arrays, meta or {}))
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", written)

    def load_checkpoint(self, name: str) -> Checkpoint | None:
        """The state of a group as it was written.

        One that is not, or that an earlier version wrote without a digest, is dropped with a notice: None, as if there
        were none.
        """
        query = "SELECT arrays, CAST(meta AS BLOB) FROM checkpoints WHERE name = ?"  # bytes: it may be no text any more
        with self._explained():
            found = self._db.execute(query, (name,)).fetchone()
        if found is None:
            return None
        if checkpoint := unpacked(name, *found):
            return checkpoint
        log.warning(
            "the saved state of the group %s in %s is damaged or of an earlier version: the group starts anew",
            name,
            self.path,
        )
        if not self.readonly:
            self.drop_checkpoint(name)
        return None

    def drop_checkpoint(self, name: str) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM checkpoints WHERE name = ?", (name,))

    def checkpoints(self) -> list[str]:
        """Names of the groups that are partly trained."""
        with self._explained():
            return [name for (name,) in self._db.execute("SELECT name FROM checkpoints ORDER BY name")]

    # In and out

    def frame(self, experiment: str | None = None, where: Any = None, *, curves: bool = True) -> Any:
        """One row per run as a polars ``DataFrame``: labels, scores and (as lists) curves are columns."""
        return frames.polars_frame(self.rows(experiment, where), curves)

    def to_pandas(self, experiment: str | None = None, where: Any = None, *, curves: bool = True) -> Any:
        """As :meth:`frame`, for pandas."""
        return frames.pandas_frame(self.rows(experiment, where), curves)

    def export(self, path: str | Path, experiment: str | None = None) -> Added:
        """Copy finished runs into another results file, new or not, that can be carried as a single file.

        Runs that are not as they were written are left out with a notice. A damaged file is refused, for it may hide
        runs. Where another process has the other file open, its log stays
        beside it until that process closes it.
        """
        if self.path.exists() and Path(path).exists() and self.path.samefile(path):  # links included
            raise StoreError(f"{path} is the results file itself; export to another one")
        if experiment is not None and experiment not in (there := self.experiments()):
            raise StoreError(f"{self.path} has no runs of {experiment!r}; it has {', '.join(there) or 'none at all'}")
        self._check_file()
        with Store(path) as other:
            added = other._take(self, experiment, lenient=True)
            with other._explained():
                try:
                    other._set_journal("DELETE")
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error):
                        raise
                    other._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the file itself holds all
        return added

    def import_(self, path: str | Path) -> Added:
        """Take in the finished runs of another results file; a second time changes nothing, conflicts are told.

        All of it or, where the other file is damaged or cannot be read, nothing.
        """
        with Store(path, readonly=True) as other:
            other._check_file()
            return self._take(other)

    # Details

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def _open_readonly(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        try:
            db = sqlite3.connect(address, timeout=60, isolation_level=None, uri=True)
            db.execute("SELECT count(*) FROM sqlite_master")
            return db
        except sqlite3.OperationalError:
            log = Path(f"{self.path}-wal")
            if log.exists() and log.stat().st_size:
                raise
            return sqlite3.connect(address + "&immutable=1", isolation_level=None, uri=True)  # on a read-only disk

    def _prepare(self) -> None:
        version, tables = self._stamp()
        if version > SCHEMA:
            raise StoreError(
                f"the results file {self.path} was written by a newer numerate (format {version}, this one reads "
                f"up to {SCHEMA}): update numerate"
            )
        if version == 0 and (tables or self.readonly):
            raise StoreError(f"{self.path} is a database, but not a results file of numerate")
        if self.readonly:
            return
        self._set_journal("WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if version and not self._has_shared():
            self._db.execute(SHARED_TABLE)
        if version == 0:
            with self.transaction():
                if self._stamp()[0] == 0:  # else another process was first
                    for statement in [*TABLES.split(";\n"), SHARED_TABLE]:
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _stamp(self) -> tuple[int, int]:
        """Format number (0 if the file is not ours, or empty) and number of tables, both of one moment."""
        query = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
                   FROM pragma_application_id, pragma_user_version"""
        application, version, tables = self._db.execute(query).fetchone()
        return (version if application == APPLICATION else 0), tables

    def _set_journal(self, mode: str) -> None:
        """The change of mode does not wait by itself for others that open, use or close the file."""
        for attempt in range(200):
            try:
                self._db.execute(f"PRAGMA journal_mode = {mode}")
                return
            except sqlite3.OperationalError:
                if attempt == 199:
                    raise
                time.sleep(0.05)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's complaints in one sentence that names the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error)
            if "not a database" in text:
                raise StoreError(f"{self.path} is not a results file (not an SQLite database)") from None
            if "malformed" in text or "corrupt" in text:
                raise StoreError(f"the results file {self.path} is damaged: {text}") from None
            if "locked" in text:
                raise StoreError(
                    f"the results file {self.path} has been locked by another process for a minute"
                ) from None
            if "readonly" in text:
                raise StoreError(
                    f"the results file {self.path} cannot be written: it was opened or lies read-only"
                ) from None
            if "unable to open" in text:
                raise StoreError(f"the results file {self.path} cannot be opened") from None
            raise StoreError(f"the results file {self.path} failed: {text}") from error

    def _check_file(self) -> None:
        """Refuse a file whose tables and indexes do not fit together: a query may pass over some of its runs."""
        with self._explained():
            (verdict,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(f"the results file {self.path} is damaged: {' '.join(verdict.split())}")

    def _select(self, experiment: str | None, columns: str = COLUMNS) -> list[Any]:
        order = "ORDER BY experiment, labels, config_hash, seed"
        with self._explained():
            if experiment is None:
                return self._db.execute(f"SELECT {columns} FROM runs {order}").fetchall()
            query = f"SELECT {columns} FROM {self._source()} WHERE experiment = ? {order}"
            return self._db.execute(query, (experiment,)).fetchall()

    def _source(self) -> str:
        """The runs, those that experiments share once for each of them."""
        return f"(SELECT {COLUMNS} FROM runs UNION ALL {SHARED})" if self._has_shared() else "runs"

    def _has_shared(self) -> bool:
        return bool(self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'shared'").fetchone()[0])

    def _share(self, key: Key, experiment: str, labels: Mapping[str, Any]) -> None:
        query = """INSERT OR IGNORE INTO shared SELECT config_hash, seed, ?, ? FROM runs
                   WHERE config_hash = ? AND seed = ? AND experiment != ?"""
        self._db.execute(query, (experiment, canonical(labels), *key, experiment))

    def _take(self, other: "Store", experiment: str | None = None, *, lenient: bool = False) -> Added:
        """Runs of another file and, if it is about all of them, what it says of who shares runs."""
        rows = other.rows(experiment, lenient=lenient)
        shared = other._shared(lenient) if experiment is None else []
        with self.transaction():
            added = self.add(rows)
            for key, sharer, labels in shared:
                self._share(key, sharer, labels)
        return added

    def _shared(self, lenient: bool) -> list[tuple[Key, str, dict[str, Any]]]:
        """Who shares which runs under which labels."""
        with self._explained():
            records = self._db.execute("SELECT * FROM shared").fetchall() if self._has_shared() else []

        def read(record: Sequence[Any]) -> tuple[Key, str, dict[str, Any]]:
            return Key(*record[:2]), record[2], self._decoded(record, decode_mapping, record[3])

        return list(_readable(records, read, lenient))

    def _decoded(self, record: Sequence[Any], decode: Callable[..., Any], *stored: Any) -> Any:
        """``decode`` of what is stored; one sentence if that is not what we write."""
        try:
            return decode(*stored)
        except (ValueError, KeyError, TypeError) as error:
            run = Key(*record[:2]).name
            raise StoreError(f"the run {run} in {self.path} cannot be read: {error}") from error

    def _row(self, record: Sequence[Any], labels: dict[str, Any]) -> Row:
        """A run that is as it was written."""
        if not _is_intact(record):
            raise StoreError(f"the run {Key(*record[:2]).name} in {self.path} is not as it was written")
        return self._decoded(record, self._unpacked, record, labels)

    def _unpacked(self, record: Sequence[Any], labels: dict[str, Any]) -> Row:
        config_hash, seed, experiment, _, config, status, stopped_at, reason, curves, scores, weights, _ = record
        with self._explained():
            query = """SELECT backend, versions, hardware, timing, created FROM circumstances
                       WHERE config_hash = ? AND seed = ?"""
            found = self._db.execute(query, (config_hash, seed)).fetchone()
        around = Circumstances()
        if found:
            versions, hardware, timing = map(decode_mapping, found[1:4])
            around = Circumstances(found[0], versions, hardware, timing, found[4])
        row = Row(
            experiment, json.loads(config), seed, labels, status, stopped_at, reason,
            unpack(curves), decode_scores(scores), decode_weights(weights), around,
        )  # fmt: skip
        return row.spelled(config)

    def _add_circumstances(self, key: Key, around: Circumstances) -> None:
        values = (*key, *around.stored)
        self._db.execute(f"INSERT OR REPLACE INTO circumstances VALUES ({_marks(values)})", values)

    def _digest_of(self, key: Key) -> str | None:
        found = self._db.execute("SELECT digest FROM runs WHERE config_hash = ? AND seed = ?", key).fetchone()
        return found[0] if found else None


def _readable(records: Iterable[Any], read: Callable[[Any], T], lenient: bool) -> Iterator[T]:
    """What is read of each record; one that is not as it was written raises or, if ``lenient``, is left out."""
    for record in records:
        try:
            yield read(record)
        except StoreError as error:
            if not lenient:
                raise
            log.warning("%s: it is left out", error)


def _is_intact(record: Sequence[Any]) -> bool:
    """Whether the stored bytes of a run still give its digest."""
    config_hash, seed, _, _, *result, digest = record
    return digest_of((config_hash, seed, *result)) == digest


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _matches(labels: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether every wanted label is there with the wanted value, or one of the wanted values."""
    for name, wanted in where.items():
        if name not in labels:
            return False
        value, plain = labels[name], json.loads(canonical(wanted))
        if value != plain and not (isinstance(plain, list) and value in plain):
            return False
    return True
