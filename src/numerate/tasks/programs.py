"""Learning to execute: short programs, character by character, and what they compute (Zaremba & Sutskever, 2014).

Programs as Santoro et al. (2018) make them: ``nesting`` operations, of which each takes the result of the one before as
its first operand and fresh numbers of ``length`` digits as the others; the result is taken modulo 10^(length + 1).
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.streams import Domain, words
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import HELD_OUT, masked_mean, one_hot, step_losses, sum_and_count

SYMBOLS = "0123456789+-*()<>=[]xiforels."
PADDING = SYMBOLS.index(".")
WORDS = 8
"""Random words that an operation may need: its choice, four operands, a comparison, a number of repeats."""

Term = tuple[int, str]
Draw = Callable[[int, int], int]
"""(least, most) -> a whole number between them."""


def add(a: Term, number: Callable[[], Term], draw: Draw) -> Term:
    b = number()
    return a[0] + b[0], f"{a[1]}+{b[1]}"


def subtract(a: Term, number: Callable[[], Term], draw: Draw) -> Term:
    b = number()
    return a[0] - b[0], f"{a[1]}-{b[1]}"


def multiply(a: Term, number: Callable[[], Term], draw: Draw) -> Term:
    b = number()
    return a[0] * b[0], f"{a[1]}*{b[1]}"


def choose(a: Term, number: Callable[[], Term], draw: Draw) -> Term:
    """``a if b<c else d``, without blanks"""
    b, c, d = number(), number(), number()
    sign = "<>"[draw(0, 1)]
    holds = b[0] < c[0] if sign == "<" else b[0] > c[0]
    return (a if holds else d)[0], f"{a[1]}if{b[1]}{sign}{c[1]}else{d[1]}"


def repeat(a: Term, number: Callable[[], Term], draw: Draw) -> Term:
    """``x=a for[n] x+=b``, without blanks: a + n b"""
    b, times = number(), draw(1, 9)
    return a[0] + times * b[0], f"x={a[1]}for[{times}]x+={b[1]}"


Operation = Callable[[Term, Callable[[], Term], Draw], Term]
KINDS: dict[str, tuple[Operation, ...]] = {
    "addition": (add,),
    "control": (choose, repeat),
    "program": (add, subtract, multiply, choose, repeat),
}


def program(kind: str, length: int, nesting: int, random: Iterator[int]) -> tuple[str, str]:
    """A program and its answer, from random 32-bit words."""

    def draw(least: int, most: int) -> int:
        return least + (next(random) * (most - least + 1) >> 32)

    def number() -> Term:
        value = draw(10 ** (length - 1), 10**length - 1)
        return value, str(value)

    value, code = number()
    for _ in range(nesting):
        operations = KINDS[kind]
        value, code = operations[draw(0, len(operations) - 1)]((value, code), number, draw)
        code = f"({code})"
    return code[1:-1], str(value % 10 ** (length + 1))


@dataclass(frozen=True)
class Programs:
    """A program is read, then its answer is written while the input is zero (learning to execute).

    x: (T, B, 29) one-hot characters, filled up with ``.``; y, mask: (T, B), the answer in the last steps. In training
    every program has a length from 1 to ``length`` and a nesting from 1 to ``nesting`` (the curriculum Mix); validation
    and test have the largest.

    Args:
        kind: ``addition``, ``control`` (choices and loops) or ``program`` (all operations).
        length: digits of a number; at most 9.
        nesting: operations.
        batch_size: programs of a batch.
        evaluation_batches: of validation, and of test.
        portion: batches of programs that are made at once.
    """

    kind: Literal["addition", "control", "program"] = "addition"
    length: int = 9
    nesting: int = 4
    batch_size: int = 128
    evaluation_batches: int = 10
    portion: int = 50
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("kind", self.kind, tuple(KINDS))
        for name in ("length", "nesting", "batch_size", "evaluation_batches", "portion"):
            positive(name, getattr(self, name))
        if self.length > 9:
            raise ValueError(f"the length of Programs must be at most 9 digits, got {self.length}")

    @property
    def inputs(self) -> int:
        return len(SYMBOLS)

    @property
    def outputs(self) -> int:
        return len(SYMBOLS)

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return False

    @property
    def epoch(self) -> int:
        return self.portion

    @property
    def read_steps(self) -> int:
        """Characters of a program at most, by the bound of Santoro et al.: 163 at length 9 and nesting 4."""
        return (3 * self.length + 12) * (self.nesting - 1) + 4 * self.length + 10

    @property
    def answer_steps(self) -> int:
        return 2 * self.length

    def data(self) -> Data:
        found: Data = {}
        for split, (seed, domain) in HELD_OUT.items():
            made = self._made(seed, domain, 0, self.evaluation_batches, mixed=False)
            found |= {f"{split}_{name}": value for name, value in made.items()}
        return found

    def order(self, seed: int, epoch: int) -> Data:
        return self._made(seed, Domain.TRAIN, epoch, self.portion, mixed=True)

    def _made(self, seed: int, domain: Domain, step: int, batches: int, mixed: bool) -> Data:
        """``programs``: (batches, B, characters), ``answers``: (batches, B, digits), both filled up."""
        count, needed = batches * self.batch_size, 4 + WORDS * self.nesting
        drawn = words(torch.tensor(seed), int(domain), step, count * needed).view(count, needed).tolist()
        programs = torch.full((count, self.read_steps), PADDING, dtype=torch.uint8)
        answers = torch.full((count, self.answer_steps), PADDING, dtype=torch.uint8)
        for row, numbers in enumerate(drawn):
            random = iter(numbers)
            length, nesting = (
                1 + (next(random) * most >> 32) if mixed else most for most in (self.length, self.nesting)
            )
            for text, into in zip(program(self.kind, length, nesting, random), (programs, answers)):
                into[row, : len(text)] = torch.tensor([SYMBOLS.index(symbol) for symbol in text], dtype=torch.uint8)
        shape = batches, self.batch_size, -1
        return {"programs": programs.view(shape), "answers": answers.view(shape)}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        index = (step % self.portion).view(1)
        return self._sequences(*(data[name].index_select(0, index).squeeze(0) for name in ("programs", "answers")))

    def evaluations(self, split: HeldOut) -> int:
        return self.evaluation_batches

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        return self._sequences(data[f"{split}_programs"][index], data[f"{split}_answers"][index])

    def _sequences(self, programs: Tensor, answers: Tensor) -> Batch:
        """(B, characters) and (B, digits) -> a batch of characters + digits steps"""
        read, answer = programs.T.long(), answers.T.long()
        x = one_hot(torch.cat((read, torch.full_like(answer, self.inputs))), self.inputs)
        mask = torch.cat((torch.zeros_like(read), (answer != PADDING).long())).float()
        return Batch(x, torch.cat((torch.zeros_like(read), answer)), mask)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats a digit; prediction: (T, B, 29)"""
        return masked_mean(step_losses(prediction, batch.y), batch.mask)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: share of wrong digits; ``accuracy``: of right ones; ``answers``: share of right answers."""
        assert batch.mask is not None
        right = (prediction.argmax(-1) == batch.y).float()
        whole = ((right + (1 - batch.mask)) > 0).all(0).float()
        return {
            "error": sum_and_count(1 - right, batch.mask),
            "accuracy": sum_and_count(right, batch.mask),
            "answers": sum_and_count(whole),
        }

    def threshold(self) -> float:
        return float("nan")
