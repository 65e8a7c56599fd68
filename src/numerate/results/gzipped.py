"""Results files as gzip: a run without weights takes about 2 kB."""

import gzip
import shutil
import zlib
from pathlib import Path

from numerate.results.errors import StoreError

MAGIC = b"\x1f\x8b"


def is_gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def compress(path: Path, target: Path) -> None:
    """Equal files give equal bytes: no name and no time are in them."""
    with (
        path.open("rb") as file,
        target.open("wb") as out,
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed,
    ):
        shutil.copyfileobj(file, packed)


def expand(path: Path, target: Path) -> None:
    """Raises StoreError, and leaves no file, if it is damaged."""
    try:
        with gzip.open(path) as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        target.unlink(missing_ok=True)
        raise StoreError(f"{path} is damaged: {error}") from None
