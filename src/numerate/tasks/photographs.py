"""Photographs read pixel by pixel."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from numerate.data import DataSet, cifar10
from numerate.tasks.batches import Batch, Data
from numerate.tasks.pixels import PERMUTATIONS, Permutation, PermutedPixels, pooled


@dataclass(frozen=True)
class SequentialPhotographs(PermutedPixels):
    """CIFAR-10 pixel by pixel, row by row, three colours per step; the target is the class, at the end (sCIFAR).

    x: (1024, B, 3), colours divided by 255; y: (B,). The last tenth of the training images validates. Where the data
    folder has the subset of CIFAR-10 alone, that is used: results on it do not compare with published ones.

    Args:
        permutation, batch_size, last_step, pool, held_out: as for :class:`~numerate.tasks.PermutedPixels`.
    """

    permutation: Permutation = "none"
    batch_size: int = 50
    last_step: bool = False
    pool: int = 1
    held_out: int | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    @property
    def inputs(self) -> int:
        return 3

    def _sizes(self) -> tuple[int, int, int]:
        images, test = (10_000, 2_000) if cifar10.is_subset() else (50_000, 10_000)
        most = self.held_out or images
        return images * 9 // 10, min(images // 10, most), min(test, most)

    @property
    def data_set(self) -> DataSet:
        return cifar10.SUBSET if cifar10.is_subset() else cifar10.CIFAR10

    def data(self) -> Data:
        images = cifar10.load()
        train, validation, test = self._sizes()
        parts = {
            "train": (images.train[:train], images.train_labels[:train]),
            "validation": (images.train[train : train + validation], images.train_labels[train : train + validation]),
            "test": (images.test[:test], images.test_labels[:test]),
        }
        order = PERMUTATIONS[self.permutation]((32 // self.pool) ** 2, len(images.train))
        data = {}
        for name, (pictures, labels) in parts.items():
            data[name] = pooled(pictures, self.pool).flatten(2)[..., order].mT.contiguous()
            data[f"{name}_labels"] = labels
        return data

    def _sequences(self, images: Tensor, labels: Tensor) -> Batch:
        """(B, pixels, 3) of bytes -> (pixels, B, 3), and a step of zero where it is wanted"""
        pixels = images.transpose(0, 1).float() / 255
        if self.last_step:
            pixels = torch.cat((pixels, torch.zeros_like(pixels[:1])))
        return Batch(pixels.contiguous(), labels)
