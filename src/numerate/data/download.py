"""Fetching the files of a data set; only content with the right SHA-256 is kept."""

import hashlib
import io
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from gzip import decompress
from pathlib import Path
from urllib.parse import urlsplit

from numerate.data.files import DataError, DataFile, DataSet, folder, path, unpacked

LARGEST = 500_000_000
"""Bytes that a download may have."""
NOT_FOUND = 404
"""The status of an answer that says there is no such file."""
SCHEMES = ("https", "http", "file")


def get(
    dataset: DataSet,
    data: str | Path | None = None,
    mirror: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Fetch the files that are not there or damaged; their paths.

    Args:
        dataset: which one.
        data: the data folder, see :func:`numerate.data.folder`.
        mirror: address (https, http or file) of a folder that holds the files by their names, or by these and
            ``.gz``, in place of the published addresses.
        tell: called with a line for each file.
    """
    target = folder(data) / dataset.name
    archives: dict[str, bytes] = {}
    return [_present(dataset, file, data, tell) or _get(file, target, mirror, archives, tell) for file in dataset.files]


def _present(dataset: DataSet, file: DataFile, data: str | Path | None, tell: Callable[[str], None]) -> Path | None:
    place = path(dataset, file, data)
    content = None if place is None else unpacked(place, file.size)
    if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
        return None
    tell(f"{place}: is there")
    return place


def _get(
    file: DataFile, target: Path, mirror: str | None, archives: dict[str, bytes], tell: Callable[[str], None]
) -> Path:
    if mirror is not None:
        url, sent = _from_mirror(file, mirror.rstrip("/"))
        content = _content(file, sent, url, "")
    else:
        url = file.url
        if url not in archives:
            archives[url] = fetch(url)
        content = _content(file, archives[url], url, file.member)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(f"what {url} sent is not {file.name} as published: its SHA-256 differs; nothing was kept")
    place = _write(target / file.name, content)
    tell(f"{place}: {len(content) / 1e6:.1f} MB from {url}")
    return place


def _from_mirror(file: DataFile, mirror: str) -> tuple[str, bytes]:
    """Address and bytes of the file, plain or gzipped."""
    names = file.name, f"{file.name}.gz"
    for name in names:
        try:
            return f"{mirror}/{name}", fetch(f"{mirror}/{name}")
        except NotThere:
            continue
    raise NotThere(f"cannot fetch {mirror}/{file.name}: there is neither {names[0]} nor {names[1]}")


def _content(file: DataFile, sent: bytes, url: str, member: str) -> bytes:
    """The file's unpacked content."""
    try:
        if member and url.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(sent)) as archive, archive.open(member) as stream:
                return stream.read(file.size + 1)
        if member:
            with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
                stream = archive.extractfile(member)
                return b"" if stream is None else stream.read(file.size + 1)
        return decompress(sent) if sent[:2] == b"\x1f\x8b" else sent
    except (OSError, EOFError, KeyError, zlib.error, zipfile.BadZipFile, tarfile.TarError):
        raise DataError(f"what {url} sent cannot be unpacked; nothing was kept") from None


class NotThere(DataError):
    """There is no such file at an address."""


def fetch(url: str) -> bytes:
    """What an address sends. Raises DataError if it cannot be reached, or sends too much; NotThere if it is no file."""
    if urlsplit(url).scheme not in SCHEMES:
        *most, last = (f"{scheme}:" for scheme in SCHEMES)
        raise DataError(f"an address starts with {', '.join(most)} or {last}, got {url!r}")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            sent = answer.read(LARGEST + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        missing = isinstance(reason, FileNotFoundError) or getattr(error, "code", None) == NOT_FOUND
        raise (NotThere if missing else DataError)(
            f"cannot fetch {url}: {getattr(reason, 'strerror', None) or reason}"
        ) from None
    if len(sent) > LARGEST:
        raise DataError(f"{url} sends more than {LARGEST / 1e6:.0f} MB; nothing was kept")
    return sent


def _write(place: Path, content: bytes) -> Path:
    """A file that appears whole."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f"{place.name}.", delete=False) as fresh:
            fresh.write(content)
        os.replace(fresh.name, place)
    except OSError as error:
        raise DataError(f"cannot write {place}: {error.strerror or error}") from None
    return place
