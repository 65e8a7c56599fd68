"""Two of the inputs, or sums: uniform, truncated normal or exponential distributions (Schlör et al. 2020)."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.streams import Domain, uniform, words
from numerate.tasks.arithmetic import operate
from numerate.tasks.task import OPERATIONS, Split, check_interval, check_root

KINDS = ("uniform", "normal", "exponential")
CUT = 0.5 * math.erfc(3 / math.sqrt(2))  # probability below three standard deviations
CENTRE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322, 0.000100950558,
    -0.000200214257,
)  # fmt: skip


def inverse_erf(x: Tensor) -> Tensor:
    """erf⁻¹ on (-1, 1) by the two polynomials of Giles (2010), right to 4e-7 in float32; logarithm and root alone."""
    w = -torch.log((1 - x) * (1 + x))
    return torch.where(w < 5, _polynomial(CENTRE, w - 2.5), _polynomial(TAIL, torch.sqrt(w) - 3)) * x


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


@dataclass(frozen=True)
class Distribution:
    """Where an input lies, as Schlör et al. name it; every kind is made from one uniform number by its inverse CDF.

    ``uniform`` on [low, high); ``normal`` with its mean in the middle of [low, high] and a sixth of the width as its
    standard deviation, cut off at both ends; ``exponential`` with ``high`` as its scale, i.e. its mean (``low`` is 0).
    """

    kind: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        check_interval("a distribution", (self.low, self.high))
        if self.kind == "exponential" and self.low != 0:
            raise ValueError(f"low must be 0 for an exponential, got {self.low}")

    @property
    def name(self) -> str:
        """U(−1, 1), N(−3, 3), E(0.2)"""
        inside = f"{self.high:g}" if self.kind == "exponential" else f"{self.low:g}, {self.high:g}"
        return f"{self.kind[0].upper()}({inside})".replace("-", "−")

    def constants(self) -> dict[str, Tensor]:
        """Place and scale of the standard form that :meth:`sample` makes."""
        if self.kind == "normal":
            place, scale = (self.low + self.high) / 2, (self.high - self.low) / 6
        else:
            place, scale = self.low, self.high - self.low
        return {"place": torch.tensor(place), "scale": torch.tensor(scale)}

    def sample(self, uniforms: Tensor, constants: dict[str, Tensor]) -> Tensor:
        if self.kind == "uniform":
            standard = uniforms
        elif self.kind == "exponential":
            standard = -torch.log1p(-uniforms)
        else:
            standard = math.sqrt(2) * inverse_erf((2 * uniforms - 1) * (1 - 2 * CUT))
        return constants["place"] + constants["scale"] * standard


@dataclass(frozen=True)
class DistributedArithmetic:
    """y = x_k ∘ x_{k+1}; inputs of any :class:`Distribution`; with more than two the others are redundant.

    Success: a test error below 1e-5, whatever the size of y (Schlör et al.'s criterion). k is drawn once per run.
    """

    operation: str
    train: Distribution
    test: Distribution
    inputs: int = 2
    limit: float = 1e-5

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, got {self.operation!r}")
        if self.inputs < 2:
            raise ValueError(f"inputs must be at least 2, got {self.inputs}")
        if self.train.kind != self.test.kind:
            raise ValueError(f"both distributions must be of one kind, got {self.train.kind} and {self.test.kind}")
        check_root(self.operation, train=(self.train.low, self.train.high), test=(self.test.low, self.test.high))
        if not 0 < self.limit < math.inf:
            raise ValueError(f"limit must be positive and finite, got {self.limit}")

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return self.inputs

    @property
    def form(self) -> Hashable:
        return type(self), self.train.kind, self.inputs

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        first = int(words(torch.tensor(seed), Domain.TASK, 0, 1)) % (self.inputs - 1)
        members = torch.eye(self.inputs)[:, first : first + 2].clone()
        number = torch.tensor(float(list(OPERATIONS).index(self.operation)))
        return (self.test if split == "test" else self.train).constants() | {"members": members, "operation": number}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = self.train.sample(uniforms, constants)
        pair = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(pair, constants["operation"])

    def threshold(self) -> float:
        return self.limit


@dataclass(frozen=True)
class DistributedSums:
    """y = a ∘ b; a and b are sums over inputs of any :class:`Distribution`, which share none (Schlör et al. 2020).

    Once per run every input is put into a with probability 1/2, into b with 1/4 and into neither with 1/4, as in the
    authors' code; both have at least one. Success: a test error below 1e-5, whatever the size of y.
    """

    operation: str
    train: Distribution
    test: Distribution
    inputs: int = 100
    limit: float = 1e-5

    def __post_init__(self) -> None:
        DistributedArithmetic(self.operation, self.train, self.test, self.inputs, self.limit)  # the same checks

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return self.inputs

    @property
    def form(self) -> Hashable:
        return type(self), self.train.kind, self.inputs

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        place = uniform(seed, Domain.TASK, 0, self.inputs)
        members = torch.stack([place < 0.5, place >= 0.75], -1).float()
        members[place.argmin()] = torch.tensor([1.0, 0.0])
        members[place.argmax()] = torch.tensor([0.0, 1.0])
        number = torch.tensor(float(list(OPERATIONS).index(self.operation)))
        return (self.test if split == "test" else self.train).constants() | {"members": members, "operation": number}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = self.train.sample(uniforms, constants)
        sums = (x @ constants["members"]).split(1, dim=-1)
        return x, operate(sums, constants["operation"])

    def threshold(self) -> float:
        return self.limit
