"""Formulas: composition, honest marks, names."""

import pytest
import sympy
import torch
from torch import nn

from numerate.units import NAU, NMU, formula
from numerate.units.symbolic import approx, rounded


def weighted(unit, weight):
    with torch.no_grad():
        unit.weight.copy_(torch.tensor(weight))
    return unit


def two_layers(first) -> nn.Sequential:
    return nn.Sequential(weighted(NAU(4, 2), first), weighted(NMU(2, 1), [[1.0, 1.0]]))


def test_stacked_units_compose():
    model = two_layers([[1, 1, 0, 0], [0, 0, 1, -1]])
    assert str(formula(model, ["a", "b", "c", "d"])) == "(a + b)*(c - d)"
    assert formula(model, "a b c d") == formula(model, "a, b, c, d")
    assert str(formula(model)) == "(x1 + x2)*(x3 - x4)"


def test_weights_within_the_tolerance_are_rounded():
    model = two_layers([[0.995, 1, 0.004, 0], [0, 0, 1, -0.992]])
    assert str(formula(model, "a b c d")) == "(a + b)*(c - d)"
    assert "≈" in str(formula(model, "a b c d", tolerance=1e-3))


def test_a_weight_that_is_not_discrete_is_marked():
    unit = weighted(NAU(2, 1), [[0.5, 1.0]])
    assert str(unit.formula("a b")) == "a*≈0.5 + b"
    a, b = (sympy.Symbol(name, real=True) for name in "ab")
    assert unit.formula("a b").subs({a: 2, b: 3}).doit() == pytest.approx(4)
    assert sympy.latex(unit.formula("a b")) == r"a {\approx}0.5 + b"


def test_a_mark_survives_arithmetic_and_comes_off():
    marked = approx(0.973)
    assert str(marked) == "≈0.973"
    assert str(2 * marked) == "2*≈0.973"
    assert (2 * marked).doit() == pytest.approx(1.946)
    assert float(marked.evalf()) == pytest.approx(0.973)


def test_rounded():
    assert rounded(0.999, (0.0, 1.0), 0.01) == sympy.Integer(1)
    assert str(rounded(0.9, (0.0, 1.0), 0.01)) == "≈0.9"
    assert str(rounded(0.9, (), 0.01)) == "≈0.9"
    assert rounded(0.499, (0.0, 0.5), 0.01) == sympy.Rational(1, 2)


def test_several_outputs_are_a_column():
    found = weighted(NAU(2, 2), [[1, 1], [1, -1]]).formula("a b")
    assert found.shape == (2, 1)
    assert [str(entry) for entry in found] == ["a + b", "a - b"]


def test_linear_layers_and_identity_take_part():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -1.5]]))
        layer.bias.fill_(0.25)
    found = formula(nn.Sequential(nn.Identity(), layer, weighted(NAU(1, 1), [[1.0]])), "a b")
    a, b = (sympy.Symbol(name, real=True) for name in "ab")
    assert found.doit().subs({a: 3, b: 1}) == pytest.approx(0.25)
    assert str(found).count("≈") == 3


@pytest.mark.parametrize("names", [["a"], "a b c", ["a", "b", "c", "d", "e"]], ids=str)
def test_wrong_number_of_names(names):
    count = len(names.split()) if isinstance(names, str) else len(names)
    with pytest.raises(ValueError, match=f"names must give 4 input names, got {count}"):
        formula(two_layers([[1, 1, 0, 0], [0, 0, 1, -1]]), names)


def test_names_may_be_letters():
    model = two_layers([[1, 1, 0, 0], [0, 0, 1, -1]])
    assert formula(model, "abcd") == formula(model, "a b c d")


def test_one_name_for_two_inputs_is_refused():
    with pytest.raises(ValueError, match="names must give 2 different names, got a, a"):
        NAU(2, 1).formula("a a")


@pytest.mark.parametrize("tolerance", [-1, float("nan"), "x"])
def test_a_tolerance_that_makes_no_sense_is_named(tolerance):
    with pytest.raises(ValueError, match=f"tolerance must be a number of at least 0, got {tolerance!r}"):
        NAU(2, 1).formula(tolerance=tolerance)


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="Linear takes 2 inputs, got 1"):
        formula(nn.Sequential(NAU(2, 1), nn.Linear(2, 1)))
    with pytest.raises(ValueError, match="NMU takes 3 inputs, got 2"):
        formula(nn.Sequential(NAU(4, 2), NMU(3, 1)))


def test_unknown_layers_are_named():
    with pytest.raises(TypeError, match="no formula is known for Tanh; allowed are numerate units"):
        formula(nn.Sequential(NAU(4, 2), nn.Tanh()))
    with pytest.raises(TypeError, match="none of its layers says its in_features"):
        formula(nn.Tanh())
