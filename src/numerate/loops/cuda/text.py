"""Places, numbers and folds as CUDA C++."""

import math
from collections.abc import Iterable, Sequence

import torch

from numerate.loops.form.ir import Operand, View

FOLDS: dict[str, tuple[str, float | bool]] = {
    "sum": ("add", 0.0), "prod": ("multiply", 1.0), "max": ("maximum", -math.inf), "min": ("minimum", math.inf),
    "and": ("both", True), "or": ("either", False),
}  # fmt: skip
"""Function of the prelude that joins two parts, and where to start."""


def place_of(operand: Operand, index: Sequence[int]) -> int:
    """Where in its buffer an element of a view is; 0 for a number."""
    return operand.offset + sum(i * s for i, s in zip(index, operand.strides)) if isinstance(operand, View) else 0


def sum_text(terms: Iterable[tuple[str | int, int]], offset: int) -> str:
    """offset + Σ index * stride as text; what is known is added up."""
    texts = []
    for index, stride in terms:
        if isinstance(index, int):
            offset += index * stride
        elif stride:
            texts.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join([*texts, str(offset)] if offset or not texts else texts).replace("+ -", "- ")


def literal(value: float | bool) -> str:
    """A number as CUDA C++."""
    if isinstance(value, bool):
        return str(value).lower()
    if math.isnan(value):
        return "__int_as_float(0x7fffffff)"
    if math.isinf(value):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    text = f"{torch.tensor(value, dtype=torch.float32).item():.9g}"
    text = f"{text if any(c in text for c in '.e') else text + '.0'}f"
    return f"({text})" if text.startswith("-") else text


def folded(function: str, terms: list[list[str]], start: str | None = None) -> str:
    """Terms put together from left to right; products are fused with the sum."""
    join, _ = FOLDS[function]
    result = start
    for term in terms:
        value = " * ".join(term)
        if result is None:
            result = value
        elif function == "sum" and len(term) == 2:
            result = f"fmaf({term[0]}, {term[1]}, {result})"
        elif function in ("sum", "prod"):
            result = f"{result} {'+' if function == 'sum' else '*'} {value}"
        else:
            result = f"{join}({result}, {value})"
    assert result is not None
    return result
