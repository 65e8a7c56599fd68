"""Mass-conserving layers against their equations and their conservation law."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import MCFC, MulMCFC, mcfc, mul_mcfc

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
SIGNS = (None, "product", "cosine")


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def fill_(unit, **tensors):
    with torch.no_grad():
        for name, value in tensors.items():
            unit.get_parameter(name).copy_(torch.tensor(value, dtype=DOUBLE))
    return unit


def test_mass_is_conserved_when_all_gates_are_open():
    unit = MCFC(5, 3, dtype=DOUBLE)
    with torch.no_grad():
        unit.gate_weight.fill_(100.0)
    x = double(7, 5)
    torch.testing.assert_close(unit(x).sum(-1), x.sum(-1))


def test_equation_in_plain_numbers():
    unit = fill_(MCFC(2, 2, dtype=DOUBLE), junction_hat=[[1.0, 0.0], [0.0, 2.0]])
    fill_(unit, gate_weight=[[0.5], [-1.0]], gate_bias=[0.1, 0.2])
    share = [math.e / (math.e + 1), 1 / (1 + math.e**2)]
    expected = [
        sigmoid(0.6) * (3 * share[0] + 5 * share[1]),
        sigmoid(-0.8) * (3 * (1 - share[0]) + 5 * (1 - share[1])),
    ]
    found = unit(torch.tensor([3.0, 5.0], dtype=DOUBLE)).tolist()
    assert found == pytest.approx(expected, rel=1e-13)


def test_one_output_takes_every_input_whatever_the_weights():
    unit = MCFC(4, 1, dtype=DOUBLE)
    x = double(6, 4)
    gate = torch.sigmoid(unit.gate_weight[0, 0])
    torch.testing.assert_close(unit(x)[:, 0], gate * x.sum(-1))
    assert unit.effective_weights()["junction"].tolist() == [[1.0] * 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_initialisation(dtype):
    plain, multiplying = MCFC(5, 3, dtype=dtype), MulMCFC(5, 3, sign="cosine", dtype=dtype)
    for unit in (plain, multiplying):
        rows = unit.junction_hat.float()
        torch.testing.assert_close(rows @ rows.T, torch.eye(3), atol=0.03, rtol=0)
        assert unit.gate_weight.float().norm().item() == pytest.approx(1, abs=0.01)
        assert unit.gate_bias.tolist() == [0] * 3
    assert MCFC(3, 3, dtype=dtype).junction_hat.tolist() == torch.eye(3).tolist()
    assert multiplying.bias.tolist() == [0] * 3
    assert multiplying.sign_gate is not None
    assert multiplying.sign_gate.tolist() == [0.5] * 5


def test_penalty_is_minus_the_mean_squares():
    for unit in (MCFC(2, 2), MulMCFC(2, 2, sign="cosine")):
        fill_(unit, junction_hat=[[1.0, 2.0], [0.0, 1.0]], gate_weight=[[3.0], [1.0]], gate_bias=[2.0, 0.0])
        assert unit.penalty().item() == pytest.approx(-(6 / 4 + 10 / 2 + 4 / 2))


def test_sparsity_error_is_a_mean_over_the_parts():
    """Junction, output gate; for the product the bias too; with the cosine the sign gate as well."""
    parts = {"junction_hat": [[math.log(9.0)] * 2, [0.0] * 2], "gate_weight": [[math.log(4.0)]] * 2}
    errors = [0.1, 0.2]
    unit = fill_(MCFC(2, 2, dtype=DOUBLE), **parts)
    assert unit.sparsity_error().item() == pytest.approx(sum(errors) / 2)
    unit = fill_(MulMCFC(2, 2, dtype=DOUBLE), **parts, bias=[0.4, 0.0])
    assert unit.sparsity_error().item() == pytest.approx(sum([*errors, 0.4]) / 3)
    unit = fill_(MulMCFC(2, 2, sign="cosine", dtype=DOUBLE), **parts, bias=[0.4, 0.0], sign_gate=[0.5, 3.0])
    assert unit.sparsity_error().item() == pytest.approx(sum([*errors, 0.4, 0.5]) / 4)


def test_product_in_plain_numbers_and_its_signs():
    parts = {"junction_hat": [[0.0, 1.0], [0.0, 0.0]], "gate_weight": [[0.3], [0.0]], "bias": [0.2, 0.0]}
    share = [0.5, math.e / (1 + math.e)]
    size = math.exp(sigmoid(0.3) * (share[0] * math.log(3) + share[1] * math.log(5)) + 0.2)
    plain, product, cosine = (fill_(MulMCFC(2, 2, sign=sign, dtype=DOUBLE), **parts) for sign in SIGNS)
    for unit in (plain, product, cosine):
        assert unit(torch.tensor([3.0, 5.0], dtype=DOUBLE))[0].item() == pytest.approx(size, rel=1e-13)
    x = torch.tensor([3.0, -5.0], dtype=DOUBLE)
    assert plain(x).isnan().all()
    assert product(x)[0].item() == pytest.approx(size * (1 - 2 * share[1]), rel=1e-12)
    assert cosine(x)[0].item() == pytest.approx(size * math.cos(math.pi * 0.5 * share[1]), rel=1e-12)
    fill_(cosine, sign_gate=[0.5, 7.0])
    assert cosine(x)[0].item() == pytest.approx(size * math.cos(math.pi * share[1]), rel=1e-12)


@given(st.lists(st.tuples(st.floats(0.01, 100), st.booleans(), st.integers(0, 1)), min_size=1, max_size=5))
@FEW
def test_discrete_parameters_share_inputs_out(case):
    x = torch.tensor([value if up else -value for value, up, _ in case], dtype=DOUBLE)
    chosen = torch.tensor([target for *_, target in case])
    junction = torch.stack((chosen == 0, chosen == 1)).to(DOUBLE)
    gate = torch.tensor([1.0, 0.0], dtype=DOUBLE)
    total = math.fsum(v for v, target in zip(x.tolist(), chosen.tolist()) if target == 0)
    torch.testing.assert_close(mcfc(x, junction, gate).tolist(), [total, 0.0], rtol=1e-12, atol=1e-12)
    product = math.prod(v for v, target in zip(x.abs().tolist(), chosen.tolist()) if target == 0) * 1.0
    found = mul_mcfc(x.abs(), junction, gate, torch.zeros(2, dtype=DOUBLE)).tolist()
    torch.testing.assert_close(found, [product, 1.0], rtol=1e-9, atol=0)
    for sign in ("product", "cosine"):
        unit = MulMCFC(len(case), 2, sign=sign, dtype=DOUBLE)
        fill_(unit, junction_hat=(50 * junction).tolist(), gate_weight=[[50.0], [50.0]])
        if unit.sign_gate is not None:
            fill_(unit, sign_gate=[1.0] * len(case))
        unit.snap_()
        expected = [math.prod(v for v, t in zip(x.tolist(), chosen.tolist()) if t == o) * 1.0 for o in (0, 1)]
        torch.testing.assert_close(unit(x).tolist(), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_snapped_unit_sends_each_input_to_its_strongest_output(dtype):
    unit = fill_(MCFC(3, 2, dtype=dtype), junction_hat=[[0.1, 0.2, 0.3], [0.0, 0.4, 0.1]], gate_weight=[[1.0], [-1.0]])
    unit.snap_()
    assert unit.effective_weights()["junction"].tolist() == [[1, 0, 1], [0, 1, 0]]
    assert unit.sparsity_error() == 0
    assert unit(torch.tensor([1.0, 2.0, 4.0], dtype=dtype)).tolist() == [5, 0]


def test_formulas():
    unit = fill_(MCFC(3, 2), junction_hat=[[50.0, 0.0, 50.0], [0.0, 50.0, 0.0]], gate_weight=[[50.0], [50.0]])
    assert [str(e) for e in unit.formula("a b c")] == ["a + c", "b"]
    parts = {"junction_hat": [[50.0, 0.0, 50.0], [0.0, 50.0, 0.0]], "gate_weight": [[50.0], [50.0]]}
    for sign in SIGNS:
        unit = fill_(MulMCFC(3, 2, sign=sign), **parts)
        if unit.sign_gate is not None:
            fill_(unit, sign_gate=[1.0, 0.0, 1.0])
        expected = ["a*c", "Abs(b)" if sign == "cosine" else "b"]
        assert [str(e) for e in unit.formula("a b c")] == expected
    fill_(unit, bias=[0.5, 0.0], sign_gate=[0.5, 1.0, 1.0])
    assert str(unit.formula("a b c")[0]) == "c*exp(≈0.5)*cos(pi*Heaviside(-a, 0)*≈0.5)*Abs(a)"


def test_gradients_agree_with_differences():
    for sign in SIGNS:
        unit = MulMCFC(3, 2, sign=sign, dtype=DOUBLE)
        x = double(4, 3).abs().requires_grad_() if sign is None else double(4, 3).requires_grad_()
        parameters = dict(unit.named_parameters())

        def call(x, *tensors, unit=unit, names=tuple(parameters)):
            return torch.func.functional_call(unit, dict(zip(names, tensors)), (x,))

        assert torch.autograd.gradcheck(call, (x, *parameters.values()))


def test_unknown_sign_names_the_known_ones():
    with pytest.raises(ValueError, match=r"^sign must be one of 'product', 'cosine', got 'sum'$"):
        MulMCFC(2, 1, sign="sum")  # type: ignore[arg-type]
