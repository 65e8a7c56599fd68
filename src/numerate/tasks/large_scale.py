"""Large-scale arithmetic on Sobol's points (Heim et al. 2020)."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from numerate.streams import Domain, uniform
from numerate.tasks.arithmetic import operate
from numerate.tasks.task import Interval, Split, check_interval, check_root

BITS = 12
POINTS = 2**BITS
"""The first so many points of Sobol's sequence."""
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

    Inputs are drawn with replacement from the first 4096 points of Sobol's sequence, all of whose binary digits are
    shifted by digits drawn for each run and split (Owen 1995), which leaves the set as evenly spread. For 1 / a, points
    where a is 0 are moved by half a step of the grid. Success: a test error below 1e-4 of the mean square of y.
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
        if self.subset < 1 or not 0 <= self.overlap <= self.subset or 2 * self.subset - self.overlap > self.inputs:
            raise ValueError(
                f"two subsets of {self.subset} with overlap {self.overlap} do not fit into {self.inputs} inputs"
            )
        check_interval("train_range", self.span("train"))
        check_interval("test_range", self.span("test"))
        check_root(self.operation, train_range=self.span("train"), test_range=self.span("test"))

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
        place = int(split == "test")
        own = (self.train_range, self.test_range)[place]
        return RANGES[self.operation][place] if own is None else own

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        low, high = self.span(split)
        members = torch.zeros(self.inputs, 2)
        members[: self.subset, 0] = 1
        members[self.subset - self.overlap : 2 * self.subset - self.overlap, 1] = 1
        step = ("train", "validation", "test").index(split)
        return {
            "low": torch.tensor(low),
            "width": torch.tensor(high - low),
            "aside": torch.tensor((high - low) / POINTS / 2 if self.operation == "inverse" else 0.0),
            "members": members,
            "directions": directions(self.inputs),
            "halves": 0.5 ** torch.arange(BITS),
            "shift": (uniform(torch.tensor(seed), Domain.TASK, step, self.inputs * BITS) < 0.5).float(),
            "operation": torch.tensor(float(list(FUNCTIONS).index(self.operation))),
        }

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        shifted = torch.floor(uniforms * POINTS) * constants["halves"]  # (n, BITS): the index, shifted right
        bits = torch.floor(shifted) - 2 * torch.floor(shifted / 2)
        ones = bits @ constants["directions"] + constants["shift"]  # modulo 2 the exclusive or of the chosen rows
        digits = (ones - 2 * torch.floor(ones / 2)).unflatten(-1, (self.inputs, BITS))
        place = (digits * constants["halves"]).sum(-1) / 2
        x = constants["low"] + constants["width"] * place
        a, _ = (x @ constants["members"]).split(1, dim=-1)
        x = torch.where(a == 0, x + constants["aside"], x)
        sums = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"], FUNCTIONS)

    def threshold(self) -> float:
        limit = 1e-4 * _mean_square(self)
        if not math.isfinite(limit):
            raise ValueError(f"the mean square of y, by which a run is judged, is not finite for {self!r}")
        return limit


@cache
def directions(inputs: int) -> Tensor:
    """Sobol's direction numbers as binary digits: row k is the point whose index, in Gray code, is 2**k.

    (BITS, inputs * BITS), digits of an input side by side, the first after the point first.
    """
    points = torch.quasirandom.SobolEngine(inputs).draw(POINTS, dtype=torch.float64)
    rows = points[[2 ** (k + 1) - 1 for k in range(BITS)]]
    places = torch.floor(rows.unsqueeze(-1) * 2.0 ** torch.arange(1, BITS + 1))
    return (places % 2).flatten(-2).float()


@cache
def _mean_square(task: LargeScale) -> float:
    """Of y on all points of the test."""
    uniforms = (torch.arange(POINTS, dtype=torch.float32).unsqueeze(-1) + 0.5) / POINTS
    return float((task.examples(uniforms, task.constants(0, "test"))[1].double() ** 2).mean())
