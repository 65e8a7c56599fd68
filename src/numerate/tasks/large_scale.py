"""Large-scale arithmetic on a low-discrepancy set (Heim et al. 2020)."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from numerate.streams import Domain, uniform
from numerate.tasks.arithmetic import operate
from numerate.tasks.task import Interval, Split, check_range

POINTS, MULTIPLIER = 4096, 2157  # of all multipliers the one with the smallest P2 error in 100 weighted dimensions
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "inverse": lambda a, b: 1 / a,
    "sqrt": lambda a, b: torch.sqrt(a),
}
RANGES: dict[str, tuple[Interval, Interval]] = {
    "add": ((-1.0, 1.0), (-4.0, 4.0)),
    "sub": ((-1.0, 1.0), (-4.0, 4.0)),
    "mul": ((-1.0, 1.0), (-4.0, 4.0)),
    "inverse": ((0.0, 0.5), (-0.5, 0.5)),
    "sqrt": ((0.0, 2.0), (0.0, 6.0)),
}
"""Function -> training range, test range."""


@dataclass(frozen=True)
class LargeScale:
    """y = a ∘ b or a function of a; a and b are sums over two halves of the inputs that overlap by a quarter.

    In place of Sobol's sequence: a lattice of 4096 points, k · (1, m, m², ...) / 4096 modulo 1, shifted by an amount
    drawn for each run and split (float32 holds it exactly); examples are drawn from it with replacement. Success: a
    test error below 1e-4 of the mean square of y.
    """

    operation: str
    train_range: Interval | None = None
    test_range: Interval | None = None
    inputs: int = 100
    subset: int = 50
    overlap: int = 12

    def __post_init__(self) -> None:
        if self.operation not in FUNCTIONS:
            raise ValueError(f"operation must be one of {', '.join(FUNCTIONS)}, got {self.operation!r}")
        if not 0 <= self.overlap <= self.subset or 2 * self.subset - self.overlap > self.inputs:
            raise ValueError(
                f"two subsets of {self.subset} with overlap {self.overlap} do not fit into {self.inputs} inputs"
            )
        for split in ("train", "test"):
            check_range(f"{split}_range", self.span(split))

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1

    @property
    def form(self) -> Hashable:
        return type(self), self.inputs

    def span(self, split: Split) -> Interval:
        """Where the inputs of a split lie: as given, else as the paper has it for this function."""
        own, known = (self.train_range, self.test_range), RANGES[self.operation]
        place = int(split == "test")
        return own[place] or known[place]

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        low, high = self.span(split)
        members = torch.zeros(self.inputs, 2)
        members[: self.subset, 0] = 1
        members[self.subset - self.overlap : 2 * self.subset - self.overlap, 1] = 1
        step = ("train", "validation", "test").index(split)
        powers = [pow(MULTIPLIER, place, POINTS) / POINTS for place in range(self.inputs)]
        return {
            "low": torch.tensor(low),
            "width": torch.tensor(high - low),
            "members": members,
            "generator": torch.tensor(powers),
            "shift": uniform(torch.tensor(seed), Domain.TASK, step, self.inputs),
            "operation": torch.tensor(float(list(FUNCTIONS).index(self.operation))),
        }

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        point = torch.floor(uniforms * POINTS) * constants["generator"]  # whole numbers below 2**24, over 2**12: exact
        place = point - torch.floor(point) + constants["shift"]
        x = constants["low"] + constants["width"] * (place - torch.floor(place))
        sums = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"], FUNCTIONS)

    def threshold(self) -> float:
        return 1e-4 * _mean_square(self)


@cache
def _mean_square(task: LargeScale) -> float:
    """Of y on the whole lattice of the test."""
    uniforms = (torch.arange(POINTS, dtype=torch.float32).unsqueeze(-1) + 0.5) / POINTS
    return float((task.examples(uniforms, task.constants(0, "test"))[1].double() ** 2).mean())
