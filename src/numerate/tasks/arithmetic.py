"""Sums of subsets of many inputs, combined by one operation (Madsen & Johansen 2020, section 4.1 and Table 1)."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from math import comb, floor
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from numerate.streams import Domain, first_words
from numerate.tasks.task import (
    OPERATIONS,
    UNARY,
    Range,
    Split,
    check_range,
    check_root,
    intervals,
    is_union,
    range_constants,
    spread,
)

Operations = Mapping[str, Callable[[Tensor, Tensor], Tensor]]
Polynomial = dict[tuple[int, ...], float]
"""Exponents of the group sums -> coefficient."""


def operate(sums: Sequence[Tensor], number: Tensor, operations: Operations = OPERATIONS) -> Tensor:
    """The operation of this number (its place in ``operations``, a scalar tensor), going on over all ``sums``.

    A function of one number is that of the first sum. All are computed, then one is chosen: they cost little beside
    the sums, and runs of all share one stack.
    """
    y, *others = (
        operation(sums[0], sums[0]) if name in UNARY else reduce(operation, sums)
        for name, operation in operations.items()
    )
    for place, other in enumerate(others, 1):
        y = torch.where(number == place, other, y)
    return y


@dataclass(frozen=True)
class Arithmetic:
    """y = a ∘ b, a and b sums over neighbouring, overlapping subsets of the inputs; their place is drawn once per run.

    A subset has ⌊subset_ratio · inputs⌋ elements, an overlap ⌊overlap_ratio · subset⌋. With more than two subsets the
    operation goes on over all of them; square and sqrt are those of the first. :func:`ten_parameter_function` gives
    the special case of Table 1. ``thresholds="used"`` counts every subset and overlap one element too long, as the
    published tables did.
    """

    operation: str
    train_range: Range = (1.0, 2.0)
    test_range: Range = (2.0, 6.0)
    inputs: int = 100
    subset_ratio: float = 0.25
    overlap_ratio: float = 0.5
    subsets: int = 2
    fixed: tuple[tuple[int, int], ...] | None = None
    """Subsets as (first, one past the last), in place of the ratios."""
    epsilon: float = 1e-5
    thresholds: Literal["used", "meant"] = "used"

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, got {self.operation!r}")
        if self.thresholds not in ("used", "meant"):
            raise ValueError(f"thresholds must be 'used' or 'meant', got {self.thresholds!r}")
        check_range("train_range", self.train_range)
        check_range("test_range", self.test_range)
        check_root(self.operation, train_range=self.train_range, test_range=self.test_range)
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must lie between 0 and 1, got {self.epsilon}")
        if not 0 <= self.overlap_ratio <= 1:
            raise ValueError(f"overlap_ratio must be at least 0 and at most 1, got {self.overlap_ratio}")
        if self.count < 1:
            raise ValueError("there must be at least one subset")
        if self.fixed is None and (self.subset < 1 or self.total > self.inputs):
            raise ValueError(
                f"{self.subsets} subsets of {self.subset} with overlap {self.overlap} take {self.total} inputs; "
                f"there are {self.inputs}"
            )
        if not all(0 <= first < last <= self.inputs for first, last in self.fixed or ()):
            raise ValueError(
                f"fixed subsets must be (first, one past the last) of {self.inputs} inputs, got {self.fixed!r}"
            )
        sizes = [self.subset] if self.fixed is None else [last - first for first, last in self.fixed[1:]]
        if self.operation == "div" and self.count > 1 and any(_may_vanish(self.test_range, size) for size in sizes):
            raise ValueError(
                "no sum of a subset of the test_range of div may be 0, where quotients are infinite, got "
                f"{self.test_range!r}"
            )

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return self.inputs

    @property
    def subset(self) -> int:
        return floor(self.subset_ratio * self.inputs)

    @property
    def overlap(self) -> int:
        return floor(self.overlap_ratio * self.subset)

    @property
    def total(self) -> int:
        """Inputs from the first element of the first subset to the last of the last."""
        return self.subset + (self.subsets - 1) * (self.subset - self.overlap)

    @property
    def union(self) -> bool:
        return is_union(self.train_range) or is_union(self.test_range)

    @property
    def form(self) -> Hashable:
        return type(self), self.inputs, self.count, self.union

    @property
    def count(self) -> int:
        return self.subsets if self.fixed is None else len(self.fixed)

    def spans(self, seed: int) -> tuple[tuple[int, int], ...]:
        """Each subset of this run as (first, one past the last)."""
        if self.fixed is not None:
            return self.fixed
        offset = first_words(seed, Domain.TASK)[0] % (self.inputs - self.total + 1)
        firsts = [offset + i * (self.subset - self.overlap) for i in range(self.subsets)]
        return tuple((first, first + self.subset) for first in firsts)

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        values = range_constants(self.test_range if split == "test" else self.train_range)
        if not self.union:
            del values["jump"]
        members = torch.zeros(self.inputs, self.count)
        for column, (first, last) in enumerate(self.spans(seed)):
            members[first:last, column] = 1
        return values | {"members": members, "operation": torch.tensor(float(list(OPERATIONS).index(self.operation)))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms, constants, self.union)
        sums = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"])

    def threshold(self) -> float:
        """Expected squared error on the test range when the first layer's weights are 1 - ε inside and ε outside."""
        spans = self.fixed
        if spans is None:
            longer = 1 if self.thresholds == "used" else 0
            size, overlap = self.subset + longer, self.overlap + longer
            spans = tuple((i * (size - overlap), i * (size - overlap) + size) for i in range(self.subsets))
        return _expected_error(self.operation, self.test_range, self.inputs, spans, self.epsilon)


def ten_parameter_function(operation: str = "mul", **settings: object) -> Arithmetic:
    """(x1 + x2 + x3 + x4) ∘ (x1 + x2): the motivating example of Madsen & Johansen (2020), Table 1."""
    return Arithmetic(operation, inputs=4, fixed=((0, 4), (0, 2)), **settings)  # type: ignore[arg-type]


def _may_vanish(span: Range, count: int) -> bool:
    """Whether a sum of ``count`` numbers may come so near to 0 that the mean square of its inverse is infinite.

    At the edge of where a sum lies its density has a zero of order ``count`` - 1, which is enough from three on.
    """
    (a, b), (c, d) = intervals(span)[0], intervals(span)[-1]
    ends = [(i * a + (count - i) * c, i * b + (count - i) * d) for i in range(count + 1)]
    return any(low < 0 < high or (count < 3 and 0 in (low, high)) for low, high in ends)


@cache
def _expected_error(
    operation: str, span: Range, inputs: int, spans: tuple[tuple[int, int], ...], epsilon: float
) -> float:
    """Closed form (moments of uniform sums) where the operation is a polynomial, else a fixed simulation."""
    patterns = [tuple(first <= i < last for first, last in spans) for i in range(inputs)]
    groups = sorted(set(patterns), reverse=True)
    sizes = [patterns.count(group) for group in groups]
    exact, rough = [], []
    for subset in range(len(spans)):
        inside = [float(group[subset]) for group in groups]
        exact.append(inside)
        rough.append([epsilon + (1 - 2 * epsilon) * one for one in inside])
    if operation in ("sqrt", "div"):
        return _simulated_error(operation, span, sizes, exact, rough)
    true, model = (_combine(operation, [_linear(row) for row in rows]) for rows in (exact, rough))
    difference = {k: model.get(k, 0.0) - true.get(k, 0.0) for k in {*model, *true}}
    highest = 2 * max(max(key) for key in difference)
    moments = [_sum_moments(size, span, highest) for size in sizes]
    return sum(
        c1 * c2 * float(np.prod([m[i + j] for m, i, j in zip(moments, k1, k2)]))
        for (k1, c1), (k2, c2) in product(difference.items(), repeat=2)
    )


def _linear(row: Sequence[float]) -> Polynomial:
    return {tuple(int(i == j) for j in range(len(row))): value for i, value in enumerate(row)}


def _combine(operation: str, sums: list[Polynomial]) -> Polynomial:
    def plus(p: Polynomial, q: Polynomial, sign: float = 1.0) -> Polynomial:
        return {k: p.get(k, 0.0) + sign * q.get(k, 0.0) for k in {*p, *q}}

    def times(p: Polynomial, q: Polynomial) -> Polynomial:
        out: Polynomial = {}
        for (k1, c1), (k2, c2) in product(p.items(), q.items()):
            key = tuple(i + j for i, j in zip(k1, k2))
            out[key] = out.get(key, 0.0) + c1 * c2
        return out

    if operation == "square":
        return times(sums[0], sums[0])
    return reduce({"add": plus, "sub": lambda p, q: plus(p, q, -1.0), "mul": times}[operation], sums)


def _sum_moments(count: int, span: Range, highest: int) -> list[float]:
    """E S**k for k = 0 .. highest, S the sum of ``count`` independent uniform numbers on ``span``."""
    parts = intervals(span)
    one = [
        sum((b ** (k + 1) - a ** (k + 1)) / ((k + 1) * (b - a)) for a, b in parts) / len(parts)
        for k in range(highest + 1)
    ]
    total = [1.0] + [0.0] * highest
    for _ in range(count):
        total = [sum(comb(k, j) * total[j] * one[k - j] for j in range(k + 1)) for k in range(highest + 1)]
    return total


def _simulated_error(
    operation: str, span: Range, sizes: list[int], exact: list[list[float]], rough: list[list[float]]
) -> float:
    """Mean squared difference over a million examples from a fixed generator."""
    generator, samples, total = np.random.default_rng(0), 1_000_000, 0.0
    for _ in range(10):
        sums = np.stack([_uniform_sum(generator, span, size, samples // 10) for size in sizes])
        true, model = np.array(exact) @ sums, np.array(rough) @ sums
        if operation == "sqrt":
            total += float(((np.sqrt(model[0]) - np.sqrt(true[0])) ** 2).sum())
        else:
            total += float(((reduce(np.divide, model) - reduce(np.divide, true)) ** 2).sum())
    return total / samples


def _uniform_sum(generator: np.random.Generator, span: Range, size: int, samples: int) -> np.ndarray:
    parts = intervals(span)
    low = np.array([part[0] for part in parts])[generator.integers(len(parts), size=(samples, size))]
    return (low + generator.random((samples, size)) * (parts[0][1] - parts[0][0])).sum(-1)
