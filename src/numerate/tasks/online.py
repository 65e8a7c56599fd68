"""What tasks that draw their sequences online have in common."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import positive
from numerate.streams import Domain, uniform
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.task import TEST_SEED, VALIDATION_SEED

HELD_OUT = {"validation": (VALIDATION_SEED, Domain.VALIDATION), "test": (TEST_SEED, Domain.TEST)}
FEW = 16
"""Classes along whose dimension torch's softmax is slow on a CPU where it is the last one."""


class Online(ABC):
    """A :class:`~numerate.tasks.batches.BatchTask` whose batches are functions of uniform random numbers."""

    batch_size: int
    evaluation_batches: int
    judged: Literal["test", "train"] = "train"
    window: int = 50

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return False

    @property
    def epoch(self) -> int | None:
        return None

    @property
    @abstractmethod
    def draws(self) -> int:
        """Uniform random numbers that a batch needs."""

    @abstractmethod
    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        """A batch from uniform random numbers (draws,) and the number of the update."""

    @abstractmethod
    def baseline(self) -> float:
        """The loss of the best prediction that remembers nothing."""

    def guessing(self, split: HeldOut) -> float:
        """The loss of that prediction on the batches of an evaluation, which are few and fixed."""
        return self.baseline()

    def threshold(self) -> float:
        """A tenth of the baseline."""
        return 0.1 * self.baseline()

    def data(self) -> Data:
        return {}

    def order(self, seed: int, epoch: int) -> Data:
        return {}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        return self.examples(uniform(seed, Domain.TRAIN, step, self.draws), step)

    def evaluations(self, split: HeldOut) -> int:
        return self.evaluation_batches

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        seed, domain = HELD_OUT[split]
        return self.examples(uniform(torch.tensor(seed), domain, index, self.draws), torch.tensor(index))

    @abstractmethod
    def loss(self, prediction: Tensor, batch: Batch) -> Tensor: ...


def check_sizes(task: Online, length: int, least: int) -> None:
    """Raises ValueError if a number of the task is not one that it can have."""
    name = type(task).__name__
    if isinstance(length, bool) or not isinstance(length, int) or length < least:
        raise ValueError(f"the length of {name} must be an integer of at least {least}, got {length!r}")
    positive("batch_size", task.batch_size)
    positive("evaluation_batches", task.evaluation_batches)


def integers(uniforms: Tensor, below: int | Tensor) -> Tensor:
    """Uniform numbers in [0, 1) to uniform integers 0, 1, ..., below - 1."""
    return (uniforms * below).long()


def one_hot(ids: Tensor, count: int) -> Tensor:
    """(...) -> (..., count), 1 at the id; zero everywhere for an id of ``count`` or more."""
    return (ids.unsqueeze(-1) == torch.arange(count, device=ids.device)).float()


def step_losses(prediction: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in nats at each step; prediction: (T, B, O), targets: (T, B) -> (T, B)"""
    if prediction.device.type == "cpu" and prediction.shape[-1] <= FEW:
        classes_first = prediction.flatten(0, 1).T.contiguous()
        return F.cross_entropy(classes_first[None], targets.flatten()[None], reduction="none").view(targets.shape)
    return F.cross_entropy(prediction.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    return values.mean() if mask is None else (values * mask).sum() / mask.sum()


def sum_and_count(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """A measure over a batch: (2,)"""
    mask = torch.ones_like(values) if mask is None else mask
    return torch.stack(((values * mask).sum(), mask.sum()))
