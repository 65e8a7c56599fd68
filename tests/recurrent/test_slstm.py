"""sLSTM where its normaliser starts: large inputs, a state of zeros, and a state with c alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from numerate.loops.toolchain import native
from numerate.recurrent import SLSTM, use_loop
from numerate.recurrent.slstm import slstm

LOOPS = ["plain", pytest.param("native", marks=pytest.mark.skipif(not native.available(), reason="needs a compiler"))]
I, H, B, T = 3, 5, 2, 20  # noqa: E741  the papers' letters; T: steps that a compiled loop is made for


def results(layer: SLSTM, x: Tensor, state: tuple[Tensor, ...] | None, loop: Any) -> list[Tensor]:
    """Outputs, final state and all gradients."""
    x = x.clone().requires_grad_()
    given = tuple(part.clone().requires_grad_() for part in state or ())
    with use_loop(loop):
        output, final = layer(x, given or None)
    above = sum(part.sin().sum() for part in (output, *final))
    return [output, *final, *torch.autograd.grad(above, [x, *given, *layer.parameters()])]  # type: ignore[list-item]


def zeros(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(1, B, H, dtype=dtype) for _ in range(4))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("forget", ["sigmoid", "exponential"])
@pytest.mark.parametrize("scale", [3e4, 1e6])
def test_large_inputs_have_finite_outputs_and_gradients(loop: Any, forget: Any, scale: float) -> None:
    torch.manual_seed(0)
    found = results(SLSTM(I, H, forget=forget), scale * torch.randn(T, B, I), None, loop)
    assert all(part.isfinite().all() for part in found)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("closed", [-104.0, -500.0])
def test_a_state_of_zeros_survives_a_closed_input_gate(loop: Any, closed: float) -> None:
    layer = SLSTM(I, H)
    with torch.no_grad():
        layer.get_parameter("bias_ih_l0")[:H] = closed
    found = results(layer, torch.randn(T, B, I), zeros(), loop)
    assert all(part.isfinite().all() for part in found)


def test_a_state_of_zeros_is_the_one_before_the_first_step() -> None:
    layer, x = SLSTM(I, H), torch.randn(T, B, I)
    assert torch.equal(layer(x)[0], layer(x, zeros())[0])


def test_one_step_from_n_of_zero_is_the_definition() -> None:
    inlet, forget, candidate, outlet, c, m = torch.randn(6, 50, dtype=torch.float64)
    n = torch.zeros(50, dtype=torch.float64)
    h, *_, new = slstm(inlet, forget, candidate, outlet, c, n, m)
    f, i = (forget + m).exp(), inlet.exp()  # c and n of the definition are those of the state times e^m
    torch.testing.assert_close(h, outlet.sigmoid() * (f * c + i * candidate.tanh()) / (f * n + i))
    assert torch.equal(new, inlet)
