"""Neural power units against complex powers and against their equations worked by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from numerate.units import (
    NPU,
    ModifiedRealNPU,
    NaiveNPU,
    NaiveRealNPU,
    RealNPU,
    apply_bounds_,
    l1,
    naive_npu,
    naive_real_npu,
    npu,
    parameter_bounds,
    real_npu,
)

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
EPS = 1.1920929e-7
UNITS = [NPU, RealNPU, NaiveNPU, NaiveRealNPU, ModifiedRealNPU]
values = st.floats(-1e2, 1e2).filter(lambda value: abs(value) > 1e-2)


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def test_naive_units_are_real_parts_of_complex_powers():
    x, real, imag = double(20, 3), double(2, 3, seed=1), double(2, 3, seed=2)
    polar = torch.polar(x.abs() + EPS, math.pi * (x < 0).to(DOUBLE))
    for weight_imag in (imag, torch.zeros_like(imag)):
        power = torch.exp(torch.log(polar) @ torch.complex(real, weight_imag).T).real
        torch.testing.assert_close(naive_npu(x, real, weight_imag, eps=EPS), power)
    torch.testing.assert_close(naive_real_npu(x, real, eps=EPS), power)


def test_equation_in_plain_numbers():
    """Primer, eqs. 17 to 21: x = (-2, 3), gate (1/2, 2), of which the second is clipped to 1."""
    r = (0.5 * (2 + EPS) + 0.5, 3 + EPS)
    k = (0.5 * math.pi, 0.0)
    real, imag = (0.7, -0.3), (0.2, 0.1)
    dot = lambda u, v: sum(a * b for a, b in zip(u, v))  # noqa: E731
    log_r = [math.log(value) for value in r]
    expected = math.exp(dot(real, log_r) - dot(imag, k)) * math.cos(dot(imag, log_r) + dot(real, k))
    x, gate, real_, imag_ = (torch.tensor(v, dtype=DOUBLE) for v in ([-2.0, 3.0], [0.5, 2.0], [real], [imag]))
    assert npu(x, real_, imag_, gate).item() == pytest.approx(expected, rel=1e-12)
    expected = math.exp(dot(real, log_r)) * math.cos(dot(real, k))
    assert real_npu(x, real_, gate).item() == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0]), st.booleans()), min_size=1, max_size=4))
@FEW
def test_discrete_parameters_multiply_and_divide(case):
    x, weight, gate = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = 1.0 * math.prod(v**w for v, w, chosen in case if chosen)
    found = real_npu(x, weight[None], gate, eps=0.0).item()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    found = npu(x, weight[None], torch.zeros_like(weight)[None], gate, eps=0.0).item()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@given(st.floats(1e-2, 1e2), st.floats(-3, 3))
@FEW
def test_any_power_of_a_positive_number(x, power):
    found = naive_real_npu(torch.tensor([x], dtype=DOUBLE), torch.tensor([[power]], dtype=DOUBLE), eps=0.0)
    torch.testing.assert_close(found.item(), x**power, rtol=1e-9, atol=0)


def test_zero_is_not_negative_and_epsilon_keeps_it_finite():
    zero = torch.zeros(1, dtype=DOUBLE)
    for eps in (2.0**-23, 1e-3):
        assert naive_real_npu(zero, -torch.ones(1, 1, dtype=DOUBLE), eps=eps).item() == pytest.approx(1 / eps)
        for unit_class in UNITS:
            unit = unit_class(1, 1, eps=eps, dtype=DOUBLE)
            weight = next(iter(unit.effective_weights().values())).item()
            size = eps if unit_class in (NaiveNPU, NaiveRealNPU) else 0.5 * eps + 0.5
            assert unit(zero).item() == pytest.approx(size**weight, rel=1e-9)


def test_gate_is_clipped_in_the_equation_and_not_in_the_parameter():
    x, weight = double(5, 2), double(1, 2, seed=1)
    inside = real_npu(x, weight, torch.tensor([0.0, 1.0], dtype=DOUBLE))
    outside = torch.tensor([-3.0, 4.0], dtype=DOUBLE, requires_grad=True)
    torch.testing.assert_close(real_npu(x, weight, outside), inside)
    (gradient,) = torch.autograd.grad(real_npu(x, weight, outside).sum(), outside)
    assert gradient.tolist() == [0, 0]
    assert parameter_bounds(RealNPU(2, 1)) == {}
    assert parameter_bounds(NPU(2, 1)) == {}


def test_initialisation():
    bound = math.sqrt(6 / 500)
    for unit_class in (NPU, RealNPU, NaiveNPU, NaiveRealNPU):
        unit = unit_class(300, 200)
        weight = next(iter(unit.effective_weights().values()))
        assert weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
        assert weight.var().item() == pytest.approx(bound**2 / 3, rel=0.02)
    assert NPU(3, 2).weight_imag.tolist() == [[0] * 3] * 2
    for unit in (NPU(3, 2), RealNPU(3, 2), ModifiedRealNPU(3, 2)):
        assert unit.gate.tolist() == [0.5] * 3


def test_penalty_is_the_sum_of_absolute_values():
    unit = NPU(2, 1)
    with torch.no_grad():
        unit.weight_real.copy_(torch.tensor([[1.5, -0.5]]))
        unit.weight_imag.copy_(torch.tensor([[0.25, -0.25]]))
        unit.gate.copy_(torch.tensor([0.5, -1.0]))
    assert unit.penalty().item() == pytest.approx(4.0)
    for unit_class in (NPU, RealNPU, NaiveNPU, NaiveRealNPU):
        unit = unit_class(3, 2)
        torch.testing.assert_close(unit.penalty(), l1(unit))


def test_sparsity_error_is_the_mean_over_real_and_imaginary_weights():
    for unit_class, expected in ((NPU, 0.1), (NaiveNPU, 0.1), (RealNPU, 0.2), (NaiveRealNPU, 0.2)):
        unit = unit_class(2, 1)
        with torch.no_grad():
            next(unit.parameters()).copy_(torch.tensor([[1.0, -0.8]]))
        assert unit.sparsity_error().item() == pytest.approx(expected)


def test_modified_unit_is_bounded_and_pulled_to_signs():
    unit = ModifiedRealNPU(2, 1)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[0.2, -1.5]]))
        unit.gate.copy_(torch.tensor([0.3, 1.5]))
    assert unit.penalty().item() == pytest.approx((0.8 + 0.5) / 2 + (0.3 + 0.5) / 2)
    apply_bounds_(unit)
    torch.testing.assert_close(unit.weight.data, torch.tensor([[0.2, -1.0]]))
    torch.testing.assert_close(unit.gate.data, torch.tensor([0.3, 1.0]))
    weight = ModifiedRealNPU(2, 1000).weight
    assert weight.abs().max().item() == pytest.approx(math.sqrt(6 / 1002), rel=1e-2)


def test_modified_unit_starts_inside_a_half():
    drawn = torch.cat([ModifiedRealNPU(2, 1).weight.detach().flatten() for _ in range(200)])
    assert 0.45 < drawn.abs().max() <= 0.5
    drawn = torch.cat([RealNPU(2, 1).weight.detach().flatten() for _ in range(200)])
    assert 1.3 < drawn.abs().max() <= math.sqrt(2)


@pytest.mark.parametrize("unit_class", UNITS)
def test_snapped_formula_is_a_quotient(unit_class):
    unit = unit_class(3, 1, dtype=DOUBLE)
    with torch.no_grad():
        next(unit.parameters()).copy_(torch.tensor([[0.9, -1.1, 0.2]]))
        if hasattr(unit, "gate"):
            unit.gate.copy_(torch.tensor([0.8, 1.3, 0.9]))
    unit.snap_()
    assert str(unit.formula("a b c")) == "a/b"
    x = torch.tensor([-3.0, 4.0, -5.0], dtype=DOUBLE)
    assert unit(x).item() == pytest.approx(-0.75, rel=1e-6)


def test_formula_shows_what_is_not_discrete():
    unit = RealNPU(2, 1)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[0.5, 1.0]]))
        unit.gate.copy_(torch.tensor([1.0, 0.0]))
    assert str(unit.formula("a b")) == "cos(pi*Heaviside(-a, 0)*≈0.5)*Abs(a)**≈0.5"


@pytest.mark.parametrize(
    ("function", "weights", "gated"),
    [(npu, 2, True), (real_npu, 1, True), (naive_npu, 2, False), (naive_real_npu, 1, False)],
)
def test_gradients_agree_with_differences(function, weights, gated):
    parameters = [double(2, 3, seed=seed).requires_grad_() for seed in range(1, 1 + weights)]
    if gated:
        parameters.append(torch.tensor([0.2, 0.5, 0.9], dtype=DOUBLE, requires_grad=True))
    assert torch.autograd.gradcheck(function, (double(4, 3).requires_grad_(), *parameters))


@pytest.mark.parametrize("unit", [NPU, RealNPU])
def test_the_gate_may_leave_its_interval_unless_it_is_clamped_after_each_step(unit):
    free, kept = unit(2, 1), unit(2, 1, clip_gate="step")
    for one in (free, kept):
        nn.init.constant_(one.gate, 1.5)
        apply_bounds_(one)
    assert free.gate.tolist() == [1.5, 1.5]
    assert kept.gate.tolist() == [1.0, 1.0]
