"""Units of columns: what makes sense, what does not, and constants by their names."""

from fractions import Fraction

import pytest
import sympy

from numerate.discover.parse import parse_formula
from numerate.discover.physical import name_constant
from numerate.discover.physical_units import Nonsense, constant_dimensions, parse_unit, parse_units, reachable


def units(**written):
    return {name: parse_unit(unit) for name, unit in written.items()}


def test_units_have_dimension_and_scale():
    force = parse_unit("kg m/s^2")
    assert force.dimension == {"mass": 1, "length": 1, "time": -2}
    assert force.scale == 1
    assert parse_unit("km/h").scale == pytest.approx(1 / 3.6)
    assert parse_unit("AU").dimension == {"length": 1}
    assert parse_unit("1").dimension == {}


@pytest.mark.parametrize("wrong", ["blah", "m/", "degC", "m+s", "sin(m)"])
def test_what_is_no_unit_is_one_sentence(wrong):
    with pytest.raises(ValueError, match=r"is no unit|offset"):
        parse_unit(wrong)


def test_every_column_needs_a_unit():
    with pytest.raises(ValueError, match="3 units are needed, for a, b and then y; got 2"):
        parse_units("m, s", ["a", "b"], "y")


@pytest.mark.parametrize("formula", ["l/t", "sqrt(l**2/t**2)", "l/t*exp(-m/n)", "l/t*(1 + 2.5*m/n)"])
def test_sense(formula):
    constant_dimensions(parse_formula(formula), units(l="m", t="s", m="kg", n="kg", v="m/s"), "v")


@pytest.mark.parametrize("formula", ["l + t", "l*t", "exp(l)", "sqrt(l + t)", "l/t*exp(-m)", "2**l/t", "l/t + m/n"])
def test_nonsense(formula):
    with pytest.raises(Nonsense):
        constant_dimensions(parse_formula(formula), units(l="m", t="s", m="kg", n="kg", v="m/s"), "v")


def test_free_constants_carry_the_units_that_are_missing():
    found = constant_dimensions(parse_formula("0.5e0*exp(-2.2e0*x/t) + 0.3e0"), units(x="m", t="s", y="K"), "y")
    by_value = {float(number): dimension for number, dimension in found.items()}
    assert by_value[-2.2] == {"time": 1, "length": -1}
    assert by_value[0.5] == by_value[0.3] == {"temperature": 1}


def test_whether_inputs_suffice_without_a_constant():
    assert reachable(units(l="m", t="s", v="m/s"), ["l", "t"], "v")
    assert not reachable(units(l="m", v="m/s"), ["l"], "v")
    assert reachable(units(l="m", v="1"), ["l"], "v")


@pytest.mark.parametrize(
    ("value", "unit", "name"),
    [
        (6.674e-11, "m^3/kg/s^2", "G"),
        (8.314, "J/mol/K", "R"),
        (8.98755e16, "m^2/s^2", "c**2"),
        (8.9875e9, "N m^2/C^2", "1/(4*pi*epsilon_0)"),
        (2.00640929, "s/m^0.5", "2*pi/sqrt(g_n)"),
    ],
)
def test_physical_constants_by_name(value, unit, name):
    found = name_constant(value, parse_unit(unit).dimension, 3e-4)
    assert found is not None
    assert sympy.simplify(found.expression - sympy.parse_expr(name, {"c": sympy.Symbol("c")})) == 0


def test_a_number_that_could_be_anything_has_no_name():
    assert name_constant(3.3, {"length": Fraction(1), "time": Fraction(-1)}, 1e-3) is None
    assert name_constant(6.9e-11, parse_unit("m^3/kg/s^2").dimension, 1e-3) is None
    assert name_constant(2.0, {}, 1e-6) is None
