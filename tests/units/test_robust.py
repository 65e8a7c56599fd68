"""StochasticNMU, NMRU and ReciprocalUnit: noise cancels, discrete weights multiply and divide."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import (
    NMRU,
    NMU,
    ReciprocalUnit,
    StochasticNMU,
    apply_bounds_,
    nmru,
    parameter_bounds,
    reciprocal_unit,
    stochastic_nmu,
)
from numerate.units.robust import noise_scale

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
EPS = 2.0**-23
values = st.floats(-1e2, 1e2).filter(lambda value: abs(value) > 1e-2)


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def half_way(unit):
    with torch.no_grad():
        unit.weight.fill_(0.5)
    return unit


@given(st.lists(st.tuples(values, st.floats(1, 5), st.booleans()), min_size=1, max_size=5))
@FEW
def test_noise_cancels_at_discrete_weights(case):
    x, noise, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = 1.0 * math.prod(v for v, _, chosen in case if chosen)
    torch.testing.assert_close(stochastic_nmu(x, weight[None], noise).item(), expected, rtol=1e-12, atol=0)


def test_noise_matters_between_levels():
    x, weight = torch.tensor([2.0], dtype=DOUBLE), torch.tensor([[0.5]], dtype=DOUBLE)
    found = stochastic_nmu(x, weight, torch.tensor([3.0], dtype=DOUBLE))
    assert found.item() == pytest.approx((0.5 * 2 * 3 + 0.5) / (0.5 * 3 + 0.5))


def test_noise_is_drawn_in_training_alone():
    unit, plain = StochasticNMU(3, 2), NMU(3, 2)
    plain.load_state_dict(unit.state_dict())
    x = torch.randn(10, 3)
    assert not torch.allclose(unit(x), plain(x))
    assert not torch.equal(unit(x), unit(x))
    assert torch.equal(unit.eval()(x), plain(x))


def noise_of(unit, x):
    """With W = 1/2 and one input y = (x n + 1) / (n + 1), so n = (1 - y) / (y - x)."""
    y = unit(x)
    return (1 - y) / (y - x)


@pytest.mark.parametrize("noise_range", [5.0, 2.0])
def test_noise_is_uniform_between_one_and_its_range(noise_range):
    unit = half_way(StochasticNMU(1, 1, noise_range=noise_range, dtype=DOUBLE))
    noise = noise_of(unit, torch.full((20_000, 1), 3.0, dtype=DOUBLE))
    assert noise.min().item() == pytest.approx(1, abs=0.01)
    assert noise.max().item() == pytest.approx(noise_range, abs=0.01)
    assert noise.mean().item() == pytest.approx((1 + noise_range) / 2, abs=0.05)


def test_range_of_the_batch_is_one_plus_the_inverse_deviation():
    unit = half_way(StochasticNMU(1, 1, noise_range="batch", dtype=DOUBLE))
    x = 10 + 0.5 * double(20_000, 1)
    assert noise_of(unit, x).max().item() == pytest.approx(1 + 1 / x.std().item(), abs=0.01)
    assert noise_scale(double(7, 3)).item() == pytest.approx(1 / double(7, 3).std().item())


@pytest.mark.parametrize(
    "x", [torch.full((4, 2), 3.0), torch.ones(1, 1), torch.ones(0, 2)], ids=["same", "one", "none"]
)
def test_batch_without_deviation_has_no_noise(x):
    assert noise_scale(x) == 0
    unit = StochasticNMU(x.shape[-1], 1, noise_range="batch")
    torch.testing.assert_close(unit(x), unit.eval()(x))


def test_batch_range_has_no_gradient():
    x = double(4, 2).requires_grad_()
    assert not noise_scale(x).requires_grad


@pytest.mark.parametrize("noise_range", [0.5, math.nan, None])
def test_noise_range_below_one_is_refused(noise_range):
    with pytest.raises(ValueError, match=r"^noise_range must be a number of at least 1 or 'batch', got"):
        StochasticNMU(2, 1, noise_range=noise_range)
    with pytest.raises(ValueError, match=r"^noise_range must be one of 'batch', got 'all'$"):
        StochasticNMU(2, 1, noise_range="all")  # type: ignore[arg-type]


@given(st.lists(st.tuples(values, st.sampled_from([-1, 0, 1, 2])), min_size=1, max_size=4))
@FEW
def test_reciprocals_divide_at_discrete_weights(case):
    """-1 chooses the reciprocal, 1 the input, 0 neither, 2 both, which cancel."""
    x = torch.tensor([value for value, _ in case], dtype=DOUBLE)
    chosen = torch.tensor([w in (1, 2) for _, w in case] + [w in (-1, 2) for _, w in case], dtype=DOUBLE)
    expected = 1.0 * math.prod(v ** {2: 0}.get(w, w) for v, w in case)
    torch.testing.assert_close(nmru(x, chosen[None]).item(), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(nmru(x, chosen[None], sign=False).item(), abs(expected), rtol=1e-9, atol=0)
    gated = nmru(x, torch.ones(1, 2 * len(case), dtype=DOUBLE), chosen)
    torch.testing.assert_close(gated.item(), expected, rtol=1e-9, atol=0)


def test_nmru_in_plain_numbers():
    """x = -2: x~ = (-2, -1/2), W = (0.5, 0.25), gate (0.8, 0.4)."""
    x, weight = torch.tensor([-2.0], dtype=DOUBLE), torch.tensor([[0.5, 0.25]], dtype=DOUBLE)
    size = (0.5 * 2 + 0.5) * (0.25 * 0.5 + 0.75)
    assert nmru(x, weight).item() == pytest.approx(size * math.cos(0.75 * math.pi), rel=1e-12)
    assert nmru(x, weight, sign=False).item() == pytest.approx(size, rel=1e-12)
    gate = torch.tensor([0.8, 0.4], dtype=DOUBLE)
    size = (0.5 * (0.8 * 2 + 0.2) + 0.5) * (0.25 * (0.4 * 0.5 + 0.6) + 0.75)
    angle = math.pi * (0.5 * 0.8 + 0.25 * 0.4)
    assert nmru(x, weight, gate).item() == pytest.approx(size * math.cos(angle), rel=1e-12)
    size = (0.5 * 0.8 * 2 + 0.5) * (0.25 * 0.4 * 0.5 + 0.75)  # as released: the gate scales, and signs stay whole
    angle = math.pi * (0.5 + 0.25)
    assert nmru(x, weight, gate, gating="scale").item() == pytest.approx(size * math.cos(angle), rel=1e-12)
    closed = torch.tensor([0.0, 1.0], dtype=DOUBLE)
    expected = 0.5 * (0.25 * 0.5 + 0.75) * math.cos(math.pi * 0.25)  # a closed gate makes an input 0, which has no sign
    assert nmru(x, weight, closed, gating="scale").item() == pytest.approx(expected, rel=1e-12)


def test_nmru_epsilon_in_training_and_none_in_evaluation():
    unit = NMRU(1, 1, dtype=DOUBLE)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[0.0, 1.0]]))
    zero = torch.zeros(1, dtype=DOUBLE)
    assert unit(zero).item() == pytest.approx(2.0**23)
    assert unit.eval()(zero).item() == math.inf
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[1.0, 0.0]]))
    assert unit(zero).isnan().all()
    guarded = NMRU(1, 1, eps=1e-3, eval_eps=EPS, dtype=DOUBLE)
    guarded.load_state_dict(unit.state_dict())
    assert guarded.eval()(zero).item() == 0
    with torch.no_grad():
        guarded.weight.copy_(torch.tensor([[0.0, 1.0]]))
    assert guarded.train()(zero).item() == pytest.approx(1e3)


def test_nmru_options_change_the_module():
    x = torch.tensor([-2.0, 3.0])
    state = {"weight": torch.tensor([[1.0, 0.0, 0.0, 1.0]])}
    unit, unsigned, gated = NMRU(2, 1), NMRU(2, 1, sign=False), NMRU(2, 1, gate=True)
    unit.load_state_dict(state)
    unsigned.load_state_dict(state)
    gated.load_state_dict({**state, "gate": torch.tensor([1.0, 1.0, 1.0, 0.0])})
    found = [each.eval()(x).item() for each in (unit, unsigned, gated)]
    assert found == pytest.approx([-2 / 3, 2 / 3, -2])
    assert [str(each.formula("a b")) for each in (unit, unsigned, gated)] == ["a/b", "Abs(a)/Abs(b)", "a"]
    released = NMRU(2, 1, gate=True, gating="scale")
    released.load_state_dict({**state, "gate": torch.tensor([0.5, 0.0, 0.0, 1.0])})
    assert released.eval()(x).item() == pytest.approx(-1 / 3)
    assert str(released.formula("a b")) == "a*≈0.5/b"
    assert parameter_bounds(unit) == {"weight": (0.0, 1.0)}
    assert parameter_bounds(gated) == {"weight": (0.0, 1.0), "gate": (0.0, 1.0)}


@pytest.mark.parametrize("unit", [StochasticNMU(50, 40), NMRU(50, 40), NMRU(50, 40, gate=True)], ids=repr)
def test_product_units_are_drawn_and_penalised_as_nmu(unit):
    unit.reset_parameters(torch.Generator().manual_seed(0))
    assert 0.25 <= unit.weight.min() < 0.26
    assert 0.74 < unit.weight.max() <= 0.75
    expected = (0.5 - (unit.weight - 0.5).abs()).mean()
    torch.testing.assert_close(unit.penalty(), expected)


@given(st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=4), st.booleans())
@FEW
def test_signed_powers_multiply_and_divide_at_discrete_weights(case, training):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = math.prod(v**w for v, w in case)
    found = reciprocal_unit(x, weight[None], training=training).item()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_reciprocal_unit_differs_between_training_and_evaluation():
    unit = ReciprocalUnit(1, 1, dtype=DOUBLE)
    with torch.no_grad():
        unit.weight.fill_(-0.0005)
    x = torch.tensor([-4.0], dtype=DOUBLE)
    power = -(4**-0.0005)
    t = math.tanh(0.5) ** 2
    assert unit(x).item() == pytest.approx(power * t + 1 - t, rel=1e-12)
    assert unit.eval()(x).item() == pytest.approx(power * 0.0005 + 1 - 0.0005, rel=1e-12)


def test_reciprocal_unit_is_drawn_bounded_and_penalised_as_nau():
    drawn = torch.cat([ReciprocalUnit(2, 1).weight.detach().flatten() for _ in range(200)])
    assert 0.45 < drawn.abs().max() <= 0.5
    unit = ReciprocalUnit(2, 1)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[-1.5, 0.3]]))
    assert unit.penalty().item() == pytest.approx((0.5 + 0.3) / 2)
    apply_bounds_(unit)
    torch.testing.assert_close(unit.weight.data, torch.tensor([[-1.0, 0.3]]))
    assert str(unit.formula("a b")) == "(Abs(b)**≈0.3*≈0.3*sign(b) - ≈0.3 + 1)/a"
    assert str(unit.snap_().formula("a b")) == "1/a"


def test_gradients_agree_with_differences():
    x = double(4, 3).requires_grad_()
    weight = torch.rand(2, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)).requires_grad_()
    noise = 1 + double(4, 3, seed=2).abs()
    assert torch.autograd.gradcheck(stochastic_nmu, (x, weight, noise))
    assert torch.autograd.gradcheck(reciprocal_unit, (x, weight))
    wide = torch.cat((weight.detach(), 1 - weight.detach()), 1).requires_grad_()
    gate = torch.linspace(0.2, 0.8, 6, dtype=DOUBLE).requires_grad_()
    assert torch.autograd.gradcheck(nmru, (x, wide))
    assert torch.autograd.gradcheck(nmru, (x, wide, gate))
