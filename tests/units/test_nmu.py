"""NMU against closed forms: appendices A.3 and B.4 of Madsen & Johansen (2020)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import NMU, nmu

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
normal = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-40)  # products do not underflow


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


@given(st.lists(st.tuples(normal, st.booleans()), min_size=1, max_size=6))
@FEW
def test_binary_weight_selects_factors(case):
    x, chosen = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = 1.0 * math.prod(value for value, used in case if used)
    torch.testing.assert_close(nmu(x, chosen[None]).item(), expected, rtol=1e-12, atol=0)


def test_tiny_factors_are_kept():
    """1 - W is taken first, so that nothing of x is lost where W = 1."""
    x = torch.tensor([1e-30, 3e8])
    assert nmu(x, torch.eye(2)).tolist() == x.tolist()


def test_gradients():
    """Appendix A.3, eqs. 26 and 27."""
    x, weight = double(3).requires_grad_(), double(2, 3, seed=1).requires_grad_()
    upstream = double(2, seed=2)
    z = nmu(x, weight)
    (z * upstream).sum().backward()
    others = (upstream * z)[:, None] / (weight * x + 1 - weight)
    torch.testing.assert_close(weight.grad, others * (x - 1))
    torch.testing.assert_close(x.grad, (others * weight).sum(0))


def test_gradients_survive_a_factor_of_zero():
    """The closed form divides by the factor; the product rule does not."""
    x, weight = torch.tensor([0.0, 3.0], dtype=DOUBLE), torch.ones(1, 2, dtype=DOUBLE, requires_grad=True)
    nmu(x, weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[-3.0, 0.0]]


def test_moments_at_initialisation():
    """Appendix B.4 with Var W = 1/48: E z = 2^-I, Var z = (Var W + 1/4)^I (Var x + 1)^I - 4^-I for inputs of mean 0."""
    unit = NMU(3, 400, dtype=DOUBLE)
    unit.reset_parameters(torch.Generator().manual_seed(0))
    assert unit.weight.var().item() == pytest.approx(1 / 48, rel=0.1)
    spread = 0.7
    weight = torch.empty(400_000, 3, dtype=DOUBLE).uniform_(0.25, 0.75, generator=torch.Generator().manual_seed(1))
    x = spread * double(400_000, 3, seed=2)
    z = torch.vmap(nmu)(x, weight[:, None]).squeeze(-1)
    variance = (1 / 48 + 1 / 4) ** 3 * (spread**2 + 1) ** 3 - 1 / 64
    assert z.mean().item() == pytest.approx(1 / 8, abs=5 * math.sqrt(variance / 400_000))
    assert z.var().item() == pytest.approx(variance, rel=0.03)


def test_init_paper_has_the_printed_variance():
    drawn = torch.cat([NMU(2, 1, init="paper").weight.detach().flatten() for _ in range(1000)])
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.05)
    assert drawn.var().item() == pytest.approx(0.25, rel=0.1)
    assert NMU(2, 1).weight.min() >= 0.25
