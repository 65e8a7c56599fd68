"""Sequences of handwritten digits, of which a network is told the sum or the product so far."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.data import mnist
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.pixels import keyed_permutation

MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of MNIST; images are normalised by them."""
TRAINING = 55_000
"""The first images train, the others of the training set validate (Madsen & Johansen, 2020)."""
HELD_OUT_SEEDS = {"validation": 47430696, "test": 88253339}
"""Order of the held-out images, as in the published code: ``RandomState(seed).permutation``."""


@dataclass(frozen=True)
class DigitSequences:
    """MNIST digits one after the other; the target is their sum or product so far, at every step.

    x: (L, B, 784), normalised; y: (L, B, 1). Which images follow each other is fixed for a run; their order among the
    batches is drawn anew in every epoch. Sequences of a product have no zeros.

    Args:
        operation: ``product`` or ``sum``.
        length: of the sequences of training and validation.
        test_lengths: of those of test; each is a measure of its own, ``length_20``.
        batch_size: sequences of a batch.
        held_out: images of validation, and of test at each length, that are used; None: all.
        error_at: mean squared error below which a run is solved at the training length; None: nothing to solve.
    """

    operation: Literal["product", "sum"] = "product"
    length: int = 2
    test_lengths: tuple[int, ...] = tuple(range(1, 21))
    batch_size: int = 64
    held_out: int | None = None
    error_at: float | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("operation", self.operation, ("product", "sum"))
        for name in ("length", "batch_size"):
            positive(name, getattr(self, name))
        object.__setattr__(self, "test_lengths", tuple(self.test_lengths))
        if not self.test_lengths or any(length < 1 for length in self.test_lengths):
            raise ValueError(f"test_lengths must be whole numbers of at least 1, got {self.test_lengths!r}")

    @property
    def inputs(self) -> int:
        return 784

    @property
    def outputs(self) -> int:
        return 1

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return False

    @property
    def epoch(self) -> int:
        return max(1, self._count("train") // self.length // self.batch_size)

    def threshold(self) -> float:
        return math.nan if self.error_at is None else self.error_at

    # Images

    def _count(self, split: str) -> int:
        """Images of a split, without zeros where these are left out."""
        return _COUNTS[self.operation][split]

    def data(self) -> Data:
        images = mnist.load()
        parts = {
            "train": (images.train[:TRAINING], images.train_labels[:TRAINING]),
            "validation": (images.train[TRAINING:], images.train_labels[TRAINING:]),
            "test": (images.test, images.test_labels),
        }
        data = {}
        for name, (pictures, labels) in parts.items():
            kept = labels > 0 if self.operation == "product" else torch.ones_like(labels, dtype=torch.bool)
            chosen = kept.nonzero()[:, 0]
            if name != "train":
                order = np.random.RandomState(HELD_OUT_SEEDS[name]).permutation(len(chosen))
                chosen = chosen[torch.from_numpy(order)[: self.held_out]]
            data[name] = pictures[chosen].flatten(1).contiguous()
            data[f"{name}_labels"] = labels[chosen]
        return data

    def order(self, seed: int, epoch: int) -> Data:
        """The images of each sequence of an epoch; (sequences, L)."""
        fixed = keyed_permutation(seed, 2**31 + self.length, self._count("train"))
        count = len(fixed) // self.length
        sequences = fixed[: count * self.length].view(count, self.length)
        return {"order": sequences[keyed_permutation(seed, epoch, count)]}

    # Batches

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        first = step % self.epoch * self.batch_size
        chosen = data["order"][first + torch.arange(self.batch_size, device=step.device)].T  # (L, B)
        return self._sequences(data["train"][chosen], data["train_labels"][chosen])

    def _lengths(self, split: HeldOut) -> tuple[int, ...]:
        return (self.length,) if split == "validation" else tuple(dict.fromkeys((self.length, *self.test_lengths)))

    def evaluations(self, split: HeldOut) -> int:
        return len(self._lengths(split))

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        """All sequences of one length."""
        length = self._lengths(split)[index]
        count = len(data[split]) // length
        if count == 0:
            raise ValueError(f"{len(data[split])} held-out images make no sequence of {length}")
        images, labels = data[split][: count * length], data[f"{split}_labels"][: count * length]
        return self._sequences(
            images.view(count, length, -1).transpose(0, 1), labels.view(count, length).transpose(0, 1)
        )

    def _sequences(self, images: Tensor, labels: Tensor) -> Batch:
        """(L, B, 784) of bytes, (L, B) -> normalised images and what they come to so far."""
        digits = labels.float().unsqueeze(-1)
        target = digits.cumsum(0) if self.operation == "sum" else digits.cumprod(0)
        return Batch((images.float() / 255 - MEAN) / DEVIATION, target)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error over all steps; prediction: (L, B, 1)"""
        return F.mse_loss(prediction, batch.y)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: mean squared error over all steps, at the training length; ``length_20`` and so on, at others."""
        count = torch.full((), float(batch.y.numel()), device=prediction.device)
        value = torch.stack(((prediction - batch.y).square().sum(), count))
        length = len(batch.y)
        return {"error": value} if length == self.length else {f"length_{length}": value}


_COUNTS = {
    "sum": {"train": 55_000, "validation": 5_000, "test": 10_000},
    "product": {"train": 49_566, "validation": 4_511, "test": 9_020},
}
"""Images of the splits; without those of zeros for the product."""
