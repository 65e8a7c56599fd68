"""Rows as one block of bytes, to be sent from where they were trained to where they are stored; no pickle.

The layout: the length of a JSON list, the list (one entry per row, the columns of a :class:`Record` with the lengths of
``curves`` and ``weights`` in their places), then those arrays as the store has them. Each row carries its digest.
"""

import json
from collections.abc import Iterable
from typing import Any

from numerate.results.record import Altered, Record, decode, encode
from numerate.results.row import Row
from numerate.results.schema import RESULT_DIGITS

_CURVES, _WEIGHTS = Record._fields.index("curves"), Record._fields.index("weights")


def pack_rows(rows: Iterable[Row]) -> bytes:
    """One block of bytes."""
    entries: list[list[Any]] = []
    blocks: list[bytes] = []
    for row in rows:
        values: list[Any] = [*encode(row), *row.provenance.stored]
        for place in (_CURVES, _WEIGHTS):
            blocks.append(values[place])
            values[place] = len(values[place])
        entries.append(values)
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *blocks])


def unpack_rows(data: bytes) -> list[Row]:
    """The rows of :func:`pack_rows`. Raises ValueError if one of them is not as it was packed."""
    try:
        place = 8 + int.from_bytes(data[:8], "little")
        rows = []
        for values in json.loads(data[8:place]):
            for column in (_CURVES, _WEIGHTS):
                length = values[column]
                values[column] = data[place : place + length]
                place += length
            rows.append(_row(Record(*values)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{len(data):,} bytes are not rows as they were packed: {error}") from error
    if place != len(data):
        raise ValueError(f"{len(data):,} bytes are not rows as they were packed: {len(data) - place:,} too many")
    return rows


def _row(record: Record) -> Row:
    """As :func:`decode`, with what is stored kept beside it: it need not be spelt again to be written."""
    row = decode(record, record.entry)
    if row.key != record.key:
        raise Altered("is not as it was written")
    vars(row).update(result=record.result, digest=record.digest[:RESULT_DIGITS])
    return row
