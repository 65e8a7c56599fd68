"""NAU against sums and Glorot's variance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import NAU, nau

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=6))
@FEW
def test_discrete_weights_add_and_subtract(case):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = math.fsum(value * sign for value, sign in case)
    torch.testing.assert_close(nau(x, weight[None]).item(), expected, rtol=1e-12, atol=1e-8)


def test_weights_are_clamped_in_the_equation_too():
    x, weight = torch.tensor([2.0, 3.0]), torch.tensor([[5.0, -0.5]])
    assert nau(x, weight).item() == 2 - 1.5


@pytest.mark.parametrize(("sizes", "radius"), [((2, 1), 0.5), ((100, 2), math.sqrt(6 / 102)), ((10, 2), 0.5)])
def test_initialisation_is_glorot_cut_at_a_half(sizes, radius):
    generator = torch.Generator().manual_seed(0)
    unit = NAU(*sizes)
    drawn = []
    for _ in range(500):
        unit.reset_parameters(generator)
        drawn.append(unit.weight.detach().flatten().clone())
    weight = torch.cat(drawn)
    assert 0.98 * radius < weight.abs().max() <= radius
    assert weight.var().item() == pytest.approx(radius**2 / 3, rel=0.1)
    assert abs(weight.mean()) < 5 * radius / math.sqrt(3 * len(weight))


def test_sum_keeps_the_variance_of_its_inputs():
    """Eq. 28: inputs of mean 0 and variance 1 give variance 2 I / (I + O)."""
    unit = NAU(200, 200)
    unit.reset_parameters(torch.Generator().manual_seed(0))
    z = unit(torch.randn(1000, 200, generator=torch.Generator().manual_seed(1)))
    assert z.var().item() == pytest.approx(1.0, rel=0.05)


def test_init_glorot_is_not_cut():
    unit = NAU(2, 1, init="glorot")
    unit.reset_parameters(torch.Generator().manual_seed(0))
    drawn = torch.cat([NAU(2, 1, init="glorot").weight.detach().flatten() for _ in range(500)])
    assert 0.5 < drawn.abs().max() <= math.sqrt(2)
    assert drawn.var().item() == pytest.approx(2 / 3, rel=0.1)
