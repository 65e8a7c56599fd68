"""The identity task: exact integers, the error of the answer 0."""

import pytest
import torch
from torch import nn

from numerate.results import Store
from numerate.tasks import Identity
from numerate.train import Training, stack, train


class Zero(nn.Module):
    """Answers 0, times a weight that the loop may train."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))

    def forward(self, x):
        return x @ self.weight.T * 0


def test_the_test_set_is_every_integer_exactly():
    task = Identity()
    uniforms = task.held_out("test", 7)
    assert uniforms is not None
    x, y = task.examples(uniforms, task.constants(0, "test"))
    assert x[:, 0].tolist() == list(range(-1000, 1001))
    assert torch.equal(x, y)


def test_training_stays_within_its_range():
    task = Identity((-5.0, 5.0))
    x, _ = task.examples(torch.tensor([[0.0], [0.5], [1 - 2**-24]]), task.constants(0, "train"))
    assert x[:, 0].tolist() == pytest.approx([-5, 0, 5])
    assert task.held_out("validation", 7) is None


@pytest.mark.parametrize("backend", ["auto", "stacked", "eager"])
def test_the_answer_0_costs_500_25(tmp_path, backend):
    training = Training(Zero, Identity(), (0,), steps=2, batch=4, evaluate_every=1, evaluation_size=400)
    with Store(tmp_path / "a.sqlite") as store:
        train([training], store, backend=backend)
        (row,) = store.rows()
    assert row.scores["best_test"] == pytest.approx(500.25, abs=1e-3)
    assert row.scores["best_test"] == pytest.approx(Identity().zero_error())
    assert 2 < row.scores["best_validation"] < 3  # mean |x| on [-5, 5), not its square


def test_evaluation_takes_the_tasks_own_examples_where_it_has_some():
    training = Training(Zero, Identity(), (0,), evaluation_size=8)
    assert stack.evaluation_uniforms(training, "test").shape == (2001, 1)
    assert stack.evaluation_uniforms(training, "validation").shape == (8, 1)


def test_ranges_that_are_none_are_refused():
    with pytest.raises(ValueError, match="train_range"):
        Identity((5.0, -5.0))
    with pytest.raises(ValueError, match="furthest"):
        Identity(furthest=0)
