"""Numbers in words and programs of numbers: each example is what its definition says."""

import re

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from numerate.tasks import NumberWords, ProgramEvaluation
from numerate.tasks.number_words import SIZES, VOCABULARY, divided, spelt
from numerate.tasks.program_evaluation import SIGNS, matching_digits


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety nine"),
        (100, "one hundred"),
        (201, "two hundred and one"),
        (515, "five hundred and fifteen"),
        (999, "nine hundred and ninety nine"),
    ],
)
def test_numbers_are_spelt_as_in_english(number: int, words: str) -> None:
    assert " ".join(spelt(number)) == words


@pytest.mark.parametrize("seed", [0, 7])
def test_the_three_parts_are_all_numbers_and_training_has_every_word(seed: int) -> None:
    parts = divided(seed)
    assert {name: len(numbers) for name, numbers in parts.items()} == {"train": 169, "validation": 200, "test": 631}
    assert sorted(number for numbers in parts.values() for number in numbers) == list(range(1000))
    assert set(range(20)) < set(parts["train"])
    assert {word for number in parts["train"] for word in spelt(number)} == set(VOCABULARY)


def test_words_come_one_hot_and_nothing_follows_the_last() -> None:
    task = NumberWords()
    data = task.data()
    batch = task.batch(torch.tensor(3), torch.tensor(5), data)
    for column, number in enumerate(batch.y[:, 0].long().tolist()):
        steps = batch.x[:, column]
        read = [VOCABULARY[int(step.argmax())] for step in steps if step.any()]
        assert read == spelt(number)
        assert not steps[len(read) :].any()
    assert torch.equal(task.evaluation("test", 1, data).x, batch.x)


def test_errors_of_words_are_absolute_and_those_of_training_have_their_own_name() -> None:
    task = NumberWords()
    data = task.data()
    for split, index, names in (("test", 0, {"error", "right"}), ("test", 1, {"fitted", "fitted_right"})):
        batch = task.evaluation(split, index, data)  # type: ignore[arg-type]
        found = task.measures(batch.y + 0.25, batch)
        assert set(found) == names
        assert [float(total / count) for total, count in found.values()] == pytest.approx([0.25, 1.0])
    train = task.evaluation("test", 1, data)
    assert float(task.loss(train.y + 3, train)) == pytest.approx(9)
    assert float(NumberWords("absolute").loss(train.y + 3, train)) == pytest.approx(3)
    assert len(train.y) == SIZES["train"]


def written(steps: Tensor) -> str:
    """The program of (T, 7), without blanks."""
    signs = [SIGNS[int(step[1:].argmax())] if step[1:].any() else f"{int(step[0])}" for step in steps]
    return " ".join(signs)


def computed(program: str) -> int:
    """By Python, from left to right."""
    value, rest = re.match(r"(?:0 )*?(\d+)((?: (?:[+-]|if) .*)?)$", program).groups()  # type: ignore[union-attr]
    value = int(value)
    while rest:
        operation, rest = re.match(r" ([+-] \d+|if \d+ [<>] \d+ else \d+)(.*)$", rest).groups()  # type: ignore[union-attr]
        value = eval(f"{value} {operation}")
    return value


def test_programs_compute_what_python_says() -> None:
    task = ProgramEvaluation("control", operations=3)
    batch = task.batch(torch.tensor(1), torch.tensor(2), {})
    programs = [written(batch.x[:, column]) for column in range(task.batch_size)]
    assert [computed(program) for program in programs] == batch.y[:, 0].long().tolist()
    assert {sign for sign in SIGNS if any(f" {sign} " in program for program in programs)} == set(SIGNS)
    stacked = vmap(lambda seed: task.batch(seed, torch.tensor(2), {}).x)(torch.tensor([0, 1]))
    assert torch.equal(stacked[1], batch.x)


@pytest.mark.parametrize("kind", ["addition", "control"])
def test_larger_numbers_are_tested_beside_those_of_training(kind: str) -> None:
    task = ProgramEvaluation(kind, batch_size=50, evaluation_batches=1)  # type: ignore[arg-type]
    batch = task.evaluation("test", 0, {})
    ends = batch.x[-1, :, 0].view(3, 50)  # the last step is a number
    assert [bool(((low <= row) & (row < high)).all()) for row, low, high in zip(ends, (0, 100, 1000), (100, 1e3, 1e4))]
    found = task.measures(batch.y + torch.tensor([0.4, 0.0, 7e7]).repeat_interleave(50).unsqueeze(-1), batch)
    shares = {name: float(total / count) for name, (total, count) in found.items()}
    assert shares["error"] == 0
    assert shares["matching_2"] == shares["matching_3"] == 1
    assert shares["matching_4"] < 1


def test_digits_match_by_their_place() -> None:
    pairs = {
        (123, 129): 2 / 3,
        (145, 45): 2 / 3,
        (5, 1005): 1 / 4,
        (-3, 3): 0,
        (0.3, 0): 1,
        (-17.4, -17): 1,
        (9.6, 10): 1,
    }
    ours, theirs = torch.tensor(list(pairs)).T
    assert matching_digits(ours, theirs).tolist() == pytest.approx(list(pairs.values()))
    assert matching_digits(torch.tensor(float("nan")), torch.tensor(5.0)) == 0


def test_sizes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="kind must be"):
        ProgramEvaluation("product")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="test_digits must be from 2 to 6, got 1"):
        ProgramEvaluation(test_digits=1)
    with pytest.raises(ValueError, match="loss_of must be"):
        NumberWords("cubed")  # type: ignore[arg-type]
