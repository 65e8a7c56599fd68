"""What a task is, and the two pieces that all arithmetic tasks share: ranges and operations."""

import math
from collections.abc import Callable, Hashable, Sequence
from numbers import Real
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from numerate.streams import Domain, uniform

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
UNARY = ("sqrt", "square")
"""Those that are functions of the first number alone."""


class Task(Protocol):
    """A data distribution for every split, and the error below which a model counts as right.

    Beside the members below a task may have two more. ``error(prediction, target)``, (n, outputs) each -> (n,), is what
    evaluation reports in place of the mean squared error (training minimises the latter). ``held_out(split, size)`` is
    a tensor (n, draws) of its own numbers for the examples of validation or test, the same in every run, or None for
    the usual uniform ones; its width may differ from ``draws`` where examples of a split are longer.
    """

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


def held_out_numbers(task: Task, split: Split, size: int) -> Tensor:
    """The fixed numbers behind the validation or test examples of a task, the same in every run; (n, draws)."""
    own = getattr(task, "held_out", None)
    if own is not None and (numbers := own(split, size)) is not None:
        return numbers.float()
    seed, domain = (TEST_SEED, Domain.TEST) if split == "test" else (VALIDATION_SEED, Domain.VALIDATION)
    return uniform(torch.tensor(seed), domain, 0, size * task.draws).view(size, task.draws)


def intervals(span: Range) -> tuple[Interval, ...]:
    """The one or two intervals that ``span`` consists of."""
    parts = span if isinstance(span[0], Sequence) else (span,)
    return tuple((float(part[0]), float(part[1])) for part in parts)  # type: ignore[index]


def is_union(span: Range) -> bool:
    return len(intervals(span)) == 2


def check_range(name: str, span: Range) -> None:
    """One clear sentence unless ``span`` is [low, high) or two such of equal width."""
    if _is_interval(span):
        return
    if not (isinstance(span, Sequence) and len(span) == 2 and all(map(_is_interval, span))):
        raise ValueError(f"{name} must be (low, high) with finite low < high, or two such intervals, got {span!r}")
    if len({round(high - low, 9) for low, high in intervals(span)}) != 1:
        raise ValueError(f"the two intervals of {name} must be equally wide, got {span!r}")


def check_interval(name: str, span: Interval) -> None:
    """The same for a task that takes no unions."""
    if not _is_interval(span):
        raise ValueError(f"{name} must be (low, high) with finite low < high, got {span!r}")


def _is_interval(span: Any) -> bool:
    numbers = isinstance(span, Sequence) and len(span) == 2 and all(isinstance(end, Real) for end in span)
    return numbers and -math.inf < span[0] < span[1] < math.inf


def check_root(operation: str, **spans: Range) -> None:
    """One clear sentence if the operation is √ and one of ``spans`` has numbers below 0."""
    for name, span in spans.items():
        if operation == "sqrt" and min(low for low, _ in intervals(span)) < 0:
            raise ValueError(f"the {name} of sqrt must not go below 0, where roots are not numbers, got {span!r}")


def range_constants(span: Range) -> dict[str, Tensor]:
    """``low``, ``width`` and ``jump`` such that :func:`spread` of a uniform number is uniform on ``span``."""
    parts = intervals(span)
    width = sum(high - low for low, high in parts)
    jump = parts[-1][0] - parts[0][1] if len(parts) == 2 else 0.0
    return {k: torch.tensor(v) for k, v in (("low", parts[0][0]), ("width", width), ("jump", jump))}


def spread(uniforms: Tensor, constants: dict[str, Tensor], union: bool) -> Tensor:
    """Map [0, 1) onto the range; without a union the jump costs nothing."""
    x = constants["low"] + constants["width"] * uniforms
    return x + torch.where(uniforms >= 0.5, constants["jump"], 0.0) if union else x


def size_moments(span: Range) -> tuple[float, float, float]:
    """E |x|, E x**2 and E x**-2 of a uniform number on ``span``; the last is inf if zero is in it or at its end."""
    parts = intervals(span)
    sizes = [piece for part in parts for piece in _sizes(*part)]
    mean = sum(share * (a + b) / 2 for share, a, b in sizes) / len(parts)
    square = sum(share * (a * a + a * b + b * b) / 3 for share, a, b in sizes) / len(parts)
    inverse_square = sum(share / (a * b) if a > 0 else float("inf") for share, a, b in sizes) / len(parts)
    return mean, square, inverse_square


def _sizes(low: float, high: float) -> list[tuple[float, float, float]]:
    """Share, lowest and highest of |x| for x in [low, high), on either side of zero."""
    if low < 0 < high:
        return [(-low / (high - low), 0.0, -low), (high / (high - low), 0.0, high)]
    smaller, larger = sorted((abs(low), abs(high)))
    return [(1.0, smaller, larger)]
