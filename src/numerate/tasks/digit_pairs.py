"""Pairs of handwritten digits; the target is whether a comparison of the two holds."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.streams import Domain, uniform
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.decisions import COMPARISONS, TRUTHS
from numerate.tasks.digits import HELD_OUT_SEEDS, TRAINING, divided_images, normalised
from numerate.tasks.online import sum_and_count
from numerate.tasks.pixels import keyed_permutation

EQUAL = 1 / 3
"""Share of pairs whose second image is drawn from those of the same digit, as in :class:`~numerate.tasks.Compare`."""
AT_ONCE = 500
"""Pairs of an evaluation batch."""
_FIRST = 2**40
"""Steps of the numbers that make pairs, apart from those of the permutations."""


@dataclass(frozen=True)
class DigitPairs:
    """Two MNIST images; whether the digit of the first ∘ that of the second, for one of < > = ≠ ≤ ≥.

    x: (B, 2 · 784), normalised; y: (B, 3), 1 where the comparison holds, else 0, and the two digits. A prediction is
    (B, 1), a probability, or (B, 3), followed by the numbers that were read. Of a third of the pairs both images
    are of one digit, so two pairs in five are equal.

    Args:
        symbol: < > = ≠ ≤ or ≥.
        told: whether the two digits are targets too; their mean squared error is added to the cross entropy.
        batch_size: pairs of a batch.
        held_out: images of validation and of test that are used, each the first of one pair; None: all.
    """

    symbol: str
    told: bool = False
    batch_size: int = 64
    held_out: int | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("symbol", self.symbol, tuple(COMPARISONS))
        positive("batch_size", self.batch_size)
        if self.held_out is not None:
            positive("held_out", self.held_out)

    @property
    def inputs(self) -> int:
        return 2 * 784

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
        return TRAINING // 2 // self.batch_size

    def threshold(self) -> float:
        return float("nan")

    # Images, by their digits

    def data(self) -> Data:
        data = {}
        for name, (pictures, labels) in divided_images().items():
            chosen = labels.argsort(stable=True)
            data[name], data[f"{name}_labels"] = pictures[chosen].flatten(1).contiguous(), labels[chosen]
            data[f"{name}_counts"] = torch.bincount(labels, minlength=10)
            if name != "train":
                data[f"{name}_pairs"] = self._fixed_pairs(name, data)
        return data

    def _fixed_pairs(self, split: str, data: Data) -> Tensor:
        """(N, 2), the same in every run."""
        draw = np.random.RandomState(HELD_OUT_SEEDS[split])
        count = len(data[split])
        first, second = (torch.from_numpy(draw.permutation(count)[: self.held_out]) for _ in range(2))
        drawn = torch.from_numpy(draw.rand(2, len(first)))
        return torch.stack((first, _of_one_digit(first, second, drawn, split, data)), 1)

    def order(self, seed: int, epoch: int) -> Data:
        return {"order": keyed_permutation(seed, epoch, TRAINING)}

    # Batches

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        start = step % self.epoch * 2 * self.batch_size
        chosen = data["order"][start + torch.arange(2 * self.batch_size, device=step.device)]
        first, second = chosen.unflatten(0, (2, self.batch_size))
        drawn = uniform(seed, Domain.TRAIN, step + _FIRST, 2 * self.batch_size).unflatten(-1, (2, self.batch_size))
        second = _of_one_digit(first, second, drawn, "train", data)
        return self._pairs("train", torch.stack((first, second), 1), data)

    def evaluations(self, split: HeldOut) -> int:
        count = 60_000 - TRAINING if split == "validation" else 10_000
        return -(-min(count, self.held_out or count) // AT_ONCE)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        return self._pairs(split, data[f"{split}_pairs"][index * AT_ONCE : (index + 1) * AT_ONCE], data)

    def _pairs(self, split: str, chosen: Tensor, data: Data) -> Batch:
        """(B, 2) -> images and targets"""
        digits = data[f"{split}_labels"][chosen].float()
        truth = TRUTHS[self.symbol](digits[:, :1], digits[:, 1:])
        return Batch(normalised(data[split][chosen].flatten(1)), torch.cat((truth, digits), 1))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats, and with ``told`` the mean squared error of the numbers read."""
        loss = _cross_entropy(prediction[:, 0], batch.y[:, 0])
        return loss + F.mse_loss(prediction[:, 1:], batch.y[:, 1:]) if self.told else loss

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong answers, among them those that are not a number; ``accuracy``."""
        answer, truth = prediction[:, 0], batch.y[:, 0] > 0.5
        right = torch.where(truth, answer > 0.5, answer <= 0.5).float()
        return {"error": sum_and_count(1 - right), "accuracy": sum_and_count(right)}


def _cross_entropy(probability: Tensor, truth: Tensor) -> Tensor:
    """In nats; not a number where a probability is none, which torch's own function refuses."""
    entropy = F.binary_cross_entropy(probability.nan_to_num(0.5), truth)
    return entropy * torch.where(probability.isnan().any(), torch.nan, 1.0)


def _of_one_digit(first: Tensor, second: Tensor, drawn: Tensor, split: str, data: Data) -> Tensor:
    """``second``, a third of it replaced by images of the digit of ``first``; images are in the order of their digits.

    drawn: (2, B), uniform: whether it is replaced, and by which.
    """
    digit, counts = data[f"{split}_labels"][first], data[f"{split}_counts"]
    start = (counts.cumsum(0) - counts)[digit]
    return torch.where(drawn[0] < EQUAL, start + (drawn[1] * counts[digit]).long(), second)
