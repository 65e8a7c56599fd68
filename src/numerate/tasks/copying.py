"""Remembering symbols over a long gap: copying, with a fixed or a variable lag, and denoising.

Ten symbols are drawn from eight, with replacement. Inputs are one-hot of ten (eight symbols, the blank and the marker),
outputs are logits of nine (eight symbols and the blank). Chandar et al. (2019) train on the cross entropy of all steps
and judge by the training loss; Gu et al. (2020) take the last ten steps alone (:class:`CopyLast`).
"""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.tasks.batches import Batch, HeldOut
from numerate.tasks.online import Online, check_sizes, integers, masked_mean, one_hot, step_losses, sum_and_count

SYMBOLS, ITEMS = 8, 10
BLANK, MARKER = SYMBOLS, SYMBOLS + 1


class Recall(Online):
    """Sequences whose targets hold ten symbols to recall; target blank elsewhere."""

    @property
    def inputs(self) -> int:
        return SYMBOLS + 2

    @property
    def outputs(self) -> int:
        return SYMBOLS + 1

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats, the mean over all steps (of the mask, where there is one)."""
        return masked_mean(step_losses(prediction, batch.y), batch.mask)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: the loss of a batch; ``accuracy``: the share of recalled symbols that are right."""
        error = self.loss(prediction, batch)
        right = (prediction.argmax(-1) == batch.y).float()
        recalled = (batch.y != BLANK).float()
        return {"error": torch.stack((error, torch.ones_like(error))), "accuracy": sum_and_count(right, recalled)}

    def _symbols(self, uniforms: Tensor) -> Tensor:
        """(10 B,) -> ids (10, B)"""
        return integers(uniforms, SYMBOLS).view(ITEMS, self.batch_size)

    def _fill(self, like: Tensor, steps: int, value: int) -> Tensor:
        return torch.full((steps, self.batch_size), value, dtype=torch.int64, device=like.device)


@dataclass(frozen=True)
class Copying(Recall):
    """Ten symbols, ``length`` - 1 blanks, a marker, ten blanks; to be copied after the marker (Chandar et al., 2019).

    Args:
        length: T; a sequence has T + 20 steps, and the loss of guessing is 10 ln 8 / (T + 20).
        batch_size: sequences of a batch.
        evaluation_batches: of validation, and of test.
        random_labels: targets are drawn apart from the inputs, so there is nothing to learn but the blanks.
        reset_every: a row starts from the state that the sequence before left, and from the initial one only at every
            so many sequences.
    """

    length: int = 100
    batch_size: int = 10
    evaluation_batches: int = 10
    random_labels: bool = False
    reset_every: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self, self.length, 1)
        if self.reset_every is not None:
            positive("reset_every", self.reset_every)

    @property
    def carries(self) -> bool:
        return self.reset_every is not None

    @property
    def draws(self) -> int:
        return (2 if self.random_labels else 1) * ITEMS * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        count = ITEMS * self.batch_size
        symbols = self._symbols(uniforms[:count])
        gap, marker, end = (
            self._fill(step, self.length - 1, BLANK),
            self._fill(step, 1, MARKER),
            self._fill(step, ITEMS, BLANK),
        )
        before = self._fill(step, self.length + ITEMS, BLANK)
        recalled = self._symbols(uniforms[count:]) if self.random_labels else symbols
        return Batch(
            one_hot(torch.cat((symbols, gap, marker, end)), self.inputs),
            torch.cat((before, recalled)),
            reset=self._reset(step),
        )

    def _reset(self, step: Tensor) -> Tensor | None:
        return None if self.reset_every is None else (step % self.reset_every == 0).expand(self.batch_size)

    def baseline(self) -> float:
        return ITEMS * log(SYMBOLS) / (self.length + 2 * ITEMS)

    def threshold(self) -> float:
        """A tenth of the baseline; nan with random labels, which nobody can learn."""
        return float("nan") if self.random_labels else super().threshold()


@dataclass(frozen=True)
class VariableCopying(Recall):
    """Copying with a random lag for every batch, uniform on 1 to ``length`` (Chandar et al., 2019).

    The paper does not print the law of the lag. Steps after the ten recalled symbols do not count; the loss of guessing
    is the mean of 10 ln 8 / (lag + 20) over all lags.

    Args:
        length: the longest lag.
        batch_size, evaluation_batches: as for :class:`Copying`.
    """

    length: int = 100
    batch_size: int = 10
    evaluation_batches: int = 10

    def __post_init__(self) -> None:
        check_sizes(self, self.length, 1)

    @property
    def draws(self) -> int:
        return 1 + ITEMS * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        lag, symbols = 1 + integers(uniforms[0], self.length), self._symbols(uniforms[1:])
        time = torch.arange(self.length + 2 * ITEMS, device=step.device).unsqueeze(-1)
        blank = self._fill(step, self.length + 2 * ITEMS, BLANK)
        shown = torch.cat((symbols, blank[ITEMS:]))
        x = torch.where(time == lag + ITEMS - 1, MARKER, shown)
        recalled = time - lag - ITEMS
        copied = symbols.gather(0, recalled.clamp(0, ITEMS - 1).expand(-1, self.batch_size))
        y = torch.where((recalled >= 0) & (recalled < ITEMS), copied, blank)
        mask = (recalled < ITEMS).float().expand(-1, self.batch_size)
        return Batch(one_hot(x, self.inputs), y, mask)

    def baseline(self) -> float:
        return sum(ITEMS * log(SYMBOLS) / (lag + 2 * ITEMS) for lag in range(1, self.length + 1)) / self.length

    def guessing(self, split: HeldOut) -> float:
        """By the lags of its batches: few lags may cost a tenth more or less than all."""
        batches = [self.evaluation(split, index, {}) for index in range(self.evaluations(split))]
        steps = [float(batch.mask[:, 0].sum()) for batch in batches if batch.mask is not None]
        return sum(ITEMS * log(SYMBOLS) / count for count in steps) / len(steps)


@dataclass(frozen=True)
class Denoising(Recall):
    """Ten symbols at random places among noise, a marker, ten blanks to recall them in (Jing et al., 2017).

    ``length`` + 11 steps, distinct places; the loss of guessing is 10 ln 8 / (``length`` + 11).

    Args:
        length: T, the symbols and the noise before the marker; at least 10.
        batch_size, evaluation_batches, random_labels: as for :class:`Copying`.
    """

    length: int = 100
    batch_size: int = 10
    evaluation_batches: int = 10
    random_labels: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, self.length, ITEMS)

    @property
    def draws(self) -> int:
        return ((2 if self.random_labels else 1) * ITEMS + self.length) * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        count = ITEMS * self.batch_size
        symbols, recalled = self._symbols(uniforms[:count]), self._symbols(uniforms[-count:])
        keys = uniforms[count : count + self.length * self.batch_size].view(self.length, self.batch_size)
        places = torch.argsort(keys, dim=0, stable=True)[:ITEMS].sort(0).values
        at = torch.arange(self.length, device=step.device).view(-1, 1, 1) == places
        shown = BLANK + (at * (symbols - BLANK)).sum(1)
        x = torch.cat((shown, self._fill(step, 1, MARKER), self._fill(step, ITEMS, BLANK)))
        targets = recalled if self.random_labels else symbols
        return Batch(one_hot(x, self.inputs), torch.cat((self._fill(step, self.length + 1, BLANK), targets)))

    def baseline(self) -> float:
        return ITEMS * log(SYMBOLS) / (self.length + 1 + ITEMS)

    def threshold(self) -> float:
        """A tenth of the baseline; nan with random labels."""
        return float("nan") if self.random_labels else super().threshold()


@dataclass(frozen=True)
class CopyLast(Recall):
    """Ten symbols, a gap, the marker ten times; the loss counts only the last ten steps (Gu et al., 2020).

    The loss of guessing is ln 8.

    Args:
        length: steps of a sequence in all; at least 20.
        batch_size, evaluation_batches: as for :class:`Copying`.
    """

    length: int = 500
    batch_size: int = 10
    evaluation_batches: int = 10
    judged: Literal["test", "train"] = "test"

    def __post_init__(self) -> None:
        check_sizes(self, self.length, 2 * ITEMS)

    @property
    def draws(self) -> int:
        return ITEMS * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        symbols, gap = self._symbols(uniforms), self._fill(step, self.length - 2 * ITEMS, BLANK)
        before = self._fill(step, self.length - ITEMS, BLANK)
        x = torch.cat((symbols, gap, self._fill(step, ITEMS, MARKER)))
        mask = torch.cat((before * 0, torch.ones_like(symbols))).float()
        return Batch(one_hot(x, self.inputs), torch.cat((before, symbols)), mask)

    def baseline(self) -> float:
        return log(SYMBOLS)
