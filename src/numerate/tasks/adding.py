"""Adding two marked numbers of a long sequence (Hochreiter & Schmidhuber, 1997)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from numerate.tasks.batches import Batch, HeldOut
from numerate.tasks.online import Online, check_sizes, integers, sum_and_count


@dataclass(frozen=True)
class Adding(Online):
    """Numbers from U[0, 1) beside marks, two of which are 1, one in each half; the sum of the two marked numbers.

    x: (T, B, 2), y: (B, 1). The mean squared error of always answering 1 is 1/6.

    Args:
        length: T; at least 2.
        batch_size: sequences of a batch.
        evaluation_batches: of validation, and of test.
        solved_below: mean squared error on test below which a run is solved.
    """

    length: int = 2000
    batch_size: int = 10
    evaluation_batches: int = 10
    solved_below: float = 0.01
    judged: Literal["test", "train"] = "test"

    def __post_init__(self) -> None:
        check_sizes(self, self.length, 2)

    @property
    def inputs(self) -> int:
        return 2

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return (self.length + 2) * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        drawn = uniforms.view(self.length + 2, self.batch_size)
        half, numbers = self.length // 2, drawn[2:]
        time = torch.arange(self.length, device=step.device).unsqueeze(-1)
        early, late = integers(drawn[0], half), half + integers(drawn[1], self.length - half)
        marks = ((time == early) | (time == late)).float()
        return Batch(torch.stack((numbers, marks), -1), (numbers * marks).sum(0).unsqueeze(-1))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error; prediction: (B, 1)"""
        return (prediction - batch.y).square().mean()

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: squared error; ``accuracy``: share of answers within 0.04, as is usual for this task."""
        apart = prediction - batch.y
        return {"error": sum_and_count(apart.square()), "accuracy": sum_and_count((apart.abs() < 0.04).float())}

    def baseline(self) -> float:
        return 1 / 6

    def guessing(self, split: HeldOut) -> float:
        """The mean squared error of always answering 1 to these sums."""
        batches = [self.evaluation(split, index, {}) for index in range(self.evaluations(split))]
        return float(torch.cat([batch.y for batch in batches]).sub(1).square().mean())

    def threshold(self) -> float:
        return self.solved_below
