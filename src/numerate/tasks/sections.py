"""Sums over two sections of the input, of one vector or along time, then a function of both (Trask et al. 2018, B)."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from numerate.streams import Domain, uniform, words
from numerate.tasks.arithmetic import Operations, operate
from numerate.tasks.task import (
    OPERATIONS,
    TEST_SEED,
    Interval,
    Split,
    check_interval,
    check_root,
    range_constants,
    spread,
)

FUNCTIONS: Operations = {**OPERATIONS, "a": lambda a, b: a}
"""The six operations, and the first sum itself."""


def sections(seed: int, inputs: int, size: int) -> tuple[int, int]:
    """Where the sections of a and b begin: anywhere, either first, but apart from each other; drawn once per run."""
    free = inputs - 2 * size + 1
    u, v, turned = words(torch.tensor(seed), Domain.TASK, 0, 3).tolist()
    left, right = sorted((u % free, v % free))
    return (right + size, left) if turned % 2 else (left, right + size)


@dataclass(frozen=True)
class StaticArithmetic:
    """y = f(a, b); a and b are sums over two sections of x = s·u, u uniform on [0, 1) and s one number per example.

    The scale s lies in ``train_scale`` for training and validation (interpolation) and in ``test_scale`` for the test
    (extrapolation). The paper says where the sums lie, not how x is drawn: one scale per example makes the sums
    broad, without which a linear model would err far less on products than published. Success: a test error below 1 %
    of the mean square of y.
    """

    operation: str
    inputs: int = 100
    section: int = 10
    train_scale: Interval = (0.1, 1.0)
    test_scale: Interval = (1.0, 2.0)

    def __post_init__(self) -> None:
        _check(self.operation, self.inputs, self.section)
        check_interval("train_scale", self.train_scale)
        check_interval("test_scale", self.test_scale)
        check_root(self.operation, train_scale=self.train_scale, test_scale=self.test_scale)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1 + self.inputs

    @property
    def form(self) -> Hashable:
        return type(self), self.inputs

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        scale = self.test_scale if split == "test" else self.train_scale
        return _constants(seed, self.operation, self.inputs, self.section, scale)

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms[:, :1], constants, union=False) * uniforms[:, 1:]
        sums = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"], FUNCTIONS)

    def threshold(self) -> float:
        return mean_square(self) / 100


@dataclass(frozen=True)
class RecurrentArithmetic:
    """Static arithmetic along time: x_t = s·u_t in R^inputs, a and b summed over a section and over all steps.

    Sequences have ``length`` steps in training and validation (interpolation), ``test_length`` in the test; x is flat,
    (n, steps · inputs), one step after the other.
    """

    operation: str
    inputs: int = 10
    section: int = 2
    length: int = 10
    test_length: int = 1000
    scale: Interval = (0.1, 1.0)

    def __post_init__(self) -> None:
        _check(self.operation, self.inputs, self.section)
        check_interval("scale", self.scale)
        check_root(self.operation, scale=self.scale)
        if self.length < 1 or self.test_length < 1:
            raise ValueError(f"lengths must be at least 1, got {self.length} and {self.test_length}")

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1 + self.length * self.inputs

    @property
    def form(self) -> Hashable:
        return type(self), self.inputs, self.length, self.test_length

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return _constants(seed, self.operation, self.inputs, self.section, self.scale)

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms[:, :1], constants, union=False) * uniforms[:, 1:]
        sums = (x.unflatten(-1, (-1, self.inputs)).sum(-2) @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"], FUNCTIONS)

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: numbers for the longer sequences."""
        if split != "test":
            return None
        draws = 1 + self.test_length * self.inputs
        return uniform(torch.tensor(TEST_SEED), Domain.TEST, 0, size * draws).view(size, draws)

    def threshold(self) -> float:
        return mean_square(self) / 100


def _check(operation: str, inputs: int, section: int) -> None:
    if operation not in FUNCTIONS:
        raise ValueError(f"operation must be one of {', '.join(FUNCTIONS)}, got {operation!r}")
    if section < 1 or 2 * section > inputs:
        raise ValueError(f"two sections of {section} do not fit into {inputs} inputs")


def _constants(seed: int, operation: str, inputs: int, section: int, scale: Interval) -> dict[str, Tensor]:
    members = torch.zeros(inputs, 2)
    for column, first in enumerate(sections(seed, inputs, section)):
        members[first : first + section, column] = 1
    span = range_constants(scale)
    number = torch.tensor(float(list(FUNCTIONS).index(operation)))
    return {"low": span["low"], "width": span["width"], "members": members, "operation": number}


@cache
def mean_square(task: StaticArithmetic | RecurrentArithmetic, split: Split = "test") -> float:
    """The mean of y² over a thousand examples: the squared error of the answer 0, whatever the run."""
    uniforms = task.held_out(split, 1000) if isinstance(task, RecurrentArithmetic) else None
    if uniforms is None:
        uniforms = uniform(torch.tensor(TEST_SEED), Domain.TEST, 0, 1000 * task.draws).view(1000, task.draws)
    return float((task.examples(uniforms, task.constants(0, split))[1].double() ** 2).mean())
