"""What comparing numbers decides: truth values, pieces of a function, minima, counts (the Primer's section 7.2)."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.streams import Domain, uniform
from numerate.tasks.arithmetic import operate
from numerate.tasks.task import TEST_SEED, Split

COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "<": torch.lt,
    ">": torch.gt,
    "=": torch.eq,
    "≠": torch.ne,
    "≤": torch.le,
    "≥": torch.ge,
}
PIECES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "distance": lambda a, b: torch.where(a > b, a - b, b - a),
    "jump": lambda a, b: torch.where(a > b, a + b, a - b),
}
"""|a − b|, which is continuous, and a + b where a > b, else a − b, which is not."""


def _ones(test: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: torch.where(test(a, b), 1.0, 0.0)


TRUTHS = {name: _ones(test) for name, test in COMPARISONS.items()}


def _check_integer_range(**values: float) -> None:
    for name, value in values.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class Compare:
    """y = 1 where x₁ ∘ x₂ holds, else 0, for one of < > = ≠ ≤ ≥.

    Inputs are uniform on [−``size``, ``size``], whole numbers or real ones, to ``test_size`` in the test. One pair in
    three is made equal: of independent numbers too few would be. Success: a test error below ``limit``.
    """

    symbol: str
    integers: bool = True
    size: float = 9.0
    test_size: float = 1000.0
    limit: float = 1e-3

    def __post_init__(self) -> None:
        if self.symbol not in COMPARISONS:
            raise ValueError(f"symbol must be one of {' '.join(COMPARISONS)}, got {self.symbol!r}")
        _check_integer_range(size=self.size, test_size=self.test_size)

    @property
    def inputs(self) -> int:
        return 2

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 3

    @property
    def form(self) -> Hashable:
        return type(self), self.integers

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        size = self.test_size if split == "test" else self.size
        number = torch.tensor(float(list(COMPARISONS).index(self.symbol)))
        return {"size": torch.tensor(float(size)), "symbol": number}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        size, u = constants["size"], uniforms[..., 1:]
        x = torch.floor(u * (2 * size + 1)) - size if self.integers else (2 * u - 1) * size
        a = x[..., :1]
        b = torch.where(uniforms[..., :1] * 3 < 1, a, x[..., 1:])
        return torch.cat((a, b), -1), operate((a, b), constants["symbol"], TRUTHS)

    def threshold(self) -> float:
        return self.limit


@dataclass(frozen=True)
class Piecewise:
    """A function of two real numbers with two pieces: |a − b| or, with a jump, a + b where a > b and a − b elsewhere.

    Inputs are uniform on [−``size``, ``size``), to ``test_size`` in the test. Success: a test error below 1e-4 of the
    mean square of y.
    """

    pieces: str
    size: float = 10.0
    test_size: float = 100.0

    def __post_init__(self) -> None:
        if self.pieces not in PIECES:
            raise ValueError(f"pieces must be one of {', '.join(PIECES)}, got {self.pieces!r}")
        _check_integer_range(size=self.size, test_size=self.test_size)

    @property
    def inputs(self) -> int:
        return 2

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 2

    @property
    def form(self) -> Hashable:
        return type(self)

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        size = self.test_size if split == "test" else self.size
        return {"size": torch.tensor(float(size)), "pieces": torch.tensor(float(list(PIECES).index(self.pieces)))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = (2 * uniforms - 1) * constants["size"]
        return x, operate((x[..., :1], x[..., 1:]), constants["pieces"], PIECES)

    def threshold(self) -> float:
        """Both have the mean square 2 size² / 3."""
        return 1e-4 * 2 * self.test_size**2 / 3


@dataclass(frozen=True)
class Minimum:
    """y = the smallest of ``length`` whole numbers from 0 to below ``size``; x: (n, length).

    In the test there are ``test_length`` numbers to below ``test_size``. Success: a test error below ``limit``.
    """

    length: int = 5
    test_length: int = 20
    size: int = 10
    test_size: int = 100
    limit: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("length", "test_length", "size", "test_size"):
            positive(name, getattr(self, name))

    @property
    def inputs(self) -> int:
        return self.length

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return self.length

    @property
    def form(self) -> Hashable:
        return type(self), self.length, self.test_length

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return {"size": torch.tensor(float(self.test_size if split == "test" else self.size))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = torch.floor(uniforms * constants["size"])
        least = x[..., :1]
        for i in range(1, x.shape[-1]):
            least = torch.minimum(least, x[..., i : i + 1])
        return x, least

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: numbers for the longer lists."""
        return _longer(size, self.test_length) if split == "test" else None

    def threshold(self) -> float:
        return self.limit


@dataclass(frozen=True)
class Count:
    """y = how often the first number comes up among the ``length`` that follow; whole numbers from 0 to below ``size``.

    x: (n, 1 + length). Every second number of the list is made the one that is counted. In the test there are
    ``test_length`` numbers to below ``test_size``. Success: a test error below ``limit``.
    """

    length: int = 5
    test_length: int = 20
    size: int = 10
    test_size: int = 100
    limit: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("length", "test_length", "size", "test_size"):
            positive(name, getattr(self, name))

    @property
    def inputs(self) -> int:
        return 1 + self.length

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1 + 2 * self.length

    @property
    def form(self) -> Hashable:
        return type(self), self.length, self.test_length

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return {"size": torch.tensor(float(self.test_size if split == "test" else self.size))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        length = (uniforms.shape[-1] - 1) // 2
        wanted = torch.floor(uniforms[..., :1] * constants["size"])
        others = torch.floor(uniforms[..., 1 : 1 + length] * constants["size"])
        x = torch.where(uniforms[..., 1 + length :] < 0.5, wanted, others)
        return torch.cat((wanted, x), -1), torch.where(x == wanted, 1.0, 0.0).sum(-1, keepdim=True)

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: numbers for the longer lists."""
        return _longer(size, 1 + 2 * self.test_length) if split == "test" else None

    def threshold(self) -> float:
        return self.limit


@dataclass(frozen=True)
class Relaxation:
    """One round of Bellman–Ford at one node: y = min(d, d₁ + w₁, …); x = d, then ``neighbours`` pairs (dᵢ, wᵢ).

    Distances are whole numbers from 0 to below twice ``weights``, weights of edges from 1 to ``weights``. In the test
    there are ``test_neighbours``. Success: a test error below ``limit``.
    """

    neighbours: int = 4
    test_neighbours: int = 16
    weights: int = 10
    limit: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("neighbours", "test_neighbours", "weights"):
            positive(name, getattr(self, name))

    @property
    def inputs(self) -> int:
        return 1 + 2 * self.neighbours

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1 + 2 * self.neighbours

    @property
    def form(self) -> Hashable:
        return type(self), self.neighbours, self.test_neighbours

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return {"weights": torch.tensor(float(self.weights))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        least = torch.floor(uniforms[..., :1] * 2 * constants["weights"])
        parts = [least]
        for i in range(1, uniforms.shape[-1], 2):
            distance = torch.floor(uniforms[..., i : i + 1] * 2 * constants["weights"])
            weight = torch.floor(uniforms[..., i + 1 : i + 2] * constants["weights"]) + 1
            parts += [distance, weight]
            least = torch.minimum(least, distance + weight)
        return torch.cat(parts, -1), least

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: numbers for nodes with more neighbours."""
        return _longer(size, 1 + 2 * self.test_neighbours) if split == "test" else None

    def threshold(self) -> float:
        return self.limit


def _longer(size: int, draws: int) -> Tensor:
    return uniform(torch.tensor(TEST_SEED), Domain.TEST, 0, size * draws).view(size, draws)
