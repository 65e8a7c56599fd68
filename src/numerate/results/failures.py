"""Runs that could not be trained, and why: no result of theirs is there, and the next call tries them again."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from numerate.results.encoding import canonical
from numerate.results.file import ResultsFile
from numerate.results.row import Key

TABLE = """CREATE TABLE IF NOT EXISTS failures (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, experiment TEXT NOT NULL, labels TEXT NOT NULL,
  reason TEXT NOT NULL, created TEXT NOT NULL, PRIMARY KEY (config_hash, seed)) WITHOUT ROWID"""
"""Made with the first failure; a file without any has no such table."""


class Failures:
    """Those of a results file."""

    def __init__(self, file: ResultsFile) -> None:
        self.file = file

    def note(self, key: Key, experiment: str, labels: Mapping[str, Any], reason: str) -> None:
        """Replaces what was noted of the run before."""
        values = (*key, experiment, canonical(labels), reason, datetime.now(UTC).isoformat(timespec="seconds"))
        with self.file.transaction():
            self.file.execute(TABLE)
            self.file.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?)", values)

    def reasons(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Why runs failed; one that has been finished since is left out."""
        if not self.file.columns("failures"):
            return {}
        query = """SELECT config_hash, seed, reason FROM failures
                   WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.config_hash = failures.config_hash
                                     AND runs.seed = failures.seed)"""
        found = {Key(config, seed): reason for config, seed, reason in self.file.records(query)}
        return {key: found[key] for key in keys if key in found}
