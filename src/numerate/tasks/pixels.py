"""Images read pixel by pixel."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.data import DataSet, mnist
from numerate.streams import Domain, words
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import sum_and_count

SPLIT_SEED = 50
"""One ``RandomState`` of the NRU code: it shuffles the training images, then permutes the pixels."""


def bit_reversal(count: int) -> list[int]:
    """0 .. count - 1 by their binary digits read backwards: 0, 512, 256, 768, ... for 784 (Gu et al., 2020)."""
    bits = max(count - 1, 0).bit_length()
    reversed_ = [int(f"{i:0{bits}b}"[::-1], 2) if bits else 0 for i in range(2**bits)]
    return [i for i in reversed_ if i < count]


def nru_permutation(pixels: int, images: int) -> list[int]:
    """Of the NRU code: drawn by its ``RandomState(50)`` after the shuffle of the images."""
    random = np.random.RandomState(SPLIT_SEED)
    random.permutation(images)
    return random.permutation(pixels).tolist()


PERMUTATIONS: dict[str, Callable[[int, int], list[int]]] = {
    "nru": nru_permutation,
    "urnn": lambda pixels, images: np.random.RandomState(92916).permutation(pixels).tolist(),
    "bit reversal": lambda pixels, images: bit_reversal(pixels),
    "none": lambda pixels, images: list(range(pixels)),
}
"""Name -> order of the pixels, given their number and that of the training images."""

Permutation = Literal["nru", "urnn", "bit reversal", "none"]


def keyed_permutation(seed: int, epoch: int, count: int) -> Tensor:
    """The order of ``count`` examples in an epoch of a run; (count,) int64."""
    return words(torch.tensor(seed), int(Domain.TRAIN), epoch, count).argsort(stable=True)


def pooled(images: Tensor, size: int) -> Tensor:
    """Means over squares of ``size`` by ``size`` pixels, as bytes; (N, H, W) -> (N, H/size, W/size)"""
    if size == 1:
        return images
    if images.shape[-1] % size:
        raise ValueError(f"images {images.shape[-1]} pixels wide cannot be pooled by {size}")
    return F.avg_pool2d(images.float(), size).round().to(torch.uint8)


@dataclass(frozen=True)
class PermutedPixels:
    """MNIST pixel by pixel in a fixed order; the target is the digit, at the end (psMNIST).

    x: (785, B, 1), pixels divided by 255 and a last step of zero; y: (B,). Five sixths of the training images train,
    the rest validates, after a shuffle by ``RandomState(50)``, as the code of Chandar et al. (2019) has it.

    Args:
        permutation: ``nru``: of that code; ``urnn``: ``RandomState(92916)``, of the unitary networks; ``bit reversal``
            (Gu et al., 2020); ``none``.
        batch_size: images of a batch.
        last_step: whether the step of zero follows the pixels.
        pool: pixels are means of squares of so many by so many; 2 makes images of 14 × 14, 196 steps.
        held_out: images of validation and of test that are used; None: all.
    """

    permutation: Permutation = "nru"
    batch_size: int = 100
    last_step: bool = True
    pool: int = 1
    held_out: int | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("permutation", self.permutation, tuple(PERMUTATIONS))
        positive("batch_size", self.batch_size)
        positive("pool", self.pool)
        if self.held_out is not None:
            positive("held_out", self.held_out)
        if not self.epoch:
            raise ValueError(f"{self._sizes()[0]:,} training images do not fill a batch of {self.batch_size:,}")

    @property
    def inputs(self) -> int:
        return 1

    @property
    def outputs(self) -> int:
        return 10

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return False

    @property
    def epoch(self) -> int:
        return self._sizes()[0] // self.batch_size

    def _sizes(self) -> tuple[int, int, int]:
        """Images to train, to validate, to test."""
        images, test = (mnist.MNIST.files[i].size - 8 for i in (1, 3))  # a label is a byte, behind a header of 8
        train = images * 5 // 6
        most = self.held_out or images
        return train, min(images - train, most), min(test, most)

    @property
    def data_set(self) -> DataSet:
        return mnist.MNIST

    def data(self) -> Data:
        images = mnist.load()
        count, pixels = len(images.train), pooled(images.train[:1], self.pool).numel()
        order = PERMUTATIONS[self.permutation](pixels, count)
        shuffled = np.random.RandomState(SPLIT_SEED).permutation(count)
        train, validation, test = self._sizes()
        cut = count * 5 // 6
        parts = {
            "train": (images.train, images.train_labels, shuffled[:train]),
            "validation": (images.train, images.train_labels, shuffled[cut : cut + validation]),
            "test": (images.test, images.test_labels, np.arange(test)),
        }
        data = {}
        for name, (pictures, labels, chosen) in parts.items():
            data[name] = pooled(pictures[chosen], self.pool).flatten(1)[:, order].contiguous()
            data[f"{name}_labels"] = labels[chosen]
        return data

    def order(self, seed: int, epoch: int) -> Data:
        return {"order": keyed_permutation(seed, epoch, self._sizes()[0])}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        first = step % self.epoch * self.batch_size
        chosen = data["order"][first + torch.arange(self.batch_size, device=step.device)]
        return self._sequences(data["train"][chosen], data["train_labels"][chosen])

    def evaluations(self, split: HeldOut) -> int:
        return -(-self._sizes()[1 if split == "validation" else 2] // self.batch_size)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self._sequences(data[split][rows], data[f"{split}_labels"][rows])

    def _sequences(self, images: Tensor, labels: Tensor) -> Batch:
        """(B, pixels) of bytes -> (pixels + 1, B, 1)"""
        pixels = F.pad(images.float() / 255, (0, int(self.last_step)))
        return Batch(pixels.T.unsqueeze(-1).contiguous(), labels)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats; prediction: (B, 10)"""
        return F.cross_entropy(prediction, batch.y)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong answers; ``accuracy``; ``loss``."""
        right = (prediction.argmax(-1) == batch.y).float()
        losses = F.cross_entropy(prediction, batch.y, reduction="none")
        return {"error": sum_and_count(1 - right), "accuracy": sum_and_count(right), "loss": sum_and_count(losses)}

    def threshold(self) -> float:
        return float("nan")
