"""Recalling symbols from unknown places: selective copying (Gu & Dao, 2023)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.tasks.batches import Batch
from numerate.tasks.online import Online, check_sizes, integers, one_hot, step_losses, sum_and_count


@dataclass(frozen=True)
class SelectiveCopying(Online):
    """Symbols at random places among noise, then as many markers, at which the symbols are recalled in order.

    x: (T + items, B, symbols + 2) one-hot (symbols, noise, marker), y: (items, B); the loss counts only the
    markers' steps. :class:`~numerate.tasks.Denoising` is the same with a marker and blanks at the end, and a loss over
    all steps.

    Args:
        length: T, symbols and noise; 4,096 in the paper.
        items: symbols to remember.
        symbols: how many there are.
        batch_size: sequences of a batch.
        evaluation_batches: of validation, and of test.
        solved_below: share of wrong symbols on test below which a run is solved.
    """

    length: int = 4096
    items: int = 16
    symbols: int = 16
    batch_size: int = 10
    evaluation_batches: int = 10
    solved_below: float = 0.01
    judged: Literal["test", "train"] = "test"

    def __post_init__(self) -> None:
        positive("symbols", self.symbols)
        check_sizes(self, self.length, positive("items", self.items))

    @property
    def inputs(self) -> int:
        return self.symbols + 2

    @property
    def outputs(self) -> int:
        return self.symbols

    @property
    def draws(self) -> int:
        return (self.items + self.length) * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        drawn = uniforms.view(-1, self.batch_size)
        symbols, keys = integers(drawn[: self.items], self.symbols), drawn[self.items :]
        places = torch.argsort(keys, dim=0, stable=True)[: self.items].sort(0).values
        at = torch.arange(self.length, device=step.device).view(-1, 1, 1) == places
        shown = self.symbols + (at * (symbols - self.symbols)).sum(1)
        markers = torch.full_like(symbols, self.symbols + 1)
        return Batch(one_hot(torch.cat((shown, markers)), self.inputs), symbols)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats of the recalled symbols; prediction: (T + items, B, symbols)"""
        return step_losses(prediction[-self.items :], batch.y).mean()

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong symbols; ``loss``."""
        recalled = prediction[-self.items :]
        wrong = (recalled.argmax(-1) != batch.y).float()
        return {"error": sum_and_count(wrong), "loss": sum_and_count(step_losses(recalled, batch.y))}

    def baseline(self) -> float:
        """Of ``error``."""
        return 1 - 1 / self.symbols

    def threshold(self) -> float:
        return self.solved_below
