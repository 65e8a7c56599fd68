"""The identity function, learnt on a short range and asked for on a long one (Trask et al. 2018, appendix A)."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.tasks.task import Interval, Split, check_interval, range_constants, spread


@dataclass(frozen=True)
class Identity:
    """y = x, trained on ``train_range``, tested on every integer from -``furthest`` to ``furthest``.

    The test error is the mean absolute error; to answer 0 everywhere costs 500.25. Success: below 1 % of that.
    """

    train_range: Interval = (-5.0, 5.0)
    furthest: int = 1000

    def __post_init__(self) -> None:
        check_interval("train_range", self.train_range)
        if self.furthest < 1:
            raise ValueError(f"furthest must be at least 1, got {self.furthest}")

    @property
    def inputs(self) -> int:
        return 1

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 1

    @property
    def form(self) -> Hashable:
        return type(self), self.furthest

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        low = float(-self.furthest)
        values = range_constants((low, low + self._width) if split == "test" else self.train_range)
        return {name: values[name] for name in ("low", "width")}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = spread(uniforms, constants, union=False)
        return x, x

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: one number for each integer, whatever the ``size``."""
        return torch.arange(2 * self.furthest + 1).unsqueeze(-1) / self._width if split == "test" else None

    @property
    def _width(self) -> int:
        """A power of two, so that every integer comes out exactly."""
        return 2 ** (2 * self.furthest).bit_length()

    def error(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).abs().mean(-1)

    def zero_error(self) -> float:
        """The test error of the answer 0: the mean of |x|."""
        return self.furthest * (self.furthest + 1) / (2 * self.furthest + 1)

    def threshold(self) -> float:
        return self.zero_error() / 100
