"""Sums over sections of a vector, and along time."""

import numpy as np
import pytest
import torch
from torch import nn

from numerate.results import Store
from numerate.tasks import RecurrentArithmetic, StaticArithmetic
from numerate.tasks.sections import mean_square, sections
from numerate.train import Training, train


def expected(operation, a, b):
    return {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "square": a**2, "sqrt": a**0.5, "a": a}[operation]


def test_sections_are_apart_and_lie_anywhere_in_either_order():
    places = {sections(seed, 6, 2) for seed in range(500)}
    assert places == {(a, b) for a in range(5) for b in range(5) if abs(a - b) >= 2}


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "square", "sqrt", "a"])
def test_the_target_of_a_vector(operation):
    task = StaticArithmetic(operation, inputs=20, section=4)
    x, y = task.examples(torch.rand(50, task.draws), task.constants(5, "train"))
    a, b = (x[:, first : first + 4].sum(-1) for first in sections(5, 20, 4))
    torch.testing.assert_close(y[:, 0], expected(operation, a, b), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "square", "sqrt", "a"])
@pytest.mark.parametrize("length", [1, 3, 50])
def test_the_target_of_a_sequence_of_any_length(operation, length):
    task = RecurrentArithmetic(operation)
    x, y = task.examples(torch.rand(50, 1 + 10 * length), task.constants(5, "train"))
    steps = x.view(50, length, 10)
    a, b = (steps[:, :, first : first + 2].sum((1, 2)) for first in sections(5, 10, 2))
    torch.testing.assert_close(y[:, 0], expected(operation, a, b), rtol=1e-5, atol=1e-4)


def test_one_scale_for_each_example_larger_in_the_test():
    task = StaticArithmetic("add")
    uniforms = torch.rand(500, task.draws)
    train_x, test_x = (task.examples(uniforms, task.constants(0, split))[0] for split in ("train", "test"))
    torch.testing.assert_close(train_x, (0.1 + 0.9 * uniforms[:, :1]) * uniforms[:, 1:])
    torch.testing.assert_close(test_x, (1 + uniforms[:, :1]) * uniforms[:, 1:])


def test_untrained_errors_are_of_the_published_size():
    """a² is 151.7 for a random model of Table 6, and 30.8 times that in extrapolation: about E y², as here."""
    task = StaticArithmetic("square")
    assert mean_square(task, "validation") == pytest.approx(151.7, rel=0.15)
    assert mean_square(task) / mean_square(task, "validation") == pytest.approx(30.8, rel=0.15)


def test_test_sequences_are_longer_and_as_many_as_asked_for():
    task = RecurrentArithmetic("a")
    assert task.draws == 101
    uniforms = task.held_out("test", 6)
    assert uniforms is not None
    assert uniforms.shape == (6, 10_001)
    x, y = task.examples(uniforms, task.constants(0, "test"))
    assert x.shape == (6, 10_000)
    assert np.allclose(y[:, 0], 1000 * 2 * 0.5 * (0.1 + 0.9 * uniforms[:, 0]), rtol=0.1)
    assert task.held_out("validation", 6) is None


@pytest.mark.parametrize("task", [StaticArithmetic("add"), RecurrentArithmetic("mul", test_length=20)])
def test_success_is_one_percent_of_the_answer_zero(task):
    assert task.threshold() == pytest.approx(mean_square(task) / 100)


class LastTwo(nn.Module):
    """Sees as much of a sequence as there is."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.inputs = inputs
        self.weight = nn.Parameter(torch.full((outputs, inputs), 0.1))

    def forward(self, x):
        return x.unflatten(-1, (-1, self.inputs)).sum(-2) @ self.weight.T


@pytest.mark.parametrize("backend", ["auto", "stacked", "eager"])
def test_a_loop_made_for_short_sequences_is_evaluated_on_long_ones(tmp_path, backend):
    task = RecurrentArithmetic("a", length=2, test_length=40)
    training = Training(LastTwo, task, (0, 1), steps=20, batch=8, evaluate_every=10, evaluation_size=50)
    with Store(tmp_path / "a.sqlite") as store:
        train([training], store, backend=backend)
        rows = list(store.rows())
    for row in rows:
        weight = torch.tensor(row.weights["final"]["weight"])
        uniforms = task.held_out("test", 50)
        assert uniforms is not None
        x, y = task.examples(uniforms, task.constants(row.seed, "test"))
        error = ((x.view(50, 40, 10).sum(1) @ weight.T - y) ** 2).mean()
        assert row.curves["test"][-1] == pytest.approx(float(error), rel=1e-4)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="operation must be one of"):
        StaticArithmetic("power")
    with pytest.raises(ValueError, match="two sections of 6 do not fit into 10"):
        RecurrentArithmetic("add", section=6)
    with pytest.raises(ValueError, match="lengths"):
        RecurrentArithmetic("add", test_length=0)
    with pytest.raises(ValueError, match="the test_scale of sqrt must not go below 0"):
        StaticArithmetic("sqrt", test_scale=(-1.0, 1.0))
    with pytest.raises(ValueError, match="the scale of sqrt must not go below 0"):
        RecurrentArithmetic("sqrt", scale=(-1.0, 1.0))
