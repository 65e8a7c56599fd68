"""The data folder and its files, each known by the SHA-256 of its unpacked content."""

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VARIABLE = "NUMERATE_DATA"


class DataError(ValueError):
    """A file of a data set is missing, damaged or cannot be read; the sentence says what to do."""


class Missing(DataError):
    """A file is not there."""


class Unreadable(DataError):
    """A file, or a folder on the way to it, is there and cannot be read: nothing is known of its content."""


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Args:
        name: in the folder of the data set, without ``.gz``.
        size: bytes, unpacked.
        sha256: of the unpacked content: how a file was packed does not matter.
        url: where it is published, by itself or in an archive.
        member: its path in the archive at ``url`` (tar or zip); empty if ``url`` is the file itself.
    """

    name: str
    size: int
    sha256: str
    url: str = ""
    member: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set that lies in a folder of its own name.

    Args:
        name: on the command line, and of its folder.
        title: for people.
        files: all that belong to it.
        terms: licence or terms of use.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    terms: str

    def file(self, name: str) -> DataFile:
        return next(file for file in self.files if file.name == name)


def folder(data: str | Path | None = None) -> Path:
    """The data folder: ``data``, else ``$NUMERATE_DATA``, else ``numerate/data`` in the user's cache folder."""
    if data is not None:
        return Path(data)
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither HOME nor an entry in the list of users
        raise DataError(f"there is no home folder for data: let {VARIABLE} name a folder") from None
    return cache / "numerate" / "data"


def path(dataset: DataSet, file: DataFile, data: str | Path | None = None) -> Path | None:
    """The file, as it is or with ``.gz``; None if it is not there."""
    parts = folder(data) / dataset.name, folder(data)  # a folder that holds one data set alone will do
    places = [part / (file.name + ending) for part in parts for ending in ("", ".gz")]
    return next((place for place in places if _is_file(place)), None)


def _is_file(place: Path) -> bool:
    """Raises Unreadable where that cannot be told."""
    try:
        return stat.S_ISREG(place.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(place, error) from None


def read(dataset: DataSet, name: str, data: str | Path | None = None) -> bytes:
    """The unpacked content of a file. Raises DataError if it is missing, unreadable, or not the published one."""
    file = dataset.file(name)
    place = path(dataset, file, data)
    if place is None:
        raise Missing(
            f"{dataset.title} is missing: there is no {dataset.name}/{name} in {folder(data)}; "
            f"run 'numerate data get {dataset.name}', or let {VARIABLE} name the folder that holds it"
        )
    content = unpacked(place, file.size)
    if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(
            f"{place} is damaged: its content is not that of {dataset.title} (SHA-256 differs); "
            f"remove it and run 'numerate data get {dataset.name}'"
        )
    return content


def check(dataset: DataSet, data: str | Path | None = None) -> None:
    """Read all of its files. Raises DataError if one is missing, damaged or cannot be read."""
    for file in dataset.files:
        read(dataset, file.name, data)


def unpacked(place: Path, size: int) -> bytes | None:
    """The content of a file, unpacked if its name says so; None if it has not ``size`` bytes.

    Raises Unreadable if the system does not give its content.
    """
    try:
        if place.suffix != ".gz":
            return place.read_bytes() if place.stat().st_size == size else None
        with gzip.open(place) as stream:
            content = stream.read(size + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return None
    except OSError as error:
        raise _unreadable(place, error) from None
    return content if len(content) == size else None


def _unreadable(place: Path, error: OSError) -> Unreadable:
    return Unreadable(f"{place} cannot be read: {error.strerror or error}")


def faults(dataset: DataSet, data: str | Path | None = None) -> list[DataError]:
    """What is wrong with its files, one entry for each that is not as published; all of them are read."""
    found = []
    for file in dataset.files:
        try:
            read(dataset, file.name, data)
        except DataError as error:
            found.append(error)
    return found


State = Literal["complete", "incomplete", "missing", "damaged", "unreadable"]


def status(dataset: DataSet, data: str | Path | None = None) -> State:
    """Whether its files are there and as published; all of them are read."""
    return state(dataset, faults(dataset, data))


def state(dataset: DataSet, found: Sequence[DataError]) -> State:
    """:func:`status`, by what :func:`faults` found."""
    if any(isinstance(fault, Unreadable) for fault in found):
        return "unreadable"
    if not all(isinstance(fault, Missing) for fault in found):
        return "damaged"
    if not found:
        return "complete"
    return "missing" if len(found) == len(dataset.files) else "incomplete"
