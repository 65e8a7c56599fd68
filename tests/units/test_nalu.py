"""NALU and its variants against hand-worked examples and their definitions."""

import math

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import (
    GNALU,
    NALU,
    ComplexNALU,
    GatedNAUNMU,
    apply_bounds_,
    complex_nalu,
    gated_nau_nmu,
    gnalu,
    nalu,
    nau,
    nmu,
)
from numerate.units.nalu import golden_weight

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
PHI = (1 + math.sqrt(5)) / 2
values = st.floats(-1e3, 1e3).filter(lambda value: abs(value) > 1e-3)


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def fill_(unit, **tensors):
    with torch.no_grad():
        for name, value in tensors.items():
            unit.get_parameter(name).copy_(torch.tensor(value, dtype=DOUBLE))
    return unit


@pytest.mark.parametrize(("gate", "expected"), [(100.0, -1.0), (-100.0, 2 / 3), (0.0, (-1 + 2 / 3) / 2)])
def test_worked_example_of_the_primer(gate, expected):
    """Appendix C: x = (2, 3, 4), W = (1, -1, 0); the open gate gives -1, the closed one 2/3."""
    unit = NALU(3, 1, eps=0.0, dtype=DOUBLE)
    fill_(unit, w_hat=[[1e3, -1e3, 0.0]], m_hat=[[1e3, 1e3, -1e3]], gate=[[gate, 0.0, 0.0]])
    assert unit(torch.tensor([2.0, 3.0, 4.0], dtype=DOUBLE)).item() == pytest.approx(expected, rel=1e-13)


def test_equation_in_plain_numbers():
    x, add, mul, gate = [0.5, -2.0], [0.3, -0.7], [0.9, 0.2], [0.4, -0.1]
    g = 1 / (1 + math.exp(-(0.4 * 0.5 + 0.1 * 2)))
    a, m = 0.3 * 0.5 + 0.7 * 2, (0.5 + 1e-7) ** 0.9 * (2 + 1e-7) ** 0.2
    z = nalu(*(torch.tensor(v, dtype=DOUBLE) for v in (x, [add], [mul], [gate])))
    assert z.item() == pytest.approx(g * a + (1 - g) * m, rel=1e-13)


def test_separate_weights_are_two_matrices():
    x = double(4, 3)
    shared, separate = NALU(3, 2, dtype=DOUBLE), NALU(3, 2, weights="separate", dtype=DOUBLE)
    assert set(shared.state_dict()) == {"w_hat", "m_hat", "gate"}
    assert set(separate.state_dict()) == {"w_hat", "m_hat", "w_hat_mul", "m_hat_mul", "gate"}
    state = shared.state_dict()
    separate.load_state_dict({**state, "w_hat_mul": state["w_hat"], "m_hat_mul": state["m_hat"]})
    torch.testing.assert_close(separate(x), shared(x))
    separate.load_state_dict({**state, "w_hat_mul": -state["w_hat"], "m_hat_mul": state["m_hat"]})
    assert not torch.allclose(separate(x), shared(x))


def test_separate_sparsity_error_is_the_worse_of_both():
    unit = NALU(1, 1, weights="separate", dtype=DOUBLE)
    fill_(unit, w_hat=[[1e3]], m_hat=[[0.0]], w_hat_mul=[[math.atanh(0.2)]], m_hat_mul=[[1e3]])
    assert unit.sparsity_error().item() == pytest.approx(0.5)


def test_gate_is_xavier_uniform_without_bias():
    bound = math.sqrt(6 / 500)
    for unit_class in (NALU, GNALU, ComplexNALU, GatedNAUNMU):
        gate = unit_class(300, 200).gate
        assert gate.abs().max().item() == pytest.approx(bound, rel=1e-3)
        assert gate.var().item() == pytest.approx(2 / 500, rel=0.02)


def test_fan_floor_reaches_the_weights():
    for unit_class in (NALU, GNALU, ComplexNALU):
        floored, free = unit_class(2, 1), unit_class(2, 1, fan_floor=1)
        floored.reset_parameters(torch.Generator().manual_seed(0))
        free.reset_parameters(torch.Generator().manual_seed(0))
        torch.testing.assert_close(free.w_hat * 9.471406, floored.w_hat * 10)


@pytest.mark.parametrize("unit_class", [NALU, GNALU, ComplexNALU])
def test_epsilon_is_an_option(unit_class):
    x = torch.zeros(1, 2, dtype=DOUBLE)
    unit, other = unit_class(2, 1, dtype=DOUBLE), unit_class(2, 1, eps=0.1, dtype=DOUBLE)
    other.load_state_dict(unit.state_dict())
    weight = unit.effective_weights()["weight"].sum().item()
    assert unit(x).item() == pytest.approx(0.5 * 1e-7**weight, rel=1e-6)
    assert other(x).item() == pytest.approx(0.5 * 0.1**weight, rel=1e-6)


@pytest.mark.parametrize("unit_class", [NALU, GNALU, ComplexNALU])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_snapped_weights_are_exactly_levels(unit_class, dtype):
    unit = unit_class(6, 4, dtype=dtype)
    nearest = unit.effective_weights()["weight"].round() + 0.0
    gate = unit.gate.detach().clone()
    unit.snap_()
    assert torch.equal(unit.effective_weights()["weight"], nearest)
    assert torch.equal(unit.gate, gate)


def test_golden_weight_is_the_definition_and_does_not_overflow():
    """Primer, eqs. 23 and 24, with powers of φ as printed."""
    w_hat, m_hat = double(50), double(50, seed=1)
    tanh = (PHI ** (2 * w_hat) - 1) / (PHI ** (2 * w_hat) + 1)
    torch.testing.assert_close(golden_weight(w_hat, m_hat), tanh / (1 + PHI**-m_hat))
    far = torch.tensor([-1e30, 1e30])
    assert golden_weight(far, far.abs()).tolist() == [-1, 1]


def test_golden_unit_in_plain_numbers():
    unit = fill_(GNALU(1, 1, dtype=DOUBLE), w_hat=[[0.6]], m_hat=[[-0.4]], gate=[[0.5]])
    weight = (PHI**1.2 - 1) / (PHI**1.2 + 1) / (1 + PHI**0.4)
    g = 1 / (1 + PHI ** -(0.5 * 3))
    m = PHI ** (weight * math.log(3 + 1e-7) / math.log(PHI))
    assert unit(torch.tensor([3.0], dtype=DOUBLE)).item() == pytest.approx(g * 3 * weight + (1 - g) * m, rel=1e-13)


def test_golden_gate_is_an_option():
    unit, plain = GNALU(1, 1, dtype=DOUBLE), GNALU(1, 1, gate_base="e", dtype=DOUBLE)
    for each in (unit, plain):
        fill_(each, w_hat=[[0.0]], m_hat=[[0.0]], gate=[[0.5]])
    x = torch.tensor([3.0], dtype=DOUBLE)  # W = 0: a = 0, m = 1
    assert unit(x).item() == pytest.approx(1 - 1 / (1 + PHI**-1.5), rel=1e-13)
    assert plain(x).item() == pytest.approx(1 - 1 / (1 + math.exp(-1.5)), rel=1e-13)


def test_complex_product_is_the_real_part_of_the_complex_power():
    x, weight, gate = double(20, 3), double(2, 3, seed=1), double(2, 3, seed=2)
    power = torch.exp(torch.log((x + 1e-7).to(torch.complex128)) @ weight.T.to(torch.complex128)).real
    g = torch.sigmoid(x @ gate.T)
    torch.testing.assert_close(complex_nalu(x, weight, gate), g * (x @ weight.T) + (1 - g) * power)


@given(values, values)
@FEW
def test_complex_product_keeps_signs(a, b):
    x = torch.tensor([a, b], dtype=DOUBLE)
    weight = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=DOUBLE)
    g = 1 / (1 + math.exp(-1e-6 * a))
    gate = torch.tensor([[1e-6, 0.0], [1e-6, 0.0]], dtype=DOUBLE)
    expected = [g * (a + b) + (1 - g) * a * b, g * (a - b) + (1 - g) * a / b]
    torch.testing.assert_close(complex_nalu(x, weight, gate, eps=0.0).tolist(), expected, rtol=1e-9, atol=1e-9)


@given(st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0]), st.booleans()), min_size=1, max_size=4))
@FEW
def test_gated_unit_is_the_mixture_of_sum_and_product(case):
    x, add, mul = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    total = math.fsum(v * w for v, w, _ in case)
    product = math.prod(v for v, _, chosen in case if chosen)
    z = gated_nau_nmu(x, add[None], mul[None], torch.zeros(1, len(case), dtype=DOUBLE))
    torch.testing.assert_close(z.item(), (total + product) / 2, rtol=1e-9, atol=1e-9)


def test_gated_unit_has_the_bounds_and_the_penalties_of_its_parts():
    unit = GatedNAUNMU(2, 1)
    fill_(unit, weight_add=[[-1.5, 0.3]], weight_mul=[[-0.2, 0.9]])
    assert unit.penalty().item() == pytest.approx((0.5 + 0.3) / 2 + (0.2 + 0.1) / 2)
    assert unit.sparsity_error().item() == pytest.approx(0.3)
    apply_bounds_(unit)
    torch.testing.assert_close(unit.weight_add.data, torch.tensor([[-1.0, 0.3]]))
    torch.testing.assert_close(unit.weight_mul.data, torch.tensor([[0.0, 0.9]]))
    x = torch.tensor([2.0, 3.0])
    g = torch.sigmoid(x @ unit.gate.T)
    torch.testing.assert_close(unit(x), g * nau(x, unit.weight_add) + (1 - g) * nmu(x, unit.weight_mul))


@pytest.mark.parametrize(
    ("function", "count"), [(nalu, 3), (complex_nalu, 2), (gated_nau_nmu, 3)], ids=["nalu", "complex", "gated"]
)
def test_gradients_agree_with_differences(function, count):
    parameters = [0.5 * double(2, 3, seed=seed).requires_grad_() for seed in range(1, 1 + count)]
    assert torch.autograd.gradcheck(function, (double(4, 3).requires_grad_(), *parameters))


def test_formula_shows_the_gate():
    unit = fill_(NALU(2, 1), w_hat=[[20.0, -20.0]], m_hat=[[20.0, 20.0]], gate=[[0.5, 0.0]])
    a, b = sympy.symbols("a b", real=True)
    g = 1 / (1 + sympy.exp(-sympy.Rational(1, 2) * a))
    expected = g * (a - b) + (1 - g) * abs(a) / abs(b)
    found = unit.formula("a b")
    assert "≈0.5" in str(found)
    assert sympy.simplify(found.doit().subs(sympy.Float(0.5), sympy.Rational(1, 2)) - expected) == 0


def test_unknown_options_name_the_known_ones():
    with pytest.raises(ValueError, match=r"^weights must be one of 'shared', 'separate', got 'both'$"):
        NALU(2, 1, weights="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^gate_base must be one of 'golden', 'e', got 'two'$"):
        GNALU(2, 1, gate_base="two")  # type: ignore[arg-type]


@pytest.mark.parametrize("base", ["golden", "e"])
def test_golden_function_is_the_unit_and_the_definition(base):
    """By hand: φ^z for e^z in tanh and σ of the weights, and in the gate with ``gate_base="golden"`` alone."""
    unit, x = GNALU(3, 2, gate_base=base, dtype=DOUBLE), torch.rand(5, 3, dtype=DOUBLE) + 0.5
    found = gnalu(x, unit.w_hat, unit.m_hat, unit.gate, gate_base=base)
    assert torch.equal(found, unit(x))
    phi = (1 + math.sqrt(5)) / 2
    grown = phi ** (2 * unit.w_hat)
    weight = (grown - 1) / (grown + 1) / (1 + phi**-unit.m_hat)
    g = 1 / (1 + (phi if base == "golden" else math.e) ** -(x @ unit.gate.T))
    torch.testing.assert_close(found, g * (x @ weight.T) + (1 - g) * ((x + 1e-7).log() @ weight.T).exp())
