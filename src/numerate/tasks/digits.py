"""Sequences of handwritten digits; the target is their sum or product so far."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.data import mnist
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import sum_and_count
from numerate.tasks.pixels import keyed_permutation

MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of MNIST; images are normalised by them."""
TRAINING = 55_000
"""The first images train, the others of the training set validate (Madsen & Johansen, 2020)."""
HELD_OUT_SEEDS = {"validation": 47430696, "test": 88253339}
"""Order of the held-out images, as in the published code: ``RandomState(seed).permutation``."""


@dataclass(frozen=True)
class DigitSequences:
    """MNIST digits one after the other; the target is their sum or product so far, or how many there were of each.

    x: (L, B, 784), normalised; y: (L, B, outputs), or (B, outputs) where the last step alone counts. Sequences are
    reshuffled among the batches in every epoch. Sequences of a product have no zeros.

    Args:
        operation: ``product``, ``sum`` or ``count``, ten numbers.
        length: of the sequences of training and validation.
        test_lengths: of those of test; each is a measure of its own, ``length_20``.
        batch_size: sequences of a batch.
        held_out: images of validation, and of test at each length, that are used; None: all.
        read: whether the target at ``all`` steps counts, or at the ``last`` one.
        fixed: whether the same images follow each other in every epoch of a run.
        error_at: mean squared error below which a run is solved at the training length; None: nothing to solve.
    """

    operation: Literal["product", "sum", "count"] = "product"
    length: int = 2
    test_lengths: tuple[int, ...] = tuple(range(1, 21))
    batch_size: int = 64
    held_out: int | None = None
    read: Literal["all", "last"] = "all"
    fixed: bool = True
    error_at: float | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("operation", self.operation, ("product", "sum", "count"))
        one_of("read", self.read, ("all", "last"))
        for name in ("length", "batch_size"):
            positive(name, getattr(self, name))
        object.__setattr__(self, "test_lengths", tuple(self.test_lengths))
        if not self.test_lengths or any(length < 1 for length in self.test_lengths):
            raise ValueError(f"test_lengths must be whole numbers of at least 1, got {self.test_lengths!r}")
        if self.length * self.batch_size > (count := self._count("train")):
            raise ValueError(f"{count:,} training images make no {self.batch_size:,} sequences of {self.length:,}")

    @property
    def inputs(self) -> int:
        return 784

    @property
    def outputs(self) -> int:
        return 10 if self.operation == "count" else 1

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
        return _COUNTS["product" if self.operation == "product" else "all"][split]

    def data(self) -> Data:
        data = {}
        for name, (pictures, labels) in divided_images().items():
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
        place = 2**31 + self.length if self.fixed else epoch
        images = keyed_permutation(seed, place, self._count("train"))
        count = len(images) // self.length
        sequences = images[: count * self.length].view(count, self.length)
        return {"order": sequences[keyed_permutation(seed, epoch, count)] if self.fixed else sequences}

    # Batches

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        first = step % self.epoch * self.batch_size
        chosen = data["order"][first + torch.arange(self.batch_size, device=step.device)].T  # (L, B)
        return self._sequences(data["train"][chosen], data["train_labels"][chosen])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the sequences of test: that of training first, then the others."""
        return tuple(dict.fromkeys((self.length, *self.test_lengths)))

    def evaluations(self, split: HeldOut) -> int:
        return 1

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        """All sequences of validation; of test, x: (N, 784), all images, and y: (M, 1), the targets of all lengths."""
        images, labels = data[split], data[f"{split}_labels"]
        lengths = (self.length,) if split == "validation" else self.lengths
        if max(lengths) > len(images):
            raise ValueError(f"{len(images)} held-out images make no sequence of {max(lengths)}")
        if split == "validation":
            return self._sequences(*(in_sequences(values, lengths)[0] for values in (images, labels)))
        targets = [self._target(part).reshape(-1, self.outputs) for part in in_sequences(labels, lengths)]
        return Batch(normalised(images), torch.cat(targets))

    def _sequences(self, images: Tensor, labels: Tensor) -> Batch:
        """(L, B, 784) of bytes, (L, B) -> normalised images and what they come to so far."""
        return Batch(normalised(images), self._target(labels))

    def _target(self, labels: Tensor) -> Tensor:
        """(L, B) -> (L, B, outputs), or (B, outputs) of the last step"""
        digits = labels.float().unsqueeze(-1)
        if self.operation == "count":
            digits = (digits == torch.arange(10, device=labels.device)).float()
        target = digits.cumprod(0) if self.operation == "product" else digits.cumsum(0)
        return target if self.read == "all" else target[-1]

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error over all steps; prediction: (L, B, 1)"""
        return F.mse_loss(prediction, batch.y)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: mean squared error at the training length; ``length_20`` and so on, at others.

        Where the last step counts, also ``accuracy``: the share of one-digit sequences that are right, by the
        largest count or the nearest whole number.
        """
        if batch.x.dim() == 3:
            return {"error": sum_and_count((prediction - batch.y).square())}
        counts = [len(batch.x) // length * (length if self.read == "all" else 1) for length in self.lengths]
        names = ["error" if length == self.length else f"length_{length}" for length in self.lengths]
        parts = {length: pair for length, *pair in zip(self.lengths, prediction.split(counts), batch.y.split(counts))}
        found = {name: sum_and_count((p - y).square()) for name, (p, y) in zip(names, parts.values())}
        if self.read == "last" and 1 in parts:
            p, y = parts[1]
            right = p.argmax(-1) == y.argmax(-1) if self.operation == "count" else (p.round() == y)[:, 0]
            found["accuracy"] = sum_and_count(right.float())
        return found


def divided_images() -> dict[str, tuple[Tensor, Tensor]]:
    """Images and labels of MNIST to train, to validate and to test."""
    images = mnist.load()
    return {
        "train": (images.train[:TRAINING], images.train_labels[:TRAINING]),
        "validation": (images.train[TRAINING:], images.train_labels[TRAINING:]),
        "test": (images.test, images.test_labels),
    }


def normalised(images: Tensor) -> Tensor:
    return (images.float() / 255 - MEAN) / DEVIATION


def in_sequences(values: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """(N, ...) -> for each length (L, N // L, ...): one value after the other, what is left over dropped."""
    counts = [len(values) // length for length in lengths]
    return [values[: n * length].unflatten(0, (n, length)).transpose(0, 1) for n, length in zip(counts, lengths)]


_COUNTS = {
    "all": {"train": 55_000, "validation": 5_000, "test": 10_000},
    "product": {"train": 49_566, "validation": 4_511, "test": 9_020},
}
"""Images of the splits; without those of zeros for the product."""
