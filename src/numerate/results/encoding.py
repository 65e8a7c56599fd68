"""Values as text in one spelling, and digests of what is stored."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from numerate.results.arrays import Array, unpack

DEEPEST = 64
"""Levels of lists and mappings that stored text may have."""


def canonical(value: object) -> str:
    """JSON in one spelling: sorted names, no spaces, whole numbers without a point, tuples as lists; no NaN."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def config_hash(config: Mapping[str, Any]) -> str:
    """32 hexadecimal digits that stand for a configuration; ``1`` and ``1.0``, tuple and list count as the same."""
    return hash_text(canonical(config))


def hash_text(text: str) -> str:
    """The hash of a configuration that is spelt already."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, bool):  # the most frequent first: a table has thousands of rows
        return value
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if kind in (list, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError(f"names in a configuration must be strings, got {list(value)!r}")
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a configuration holds text, numbers, lists and mappings, got {value!r} ({type(value).__name__})")


def digest_of(stored: Iterable[object]) -> str:
    """64 hexadecimal digits that stand for values as they are stored; equal digests mean equal values."""
    parts = [part if isinstance(part, bytes) else repr(part).encode() for part in stored]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


def encode_scores(scores: Mapping[str, float]) -> str:
    """JSON text; what JSON cannot say is written as the strings "nan", "inf", "-inf"."""
    numbers = {name: float(value) for name, value in scores.items()}
    return canonical({name: value if math.isfinite(value) else str(value) for name, value in numbers.items()})


def decode_scores(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in decode_mapping(text).items()}


def decode_mapping(text: str | bytes) -> dict[str, Any]:
    """The mapping that JSON text stands for. Raises ValueError for anything else, and for text nested too deeply."""
    text = text if isinstance(text, str) else text.decode()
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it should map names to values, and is {value!r:.200}")
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level := [part for whole in level for part in _parts(whole)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _parts(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def decode_weights(data: bytes) -> dict[str, dict[str, Array]]:
    """Moment -> name -> array."""
    weights: dict[str, dict[str, Array]] = {}
    for path, value in unpack(data).items():
        moment, _, name = path.partition("/")
        weights.setdefault(moment, {})[name] = value
    return weights
