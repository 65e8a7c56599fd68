"""Checks of arguments. Each returns the value, or raises ``ValueError`` saying what was wrong and what is allowed."""

from collections.abc import Sequence
from numbers import Integral, Real


def positive(name: str, value: int) -> int:
    """Return ``value`` as an int; raises ValueError unless it is a positive whole number (NumPy's included)."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return int(value)


def flag(name: str, value: bool) -> bool:
    """Return ``value``; raises ValueError unless it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def number(name: str, value: float, low: float, *, above: bool = False, other: str = "") -> float:
    """Return ``value``; raises ValueError unless it is a number of at least ``low`` (with ``above``: above it)."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and (value > low if above else value >= low)
    if not fits:
        raise ValueError(f"{name} must be a number {'above' if above else 'of at least'} {low:g}{other}, got {value!r}")
    return value


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """Return ``value``; raises ValueError unless it is one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value
