"""Whether files can be written to a folder, found out before work is done for them."""

from pathlib import Path
from tempfile import TemporaryFile


def refusal(folder: Path) -> str:
    """Why the system lets nothing be written to a folder, or the folder not be made; empty if it does."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return error.strerror or str(error)
