"""The runs of a results file as small tables in memory, so that the page counts and filters in SQL.

A temporary table of outcomes and one of names lie beside the file, which is only read. :meth:`Index.refresh` adds the
runs that were stored meanwhile. One thread uses an index.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from numerate.results import Key, Row, canonical, unpack
from numerate.results.encoding import decode_mapping, decode_scores
from numerate.results.errors import explained
from numerate.results.file import ResultsFile
from numerate.results.outcome import Outcome, judge, judge_scores
from numerate.results.provenance import Provenance, from_stored
from numerate.results.runs import RunReader

ALL = "all"
"""The size of an experiment that is everything stored under its name."""

TABLES = (
    """CREATE TEMP TABLE IF NOT EXISTS outcomes (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL, stopped_at INTEGER, reason TEXT,
  scores TEXT NOT NULL, solved INTEGER, solved_at INTEGER, error REAL, sparsity REAL, snapped INTEGER,
  backend TEXT, version TEXT, created TEXT, seconds REAL, PRIMARY KEY (config_hash, seed)) WITHOUT ROWID""",
    """CREATE TEMP TABLE IF NOT EXISTS names (
  experiment TEXT NOT NULL, config_hash TEXT NOT NULL, seed INTEGER NOT NULL, labels TEXT NOT NULL,
  PRIMARY KEY (experiment, config_hash, seed)) WITHOUT ROWID""",
    """CREATE TEMP TABLE IF NOT EXISTS members (
  experiment TEXT NOT NULL, size TEXT NOT NULL, config_hash TEXT NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL,
  labels TEXT NOT NULL, own INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS temp.members_by_size ON members (experiment, size)",
    "CREATE TEMP TABLE IF NOT EXISTS fresh (config_hash TEXT NOT NULL, seed INTEGER NOT NULL)",
    """CREATE TEMP TABLE IF NOT EXISTS refused (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, PRIMARY KEY (config_hash, seed)) WITHOUT ROWID""",
)

OF_NAME = """SELECT labels, 0 AS own, outcomes.* FROM names JOIN outcomes USING (config_hash, seed)
             WHERE experiment = :experiment"""
OF_SIZE = """SELECT labels, own, outcomes.* FROM members JOIN outcomes
             ON outcomes.config_hash = members.config_hash AND outcomes.seed BETWEEN low AND high
             WHERE experiment = :experiment AND size = :size"""

SEED, VERSION = "run seed", "run version"
FIELDS = {SEED: "seed", "run status": "status", "run backend": "backend", VERSION: "version"}
"""What runs can be filtered by beside their labels -> column."""


class Group(NamedTuple):
    """Runs of one experiment that share their labels, counted."""

    labels: str
    own: bool
    runs: int
    judged: int
    solved: int
    diverged: int
    solved_at: float | None
    """Mean over the solved runs."""
    error: float | None = None
    """Mean test error of the runs that are not judged: their task has no criterion of success."""
    config_hash: str = ""
    """Of one of the runs."""


class Member(NamedTuple):
    """A configuration that an experiment has at a size: its seeds from ``low`` to ``high``."""

    experiment: str
    size: str
    config_hash: str
    low: int
    high: int
    labels: str
    own: bool = False


class Records(NamedTuple):
    """Runs as SQLite gives them, by columns."""

    names: list[str]
    values: list[tuple[Any, ...]]

    def column(self, name: str) -> list[Any]:
        place = self.names.index(name)
        return [value[place] for value in self.values]

    @property
    def keys(self) -> list[Key]:
        return list(map(Key, self.column("config_hash"), self.column("seed")))


class Filter(NamedTuple):
    """A label, or one of :data:`FIELDS`, and the values of it that are wanted, as text."""

    name: str
    values: tuple[str, ...]


class Index:
    """The runs of one results file, which need not be there yet.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self._file: ResultsFile | None = None
        self._seen: object = None
        self._connect()

    def close(self) -> None:
        self.db.close()

    # Reading the file

    def _connect(self) -> None:
        file = ResultsFile(self.path, readonly=True) if self._is_there() else None
        self._file, self._seen = file, None
        self.db = file.db if file else sqlite3.connect(":memory:", isolation_level=None)
        self.db.execute("PRAGMA temp_store = MEMORY")
        self.db.create_function("label", 2, label_value, deterministic=True)
        for statement in TABLES:
            self.db.execute(statement)

    def _is_there(self) -> bool:
        """Whether the file is there and has been written; one that is just being made is empty."""
        return self.path.exists() and self.path.stat().st_size > 0

    def refresh(self) -> bool:
        """Take in what was stored since the last call; True if that was anything."""
        if (self._file is None and self.path.exists()) or (self._file is not None and self._file.is_lost()):
            self._start_again()
        if self._file is None:
            return False
        with explained(self.path):
            seen = self.db.execute("PRAGMA main.data_version").fetchone()
            if seen == self._seen:
                return False
            self._seen = seen
            self._take_in(self._file)
        self.version += 1
        return True

    def _start_again(self) -> None:
        before = self.db
        members = before.execute("SELECT * FROM members").fetchall()
        self._connect()
        before.close()
        self.add_members(Member(*record) for record in members)

    def _take_in(self, file: ResultsFile) -> None:
        known = "(SELECT count(*) FROM outcomes) + (SELECT count(*) FROM refused)"
        if self.db.execute(f"SELECT (SELECT count(*) FROM main.runs) < {known}").fetchone()[0]:  # some were removed
            for table in ("outcomes", "names", "refused"):
                self.db.execute(f"DELETE FROM {table}")
        self.db.execute("DELETE FROM fresh")
        self.db.execute(
            """INSERT INTO fresh SELECT config_hash, seed FROM main.runs
               EXCEPT SELECT config_hash, seed FROM outcomes EXCEPT SELECT config_hash, seed FROM refused"""
        )
        marks = ", ".join("?" * 15)
        self.db.execute("BEGIN")
        try:
            self.db.executemany(f"INSERT INTO outcomes VALUES ({marks})", self._fresh_outcomes())
            self.db.execute(
                """INSERT OR IGNORE INTO names SELECT experiment, config_hash, seed, labels
                   FROM fresh CROSS JOIN main.runs USING (config_hash, seed)"""
            )
            if file.columns("shared"):
                self.db.execute(
                    """INSERT OR IGNORE INTO names SELECT shared.experiment, config_hash, seed, shared.labels
                       FROM main.shared JOIN outcomes USING (config_hash, seed)"""
                )
        finally:
            self.db.execute("COMMIT")

    def _fresh_outcomes(self) -> Iterator[tuple[Any, ...]]:
        query = """SELECT config_hash, seed, status, stopped_at, reason, scores, backend, versions, hardware, timing,
                          created
                   FROM fresh CROSS JOIN main.runs USING (config_hash, seed)
                   LEFT JOIN main.circumstances USING (config_hash, seed)"""
        for config, seed, status, stopped_at, reason, scores, *around in self.db.cursor().execute(query):
            outcome, error = self._judged(Key(config, seed), status, scores)
            provenance = _provenance(*around)
            yield (
                *(config, seed, status, stopped_at, reason, scores),
                *((outcome and (outcome.solved, outcome.solved_at)) or (None, None)),
                *(error, outcome and outcome.sparsity, outcome and outcome.snapped),
                *(
                    provenance.backend,
                    provenance.versions.get("numerate", ""),
                    provenance.created,
                    _seconds(provenance),
                ),
            )

    def _judged(self, key: Key, status: str, text: str) -> tuple[Outcome | None, float | None]:
        """Outcome and test error at the best point; None for a run that is not as a trainer writes it.

        A task whose threshold is not a number has no criterion of success: its runs have no outcome.
        """
        try:
            scores = decode_scores(text)
            if "best_test" in scores and math.isnan(scores["threshold"]):
                return None, scores["best_test"]
            if "best_test" in scores:
                return judge_scores(scores, scores["threshold"], status == "diverged"), scores["best_test"]
            query = "SELECT curves FROM main.runs WHERE config_hash = ? AND seed = ?"
            (curves,) = self.db.execute(query, key).fetchone()
            row = Row("", {}, key.seed, scores=scores, curves=unpack(curves))
            return judge(row), None
        except (ValueError, TypeError, LookupError):
            return None, None

    def leave_out(self, keys: Iterable[Key]) -> None:
        """Runs that are not as they were written: they are counted nowhere."""
        for key in keys:
            if self.db.execute("INSERT OR IGNORE INTO refused VALUES (?, ?)", key).rowcount:
                for table in ("outcomes", "names"):
                    self.db.execute(f"DELETE FROM {table} WHERE config_hash = ? AND seed = ?", key)
                self.version += 1

    def refused(self) -> int:
        """How many runs are left out."""
        return self.db.execute("SELECT count(*) FROM refused").fetchone()[0]

    # Which runs belong to which size

    def add_members(self, members: Iterable[Member]) -> None:
        self.db.executemany("INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?)", members)
        self.version += 1

    def strangers(self) -> list[tuple[str, str, str, int, int]]:
        """(experiment, configuration, labels, lowest seed, highest) of stored runs that are of no size yet."""
        query = """SELECT experiment, config_hash, labels, min(seed), max(seed) FROM names
                   WHERE experiment IN (SELECT DISTINCT experiment FROM members)
                   AND (experiment, config_hash) NOT IN (SELECT experiment, config_hash FROM members)
                   GROUP BY experiment, config_hash, labels"""
        return self.db.execute(query).fetchall()

    def config(self, config_hash: str) -> dict[str, Any]:
        """The configuration of a stored run; empty if it cannot be read."""
        query = "SELECT config FROM main.runs WHERE config_hash = ? LIMIT 1"
        found = self.db.execute(query, (config_hash,)).fetchone() if self._file else None
        try:
            return decode_mapping(found[0]) if found else {}
        except ValueError:
            return {}

    # Questions

    def experiments(self) -> dict[str, int]:
        """Experiment -> number of runs stored under its name."""
        return dict(self.db.execute("SELECT experiment, count(*) FROM names GROUP BY experiment"))

    def total(self) -> int:
        """How many runs there are."""
        return self.db.execute("SELECT count(*) FROM outcomes").fetchone()[0]

    def finished(self) -> dict[tuple[str, str], int]:
        """(experiment, size) -> finished runs of those that the size has; one's own units not counted."""
        query = """SELECT experiment, size, count(*) FROM members JOIN outcomes
                   ON outcomes.config_hash = members.config_hash AND outcomes.seed BETWEEN low AND high
                   WHERE NOT own GROUP BY experiment, size"""
        return {(experiment, size): count for experiment, size, count in self.db.execute(query)}

    def groups(self, experiment: str, size: str, filters: Sequence[Filter] = ()) -> list[Group]:
        """The runs of an experiment at a size, counted by their labels."""
        entries, values = self._entries(experiment, size, filters)
        query = f"""SELECT labels, max(own), count(*), count(solved), coalesce(sum(solved), 0),
                           sum(status = 'diverged'), avg(CASE WHEN solved THEN solved_at END),
                           avg(CASE WHEN solved IS NULL THEN error END), min(config_hash)
                    FROM ({entries}) GROUP BY labels"""
        return [Group(*record) for record in self.db.execute(query, values)]

    def runs(
        self, experiment: str, size: str, filters: Sequence[Filter] = (), limit: int = -1, offset: int = 0
    ) -> list[dict[str, Any]]:
        """The runs themselves, a record each, failures first."""
        entries, values = self._entries(experiment, size, filters)
        query = f"{entries} ORDER BY solved, labels, config_hash, seed LIMIT :limit OFFSET :offset"
        cursor = self.db.execute(query, values | {"limit": limit, "offset": offset})
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, record)) for record in cursor]

    def records(self, experiment: str, size: str, filters: Sequence[Filter] = ()) -> "Records":
        """All of the runs, for another thread to make rows of."""
        entries, values = self._entries(experiment, size, filters)
        cursor = self.db.execute(entries, values)
        return Records([column[0] for column in cursor.description], cursor.fetchall())

    def whole_rows(self, keys: Iterable[Key]) -> list[Row]:
        """Runs with all they have; one that is not as it was written is left out with a notice."""
        return list(RunReader(self._file).rows(keys=keys, lenient=True)) if self._file else []

    def find(self, digits: str, seed: int) -> list[Key]:
        """Runs of this seed whose key begins with these hexadecimal digits."""
        return RunReader(self._file).find(digits, seed) if self._file else []

    def versions(self) -> list[str]:
        """The versions of numerate that trained the runs."""
        query = "SELECT DISTINCT version FROM outcomes WHERE version != '' ORDER BY version"
        return [version for (version,) in self.db.execute(query)]

    def fields(self, experiment: str, size: str) -> dict[str, list[str]]:
        """Status, backend and version -> their values, where there is more than one to filter by."""
        entries, values = self._entries(experiment, size, ())
        found = {}
        for name, column in FIELDS.items():
            if name != SEED:
                query = f"SELECT DISTINCT {column} FROM ({entries}) ORDER BY 1"
                found[name] = [value for (value,) in self.db.execute(query, values) if value]
        return {name: choices for name, choices in found.items() if len(choices) > 1}

    def under_way(self) -> list[tuple[int, list[Key]]]:
        """(step, keys) of groups of runs that are partly trained."""
        found = []
        if self._file:
            for (meta,) in self.db.execute("SELECT meta FROM main.checkpoints"):
                try:
                    known = decode_mapping(meta)
                    found.append((int(known["step"]), [Key(*key) for key in known["keys"]]))
                except (ValueError, TypeError, LookupError):
                    continue  # of an earlier version, or damaged: it is not continued either
        return found

    def _entries(self, experiment: str, size: str, filters: Sequence[Filter]) -> tuple[str, dict[str, Any]]:
        """The query of the runs that fit, and its values."""
        values: dict[str, Any] = {"experiment": experiment, "size": size}
        conditions = []
        for number, (name, wanted) in enumerate(filters):
            marks = ", ".join(f":f{number}_{i}" for i in range(len(wanted)))
            values |= {f"f{number}_{i}": value for i, value in enumerate(wanted)} | {f"name{number}": name}
            value = f"CAST({FIELDS[name]} AS TEXT)" if name in FIELDS else f"label(labels, :name{number})"
            conditions.append(f"{value} IN ({marks})")
        chosen = OF_NAME if size == ALL else OF_SIZE
        return (f"SELECT * FROM ({chosen}) WHERE {' AND '.join(conditions)}" if conditions else chosen), values


@lru_cache(maxsize=50_000)
def decoded_labels(text: str) -> Mapping[str, Any]:
    """Labels as they are stored; none if they cannot be read."""
    try:
        return decode_mapping(text)
    except ValueError:
        return {}


def label_value(labels: str, name: str) -> str | None:
    """The text by which a label is filtered; None if there is no such label."""
    value = decoded_labels(labels).get(name)
    return None if value is None else value_text(value)


def value_text(value: Any) -> str:
    """A label's value as an address has it: text as it is, all else as JSON in one spelling."""
    return value if isinstance(value, str) else canonical(value)


def _provenance(backend: str | None, *texts: str) -> Provenance:
    try:
        return Provenance() if backend is None else from_stored(backend, *texts)
    except (ValueError, TypeError):
        return Provenance()


def _seconds(provenance: Provenance) -> float | None:
    try:
        return float(provenance.seconds)
    except (TypeError, ValueError):
        return None


def light_rows(experiment: str, records: Records) -> list[Row]:
    """Runs as rows without curves and weights, which few comparisons need."""
    return [_light_row(experiment, dict(zip(records.names, values))) for values in records.values]


def _light_row(experiment: str, record: Mapping[str, Any]) -> Row:
    timing = {"seconds": record["seconds"] or 0.0}
    around = Provenance(record["backend"], {"numerate": record["version"]}, timing=timing, created=record["created"])
    row = Row(
        experiment,
        {},
        record["seed"],
        json.loads(record["labels"]),
        record["status"],
        record["stopped_at"],
        record["reason"],
        scores=decode_scores(record["scores"]),
        provenance=around,
    )
    vars(row)["key"] = Key(record["config_hash"], record["seed"])  # that of the empty configuration would be wrong
    return row
