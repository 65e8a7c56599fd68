"""Numbers in words, to be read as numbers: "two hundred and one" is 201 (Trask et al., 2018)."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import one_of
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import one_hot, sum_and_count
from numerate.tasks.pixels import keyed_permutation

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
VOCABULARY = (*SMALL, *TENS, "hundred", "and")
LONGEST = 5
"""Words of a number at most: nine hundred and ninety nine."""
NUMBERS = 1000
SIZES = {"train": 169, "validation": 200, "test": 631}


def spelt(number: int) -> list[str]:
    """The words of a number from 0 to 999, with "and" after the hundreds."""
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return [SMALL[hundreds], "hundred", *(["and", *spelt(rest)] if rest else [])]
    if rest < len(SMALL):
        return [SMALL[rest]]
    tens, ones = divmod(rest, 10)
    return [TENS[tens - 2], *([SMALL[ones]] if ones else [])]


@cache
def divided(seed: int) -> dict[str, tuple[int, ...]]:
    """The numbers of each part: 0 to 19 train, with others such that every word is there; the rest as drawn."""
    drawn = [len(SMALL) + int(place) for place in keyed_permutation(seed, 0, NUMBERS - len(SMALL))]
    wanted = (*TENS, "hundred", "and")
    first = dict.fromkeys(next(number for number in drawn if word in spelt(number)) for word in wanted)
    order = [*range(len(SMALL)), *first, *(number for number in drawn if number not in first)]
    parts, start = {}, 0
    for name, size in SIZES.items():
        parts[name] = tuple(order[start : start + size])
        start += size
    return parts


@dataclass(frozen=True)
class NumberWords:
    """The numbers from 0 to 999 in words; 169 of them train, all in one batch, 200 validate, 631 test.

    x: (5, B, 30) one-hot words, zero after the last one; y: (B, 1). The 169 are 0 to 19 and a random choice with every
    word at least once. The division is the same for all runs.

    Args:
        loss_of: ``squared`` or ``absolute`` errors in the loss; errors are reported as absolute ones.
        division: seed of the choice.
    """

    loss_of: Literal["squared", "absolute"] = "squared"
    division: int = 0
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("loss_of", self.loss_of, ("squared", "absolute"))

    @property
    def inputs(self) -> int:
        return len(VOCABULARY)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def batch_size(self) -> int:
        return SIZES["train"]

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return False

    @property
    def epoch(self) -> int | None:
        return None

    def threshold(self) -> float:
        """A mean absolute error of a half: numbers are right when rounded, on the whole."""
        return 0.5

    def data(self) -> Data:
        """``train``, ``validation``, ``test``: numbers (N,); with ``_words``: (5, N), 30 after the last one."""
        found: Data = {}
        for name, numbers in divided(self.division).items():
            rows = [[VOCABULARY.index(word) for word in spelt(number)] for number in numbers]
            filled = [row + [len(VOCABULARY)] * (LONGEST - len(row)) for row in rows]
            found |= {name: torch.tensor(numbers), f"{name}_words": torch.tensor(filled).T.contiguous()}
        return found

    def order(self, seed: int, epoch: int) -> Data:
        return {}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        return self._whole("train", data)

    def evaluations(self, split: HeldOut) -> int:
        return 1 if split == "validation" else 2

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        """All numbers of a split; the second batch of test is the training set."""
        return self._whole("train" if index else split, data)

    def _whole(self, part: str, data: Data) -> Batch:
        return Batch(one_hot(data[f"{part}_words"], self.inputs), data[part].float().unsqueeze(-1))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        errors = prediction - batch.y
        return errors.abs().mean() if self.loss_of == "absolute" else errors.square().mean()

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: mean absolute error; ``right``: share that is right when rounded; both ``fitted`` in training."""
        errors = (prediction - batch.y).abs().squeeze(-1)
        found = {"error": sum_and_count(errors), "right": sum_and_count((errors < 0.5).float())}
        if len(batch.y) != SIZES["train"]:
            return found
        return {"fitted": found["error"], "fitted_right": found["right"]}
