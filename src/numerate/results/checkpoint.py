"""The state of partly trained groups: what was altered is never continued."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numerate.results.arrays import Array, pack, unpack
from numerate.results.encoding import canonical, decode_mapping, digest_of
from numerate.results.file import ResultsFile

log = logging.getLogger("numerate")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a partly trained group."""

    arrays: dict[str, Array]
    meta: dict[str, Any]


class Checkpoints:
    """Those of a results file, by the name of their group."""

    def __init__(self, file: ResultsFile) -> None:
        self.file = file

    def save(self, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        """Replaces the one before."""
        written = (name, *packed(name, arrays, meta))
        with self.file.transaction():
            self.file.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", written)

    def load(self, name: str) -> Checkpoint | None:
        """The state of a group as it was written; one that is not is dropped with a notice, as if there were none."""
        query = "SELECT arrays, CAST(meta AS BLOB) FROM checkpoints WHERE name = ?"  # bytes: it may be no text any more
        found = self.file.execute(query, (name,)).fetchone()
        if found is None:
            return None
        if checkpoint := unpacked(name, *found):
            return checkpoint
        log.warning(
            "the saved state of the group %s in %s is damaged or of an earlier version: the group starts anew",
            name,
            self.file.path,
        )
        if not self.file.readonly:
            self.drop(name)
        return None

    def drop(self, name: str) -> None:
        with self.file.transaction():
            self.file.execute("DELETE FROM checkpoints WHERE name = ?", (name,))

    def names(self) -> list[str]:
        return [name for (name,) in self.file.records("SELECT name FROM checkpoints ORDER BY name")]


def packed(name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> tuple[bytes, str]:
    """Arrays, and meta data with the digest of all."""
    if "digest" in meta:
        raise ValueError("the meta data of a checkpoint must not have a 'digest': that name is the store's own")
    block, plain = pack(arrays), dict(meta)
    return block, canonical(plain | {"digest": digest_of((name, block, canonical(plain)))})


def unpacked(name: str, block: bytes, text: bytes) -> Checkpoint | None:
    """What :func:`packed` was given; None if it is not as it was written, or has no digest."""
    try:
        meta = decode_mapping(text)
        if meta.pop("digest", None) == digest_of((name, block, canonical(meta))):
            return Checkpoint(unpack(block), meta)
    except (ValueError, TypeError):
        pass  # no JSON, or a name or number in it that we never write
    return None
