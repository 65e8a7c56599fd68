"""Every loop differentiates the mean over the batch, so that a backward not linear in its gradient agrees."""

from typing import Any

import pytest
import torch
from small_steps import largest_difference, make_members, make_state, make_step, make_weights
from torch import Tensor, nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.plain.eager import Eager
from numerate.loops.plain.stacked import Stacked
from numerate.loops.toolchain import native
from numerate.loops.tracing import trace
from numerate.loops.tracing.linearity import is_linear
from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Adam, Training, train


class Softened(torch.autograd.Function):
    """The identity; its backward squashes gradients larger than about 0.01."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient / (1 + 100 * gradient.abs())


class Soft(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((outputs, inputs), 0.5))
        self.factor = nn.Parameter(torch.full((outputs,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return Softened.apply(x @ self.weight.T) * self.factor


@pytest.mark.parametrize("batch", [16, 10])
@pytest.mark.parametrize(
    "make", [Stacked, pytest.param(Cpp, marks=pytest.mark.skipif(not native.available(), reason="needs a compiler"))]
)
def test_a_backward_that_is_not_linear_agrees(make, batch):
    module = Soft(2, 1)
    step = make_step(module, batch=batch, eps=1.0)  # with eps = 1 the size of a gradient shows
    members, table, state = make_members(4, rate=0.1), make_weights(step, 10, 4), make_state(module, 4)
    plain, other = state.take(torch.arange(4)), state.take(torch.arange(4))
    Eager(step).train(plain, members, table, 10)
    make(step).train(other, members, table, 10)
    assert largest_difference(plain, state) > 1e-3
    assert largest_difference(plain, other) < 1e-6


@pytest.mark.skipif(not native.available(), reason="needs a compiler")
def test_a_model_with_such_a_backward_is_trained_by_the_emitted_loop(tmp_path):
    work = Training(Soft, SingleModule("add"), (0,), Adam(1e-2), steps=20, evaluate_every=10, evaluation_size=50)
    with Store(tmp_path / "results.sqlite") as store:
        train([work], store, backend="emitted")
        (row,) = store.rows()
    assert row.curves["validation"][-1] < row.curves["validation"][0]


class Tripled(nn.Module):
    """Its hook multiplies the gradient by 3."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((outputs, inputs), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        prediction = x @ self.weight.T
        if prediction.requires_grad:
            prediction.register_hook(lambda gradient: 3 * gradient)
        return prediction


def test_a_backward_that_is_not_linear_is_told_from_one_that_is(monkeypatch):
    """Of the latter only the sum over the batch is divided; that this holds of every unit is tested with its source."""
    found: list[bool] = []
    monkeypatch.setattr(trace, "is_linear", lambda *arguments: found.append(is_linear(*arguments)) or found[-1])
    for module in (Tripled(2, 1), Soft(2, 1)):
        trace.training_step(make_step(module, batch=4))
    assert found == [True, False]
