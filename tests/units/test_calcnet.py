"""CalcNet: precedence against Python's own, exact units, handed-in units, and what it says of malformed expressions."""

import re
from typing import Any, cast

import pytest
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from numerate.units import NAU, NMU, CalcNet, Unit
from numerate.units.calcnet import ExpressionError, exact_units, postfix

DOUBLE = CalcNet(dtype=torch.float64)

numbers = st.floats(0, 1000, allow_subnormal=False).map(lambda value: f"{value:g}")
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda part: f"{part[0]} {part[1]} {part[2]}"),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=12,
)


@given(expressions)
@settings(deadline=None, max_examples=200)
def test_agrees_with_python(expression):
    try:
        expected = eval(expression)
    except ZeroDivisionError:
        assume(False)
    found = DOUBLE(expression)
    torch.testing.assert_close(found.item(), float(expected), rtol=1e-9, atol=1e-9 * max(1.0, abs(expected)))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2", 2),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("2 - 3 - 4", -5),
        ("24 / 4 / 2", 3),
        ("-3 * -2", 6),
        ("2 * (3 - -1) / 4", 2),
        ("--2", 2),
        ("0 / 5", 0),
        ("1.5e2 + .5", 150.5),
        (" ( ( 7 ) ) ", 7),
    ],
)
def test_worked_examples(expression, value):
    assert DOUBLE(expression).item() == value


def test_order_of_evaluation():
    def order(expression: str) -> str:
        return " ".join(token.text for token in postfix(expression))

    assert order("a + b * c") == "a b c * +"
    assert order("(a + b) * c") == "a b + c *"
    assert order("a - b - c") == "a b - c -"
    assert order("a ^ b ^ c") == "a b c ^ ^"
    assert order("-a ^ 2") == "0 a 2 ^ -"
    assert order("a ^ -b * c") == "a 0 b - ^ c *"
    assert order("-a * b") == "0 a - b *"


def test_names_stand_for_batches():
    a, b = torch.rand(4, 3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    found = DOUBLE("(a + 2) * b / (a - 3)", {"a": a, "b": b})
    torch.testing.assert_close(found, (a + 2) * b / (a - 3))


def test_values_become_the_type_of_the_units():
    assert CalcNet()("a + 2*b", {"a": 1.0, "b": torch.tensor([2, 3])}).tolist() == [5, 7]
    net = CalcNet({"+": NAU(2, 1, dtype=torch.float64)})
    assert net("a - b", {"a": 1.0, "b": torch.tensor(0.25)}).dtype == torch.float64


def test_a_unit_of_other_sizes_is_named():
    with pytest.raises(ValueError, match=r"the unit for [+] must have 2 inputs and 1 output, got 2 and 3"):
        CalcNet({"+": NAU(2, 3)})


def test_gradients_pass_to_values_and_units():
    net = CalcNet(dtype=torch.float64)
    a = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    net("a * a / 2 - a", {"a": a}).backward()
    assert a.grad is not None
    assert a.grad.item() == pytest.approx(2.0)
    assert all(p.grad is not None for name, p in net.named_parameters() if "units.+" not in name)


class Power(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[..., :1] ** x[..., 1:]


def test_units_can_be_handed_in():
    assert CalcNet({"^": Power()})("2 ^ 3 ^ 2 - 1").item() == 511
    crooked = NMU(2, 1)
    with torch.no_grad():
        crooked.weight.fill_(0.5)
    assert CalcNet({"*": crooked})("3 * 5").item() == 6  # (3 + 1) / 2 * (5 + 1) / 2
    with pytest.raises(ValueError, match=re.escape("units must be given for operators among + - * / ^, got '%'")):
        CalcNet({"%": Power()})


@pytest.mark.parametrize("expression", ["a*(b - 2)/4 - c", "a + b*c", "a/(b/c)", "3*a/2", "-a - b"])
def test_formula_of_exact_units_is_the_expression(expression):
    names: dict[str, Any] = {letter: sympy.Symbol(letter, real=True) for letter in "abc"}
    assert sympy.simplify(CalcNet().formula(expression) - sympy.parse_expr(expression, names)) == 0
    assert "≈" not in str(CalcNet().formula(expression))


def test_formula_shows_what_the_units_have_learnt():
    net = CalcNet({"*": NMU(2, 1), "^": Power()})
    with torch.no_grad():
        net.get_parameter("units.*.weight").copy_(torch.tensor([[1.0, 0.5]]))
    assert str(net.formula("a * b + 1")) == "a*(b*≈0.5 - ≈0.5 + 1) + 1"
    assert str(net.snap_().formula("a * b + 1")) == "a + 1"
    with pytest.raises(TypeError, match="no formula is known for Power"):
        net.formula("a ^ b")
    with pytest.raises(ExpressionError, match="expected an operator that has a unit"):
        CalcNet().formula("a ^ b")


def test_what_it_says_of_itself_is_what_its_units_say():
    net = CalcNet({"^": Power()})
    assert net.penalty() == net.sparsity_error() == 0
    net.reset_parameters(torch.Generator().manual_seed(0))
    units = [cast(Unit, net.units[symbol]) for symbol in "+-*/"]
    assert net.penalty() == sum(unit.penalty() for unit in units)
    assert net.sparsity_error() == max(unit.sparsity_error() for unit in units)
    assert set(net.effective_weights()) == set(net.state_dict()) == {f"units.{symbol}.weight" for symbol in "+-*/"}
    assert net.snap_() is net
    assert net.sparsity_error() == 0


def test_exact_units_survive_rounding():
    for unit in exact_units().values():
        before = unit(torch.tensor([3.0, 4.0]))
        assert torch.equal(unit.snap_()(torch.tensor([3.0, 4.0])), before)


def test_state_dict_round_trip():
    net, other = CalcNet(), CalcNet()
    with torch.no_grad():
        net.get_parameter("units.+.weight").fill_(0.5)
    other.load_state_dict(net.state_dict())
    assert other("2 + 4").item() == 3


@pytest.mark.parametrize(
    ("expression", "position", "expected", "found"),
    [
        ("", 0, "a number, a name, '-' or '('", "the end"),
        ("2 +", 3, "a number, a name, '-' or '('", "the end"),
        ("2 + * 3", 4, "a number, a name, '-' or '('", "'*'"),
        ("2 3", 2, "an operator, ')' or the end", "'3'"),
        ("2 (3)", 2, "an operator, ')' or the end", "'('"),
        ("(2 + 3", 6, "')' for the '(' at position 0", "the end"),
        ("2 + 3)", 5, "an operator or the end", "')' without its '('"),
        ("()", 1, "a number, a name, '-' or '('", "')'"),
        ("2 $ 3", 2, "a number, a name, an operator or a bracket", "'$'"),
        ("2 ^ 3", 2, "an operator that has a unit (+ - * /)", "'^'"),
        ("a + c", 4, "a name that has a value (a, b)", "'c'"),
    ],
)
def test_malformed_expressions_are_explained(expression, position, expected, found):
    message = f"malformed expression at position {position}: expected {expected}, found {found}\n"
    with pytest.raises(ExpressionError) as caught:
        CalcNet()(expression, {"a": torch.ones(()), "b": torch.ones(())})
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(f"  {expression}\n  {' ' * position}^")
