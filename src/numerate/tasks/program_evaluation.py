"""Evaluating programs whose numbers come as numbers, one at a time step, and larger ones in the test."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.streams import uniform
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import HELD_OUT, Online, integers, one_hot, sum_and_count

SIGNS = ("+", "-", "if", "<", ">", "else")
NONE = len(SIGNS)
"""The sign of a step that has a number."""
PLACES = 8
"""Digits of a prediction that are looked at."""


def matching_digits(prediction: Tensor, target: Tensor) -> Tensor:
    """Share of the digits of the rounded prediction and the target that are equal, units below units; (...) -> (...)

    Where one number is longer, its other digits match nothing. Numbers of different signs have no digit in common.
    """
    ours, theirs = (value.double().round().clamp(1 - 10.0**PLACES, 10.0**PLACES - 1) for value in (prediction, target))
    matching, there = torch.zeros_like(ours), torch.zeros_like(ours)
    for place in range(PLACES):
        first, second = (torch.floor(value.abs() / 10.0**place) for value in (ours, theirs))
        either = torch.maximum(first, second) > 0 if place else torch.ones_like(ours, dtype=torch.bool)
        both = torch.minimum(first, second) > 0 if place else either
        matching = matching + (both & (first.remainder(10) == second.remainder(10)))
        there = there + either
    return torch.where(ours.sign() == theirs.sign(), matching / there, 0.0).float()


def evaluated(operation: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """a + b for operations 0 and 1, a − b for 2 and 3, a if b < c else d for 4, and with > for 5; all (B,) -> (B,)"""
    chosen = torch.where(torch.where(operation == 4, b < c, b > c), a, d)
    return torch.where(operation < 2, a + b, torch.where(operation < 4, a - b, chosen))


class Steps(NamedTuple):
    """Programs as written: at each step a number, or a sign, or nothing; three of (T, B)."""

    values: Tensor
    signs: Tensor
    there: Tensor

    @classmethod
    def of(cls, number: Tensor) -> "Steps":
        """Programs of one number."""
        first = number.unsqueeze(0)
        return cls(first, torch.full_like(first, NONE), torch.ones_like(first))

    def followed(self, operation: Tensor, b: Tensor, c: Tensor, d: Tensor) -> "Steps":
        """With one operation more: + b, − b, or if b < c else d."""
        zero, none, one = torch.zeros_like(b), torch.full_like(b, NONE), torch.ones_like(b)
        short = operation < 4
        longer = torch.where(short, zero, one)
        first = torch.where(short, operation // 2, SIGNS.index("if"))
        comparison = torch.where(operation == 4, SIGNS.index("<"), SIGNS.index(">"))
        added = (
            torch.stack((zero, b, zero, c, zero, d)),
            torch.stack((first.float(), none, comparison.float(), none, torch.full_like(b, SIGNS.index("else")), none)),
            torch.stack((one, one, longer, longer, longer, longer)),
        )
        return Steps(*(torch.cat((old, new)) for old, new in zip(self, added)))

    def encoded(self) -> Tensor:
        """Numbers and one-hot signs, those steps first that are not there, as zeros; (T, B, 1 + signs)"""
        steps = torch.cat((self.values.unsqueeze(-1), one_hot(self.signs.long(), len(SIGNS))), -1)
        order = self.there.argsort(dim=0, stable=True)
        return (steps * self.there.unsqueeze(-1)).gather(0, order.unsqueeze(-1).expand_as(steps))


@dataclass(frozen=True)
class ProgramEvaluation(Online):
    """What a program computes; its numbers are whole numbers of up to ``digits`` digits, read one at a time.

    ``addition``: two numbers, one after the other, are to be added; x: (2, B, 1). ``control``: operations from left to
    right, each a + b, a − b, or a if b < c else d (or >), where a is what was computed so far; x: (T, B, 7), a number
    and the one-hot signs, zero before the first step of a shorter program. y: (B, 1).

    Validation and test have, one after the other, ``batch_size`` programs of numbers as in training, then as many of
    numbers with one digit more than that, and so on up to ``test_digits``.

    Args:
        kind: ``addition`` or ``control``.
        digits: of the numbers of training: from 0 to below 10 to that power.
        test_digits: of the largest numbers of the test.
        operations: of a program of ``control``.
        batch_size: programs of a batch.
        evaluation_batches: of validation, and of test.
    """

    kind: Literal["addition", "control"] = "addition"
    digits: int = 2
    test_digits: int = 4
    operations: int = 2
    batch_size: int = 128
    evaluation_batches: int = 8
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("kind", self.kind, ("addition", "control"))
        for name in ("digits", "test_digits", "operations", "batch_size", "evaluation_batches"):
            positive(name, getattr(self, name))
        if not self.digits <= self.test_digits <= 6:
            raise ValueError(f"test_digits must be from {self.digits} to 6, got {self.test_digits}")

    @property
    def inputs(self) -> int:
        return 1 if self.kind == "addition" else 1 + len(SIGNS)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def ranges(self) -> tuple[int, ...]:
        """Digits of the numbers of each part of an evaluation batch."""
        return tuple(range(self.digits, self.test_digits + 1))

    @property
    def draws(self) -> int:
        """Numbers, and for each operation of ``control`` which it is."""
        each = 2 if self.kind == "addition" else 1 + 4 * self.operations
        return self.batch_size * each

    def baseline(self) -> float:
        return 1.0

    def threshold(self) -> float:
        """One wrong digit in a hundred, of numbers as in training."""
        return 0.01

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        return self._programs(uniforms, 0.0, 10.0**self.digits)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        seed, domain = HELD_OUT[split]
        parts = []
        for number, digits in enumerate(self.ranges):
            low = 10.0 ** (digits - 1) if number else 0.0
            drawn = uniform(torch.tensor(seed), domain, index * len(self.ranges) + number, self.draws)
            parts.append(self._programs(drawn, low, 10.0**digits))
        return Batch(torch.cat([part.x for part in parts], 1), torch.cat([part.y for part in parts]))

    def _programs(self, uniforms: Tensor, low: float, high: float) -> Batch:
        """Programs of whole numbers from ``low`` to below ``high``."""
        rows = uniforms.view(-1, self.batch_size)
        if self.kind == "addition":
            x = low + torch.floor(rows * (high - low))
            return Batch(x.unsqueeze(-1), x.sum(0).unsqueeze(-1))
        numbers = low + torch.floor(rows[self.operations :] * (high - low))
        result, steps = numbers[0], Steps.of(numbers[0])
        for operation, (b, c, d) in zip(integers(rows[: self.operations], 6), numbers[1:].view(self.operations, 3, -1)):
            result = evaluated(operation, result, b, c, d)
            steps = steps.followed(operation, b, c, d)
        return Batch(steps.encoded(), result.unsqueeze(-1))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The root of the mean squared error."""
        return ((prediction - batch.y).square().mean() + 1e-12).sqrt()

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong digits, numbers as in training; ``matching_3``: of right ones, of three digits."""
        shares = matching_digits(prediction, batch.y).view(len(self.ranges), -1)
        found = {f"matching_{digits}": sum_and_count(share) for digits, share in zip(self.ranges, shares)}
        return {"error": sum_and_count(1 - shares[0]), **found}
