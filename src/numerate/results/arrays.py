"""Named arrays as one block of bytes, without pickle.

The layout is that of safetensors (length of the header, a JSON header of names, types and shapes, raw little-endian
numbers), so ``safetensors.numpy.load`` reads a stored block too. Nothing but numpy is needed here.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

CODES = {
    "b": "BOOL",
    "i1": "I8",
    "u1": "U8",
    "i2": "I16",
    "u2": "U16",
    "i4": "I32",
    "u4": "U32",
    "i8": "I64",
    "u8": "U64",
}
CODES |= {"f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64"}
TYPES = {code: np.dtype("?" if kind == "b" else f"<{kind}") for kind, code in CODES.items()}
"""safetensors' name of a type -> numpy's, always little-endian."""


def pack(arrays: Mapping[str, Any]) -> bytes:
    """One block of bytes; the same names and values always give the same bytes, whatever their order."""
    header: dict[str, Any] = {}
    blocks: list[bytes] = []
    start = 0
    for name in sorted(arrays):
        value = canonical_array(name, arrays[name])
        block = value.tobytes()
        header[name] = {
            "dtype": _code(value.dtype),
            "shape": list(value.shape),
            "data_offsets": [start, start + len(block)],
        }
        blocks.append(block)
        start += len(block)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of eight
    return b"".join([len(text).to_bytes(8, "little"), text, *blocks])


def unpack(data: bytes) -> dict[str, Array]:
    """The arrays of :func:`pack`, each its own writable copy. Raises ValueError for any other bytes."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise ValueError(f"a stored block of {len(data)} bytes is not a block of named arrays")
    numbers = memoryview(data)[start:]
    try:
        return {name: _array(numbers, **entry) for name, entry in json.loads(data[8:start]).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"a stored block of {len(data)} bytes is not a block of named arrays: {error}") from None


def _array(numbers: memoryview, dtype: str, shape: list[int], data_offsets: tuple[int, int]) -> Array:
    low, high = data_offsets
    if not 0 <= low <= high <= len(numbers):
        raise ValueError(f"an array from byte {low} to {high} of {len(numbers)}")
    if any(size < 0 for size in shape):
        raise ValueError(f"an array of shape {shape}")
    return np.frombuffer(numbers[low:high], TYPES[dtype]).reshape(shape).copy()


def canonical_array(name: str, value: Any) -> Array:
    """Contiguous, little-endian, every NaN the same NaN; anything that is not numbers is refused."""
    array = np.asarray(value)
    if _code(array.dtype) == "":
        raise TypeError(f"{name} must hold numbers of a plain type, got {array.dtype}")
    array = np.array(array, TYPES[_code(array.dtype)], order="C")  # a copy; np.ascontiguousarray would lose shape ()
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return array


def _code(dtype: np.dtype[Any]) -> str:
    return CODES.get("b" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}", "")
