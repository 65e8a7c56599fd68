"""NAC and its exp-log forms against closed forms: appendices A and B of Madsen & Johansen (2020)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import NAC, NACMul, NACMulNMU, NACMulSigmoid, apply_bounds_, nac, nac_mul, nac_mul_nmu, nac_radius
from numerate.units.nac import exp_log, nac_weight, nac_weight_variance

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
values = st.floats(-1e3, 1e3).filter(lambda value: abs(value) > 1e-3)
terms = st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=6)


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("sizes", "radius"),
    [
        ((100, 2), 0.503909),
        ((100, 10), 0.483869),
        ((10, 2), 2.074248),
        ((10, 1), 2.260468),
        ((4, 2), 5.425508),
        ((2, 1), 9.471406),
        ((2, 2), 9.471406),
    ],
)
def test_radius_as_the_published_runs_had_it(sizes, radius):
    assert nac_radius(*sizes) == pytest.approx(radius, abs=1e-6)


@pytest.mark.parametrize("sizes", [(100, 2), (10, 1), (4, 1)])
def test_radius_solves_the_equation_of_the_paper(sizes):
    assert nac_weight_variance(nac_radius(*sizes)) == pytest.approx(2 / sum(sizes), rel=1e-9)


@pytest.mark.parametrize("floor", [0, -2, 2.5, None])
def test_a_fan_floor_is_a_positive_whole_number(floor):
    with pytest.raises(ValueError, match="fan_floor must be a positive whole number, got"):
        nac_radius(2, 1, fan_floor=floor)


def test_without_the_fan_floor_small_units_saturate_further():
    assert nac_radius(2, 1, fan_floor=1) == 10.0
    assert nac_radius(100, 2, fan_floor=1) == nac_radius(100, 2)
    wide = NAC(2, 1, fan_floor=1)
    narrow = NAC(2, 1)
    wide.reset_parameters(torch.Generator().manual_seed(0))
    narrow.reset_parameters(torch.Generator().manual_seed(0))
    torch.testing.assert_close(wide.w_hat * 9.471406, narrow.w_hat * 10.0)


@pytest.mark.parametrize("r", [0.5, 2.0, 9.0])
def test_weight_moments_at_initialisation(r):
    """Appendix B.2: mean 0 and variance of eq. 38, by Monte Carlo."""
    generator = torch.Generator().manual_seed(1)
    w_hat, m_hat = torch.empty(2, 200_000, dtype=DOUBLE).uniform_(-r, r, generator=generator)
    weight = nac_weight(w_hat, m_hat)
    variance = (1 - math.tanh(r) / r) * (r - math.tanh(r / 2)) / (2 * r)
    assert abs(weight.mean()) < 5 * math.sqrt(variance / 200_000)
    assert weight.var().item() == pytest.approx(variance, rel=0.02)


def test_sum_keeps_mean_and_variance_at_initialisation():
    """Eq. 28: with r of the paper, inputs of mean 0 and variance 1 give variance 2 I / (I + O)."""
    unit = NAC(100, 100)
    unit.reset_parameters(torch.Generator().manual_seed(2))
    z = unit(torch.randn(2000, 100, generator=torch.Generator().manual_seed(3)))
    assert abs(z.mean()) < 0.02
    assert z.var().item() == pytest.approx(1.0, rel=0.05)


def test_product_moments_at_initialisation():
    """Appendix B.3, eq. 44 and 48, the second-order estimates, for W ~ U(-r, r) and inputs near their mean."""
    generator = torch.Generator().manual_seed(4)
    r, mean, inputs = 0.1, 3.0, 4
    weight = torch.empty(400_000, inputs, dtype=DOUBLE).uniform_(-r, r, generator=generator)
    z = exp_log(torch.full((inputs,), mean, dtype=DOUBLE), weight, 1e-7)
    power = r**2 / 3 * math.log(mean + 1e-7) ** 2
    expected = (1 + power / 2) ** inputs
    assert z.mean().item() == pytest.approx(expected, rel=1e-3)
    assert z.var().item() == pytest.approx((1 + 2 * power) ** inputs - (1 + power / 2) ** (2 * inputs), rel=0.02)


def test_product_weights_of_the_sigmoid_form_are_xavier_normal():
    unit = NACMulSigmoid(300, 100)
    unit.reset_parameters(torch.Generator().manual_seed(5))
    assert unit.w_hat.std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.02)
    assert unit.effective_weights()["weight"].mean().item() == pytest.approx(0.5, abs=0.001)


def test_product_weights_of_the_nmu_form_lie_between_the_quarters():
    weight = NACMulNMU(50, 40).weight
    assert 0.25 <= weight.min() < 0.26
    assert 0.74 < weight.max() <= 0.75


@given(terms)
@FEW
def test_discrete_weights_add_and_subtract_exactly(case):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    unit = NAC(len(case), 1, dtype=DOUBLE)
    with torch.no_grad():
        unit.w_hat.copy_(weight * 9)
        unit.m_hat.fill_(9.0)
    unit.snap_()
    assert unit.effective_weights()["weight"].tolist() == [weight.tolist()]
    torch.testing.assert_close(unit(x).item(), math.fsum(v * w for v, w in case), rtol=1e-12, atol=1e-9)


@given(terms)
@FEW
def test_discrete_weights_multiply_and_divide_sizes(case):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = math.prod(abs(v) ** w for v, w in case)
    torch.testing.assert_close(exp_log(x, weight[None], 0.0).item(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("unit_class", [NAC, NACMul, NACMulSigmoid, NACMulNMU])
def test_snapped_weights_are_exactly_levels(unit_class, dtype):
    unit = unit_class(7, 5, dtype=dtype)
    near = unit.effective_weights()["weight"]
    unit.snap_()
    snapped = unit.effective_weights()["weight"]
    assert set(snapped.flatten().tolist()) <= {-1, 0, 1} - ({-1} if unit_class in (NACMulSigmoid, NACMulNMU) else set())
    assert (snapped - near).abs().max() <= 0.5  # the nearest; either one from the middle
    assert unit.sparsity_error() == 0


def test_gradients_of_the_weight_matrix():
    """Appendix A.1, eq. 19."""
    x, w_hat, m_hat = double(5, 3), double(2, 3, seed=1).requires_grad_(), double(2, 3, seed=2).requires_grad_()
    upstream = double(5, 2, seed=3)
    (nac(x, w_hat, m_hat) * upstream).sum().backward()
    slope = upstream.T @ x
    sigmoid, tanh = 1 / (1 + torch.exp(-m_hat)), torch.tanh(w_hat)
    torch.testing.assert_close(w_hat.grad, slope * (1 - tanh**2) * sigmoid)
    torch.testing.assert_close(m_hat.grad, slope * tanh * sigmoid * (1 - sigmoid))


def test_gradients_of_the_product():
    """Appendix A.2, eqs. 21 and 24."""
    x, weight = double(3).requires_grad_(), double(2, 3, seed=1).requires_grad_()
    upstream = double(2, seed=2)
    z = nac_mul_nmu(x, weight, eps=1e-7)
    (z * upstream).sum().backward()
    size = x.abs() + 1e-7
    torch.testing.assert_close(weight.grad, (upstream * z)[:, None] * size.log())
    torch.testing.assert_close(x.grad, (upstream * z) @ weight * x.sign() / size)


@pytest.mark.parametrize(
    ("function", "shapes"), [(nac, 2), (nac_mul, 2), (nac_mul_nmu, 1)], ids=["nac", "nac_mul", "nac_mul_nmu"]
)
def test_gradients_agree_with_differences(function, shapes):
    parameters = [double(2, 3, seed=seed).requires_grad_() for seed in range(1, 1 + shapes)]
    assert torch.autograd.gradcheck(function, (double(4, 3).requires_grad_(), *parameters))


def test_worked_example_of_the_primer():
    """Appendix C: x = (2, 3, 4), W = (1, -1, 0): the sum is -1, the product 2/3."""
    x, weight = torch.tensor([2.0, 3.0, 4.0], dtype=DOUBLE), torch.tensor([[1.0, -1.0, 0.0]], dtype=DOUBLE)
    assert (x @ weight.T).item() == -1
    assert exp_log(x, weight, 0.0).item() == pytest.approx(2 / 3, rel=1e-14)


def test_epsilon_keeps_zero_finite_and_is_an_option():
    x = torch.zeros(1, 1, dtype=DOUBLE)
    for unit_class in (NACMul, NACMulSigmoid, NACMulNMU):
        for eps in (1e-7, 1e-3):
            unit = unit_class(1, 1, eps=eps, dtype=DOUBLE)
            weight = unit.effective_weights()["weight"].item()
            assert unit(x).item() == pytest.approx(eps**weight, rel=1e-6)


def test_nmu_form_is_penalised_and_clamped_as_nmu():
    unit = NACMulNMU(2, 1)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[-0.2, 0.7]]))
    assert unit.penalty().item() == pytest.approx((0.2 + 0.3) / 2)
    apply_bounds_(unit)
    torch.testing.assert_close(unit.weight.data, torch.tensor([[0.0, 0.7]]))


def test_formulas():
    unit = NAC(3, 1)
    with torch.no_grad():
        unit.w_hat.copy_(torch.tensor([[20.0, -20.0, 0.0]]))
        unit.m_hat.fill_(20.0)
    assert str(unit.formula("a b c")) == "a - b"
    product = NACMul(3, 1)
    product.load_state_dict(unit.state_dict())
    assert str(product.formula("a b c")) == "Abs(a)/Abs(b)"
    assert str(product.formula("a b c", tolerance=1e-8)) == "(Abs(a) + ≈1e-07)/(Abs(b) + ≈1e-07)"
    with torch.no_grad():
        product.m_hat[0, 0] = 0.0
    assert str(product.formula("a b c")) == "Abs(a)**≈0.5/Abs(b)"
