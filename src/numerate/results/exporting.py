"""Rows as a file for another machine, compressed if its name says so."""

from pathlib import Path
from tempfile import TemporaryDirectory

from numerate.results.errors import StoreError
from numerate.results.gzipped import compress
from numerate.results.runs import Added
from numerate.results.store import Store


def check_new(path: Path, *, whole: bool = False) -> None:
    """Raise StoreError if the file is there and can only be written anew: a compressed one, or a ``whole`` one."""
    if (whole or path.suffix == ".gz") and path.exists():
        raise StoreError(f"{path} exists; shards and compressed files are made from a new file")


def export(
    store: Store, path: Path, experiment: str | None = None, *, unfinished: bool = False, weights: bool = True
) -> Added:
    """As :meth:`numerate.results.Store.export`; a name that ends with ``.gz`` gives a new compressed file."""
    check_new(path)
    if path.suffix != ".gz":
        return store.export(path, experiment, unfinished=unfinished, weights=weights)
    with TemporaryDirectory() as folder:
        whole = Path(folder) / path.stem
        added = store.export(whole, experiment, unfinished=unfinished, weights=weights)
        path.parent.mkdir(parents=True, exist_ok=True)
        compress(whole, path)
    return added
