"""Any task with noise in its training targets."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.tasks.distributions import inverse_erf
from numerate.tasks.task import Split, Task, held_out_numbers

INSIDE = 1 - 2.0**-24  # keeps the normal numbers finite; the largest is 5.3


@dataclass(frozen=True)
class LabelNoise:
    """A task with noisy training targets y (1 + noise · z), z standard normal and independent for every target.

    The noise is part of a run's stream of examples. Validation and test have no noise: their examples, and the
    threshold, are those of the other task.

    Args:
        task: the task without noise.
        noise: standard deviation, as a share of the target; 0.01 is one per cent.
    """

    task: Task
    noise: float = 0.01

    def __post_init__(self) -> None:
        if lacking := [name for name in ("inputs", "outputs", "draws", "examples") if not hasattr(self.task, name)]:
            raise TypeError(f"task must have {', '.join(lacking)}, got {self.task!r}")
        if isinstance(self.task, LabelNoise):
            raise ValueError("task has label noise already; give one noise")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise must be a number of 0 or more, got {self.noise!r}")

    @property
    def inputs(self) -> int:
        return self.task.inputs

    @property
    def outputs(self) -> int:
        return self.task.outputs

    @property
    def draws(self) -> int:
        return self.task.draws + self.outputs

    @property
    def form(self) -> Hashable:
        return type(self), type(self.task), self.task.form

    @property
    def error(self) -> Callable[[Tensor, Tensor], Tensor]:
        """That of the other task, if it has one of its own."""
        return self.task.error  # type: ignore[attr-defined]

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        scale = self.noise if split == "train" else 0.0
        return self.task.constants(seed, split) | {"noise": torch.tensor(scale)}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = self.task.examples(uniforms[..., : -self.outputs], constants)
        z = math.sqrt(2) * inverse_erf((2 * uniforms[..., -self.outputs :] - 1) * INSIDE)
        return x, y * (1 + constants["noise"] * z)

    def held_out(self, split: Split, size: int) -> Tensor:
        """The numbers of the other task, and behind them those of a noise that is not there."""
        numbers = held_out_numbers(self.task, split, size)
        return torch.cat([numbers, torch.full((len(numbers), self.outputs), 0.5)], -1)

    def threshold(self) -> float:
        return self.task.threshold()
