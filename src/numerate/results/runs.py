"""Finished runs of a results file: reading them, asking what is missing, writing them."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from numerate.results.encoding import canonical, decode_mapping
from numerate.results.errors import StoreError
from numerate.results.file import ResultsFile
from numerate.results.record import RECORD, Altered, Entry, Record, decode, encode, has_its_names, names_digest
from numerate.results.row import Key, Row
from numerate.results.schema import RESULT_DIGITS

log = logging.getLogger("numerate")

Labels = Mapping[str, Any]
Where = Labels | Callable[[Labels], bool]
"""Labels that a run must have, one value or a list of allowed ones, or a function of its labels."""

_ONE = "config_hash = ? AND seed = ?"


@dataclass(frozen=True)
class Added:
    """What became of rows handed to a store: new ones, ones already there, and ones that contradict what is there.

    ``unfinished``: runs whose state was taken, to be continued.
    """

    new: int = 0
    same: int = 0
    conflicts: tuple[Key, ...] = ()
    unfinished: int = 0

    def __str__(self) -> str:
        text = f"{self.new} new, {self.same} already there"
        if self.unfinished:
            text += f", {self.unfinished} unfinished to be continued"
        return text + (f", {len(self.conflicts)} contradict stored runs and were left out" if self.conflicts else "")


class RunReader:
    """What there is in a results file. Long lists hold names alone; results are read one run at a time."""

    def __init__(self, file: ResultsFile) -> None:
        self.file = file

    def keys(self) -> list[Key]:
        """Of all finished runs, in the order of :meth:`rows`."""
        return [entry.key for entry in self._stored(None)]

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those of ``keys`` that have no finished run yet, in the order given."""
        wanted = [Key(*key) for key in keys]
        stored = {entry.key for entry in self._of(wanted)}
        return [key for key in wanted if key not in stored]

    def find(self, digits: str, seed: int) -> list[Key]:
        """Runs of this seed whose key begins with these hexadecimal digits."""
        query = "SELECT config_hash, seed FROM runs WHERE config_hash >= ? AND config_hash < ? || 'g' AND seed = ?"
        return [Key(*record) for record in self.file.records(query, (digits, digits, seed))]

    def experiments(self) -> dict[str, int]:
        """Experiment -> number of finished runs, those included that it shares with another."""
        query = "SELECT experiment, count(*) FROM runs GROUP BY experiment"
        counts: dict[str, int] = dict(self.file.records(query))
        for entry in self._shared(None):
            counts[entry.experiment] = counts.get(entry.experiment, 0) + 1
        return dict(sorted(counts.items()))

    def labels(self, experiment: str) -> list[dict[str, Any]]:
        """Of each of its runs; those that cannot be read are left out."""
        found = []
        for entry in self._entries(experiment):
            with suppress(ValueError):
                found.append(decode_mapping(entry.labels))
        return found

    def digest(self, experiment: str | None) -> str:
        """A hash of every stored result and its names."""
        whole = hashlib.sha256()
        for entry in self._entries(experiment):
            found = self._digest_of(entry.key)
            whole.update(repr((*entry.key, entry.experiment, entry.labels, found)).encode())
        return whole.hexdigest()

    def rows(
        self,
        experiment: str | None = None,
        where: Where | None = None,
        keys: Iterable[Key] | None = None,
        lenient: bool = False,
    ) -> Iterator[Row]:
        """Rows in order; see :meth:`Store.rows`."""
        for row, error in self._read(self._chosen(experiment, keys)):
            if row is not None and (where is None or _fits(row.labels, where)):
                yield row
            if error is not None:
                if not lenient:
                    raise error
                log.warning("%s: it is left out", error)

    def refused(self, keys: Iterable[Key] | None = None) -> dict[Key, StoreError]:
        """Runs that are not as they were written, and why: those of ``keys``, or all, under each of their names."""
        entries = [*self._stored(None), *self._shared(None)] if keys is None else self._of(keys)
        return {entry.key: error for entry in entries for _, error in self._read([entry]) if error is not None}

    def shared(self, lenient: bool) -> list[Entry]:
        """What experiments call runs that others stored; unreadable ones raise or, if ``lenient``, are left out."""
        found = []
        for entry in self._shared(None):
            try:
                decode_mapping(entry.labels)
                if not has_its_names(entry):
                    raise Altered("is not as it was written")
                found.append(entry)
            except ValueError as error:
                refusal = self._refusal(entry.key, error)
                if not lenient:
                    raise refusal from error
                log.warning("%s: it is left out", refusal)
        return found

    # Entries: what runs are called

    def _chosen(self, experiment: str | None, keys: Iterable[Key] | None) -> Iterable[Entry]:
        if keys is None:
            return self._entries(experiment)
        if experiment is None:
            return self._of(keys)
        wanted = {Key(*key) for key in keys}
        return [entry for entry in self._entries(experiment) if entry.key in wanted]

    def _entries(self, experiment: str | None) -> list[Entry]:
        """All runs under the names they were stored with, or all that an experiment stored or shares."""
        shared = [] if experiment is None else self._shared(experiment)
        return sorted([*self._stored(experiment), *shared], key=lambda entry: entry.order)

    def _stored(self, experiment: str | None) -> list[Entry]:
        query = "SELECT config_hash, seed, experiment, labels FROM runs"
        condition, values = ("", ()) if experiment is None else (" WHERE experiment = ?", (experiment,))
        found = (Entry(*record) for record in self.file.records(query + condition, values))
        return sorted(found, key=lambda entry: entry.order)

    def _shared(self, experiment: str | None) -> list[Entry]:
        columns = self.file.columns("shared")
        if not columns:  # a file of an early version
            return []
        digest = "shared.digest" if "digest" in columns else "NULL"
        query = f"""SELECT config_hash, seed, shared.experiment, shared.labels, {digest}
                    FROM shared JOIN runs USING (config_hash, seed)"""
        condition, values = ("", ()) if experiment is None else (" WHERE shared.experiment = ?", (experiment,))
        return [Entry(*record) for record in self.file.records(query + condition, values)]

    def _of(self, keys: Iterable[Key]) -> list[Entry]:
        """Those of ``keys`` that are there; one query for each configuration."""
        wanted = {Key(*key) for key in keys}
        query = "SELECT config_hash, seed, experiment, labels FROM runs WHERE config_hash = ?"
        configs = sorted({key.config for key in wanted})
        found = (Entry(*record) for config in configs for record in self.file.records(query, (config,)))
        return sorted((entry for entry in found if entry.key in wanted), key=lambda entry: entry.order)

    # Records: what runs hold

    def _read(self, entries: Iterable[Entry]) -> Iterator[tuple[Row | None, StoreError | None]]:
        """The row of each entry, or why it is refused."""
        for entry in entries:
            try:
                yield self._row(entry), None
            except Altered as error:
                yield None, self._refusal(entry.key, error)

    def _row(self, entry: Entry) -> Row:
        found = self.file.execute(RECORD, tuple(entry.key)).fetchone()
        if found is None:  # the key that was read is not the one that is stored
            raise Altered("is not as it was written")
        return decode(Record._make(found), entry)

    def _refusal(self, key: Key, error: ValueError) -> StoreError:
        reason = str(error) if isinstance(error, Altered) else f"cannot be read: {error}"
        return StoreError(f"the run {key.name} in {self.file.path} {reason}")

    def _digest_of(self, key: Key) -> str | None:
        query = f"SELECT substr(digest, 1, {RESULT_DIGITS}) FROM runs WHERE {_ONE}"
        found = self.file.execute(query, tuple(key)).fetchone()
        return found[0] if found else None


class RunWriter:
    """Adds runs to a results file; a run that is there is never overwritten, but may be given the weights it lacks."""

    def __init__(self, file: ResultsFile) -> None:
        self.file, self.reader = file, RunReader(file)

    def add(self, rows: Iterable[Row]) -> Added:
        new, same, conflicts = 0, 0, []
        with self.file.transaction():
            for row in rows:
                if self._inserted(row):
                    new += 1
                elif self.reader._digest_of(row.key) == row.digest or self._differs_in_weights_alone(row):
                    self._share(row.key, row.experiment, canonical(row.labels))
                    same += 1
                else:
                    conflicts.append(row.key)
            self.file.note_rows()
        return Added(new, same, tuple(conflicts))

    def share(self, entries: Iterable[tuple[Key, str, Labels]]) -> None:
        """Note which experiment uses which stored run under which labels."""
        with self.file.transaction():
            for key, experiment, labels in entries:
                self._share(key, experiment, canonical(labels))

    def drop_damaged(self, keys: Iterable[Key]) -> list[Key]:
        """Remove those of the runs that are not as they were written, with a notice."""
        damaged = self.reader.refused(keys)
        with self.file.transaction():
            for key, error in damaged.items():
                log.warning("%s: it is removed", error)
                for table in ("runs", "circumstances", "shared"):
                    self.file.execute(f"DELETE FROM {table} WHERE {_ONE}", tuple(key))
        return list(damaged)

    def _differs_in_weights_alone(self, row: Row) -> bool:
        """Whether one of ``row`` and the stored run is the other without its weights; the stored one has them then."""
        stored = next(self.reader.rows(keys=[row.key], lenient=True), None)
        if stored is None or (stored.weights and row.weights):
            return False
        if replace(stored, weights={}).digest != replace(row, weights={}).digest:
            return False
        if row.weights:
            self.file.execute(f"DELETE FROM runs WHERE {_ONE}", tuple(row.key))
            self._inserted(row.relabelled(stored.experiment, stored.labels))
        return True

    def _inserted(self, row: Row) -> bool:
        values = encode(row)
        if not self.file.execute(f"INSERT OR IGNORE INTO runs VALUES ({_marks(values)})", values).rowcount:
            return False
        around = (*row.key, *row.provenance.stored)
        self.file.execute(f"INSERT OR REPLACE INTO circumstances VALUES ({_marks(around)})", around)
        return True

    def _share(self, key: Key, experiment: str, labels: str) -> None:
        query = f"""INSERT OR IGNORE INTO shared (config_hash, seed, experiment, labels, digest)
                    SELECT config_hash, seed, ?, ?, ? FROM runs WHERE {_ONE} AND experiment != ?"""
        digest = names_digest(key, experiment, labels)
        self.file.execute(query, (experiment, labels, digest, *key, experiment))


def _marks(values: tuple[object, ...]) -> str:
    return ", ".join("?" * len(values))


def _fits(labels: Labels, where: Where) -> bool:
    """Whether every wanted label is there with the wanted value, or one of the wanted values."""
    if not isinstance(where, Mapping):
        return where(labels)
    for name, wanted in where.items():
        if name not in labels:
            return False
        value, plain = labels[name], json.loads(canonical(wanted))
        if value != plain and not (isinstance(plain, list) and value in plain):
            return False
    return True
