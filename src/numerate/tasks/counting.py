"""Counting ones modulo a number: the state must be tracked, step by step, and never forgotten."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.streams import uniform
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import HELD_OUT, Online, check_sizes, integers, one_hot, step_losses, sum_and_count


@dataclass(frozen=True)
class Counting(Online):
    """Random bits; at every step, the number of ones so far modulo ``modulus``. With modulus 2: parity.

    x: (T, B, 2) one-hot, y: (T, B). Held-out sequences are longer than those of training: to be right there, a unit
    must track the count and cannot memorise short sequences. A recurrence whose transition is diagonal with positive
    entries cannot do it, whatever its weights (Grazzi et al., 2025); the best guess is wrong in 1 - 1/modulus of the
    steps.

    Args:
        modulus: at least 2.
        length: T in training.
        tested: T of validation and test; at least ``length``.
        batch_size: sequences of a batch.
        evaluation_batches: of validation, and of test.
        solved_below: share of wrong steps on test below which a run is solved.
    """

    modulus: int = 2
    length: int = 50
    tested: int = 200
    batch_size: int = 10
    evaluation_batches: int = 10
    solved_below: float = 0.01
    judged: Literal["test", "train"] = "test"

    def __post_init__(self) -> None:
        check_sizes(self, self.length, 1)
        if positive("modulus", self.modulus) < 2:
            raise ValueError(f"modulus must be at least 2, got {self.modulus}")
        if positive("tested", self.tested) < self.length:
            raise ValueError(f"tested must be at least the length of training, {self.length}, got {self.tested}")

    @property
    def inputs(self) -> int:
        return 2

    @property
    def outputs(self) -> int:
        return self.modulus

    @property
    def draws(self) -> int:
        return self.length * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        """As many steps as there are numbers for."""
        bits = integers(uniforms, 2).view(-1, self.batch_size)
        return Batch(one_hot(bits, 2), bits.cumsum(0) % self.modulus)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        seed, domain = HELD_OUT[split]
        numbers = uniform(torch.tensor(seed), domain, index, self.tested * self.batch_size)
        return self.examples(numbers, torch.tensor(index))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats, the mean over all steps; prediction: (T, B, modulus)"""
        return step_losses(prediction, batch.y).mean()

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong steps; ``loss``."""
        wrong = (prediction.argmax(-1) != batch.y).float()
        return {"error": sum_and_count(wrong), "loss": sum_and_count(step_losses(prediction, batch.y))}

    def baseline(self) -> float:
        """Of ``error``."""
        return 1 - 1 / self.modulus

    def threshold(self) -> float:
        return self.solved_below
