"""Sequences: each example is what its definition says, and guessing costs what the closed form says."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from numerate.data import mnist, ptb
from numerate.streams import Domain, uniform
from numerate.tasks import (
    Adding,
    Characters,
    Copying,
    CopyLast,
    Counting,
    Denoising,
    PermutedPixels,
    SelectiveCopying,
    VariableCopying,
)
from numerate.tasks.batches import Batch
from numerate.tasks.online import step_losses
from numerate.tasks.pixels import PERMUTATIONS, bit_reversal

BLANK, MARKER = 8, 9
TASKS = [
    Copying(7, 3),
    Copying(7, 3, random_labels=True),
    Copying(7, 3, reset_every=2),
    VariableCopying(7, 3),
    Denoising(13, 3),
    Denoising(13, 3, random_labels=True),
    CopyLast(25, 3),
    Adding(9, 3),
    SelectiveCopying(9, 3, 5, batch_size=3),
    Counting(3, 5, 7, batch_size=4),
]


def training_batch(task, seed: int = 0, step: int = 0) -> Batch:
    return task.batch(torch.tensor(seed), torch.tensor(step), task.data())


def memoryless(batch: Batch, known: Tensor) -> Tensor:
    """The logits of the best guess: blank where the target must be blank, else any of eight symbols."""
    guess = torch.zeros(9).index_fill(0, torch.tensor([BLANK]), -math.inf)
    blank = torch.full((9,), -math.inf).index_fill(0, torch.tensor([BLANK]), 0.0)
    return torch.where(known.unsqueeze(-1), blank, guess).nan_to_num(neginf=-1e9)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_batch_depends_on_seed_and_step_alone_and_stacks(task):
    seeds, steps = torch.tensor([3, 3, 4]), torch.tensor([5, 6, 5])
    stacked = vmap(lambda seed, step: tuple(task.batch(seed, step, {})[:2]))(seeds, steps)
    for row in range(3):
        single = training_batch(task, int(seeds[row]), int(steps[row]))
        assert torch.equal(stacked[0][row], single.x)
        assert torch.equal(stacked[1][row], single.y)
    assert not torch.equal(stacked[0][0], stacked[0][1])
    assert not torch.equal(stacked[0][0], stacked[0][2])


@pytest.mark.parametrize("classes", [2, 9, 16, 17, 50])
def test_losses_of_steps_are_those_of_the_definition(classes):
    """log(sum exp z) - z of the target, and its gradient softmax(z) - 1 at the target."""
    logits = (5 * torch.randn(7, 3, classes)).requires_grad_()
    targets = torch.randint(classes, (7, 3))
    found = step_losses(logits, targets)
    z = logits.detach().double()
    chosen = torch.nn.functional.one_hot(targets, classes)
    torch.testing.assert_close(found.double(), z.exp().sum(-1).log() - (z * chosen).sum(-1), rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(
        gradient.double(), z.exp() / z.exp().sum(-1, keepdim=True) - chosen, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_held_out_batches_are_fixed_and_differ_from_each_other(task):
    found = [task.evaluation(split, index, {}).x for split in ("validation", "test") for index in (0, 1)]
    again = task.evaluation("test", 1, {}).x
    assert torch.equal(found[-1], again)
    assert all(not torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])
    assert task.evaluations("test") == task.evaluation_batches


def test_copying_shows_ten_symbols_then_blanks_the_marker_and_blanks():
    batch = training_batch(Copying(100, 4))
    x, y = batch.x.argmax(-1), batch.y
    assert batch.x.shape == (120, 4, 10)
    assert torch.equal(batch.x.sum(-1), torch.ones(120, 4))
    assert (x[:10] < 8).all()
    assert (x[10:109] == BLANK).all()
    assert (x[109] == MARKER).all()
    assert (x[110:] == BLANK).all()
    assert (y[:110] == BLANK).all()
    assert torch.equal(y[110:], x[:10])


def test_symbols_are_the_eighths_that_uniform_numbers_fall_into():
    numbers = uniform(2, Domain.TRAIN, 5, 30)
    x = training_batch(Copying(4, 3), seed=2, step=5).x.argmax(-1)
    assert x[:10].tolist() == [[int(8 * numbers[3 * i + j]) for j in range(3)] for i in range(10)]


def test_random_labels_have_nothing_to_do_with_the_inputs():
    shown, wanted = [], []
    for step in range(40):
        batch = training_batch(Copying(3, 10, random_labels=True), step=step)
        shown.append(batch.x[:10].argmax(-1))
        wanted.append(batch.y[-10:])
    equal = (torch.stack(shown) == torch.stack(wanted)).float().mean().item()
    assert abs(equal - 1 / 8) < 4 * math.sqrt(7 / 64 / 4000)
    assert math.isnan(Copying(random_labels=True).threshold())


def test_a_row_starts_anew_at_every_kth_sequence():
    task = Copying(3, 2, reset_every=3)
    assert task.carries
    resets = [training_batch(task, step=step).reset for step in range(7)]
    assert [bool(reset.all()) for reset in resets if reset is not None] == [True, False, False] * 2 + [True]


def test_variable_lags_put_the_marker_before_the_recalled_symbols():
    task, lags = VariableCopying(20, 2), set()
    for step in range(200):
        x, y, mask, _ = training_batch(task, step=step)
        assert mask is not None
        x, marker = x.argmax(-1), int((x.argmax(-1)[:, 0] == MARKER).nonzero())
        lag = marker - 9
        lags.add(lag)
        assert (x[marker] == MARKER).all()
        assert torch.equal(y[marker + 1 : marker + 11], x[:10])
        assert torch.equal(mask[:, 0], (torch.arange(40) < lag + 20).float())
        others = [t for t in range(40) if not marker < t < marker + 11]
        assert (y[others] == BLANK).all()
    assert lags == set(range(1, 21))


def test_selective_copying_asks_for_the_symbols_in_their_order():
    task = SelectiveCopying(30, 4, 6, batch_size=50)
    batch = training_batch(task)
    x = batch.x.argmax(-1)
    assert batch.x.shape == (34, 50, 8)
    assert (x[30:] == 7).all()
    for row in range(50):
        assert [symbol for symbol in x[:30, row].tolist() if symbol < 6] == batch.y[:, row].tolist()
    right = torch.zeros(34, 50, 6)
    right[30:] = 9 * torch.nn.functional.one_hot(batch.y, 6)
    assert task.measures(right, batch)["error"].tolist() == [0, 200]
    guess = task.measures(torch.zeros(34, 50, 6), batch)
    assert (guess["loss"][0] / guess["loss"][1]).item() == pytest.approx(math.log(6))


@pytest.mark.parametrize("modulus", [2, 5])
def test_counting_tells_the_number_of_ones_so_far_and_is_tested_on_longer_sequences(modulus):
    task = Counting(modulus, 11, 40, batch_size=3)
    for batch, steps in ((training_batch(task), 11), (task.evaluation("test", 0, {}), 40)):
        bits = batch.x.argmax(-1)
        assert batch.x.shape == (steps, 3, 2)
        for row in range(3):
            assert batch.y[:, row].tolist() == [sum(bits[: t + 1, row].tolist()) % modulus for t in range(steps)]
    wrong = torch.nn.functional.one_hot((batch.y + 1) % modulus, modulus).float()
    assert task.measures(wrong, batch)["error"].tolist() == [120, 120]
    with pytest.raises(ValueError, match="tested must be at least the length of training, 11, got 4"):
        Counting(modulus, 11, 4)


def test_denoising_hides_ten_symbols_in_order():
    batch = training_batch(Denoising(30, 50))
    x, y = batch.x.argmax(-1), batch.y
    assert x.shape == (41, 50)
    assert (x[30] == MARKER).all()
    for row in range(50):
        shown = x[:30, row]
        assert shown[shown != BLANK].tolist() == y[31:, row].tolist()
    share = (x[:30] != BLANK).float().mean(1)
    assert (share - 1 / 3).abs().max() < 5 * math.sqrt(2 / 9 / 50)  # every place alike


def test_copy_last_counts_the_last_ten_steps():
    batch = training_batch(CopyLast(25, 3))
    x = batch.x.argmax(-1)
    assert (x[10:15] == BLANK).all()
    assert (x[15:] == MARKER).all()
    assert torch.equal(batch.y[15:], x[:10])
    assert batch.mask is not None
    assert batch.mask.sum(0).tolist() == [10.0] * 3


def test_adding_marks_one_number_in_each_half():
    batch = training_batch(Adding(9, 400))
    numbers, marks = batch.x.unbind(-1)
    assert torch.equal(marks[:4].sum(0), torch.ones(400))
    assert torch.equal(marks[4:].sum(0), torch.ones(400))
    assert (marks.sum(1) > 0).all()
    torch.testing.assert_close(batch.y[:, 0], (numbers * marks).sum(0))
    always_one = Adding().loss(torch.ones(400, 1), batch).item()
    assert abs(always_one - 1 / 6) < 4 * math.sqrt(7 / 180 / 400)  # Var (s - 1)² = 1/15 - 1/36


@pytest.mark.parametrize(
    ("task", "printed"),
    [
        (Copying(100), 0.1733),
        (Copying(200), 0.0945),
        (Copying(100, random_labels=True), 0.1733),
        (Denoising(100), 0.1873),
        (CopyLast(500), 2.0794),
    ],
    ids=str,
)
def test_guessing_costs_the_baseline(task, printed):
    batch = training_batch(task)
    logits = memoryless(batch, batch.y == BLANK)
    assert task.baseline() == pytest.approx(printed, abs=5e-5)
    assert task.loss(logits, batch).item() == pytest.approx(task.baseline(), rel=1e-5)
    sums = task.measures(logits, batch)["error"]
    assert (sums[0] / sums[1]).item() == pytest.approx(task.baseline(), rel=1e-5)


def test_guessing_costs_the_mean_over_lags():
    task = VariableCopying(5, 2)
    by_lag = {}
    for step in range(60):
        batch = training_batch(task, step=step)
        assert batch.mask is not None
        by_lag[int(batch.mask[:, 0].sum())] = task.loss(memoryless(batch, batch.y == BLANK), batch).item()
    assert sorted(by_lag) == [21, 22, 23, 24, 25]
    assert sum(by_lag.values()) / 5 == pytest.approx(task.baseline(), rel=1e-5)


def test_a_right_answer_is_counted():
    batch = training_batch(Copying(5, 2))
    right = 50.0 * torch.nn.functional.one_hot(batch.y, 9)
    found = Copying(5, 2).measures(right, batch)
    assert found["accuracy"].tolist() == [20.0, 20.0]
    assert found["error"][0] < 1e-6


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Copying(0), "the length of Copying must be an integer of at least 1, got 0"),
        (lambda: Denoising(9), "the length of Denoising must be an integer of at least 10, got 9"),
        (lambda: CopyLast(19), "the length of CopyLast must be an integer of at least 20, got 19"),
        (lambda: Adding(1), "the length of Adding must be an integer of at least 2, got 1"),
        (lambda: Copying(5, 0), "batch_size must be a positive whole number, got 0"),
        (lambda: Copying(5, reset_every=0), "reset_every must be a positive whole number, got 0"),
        (lambda: PermutedPixels("random"), "permutation must be one of 'nru', 'urnn', 'bit reversal', 'none'"),  # pyright: ignore[reportArgumentType]
        (lambda: Characters(10_000, 150), "the text does not fill a batch of 150 steps in 10,000 columns"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        make()


def test_bit_reversal_starts_as_printed():
    order = bit_reversal(784)
    assert order[:8] == [0, 512, 256, 768, 128, 640, 384, 64]
    assert sorted(order) == list(range(784))
    assert [bit_reversal(n) for n in (1, 2, 3)] == [[0], [0, 1], [0, 2, 1]]


def test_permutations_are_those_of_the_codes():
    pixels = np.arange(784)
    np.random.RandomState(92916).shuffle(pixels)
    assert PERMUTATIONS["urnn"](784, 60_000) == pixels.tolist()
    assert sorted(PERMUTATIONS["nru"](784, 60_000)) == list(range(784))
    assert PERMUTATIONS["none"](4, 9) == [0, 1, 2, 3]


def test_pixels_are_split_permuted_and_ended_by_a_zero(small_mnist):
    task, images = PermutedPixels(batch_size=50), mnist.load()
    data = task.data() | task.order(seed=1, epoch=0)
    random = np.random.RandomState(50)
    order, pixels = random.permutation(300), random.permutation(9)
    assert torch.equal(data["train"], images.train.flatten(1)[order][:, pixels][:250])
    assert torch.equal(data["validation_labels"], images.train_labels[order][250:])
    assert task.epoch == 5
    seen = []
    for step in range(5):
        batch = task.batch(torch.tensor(1), torch.tensor(step + 5), data)
        assert batch.x.shape == (10, 50, 1)
        assert not batch.x[-1].any()
        seen += (batch.x[:-1, :, 0].T * 255).round().long().tolist()
    assert sorted(seen) == sorted(data["train"].tolist())  # every image once an epoch
    other = task.order(seed=1, epoch=1)["order"]
    assert not torch.equal(other, data["order"])
    assert task.evaluations("validation") == task.evaluations("test") == 1
    fewer = PermutedPixels(batch_size=50, held_out=20)
    assert fewer.evaluation("test", 0, fewer.data()).y.tolist() == images.test_labels[:20].tolist()


def test_characters_go_on_where_the_batch_before_ended(small_ptb):
    task = Characters(batch_size=4, length=11)
    data = task.data()
    text = [symbol for column in data["train"].T for symbol in column.tolist()]
    first, second = (task.batch(torch.tensor(0), torch.tensor(step), data) for step in (0, 1))
    assert torch.equal(first.y[:-1], first.x.argmax(-1)[1:])
    assert torch.equal(second.x.argmax(-1)[0], first.y[-1])
    assert text[:12] == [*first.x.argmax(-1)[:, 0].tolist(), int(first.y[-1, 0])]
    assert first.reset is not None
    assert second.reset is not None
    assert first.reset.all()
    assert not second.reset.any()
    anew = task.batch(torch.tensor(0), torch.tensor(task.epoch), data)
    assert torch.equal(anew.x, first.x)


def test_every_held_out_character_of_a_column_counts_once(small_ptb):
    task = Characters(batch_size=4, length=11)
    data = task.data()
    counts = torch.zeros(2)
    for index in range(task.evaluations("test")):
        batch = task.evaluation("test", index, data)
        counts += task.measures(torch.zeros(11, 4, 50), batch)["error"]
    assert counts[1] == 4 * (ptb.CHARACTERS["test"] // 4 - 1)
    assert (counts[0] / counts[1]).item() == pytest.approx(math.log2(50), rel=1e-5)
