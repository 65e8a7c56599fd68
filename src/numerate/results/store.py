"""The rows on disk: one SQLite file, safe against kill -9, two writers and a second start."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numerate.results import frames
from numerate.results.arrays import Array
from numerate.results.checkpoint import Checkpoint, Checkpoints
from numerate.results.encoding import decode_mapping
from numerate.results.errors import StoreError
from numerate.results.failures import Failures
from numerate.results.file import ResultsFile
from numerate.results.row import Key, Row
from numerate.results.runs import Added, RunReader, RunWriter, Where

if TYPE_CHECKING:
    import pandas
    import polars


class Store:
    """A results file. Everything that returns has been written to disk.

    One writer waits for another (up to a minute); a run that is already stored is never overwritten. Use one ``Store``
    per thread and open it after a fork. Opening checks the file; see :mod:`numerate.results.health`. A file that is
    deleted while it is open raises StoreError at the next writing or reading, its runs saved elsewhere.

    The work is done by :class:`RunReader`, :class:`RunWriter` and :class:`Checkpoints`, all on one
    :class:`ResultsFile`.

    Args:
        path: of the file, made if it is not there.
        readonly: read a file that may lie on a read-only disk; nothing in it is changed.
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self.path, self.readonly = Path(path), readonly
        self._file = ResultsFile(self.path, readonly)
        self._reader, self._writer = RunReader(self._file), RunWriter(self._file)
        self._checkpoints, self._failures = Checkpoints(self._file), Failures(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._file.check_present()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def close(self) -> None:
        self._file.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Everything done inside reaches the disk together, or not at all.

        May be nested: an inner one that raises is undone alone, the outer one decides about the rest.
        """
        return self._file.transaction()

    # Writing

    def add(self, rows: Iterable[Row]) -> Added:
        """Store finished runs in one transaction."""
        return self._writer.add(rows)

    def share(self, experiment: str, labels: Mapping[Key, Mapping[str, Any]]) -> None:
        """Note that ``experiment`` uses stored runs, key -> what it calls them, whichever experiment stored them."""
        self._writer.share((key, experiment, names) for key, names in labels.items())

    def drop_damaged(self, keys: Iterable[Key]) -> list[Key]:
        """Remove damaged runs, with a notice, so that they can be trained again; returns their keys."""
        return self._writer.drop_damaged(keys)

    def fail(self, key: Key, experiment: str, labels: Mapping[str, Any], reason: str) -> None:
        """Note that a run could not be trained, and why; it stays among the missing ones."""
        self._failures.note(key, experiment, labels, reason)

    # Reading

    def failures(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Why runs could not be trained, those of ``keys`` that have not been finished since."""
        return self._failures.reasons(keys)

    def keys(self) -> list[Key]:
        """Of all finished runs."""
        return self._reader.keys()

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those of ``keys`` that have no finished run yet, in the order given."""
        return self._reader.missing(keys)

    def find(self, digits: str, seed: int) -> list[Key]:
        """Runs of this seed whose key begins with these hexadecimal digits."""
        return self._reader.find(digits, seed)

    def rows(
        self,
        experiment: str | None = None,
        where: Where | None = None,
        keys: Iterable[Key] | None = None,
        *,
        lenient: bool = False,
    ) -> list[Row]:
        """Finished runs, ordered by experiment, labels, configuration and seed, whatever the order of their writing.

        A range is itself a list: to allow one or several in ``where``, give a list of ranges.

        Args:
            experiment: those it stored, and those it shares with another that stored them.
            where: labels a run must have, one value or a list of allowed values, or a function of the labels.
            keys: these runs only, whichever experiment stored them.
            lenient: leave out a run that is not as it was written, with a notice, in place of raising StoreError.
        """
        self._file.check_present()
        return list(self._reader.rows(experiment, where, keys, lenient))

    def experiments(self) -> dict[str, int]:
        """Experiment -> number of finished runs, those included that it shares with another."""
        return self._reader.experiments()

    def labels(self, experiment: str) -> list[dict[str, Any]]:
        """The labels of an experiment's runs, in the order of :meth:`rows`; no results are read."""
        return self._reader.labels(experiment)

    def digest(self, experiment: str | None = None) -> str:
        """A hash of every stored result: equal for an interrupted and resumed experiment and an uninterrupted one."""
        return self._reader.digest(experiment)

    def check(self) -> list[Key]:
        """Runs that :meth:`rows` refuses, in whichever experiment. Raises StoreError if the file is damaged.

        Their stored bytes no longer give their stored digest, or their labels or provenance cannot be read.
        """
        self._file.check()
        return sorted(self._reader.refused())

    def frame(
        self, experiment: str | None = None, where: Where | None = None, *, curves: bool = True
    ) -> "polars.DataFrame":
        """One row per run as a polars ``DataFrame``: labels, scores and (as lists) curves are columns."""
        return frames.polars_frame(self.rows(experiment, where), curves)

    def to_pandas(
        self, experiment: str | None = None, where: Where | None = None, *, curves: bool = True
    ) -> "pandas.DataFrame":
        """As :meth:`frame`, for pandas."""
        return frames.pandas_frame(self.rows(experiment, where), curves)

    # State of unfinished groups

    def checkpoint(self, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> None:
        """Keep the state of a partly trained group; replaces the one before."""
        self._checkpoints.save(name, arrays, meta or {})

    def load_checkpoint(self, name: str) -> Checkpoint | None:
        """The state of a group as it was written.

        One that is not, or that an earlier version wrote without a digest, is dropped with a notice: None, as if there
        were none.
        """
        return self._checkpoints.load(name)

    def drop_checkpoint(self, name: str) -> None:
        self._checkpoints.drop(name)

    def checkpoints(self) -> list[str]:
        """Names of the groups that are partly trained."""
        return self._checkpoints.names()

    # To and from other files

    def export(
        self, path: str | Path, experiment: str | None = None, *, unfinished: bool = False, weights: bool = True
    ) -> Added:
        """Copy the finished runs of all experiments, or of one, into another results file, new or not.

        With ``unfinished`` the state of partly trained groups is copied too; without ``weights`` runs keep their curves
        and scores alone. Damaged runs are left out with a notice. The result is a single file. While another process
        has it open, its log stays beside it.
        """
        if self.path.exists() and Path(path).exists() and self.path.samefile(path):  # links included
            raise StoreError(f"{path} is the results file itself; export to another one")
        known = {*self.experiments(), *(self._experiments_unfinished() if unfinished else ())}
        if experiment is not None and experiment not in known:
            raise StoreError(
                f"{self.path} has no runs of {experiment!r}; it has {', '.join(sorted(known)) or 'none at all'}"
            )
        with Store(path) as other:
            added = other._take(self, experiment, lenient=True, weights=weights)
            if unfinished:
                added = replace(added, unfinished=other._take_unfinished(self, experiment))
            other._file.to_single_file()
        return added

    def import_(self, path: str | Path) -> Added:
        """Add the runs of another results file; a second import changes nothing, conflicts are reported.

        The state of a partly trained group is taken if it is further on than what is here. All of it or, where the
        other file is damaged or cannot be read, nothing.
        """
        with Store(path, readonly=True) as other, self.transaction():
            added = self._take(other)
            return replace(added, unfinished=self._take_unfinished(other))

    def _take(
        self, other: "Store", experiment: str | None = None, *, lenient: bool = False, weights: bool = True
    ) -> Added:
        """Runs of another file and, if it is about all of them, what it says of who shares runs."""
        with self.transaction():
            rows = other._reader.rows(experiment, lenient=lenient)
            added = self.add(rows if weights else (replace(row, weights={}) for row in rows))
            shared = other._reader.shared(lenient) if experiment is None else []
            self._writer.share((each.key, each.experiment, decode_mapping(each.labels)) for each in shared)
        return added

    def _experiments_unfinished(self) -> set[str]:
        """Experiments of partly trained groups."""
        states = filter(None, map(self.load_checkpoint, self.checkpoints()))
        return {state.meta["experiment"] for state in states if "experiment" in state.meta}

    def _take_unfinished(self, other: "Store", experiment: str | None = None) -> int:
        """The state of groups whose runs are not all here, where it is further on; of all experiments, or of one.

        Returns the number of these runs.
        A state that does not say its experiment was saved by an earlier version, and is taken.
        """
        taken = 0
        for name in other.checkpoints():
            theirs, ours = other.load_checkpoint(name), self.load_checkpoint(name)
            if theirs and experiment is not None and theirs.meta.get("experiment", experiment) != experiment:
                continue
            if theirs is None or (ours and ours.meta.get("step", 0) >= theirs.meta.get("step", 0)):
                continue
            if (keys := theirs.meta.get("keys")) and not self.missing(Key(*key) for key in keys):
                continue
            self.checkpoint(name, theirs.arrays, theirs.meta)
            taken += len(keys or ())
        return taken
