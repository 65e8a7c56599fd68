"""What a task is, and the two pieces that all arithmetic tasks share: ranges and operations."""

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

Split = Literal["train", "validation", "test"]
Interval = tuple[float, float]
Range = Interval | tuple[Interval, Interval]
"""[low, high), or a union of two intervals of equal width, each taken with probability one half."""

VALIDATION_SEED = 43953907
TEST_SEED = 8689336
"""Every run sees the same validation and test inputs; the numbers are those of the published code."""

OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "sqrt": lambda a, b: torch.sqrt(a),
    "square": lambda a, b: a * a,
}


class Task(Protocol):
    """A data distribution for every split, and the error below which a model counts as right."""

    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def draws(self) -> int:
        """Uniform numbers that one example needs."""
        ...

    @property
    def form(self) -> Hashable:
        """Tasks of equal form share one ``examples`` function and differ in their constants alone."""
        ...

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        """What ``examples`` needs to know of this task, split and run."""
        ...

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Pure and traceable: uniforms (n, draws) in [0, 1) -> x (n, inputs), y (n, outputs)."""
        ...

    def threshold(self) -> float:
        """Test error below which a run counts as a success."""
        ...


def is_union(span: Range) -> bool:
    return isinstance(span[0], Sequence)


def check_range(name: str, span: Range) -> None:
    """One clear sentence unless ``span`` is [low, high) or two such of equal width."""
    parts = span if is_union(span) else (span,)
    if not all(len(part) == 2 and part[0] < part[1] for part in parts):
        raise ValueError(f"{name} must be (low, high) with low < high, or two such intervals, got {span!r}")
    if len({round(high - low, 9) for low, high in parts}) != 1:
        raise ValueError(f"the two intervals of {name} must be equally wide, got {span!r}")


def range_constants(span: Range) -> dict[str, Tensor]:
    """``low``, ``width`` and ``jump`` such that :func:`spread` of a uniform number is uniform on ``span``."""
    if is_union(span):
        (a, b), (c, d) = span  # type: ignore[misc]
        values = {"low": a, "width": (b - a) + (d - c), "jump": c - b}
    else:
        a, b = span
        values = {"low": a, "width": b - a, "jump": 0.0}  # type: ignore[operator]
    return {k: torch.tensor(v, dtype=torch.float32) for k, v in values.items()}


def spread(uniforms: Tensor, constants: dict[str, Tensor], union: bool) -> Tensor:
    """Map [0, 1) onto the range; without a union the jump costs nothing."""
    x = constants["low"] + constants["width"] * uniforms
    return x + constants["jump"] * (uniforms >= 0.5) if union else x


def range_moments(span: Range) -> tuple[float, float, float]:
    """E x, E x**2 and E x**-2 of a uniform number on ``span``; the last is inf if the range touches zero."""
    parts = list(span) if is_union(span) else [span]
    mean = sum((a + b) / 2 for a, b in parts) / len(parts)  # type: ignore[misc]
    square = sum((a * a + a * b + b * b) / 3 for a, b in parts) / len(parts)  # type: ignore[misc]
    inverse = sum(1 / (a * b) if a * b > 0 else float("inf") for a, b in parts) / len(parts)  # type: ignore[misc]
    return mean, square, inverse
