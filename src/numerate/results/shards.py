"""A results file cut into files of a limited size, and put together again.

A shard is a line of JSON, then its piece of the file. The line says which shard of how many it is, and the SHA-256 of
the whole file, so that shards of two files are never mixed and a damaged one is found.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from numerate.results.errors import StoreError

MIB = 2**20
HEADER = 512
"""Bytes of the line of JSON, blanks and the line's end included."""
_FORMAT = "numerate shard 1"


@dataclass(frozen=True)
class Shard:
    """What the first line of a shard says.

    Args:
        number: from 1.
        of: how many there are.
        digest: SHA-256 of the whole file.
        format: that of shards.
    """

    number: int
    of: int
    digest: str
    format: str = _FORMAT


def check_size(size: float) -> None:
    """Raises StoreError if a shard of ``size`` bytes would hold nothing."""
    if not HEADER < size < math.inf:
        raise StoreError(f"the size of a shard must be more than {HEADER / MIB:.4f} MiB, got {size / MIB:g} MiB")


def cut(path: Path, size: int = 15 * MIB, most: int = 8) -> list[Path]:
    """Replace a file by shards ``path.1of3`` and so on, of at most ``size`` bytes each.

    Raises StoreError, and leaves the file as it is, if there would be more than ``most``.
    """
    check_size(size)
    length, piece = path.stat().st_size, size - HEADER
    count = max(1, -(-length // piece))
    if count > most:
        raise StoreError(
            f"{path} has {length / MIB:,.1f} MiB and would need {count} shards of {size / MIB:g} MiB, not {most}; "
            "export one experiment at a time, or allow larger or more shards"
        )
    digest, made = _digest(path), []
    with path.open("rb") as whole:
        for number in range(1, count + 1):
            header = json.dumps(asdict(Shard(number, count, digest))).encode()
            made.append(path.with_name(f"{path.name}.{number}of{count}"))
            made[-1].write_bytes(header.ljust(HEADER - 1) + b"\n" + whole.read(piece))
    path.unlink()
    return made


def read_header(path: Path) -> Shard | None:
    """None if the file is not a shard."""
    with path.open("rb") as file:
        line = file.read(HEADER)
    try:
        shard = Shard(**json.loads(line))
    except (ValueError, TypeError):
        return None
    return shard if shard.format == _FORMAT else None


def join(paths: Sequence[Path], target: Path) -> None:
    """The whole file again. Raises StoreError, and leaves no file, unless all shards of one file are whole."""
    found = {path: read_header(path) for path in paths}
    first = next((shard for shard in found.values() if shard), None)
    if first is None or any(shard is None or shard.digest != first.digest for shard in found.values()):
        strange = next(
            path for path, shard in found.items() if first is None or shard is None or shard.digest != first.digest
        )
        raise StoreError(
            f"{strange} is not a shard of the same results file as the others; give all shards of one file"
        )
    pieces = {shard.number: path for path, shard in found.items() if shard}
    if missing := [number for number in range(1, first.of + 1) if number not in pieces]:
        raise StoreError(f"of {first.of} shards these are missing: number {', '.join(map(str, missing))}")
    try:
        with target.open("wb") as whole:
            for number in range(1, first.of + 1):
                whole.write(pieces[number].read_bytes()[HEADER:])
            whole.flush()
            os.fsync(whole.fileno())
        if _digest(target) != first.digest:
            raise StoreError(f"the shards beginning with {pieces[1]} are damaged: copy them again")
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
