"""A run as a record of a file, and back: a record that is not as it was written never becomes a row."""

from typing import NamedTuple

from numerate.results.arrays import unpack
from numerate.results.encoding import (
    canonical,
    decode_mapping,
    decode_scores,
    decode_weights,
    digest_of,
    hash_text,
)
from numerate.results.provenance import Provenance, from_stored
from numerate.results.row import Key, Row, Status, StoredResult
from numerate.results.schema import RESULT_DIGITS

RECORD = """SELECT config_hash, seed, experiment, labels, config, status, stopped_at, reason, curves, scores, weights,
                   digest, backend, versions, hardware, timing, created
            FROM runs LEFT JOIN circumstances USING (config_hash, seed) WHERE config_hash = ? AND seed = ?"""
"""Query for the :class:`Record` of a key."""


class Altered(ValueError):
    """Why a record is refused, as the end of a sentence."""


class Entry(NamedTuple):
    """What one experiment calls a run: the one that stored it, or one that shares it."""

    config_hash: str
    seed: int
    experiment: str
    labels: str
    digest: str | None = None
    """Of these names, where they are stored apart from the run."""

    @property
    def key(self) -> Key:
        return Key(self.config_hash, self.seed)

    @property
    def order(self) -> tuple[str, str, str, int]:
        """Rows stand in this order, whatever the order of their writing."""
        return self.experiment, self.labels, self.config_hash, self.seed


class Record(NamedTuple):
    """A run as it lies in a file, with its provenance if there is any."""

    config_hash: str
    seed: int
    experiment: str
    labels: str
    config: str
    status: Status
    stopped_at: int | None
    reason: str
    curves: bytes
    scores: str
    weights: bytes
    digest: str
    backend: str | None = None
    versions: str | None = None
    hardware: str | None = None
    timing: str | None = None
    created: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.config_hash, self.seed)

    @property
    def result(self) -> StoredResult:
        return self.config, self.status, self.stopped_at, self.reason, self.curves, self.scores, self.weights

    @property
    def entry(self) -> Entry:
        """The names that were stored with the run; format 1 had no digest of them."""
        names = self.digest[RESULT_DIGITS + 1 :] or None
        return Entry(self.config_hash, self.seed, self.experiment, self.labels, names)


def encode(row: Row) -> tuple[str | int | bytes | None, ...]:
    """A row as the table of runs holds it: the first twelve columns of a :class:`Record`."""
    labels = canonical(row.labels)
    digest = f"{row.digest}-{names_digest(row.key, row.experiment, labels)}"
    return (*row.key, row.experiment, labels, *row.result, digest)


def names_digest(key: Key, experiment: str, labels: str) -> str:
    """The digest of what an experiment calls a run."""
    return digest_of((*key, experiment, labels))


def decode(record: Record, entry: Entry) -> Row:
    """The row of a record under the names of ``entry``. Raises Altered if either is not as it was written."""
    if not (is_intact(record) and has_its_names(record.entry) and has_its_names(entry)):
        raise Altered("is not as it was written")
    try:
        return Row(
            entry.experiment,
            decode_mapping(record.config),
            record.seed,
            decode_mapping(entry.labels),
            record.status,
            record.stopped_at,
            record.reason,
            unpack(record.curves),
            decode_scores(record.scores),
            decode_weights(record.weights),
            _provenance(record),
        ).spelled(record.config)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise Altered(f"cannot be read: {error}") from error


def is_intact(record: Record) -> bool:
    """Whether the stored bytes still give the stored digest, and the configuration its hash."""
    digest = digest_of((*record.key, *record.result))
    return digest == record.digest[:RESULT_DIGITS] and hash_text(record.config) == record.config_hash


def has_its_names(entry: Entry) -> bool:
    """Whether experiment and labels still give their digest, if they have one."""
    return entry.digest in (None, names_digest(entry.key, entry.experiment, entry.labels))


def _provenance(record: Record) -> Provenance:
    if record.backend is None:
        return Provenance()
    texts = record.versions or "", record.hardware or "", record.timing or ""
    return from_stored(record.backend, *texts, record.created or "")
