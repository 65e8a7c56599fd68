"""Bring the good runs out of a damaged results file, without SQLite: page by page, each run proved by its digest.

SQLite keeps a run as one record: a header of column types, then the values; before them stands the length of all and,
in a table with row numbers, the number. What does not fit its page goes on in a chain of overflow pages. Wherever the
beginning of a record is found, in whatever is left of the file or its log, the record is put together and its digest
taken. A wrong guess never has the right digest, so nothing but good runs comes
out. The file format is described at https://sqlite.org/fileformat.html.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from numerate.results.encoding import decode_mapping
from numerate.results.errors import StoreError
from numerate.results.record import Altered, Entry, Record, decode, has_its_names, is_intact
from numerate.results.row import Key, Row
from numerate.results.runs import Added
from numerate.results.store import Store

PAGE_SIZES = (16384, 4096, 1024, 2048, 8192, 32768, 65536, 512)
"""The first is that of new files, the second that of former ones."""
RUN, PROVENANCE = 12, 7
"""Columns of a record."""
SHARED = (4, 5)
"""Columns of a record; format 1 had no digest."""
INDEX = 3
"""Columns of an entry of the index of runs: a key and the number of its row."""
BROKEN = 2
"""Columns of a run whose end is lost: its key."""

_BEGINNING = re.compile(rb"(?=[\x04-\x60]\x4d[\x01-\x06\x08\x09])")
"""The length of a header, a text of 32 bytes (the hash), a whole number (the seed)."""
_WAL_HEADER, _FRAME_HEADER = 32, 24

Value = str | int | float | bytes | None
Values = tuple[Value, ...]


@dataclass(frozen=True)
class Rescued:
    """What was brought out of a damaged file, and how many other runs it is known to have held.

    Their records are damaged, or only their provenance or their entry in an index is left; of others there may be no
    trace.
    """

    added: Added
    damaged: int

    def __str__(self) -> str:
        runs = "run" if self.damaged == 1 else "runs"
        return f"{self.added}" + (f"; at least {self.damaged:,} {runs} could not be recovered" if self.damaged else "")


def rescue(path: str | Path, store: Store) -> Rescued:
    """Add every good run of the damaged file ``path``, and of the log beside it, to ``store``; the file is only read.

    Raises StoreError if the file cannot be read, or is that of ``store``.
    """
    path = Path(path)
    try:
        if store.path.exists() and path.samefile(store.path):
            raise StoreError(f"{path} is the results file itself; rescue its runs into another folder")
        data, log = path.read_bytes(), _read_if_there(Path(f"{path}-wal"))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    found = max((_collect(pages) for pages in _views(data, log)), key=lambda finds: len(finds.runs))
    with store.transaction():
        added = store.add(found.rows())
        for entry in found.shared:
            if entry.key in found.runs:
                store.share(entry.experiment, {entry.key: decode_mapping(entry.labels)})
    return Rescued(added, found.lost)


def _read_if_there(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


class _Finds:
    """Records that were found, the good ones by key."""

    def __init__(self) -> None:
        self.runs: dict[Key, Record] = {}
        self.provenance: dict[Key, Values] = {}
        self.shared: list[Entry] = []
        self.damaged: set[Key] = set()
        self.indexed: set[Key] = set()

    def add(self, values: Values) -> None:
        if len(values) == RUN:
            record = Record(*values)  # type: ignore[arg-type]
            if _is_good(record):
                self.runs[record.key] = record
            else:
                self._note(self.damaged, record.config_hash, record.seed)
        elif len(values) == BROKEN:
            self._note(self.damaged, *values)
        elif len(values) == INDEX:
            self._note(self.indexed, *values[:BROKEN])
        elif len(values) == PROVENANCE and all(isinstance(value, str) for value in values[2:]):
            if _is_key(*values[:2]):
                self.provenance.setdefault(Key(*values[:2]), values[2:])  # type: ignore[arg-type]
        elif len(values) in SHARED and all(isinstance(value, str) for value in values[2:4]):
            entry = Entry(*values)  # type: ignore[arg-type]
            if _is_readable(entry):
                self.shared.append(entry)

    def _note(self, keys: set[Key], config: Value, seed: Value) -> None:
        if _is_key(config, seed):
            keys.add(Key(config, seed))  # type: ignore[arg-type]

    @property
    def lost(self) -> int:
        """Runs that are known to have been there, at least; one whose key is damaged counts once."""
        return max(len(self.damaged - self.runs.keys()), max(len(self.provenance), len(self.indexed)) - len(self.runs))

    def rows(self) -> Iterator[Row]:
        for key, record in sorted(self.runs.items()):
            try:
                yield decode(Record(*record[:RUN], *self.provenance.get(key, ())), record.entry)  # type: ignore[arg-type]
            except Altered:  # how it was done is lost, not what came out
                yield decode(record, record.entry)


def _is_key(config: Value, seed: Value) -> bool:
    return isinstance(config, str) and isinstance(seed, int) and bool(re.fullmatch("[0-9a-f]{32}", config))


def _is_good(record: Record) -> bool:
    try:
        return is_intact(record) and decode(record, record.entry) is not None
    except (ValueError, TypeError, AttributeError):
        return False


def _is_readable(entry: Entry) -> bool:
    try:
        return has_its_names(entry) and decode_mapping(entry.labels) is not None
    except ValueError:
        return False


# ------------------------------------------------------------ pages


class _Pages:
    """The pages of a file by number, from 1; those in its log come before those in the file."""

    def __init__(self, data: bytes, size: int, newer: Mapping[int, bytes]) -> None:
        self.data, self.size, self.newer = data, size, newer
        self.count = max(-(-len(data) // size), *newer, 0) if newer else -(-len(data) // size)

    def __getitem__(self, number: int) -> bytes:
        return self.newer.get(number) or self.data[(number - 1) * self.size : number * self.size]


def _views(data: bytes, log: bytes) -> Iterator[_Pages]:
    """Ways to read the file: with its log and without, by the page size it says, or by any if it says none."""
    stated = int.from_bytes(data[16:18], "big")
    stated = 65536 if stated == 1 else stated
    whole = data[:16] == b"SQLite format 3\0" and stated in PAGE_SIZES
    for size in (stated,) if whole else PAGE_SIZES:
        newer = _newest(log, size)
        yield _Pages(data, size, newer)
        if newer:
            yield _Pages(data, size, {})


def _newest(log: bytes, size: int) -> dict[int, bytes]:
    """The last state of each page in the log; frames left over from before have another salt."""
    pages: dict[int, bytes] = {}
    for start in range(_WAL_HEADER, len(log) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        number, _, salt = struct.unpack(">II8s", log[start : start + 16])
        if salt == log[16:24] and number:
            pages[number] = log[start + _FRAME_HEADER : start + _FRAME_HEADER + size]
    return pages


# ------------------------------------------------------------ records


def _collect(pages: _Pages) -> _Finds:
    finds = _Finds()
    for number in range(1, pages.count + 1):
        page = pages[number]
        for beginning in _BEGINNING.finditer(page):
            for values in _records(pages, page, beginning.start()):
                finds.add(values)
    return finds


def _records(pages: _Pages, page: bytes, header: int) -> Iterator[Values]:
    """What a record with its header at this place may hold; where it stands twice, one of the two is wrong."""
    length = page[header]
    types = _types(page[header + 1 : header + length])
    if types is None or len(types) not in (RUN, PROVENANCE, INDEX, *SHARED):
        return
    wanted = length + sum(map(_size, types))
    for most in _most_on_page(page, header, wanted, pages.size):
        payload = _payload(pages, page, header, wanted, most)
        if payload is not None:
            yield tuple(_values(payload[length:], types))
        elif len(types) == RUN:
            yield tuple(_values(page[header + length :], types[:BROKEN]))


def _most_on_page(page: bytes, header: int, wanted: int, usable: int) -> Iterator[int]:
    """How many bytes a record may have before it needs an overflow page, by what stands before its header.

    That is its length, in a tree of keys; its length and its number in a table with row numbers.
    """
    if _length_ends_at(page, header, wanted):
        yield (usable - 12) * 64 // 255 - 23
    for width in range(1, 9):
        number = page[max(0, header - width) : header]
        if len(number) == width and _varint(number)[1] == width and _length_ends_at(page, header - width, wanted):
            yield usable - 35
            return


def _length_ends_at(page: bytes, place: int, wanted: int) -> bool:
    """Whether the length of a record, in 1 to 5 bytes, ends before this place."""
    parts = ((width, page[max(0, place - width) : max(0, place)]) for width in range(1, 6))
    return any(len(part) == width and _varint(part) == (wanted, width) for width, part in parts)


def _payload(pages: _Pages, page: bytes, start: int, length: int, most: int) -> bytes | None:
    """All bytes of a record, those on overflow pages included; None if the chain breaks off."""
    usable = pages.size  # numerate reserves none at the end of a page
    least = (usable - 12) * 32 // 255 - 23
    local = length
    if length > most:
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
    parts, left = [page[start : start + local]], length - local
    following = page[start + local : start + local + 4] if left else b""
    while left:
        number = int.from_bytes(following, "big")
        if not 0 < number <= pages.count:
            return None
        overflow = pages[number]
        parts.append(overflow[4 : 4 + left])
        if len(parts[-1]) < min(left, usable - 4):
            return None
        left -= len(parts[-1])
        following = overflow[:4]
    payload = b"".join(parts)
    return payload if len(payload) == length else None


def _types(header: bytes) -> list[int] | None:
    """The column types of a record's header; None if it is none."""
    types, place = [], 0
    while place < len(header):
        kind, used = _varint(header[place : place + 9])
        if not used or kind in (10, 11):
            return None
        types.append(kind)
        place += used
    return types


def _varint(data: bytes) -> tuple[int, int]:
    """SQLite's whole number of variable length, and how many bytes it takes; 0 bytes if it does not end."""
    value = 0
    for used, byte in enumerate(data[:8], 1):
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, used
    return 0, 0


_FIXED = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}


def _size(kind: int) -> int:
    return _FIXED[kind] if kind in _FIXED else (kind - 12) // 2


def _values(data: bytes, types: list[int]) -> Iterator[Value]:
    place = 0
    for kind in types:
        part = data[place : place + _size(kind)]
        place += len(part)
        yield _value(kind, part)


def _value(kind: int, data: bytes) -> Value:
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind]
    if kind == 7:
        return struct.unpack(">d", data)[0]
    if kind < 7:
        return int.from_bytes(data, "big", signed=True)
    return data.decode(errors="replace") if kind % 2 else data
