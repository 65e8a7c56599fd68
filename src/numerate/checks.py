"""Checks of arguments: each gives the value back, or raises ``ValueError`` with one clear sentence."""

from collections.abc import Sequence
from numbers import Integral, Real


def positive(name: str, value: int) -> int:
    """``value`` if it is a positive whole number (also one of NumPy's), else one clear sentence."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return int(value)


def flag(name: str, value: bool) -> bool:
    """``value`` if it is True or False, else one clear sentence."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def number(name: str, value: float, low: float, *, above: bool = False, other: str = "") -> float:
    """``value`` if it is a number not below ``low`` (with ``above``: above it), else one clear sentence."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and (value > low if above else value >= low)
    if not fits:
        raise ValueError(f"{name} must be a number {'above' if above else 'of at least'} {low:g}{other}, got {value!r}")
    return value


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """``value`` if it is one of ``allowed``, else one clear sentence."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value
