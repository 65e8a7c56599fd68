"""Predicting the next character of a text."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.data import DataSet, ptb
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import masked_mean, one_hot, step_losses, sum_and_count


@dataclass(frozen=True)
class Characters:
    """Penn Treebank by characters, the text in ``batch_size`` columns that are read side by side.

    x: (T, B, 50) one-hot, y: (T, B) the next characters. The state goes from batch to batch through an epoch, gradients
    do not (truncated backpropagation). What does not fill a column is left out, and in training what does not fill a
    batch.

    Args:
        batch_size: columns.
        length: T, steps of a batch.
        evaluated: batches of each held-out part that are used; None: all.
    """

    batch_size: int = 128
    length: int = 150
    evaluated: int | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        positive("batch_size", self.batch_size)
        positive("length", self.length)
        if self.evaluated is not None:
            positive("evaluated", self.evaluated)
        if self._steps("validation") <= self.length or not self.epoch:
            raise ValueError(f"the text does not fill a batch of {self.length:,} steps in {self.batch_size:,} columns")

    @property
    def inputs(self) -> int:
        return 50

    @property
    def outputs(self) -> int:
        return 50

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return True

    @property
    def epoch(self) -> int:
        return (self._steps("train") - 1) // self.length

    def _steps(self, part: str) -> int:
        """Characters of a column."""
        return ptb.CHARACTERS[part] // self.batch_size

    @property
    def data_set(self) -> DataSet:
        return ptb.PTB

    def data(self) -> Data:
        """Each part as columns (steps, B) of bytes; the held-out ones filled up with 255 to whole batches."""
        text = ptb.load_characters()
        return {part: self._columns(getattr(text, part)) for part in ptb.CHARACTERS}

    def _columns(self, ids: Tensor) -> Tensor:
        steps = len(ids) // self.batch_size
        columns = ids[: steps * self.batch_size].view(self.batch_size, steps).T.to(torch.uint8)
        missing = -(steps - 1) % self.length
        return torch.cat((columns, torch.full((missing, self.batch_size), 255, dtype=torch.uint8))).contiguous()

    def order(self, seed: int, epoch: int) -> Data:
        return {}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        index = step % self.epoch
        rows = index * self.length + torch.arange(self.length + 1, device=step.device)
        return self._predicting(data["train"][rows], (index == 0).expand(self.batch_size))

    def evaluations(self, split: HeldOut) -> int:
        every = -(-(self._steps(split) - 1) // self.length)
        return min(every, self.evaluated or every)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        ids = data[split][index * self.length : (index + 1) * self.length + 1]
        return self._predicting(ids, torch.full((self.batch_size,), index == 0, device=ids.device))

    def _predicting(self, columns: Tensor, reset: Tensor) -> Batch:
        """Each character of (T + 1, B) and the one that follows it."""
        ids = columns.long()
        known = ids[1:] < self.outputs
        return Batch(one_hot(ids[:-1], self.inputs), torch.where(known, ids[1:], 0), known.float(), reset)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats a character; prediction: (T, B, 50)"""
        return masked_mean(step_losses(prediction, batch.y), batch.mask)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: bits a character; ``accuracy``."""
        bits = step_losses(prediction, batch.y) / log(2)
        right = (prediction.argmax(-1) == batch.y).float()
        return {"error": sum_and_count(bits, batch.mask), "accuracy": sum_and_count(right, batch.mask)}

    def threshold(self) -> float:
        return float("nan")
