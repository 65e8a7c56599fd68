"""iNALU against its equations worked by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import INALU, inalu
from numerate.units.inalu import inalu_product

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
values = st.floats(-1e2, 1e2).filter(lambda value: abs(value) > 1e-3)


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def test_equation_in_plain_numbers():
    """Primer, eqs. 6 to 12: x = (-2, 4), W_a = (0.5, -0.25), W_m = (0.5, -0.5), g = 0.3."""
    g = 1 / (1 + math.exp(-0.3))
    a = -2 * 0.5 - 4 * 0.25
    arguments = [[-2.0, 4.0], [[0.5, -0.25]], [[0.5, -0.5]], [0.3]]
    z = inalu(*(torch.tensor(v, dtype=DOUBLE) for v in arguments))
    assert z.item() == pytest.approx(g * a, rel=1e-13)  # the sign of -2 at weight 1/2 is -1/2 + 1 - 1/2 = 0
    arguments[2] = [[0.25, -0.5]]
    m, sign = 2**0.25 * 4**-0.5, 0.5
    z = inalu(*(torch.tensor(v, dtype=DOUBLE) for v in arguments))
    assert z.item() == pytest.approx(g * a + (1 - g) * m * sign, rel=1e-13)


@given(st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=4))
@FEW
def test_discrete_weights_multiply_and_divide_with_signs(case):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    expected = math.prod(v**w for v, w in case)
    torch.testing.assert_close(inalu_product(x, weight[None]).item(), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("gate", "expected"), [(50.0, 2.0 - 3.0), (-50.0, -2.0 / 3.0 * -1)])
def test_gate_chooses_sum_or_product(gate, expected):
    unit = INALU(2, 1, dtype=DOUBLE)
    with torch.no_grad():
        for name in ("w_hat_add", "w_hat_mul"):
            unit.get_parameter(name).copy_(torch.tensor([[50.0, -50.0]]))
        for name in ("m_hat_add", "m_hat_mul"):
            unit.get_parameter(name).fill_(50.0)
        unit.gate.fill_(gate)
    assert unit(torch.tensor([2.0, 3.0], dtype=DOUBLE)).item() == pytest.approx(expected, rel=1e-12)


def test_product_is_clipped_after_the_sum():
    x, weight = torch.tensor([1e9, 1e-9], dtype=DOUBLE), torch.ones(1, 2, dtype=DOUBLE)
    assert inalu_product(x, weight, eps=1e-12).item() == pytest.approx(1.0)
    big = torch.tensor([-1e9, 1.0], dtype=DOUBLE)
    assert inalu_product(big, weight).item() == pytest.approx(-math.exp(20))
    assert inalu_product(big, weight, limit=30.0).item() == pytest.approx(-1e9)


def test_clipping_every_input_is_the_other_reading():
    x, weight = torch.tensor([1e9, 1e-9], dtype=DOUBLE), torch.ones(1, 2, dtype=DOUBLE)
    other = inalu_product(x, weight, eps=1e-12, clip="input").item()
    assert other == pytest.approx(math.exp(20) * 1e-9)


def test_module_options_reach_the_equation():
    x = torch.tensor([[1e9, 1e-9]], dtype=DOUBLE)
    outputs = {}
    choices: list[dict[str, Any]] = [{}, {"clip": "input"}, {"eps": 1e-3}, {"limit": 3.0}]
    for options in choices:
        unit = INALU(2, 1, dtype=DOUBLE, **options)
        with torch.no_grad():
            for name, parameter in unit.named_parameters():
                parameter.fill_(-50.0 if name == "gate" else 50.0)
        outputs[str(options)] = unit(x).item()
    assert list(outputs.values()) == pytest.approx([100.0, math.exp(20) * 1e-7, 1e6, math.exp(3)])


@pytest.mark.parametrize(("init", "means", "deviation"), [("benchmark", (0.88, 0.5), 0.2), ("schloer", (1, -1), 0.1)])
def test_initialisations(init, means, deviation):
    unit = INALU(100, 100, init=init)
    unit.reset_parameters(torch.Generator().manual_seed(0))
    for letter, mean in zip("wm", means):
        for path in ("add", "mul"):
            parameter = unit.get_parameter(f"{letter}_hat_{path}")
            assert parameter.mean().item() == pytest.approx(mean, abs=4 * deviation / 100)
            assert parameter.std().item() == pytest.approx(deviation, rel=0.04)
    assert abs(unit.gate.mean().item()) < 4 * deviation / 10
    assert unit.gate.std().item() == pytest.approx(deviation, rel=0.3)


def test_gate_is_independent_of_the_input_unless_asked():
    unit, dependent = INALU(2, 1, dtype=DOUBLE), INALU(2, 1, gate="input", dtype=DOUBLE)
    assert unit.gate.shape == (1,)
    assert dependent.gate.shape == (1, 2)
    state = {**unit.state_dict(), "gate": torch.tensor([[2.0, -1.0]])}
    dependent.load_state_dict(state)
    x = double(5, 2)
    weight = unit.effective_weights()
    a = x @ weight["weight_add"].T
    m = inalu_product(x, weight["weight_mul"])
    g = torch.sigmoid(2 * x[:, :1] - x[:, 1:])
    torch.testing.assert_close(dependent(x), g * a + (1 - g) * m)
    g = torch.sigmoid(unit.gate)
    torch.testing.assert_close(unit(x), g * a + (1 - g) * m)


def test_penalty_sums_the_five_tensors():
    unit = INALU(2, 1)
    with torch.no_grad():
        unit.w_hat_add.copy_(torch.tensor([[5.0, -5.0]]))
        unit.m_hat_add.copy_(torch.tensor([[25.0, 0.0]]))
        unit.w_hat_mul.fill_(-30.0)
        unit.m_hat_mul.fill_(19.0)
        unit.gate.fill_(-1.0)
    assert unit.penalty().item() == pytest.approx(15 + (0 + 20) / 2 + 0 + 1 + 19)


def test_penalty_vanishes_at_the_snapped_unit():
    unit = INALU(3, 2).snap_()
    assert unit.penalty() == 0
    assert unit.sparsity_error() == 0


def test_sparsity_error_is_the_mean_of_both_matrices():
    unit = INALU(1, 1, dtype=DOUBLE)
    with torch.no_grad():
        for path, weight in (("add", 0.9), ("mul", 0.7)):
            unit.get_parameter(f"w_hat_{path}").fill_(math.atanh(weight))
            unit.get_parameter(f"m_hat_{path}").fill_(100.0)
    assert unit.sparsity_error().item() == pytest.approx((0.1 + 0.3) / 2)
    assert unit.sparsity_error("max").item() == pytest.approx(0.3)  # the Primer's text
    with pytest.raises(ValueError, match="together must be one of 'max', 'mean', got 'sum'"):
        unit.sparsity_error("sum")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_snapped_unit_computes_one_operation(dtype):
    unit = INALU(2, 1, dtype=dtype)
    with torch.no_grad():
        for path in ("add", "mul"):
            unit.get_parameter(f"w_hat_{path}").copy_(torch.tensor([[3.0, -3.0]]))
            unit.get_parameter(f"m_hat_{path}").fill_(3.0)
        unit.gate.fill_(-2.0)
    unit.snap_()
    assert {name: w.tolist() for name, w in unit.effective_weights().items()} == {
        "weight_add": [[1, -1]],
        "weight_mul": [[1, -1]],
    }
    assert torch.sigmoid(unit.gate).tolist() == [0]
    assert str(unit.formula("a b")) == "a/b"
    torch.testing.assert_close(unit(torch.tensor([-6.0, 3.0], dtype=dtype)), torch.tensor([-2.0], dtype=dtype))


def test_gradients_agree_with_differences():
    weights = [0.5 * double(2, 3, seed=seed).requires_grad_() for seed in (1, 2)]
    for clip in ("sum", "input"):
        arguments = (double(4, 3).requires_grad_(), *weights, double(2, seed=3).requires_grad_())
        assert torch.autograd.gradcheck(lambda *inputs, clip=clip: inalu(*inputs, clip=clip), arguments)


@pytest.mark.parametrize("option", ["gate", "init", "clip"])
def test_unknown_options_name_the_known_ones(option):
    with pytest.raises(ValueError, match=rf"^{option} must be one of '.*', got 'other'$"):
        INALU(2, 1, **{option: "other"})  # pyright: ignore[reportArgumentType]


def test_the_function_refuses_an_unknown_reading():
    one = torch.ones(1, 2)
    with pytest.raises(ValueError, match="clip must be one of 'sum', 'input', got 'Sum'"):
        inalu(one, one, one, torch.zeros(1), clip="Sum")
