"""Two operations one after the other on four numbers: what a hidden and an output layer of one unit must share."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from numerate.streams import Domain, uniform
from numerate.tasks.task import Range, Split, check_range, range_constants, spread

Hidden = Callable[[Tensor, Tensor], Tensor]

COMPOSED: Mapping[str, tuple[str, str]] = {
    "(a+b)*(c+d)": ("sum", "mul"),
    "(a-b)*(c-d)": ("difference", "mul"),
    "(a+b)/(c+d)": ("sum", "div"),
    "(a-b)/(c-d)": ("difference", "div"),
    "a*b+c*d": ("product", "add"),
    "a*b-c*d": ("product", "sub"),
}
"""Formula -> its hidden operation and the one on top."""
HIDDEN: Mapping[str, Hidden] = {
    "sum": torch.add,
    "difference": torch.sub,
    "product": torch.mul,
}
TOP: Mapping[str, Hidden] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
SAMPLES = 100_000


@dataclass(frozen=True)
class Composed:
    """y = f(g(a, b), g(c, d)) of four inputs, for the formulas of ``COMPOSED``.

    Success: the test error is below that of the exact solution with each hidden value off by a share of ``epsilon``.
    """

    formula: str
    train_range: Range = (1.0, 2.0)
    test_range: Range = (2.0, 6.0)
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.formula not in COMPOSED:
            raise ValueError(f"formula must be one of {', '.join(COMPOSED)}, got {self.formula!r}")
        check_range("train_range", self.train_range)
        check_range("test_range", self.test_range)
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must lie between 0 and 1, got {self.epsilon}")

    inputs = 4
    outputs = 1
    draws = 4

    @property
    def form(self) -> Hashable:
        return type(self)

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        values = range_constants(self.test_range if split == "test" else self.train_range)
        hidden, top = COMPOSED[self.formula]
        values["hidden"] = torch.tensor(float(list(HIDDEN).index(hidden)))
        values["top"] = torch.tensor(float(list(TOP).index(top)))
        return values

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms, constants, union=True)
        a, b, c, d = x.split(1, dim=-1)
        first, second = _chosen(HIDDEN, a, b, constants["hidden"]), _chosen(HIDDEN, c, d, constants["hidden"])
        return x, _chosen(TOP, first, second, constants["top"])

    def threshold(self) -> float:
        """Mean squared error with one hidden value too large and the other too small by ``epsilon``; simulated."""
        return _expected_error(self)


def _chosen(functions: Mapping[str, Hidden], a: Tensor, b: Tensor, number: Tensor) -> Tensor:
    """The function of this number; all are computed, so that runs of all share one stack."""
    y, *others = (function(a, b) for function in functions.values())
    for place, other in enumerate(others, 1):
        y = torch.where(number == place, other, y)
    return y


@cache
def _expected_error(task: Composed) -> float:
    x, _ = task.examples(
        uniform(0, Domain.TASK, 0, SAMPLES * task.draws).view(SAMPLES, task.draws), task.constants(0, "test")
    )
    a, b, c, d = x.double().split(1, dim=-1)
    hidden, top = (names[name] for names, name in zip((HIDDEN, TOP), COMPOSED[task.formula]))
    first, second, epsilon = hidden(a, b), hidden(c, d), task.epsilon
    exact = top(first, second)
    moved = [top(first * (1 + sign * epsilon), second * (1 - epsilon)) for sign in (1, -1)]
    return max(float(((value - exact) ** 2).mean()) for value in moved)
