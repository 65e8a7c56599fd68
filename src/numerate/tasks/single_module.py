"""The Primer's single module task: one operation on two inputs, trained on one range and tested on another."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.streams import Domain, first_words
from numerate.tasks.arithmetic import operate
from numerate.tasks.task import OPERATIONS, Range, Split, check_range, range_constants, size_moments, spread

PRIMER_RANGES: dict[tuple[float, float], Range] = {
    (-20.0, -10.0): (-40.0, -20.0),
    (-2.0, -1.0): (-6.0, -2.0),
    (-1.2, -1.1): (-6.1, -1.2),
    (-0.2, -0.1): (-2.0, -0.2),
    (-2.0, 2.0): ((-6.0, -2.0), (2.0, 6.0)),
    (0.1, 0.2): (0.2, 2.0),
    (1.0, 2.0): (2.0, 6.0),
    (1.1, 1.2): (1.2, 6.0),
    (10.0, 20.0): (20.0, 40.0),
}
"""Training range -> extrapolation range (Mistry et al. 2022, Table 3)."""
FOUR = {name: OPERATIONS[name] for name in ("add", "sub", "mul", "div")}


@dataclass(frozen=True)
class SingleModule:
    """y = x_k ∘ x_{k+1}; with more than two inputs the others are redundant and k is drawn once per run.

    Success: the test error is below that of the exact solution with every weight off by ``epsilon``.
    """

    operation: str
    train_range: Range = (1.0, 2.0)
    test_range: Range = (2.0, 6.0)
    inputs: int = 2
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.operation not in FOUR:
            raise ValueError(f"operation must be one of {', '.join(FOUR)}, got {self.operation!r}")
        if self.inputs < 2:
            raise ValueError(f"inputs must be at least 2, got {self.inputs}")
        check_range("train_range", self.train_range)
        check_range("test_range", self.test_range)
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must lie between 0 and 1, got {self.epsilon}")
        if self.operation == "div" and math.isinf(size_moments(self.test_range)[2]):
            raise ValueError(
                f"the test_range of div must not hold 0, where quotients are infinite, got {self.test_range!r}"
            )

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return self.inputs

    @property
    def form(self) -> Hashable:
        return type(self), self.inputs

    def offset(self, seed: int) -> int:
        """Which input comes first in this run."""
        return first_words(seed, Domain.TASK)[0] % (self.inputs - 1)

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        values = range_constants(self.test_range if split == "test" else self.train_range)
        values["operation"] = torch.tensor(float(list(FOUR).index(self.operation)))
        if self.inputs > 2:
            chosen = torch.eye(self.inputs)[self.offset(seed) :]
            values |= {"first": chosen[0].clone(), "second": chosen[1].clone()}
        return values

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms, constants, union=True)  # so that all ranges share one stack
        if self.inputs == 2:
            a, b = x[..., :1], x[..., 1:]
        else:
            a, b = x @ constants["first"].unsqueeze(-1), x @ constants["second"].unsqueeze(-1)
        return x, operate((a, b), constants["operation"], FOUR)

    def threshold(self) -> float:
        """Expected squared error on the test range when weights 1 are 1 - ε and weights 0 are ε; closed form."""
        mean, square, inverse_square = size_moments(self.test_range)
        n, ε = self.inputs, self.epsilon
        if self.operation in ("add", "sub"):
            return ε**2 * ((n * mean) ** 2 + n * (square - mean**2))
        kept = (1 - ε * mean) ** (n - 2), (1 - 2 * ε * mean + ε**2 * square) ** (n - 2)  # moments of Π (1 - ε|x_i|)
        ratio = (1 - ε) ** 2 if self.operation == "mul" else (1 - ε) / (1 + ε)
        scale = square * (square if self.operation == "mul" else inverse_square)
        if n == 2:
            return (1 - ratio) ** 2 * scale
        return (1 - 2 * ratio * kept[0] + ratio**2 * kept[1]) * scale
