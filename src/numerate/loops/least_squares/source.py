"""The C++ of this folder: vectors of float64, elementary functions, and what is built on them."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def source(*names: str) -> str:
    """The double-precision prelude and the functions that all loops here use, followed by the named files."""
    prelude = (_FOLDER.parent / "timeloops" / "prelude64.hpp").read_text()
    return "\n".join([prelude, piece("lanes64.hpp"), *map(piece, names)])


def piece(name: str) -> str:
    """One file alone."""
    return (_FOLDER / name).read_text()
