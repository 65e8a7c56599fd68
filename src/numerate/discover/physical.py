"""Physical constants by name: a number with units that is one of them, or a simple multiple of two."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import sympy

from numerate.discover.physical_units import Dimension, parse_unit, product

CONSTANTS = {
    "c": ("speed of light in vacuum", "m/s"),
    "G": ("Newtonian constant of gravitation", "m^3/kg/s^2"),
    "h": ("Planck constant", "J s"),
    "k_B": ("Boltzmann constant", "J/K"),
    "q_e": ("elementary charge", "C"),
    "epsilon_0": ("vacuum electric permittivity", "F/m"),
    "mu_0": ("vacuum mag. permeability", "N/A^2"),
    "N_A": ("Avogadro constant", "1/mol"),
    "R": ("molar gas constant", "J/mol/K"),
    "sigma_SB": ("Stefan-Boltzmann constant", "W/m^2/K^4"),
    "g_n": ("standard acceleration of gravity", "m/s^2"),
    "m_e": ("electron mass", "kg"),
    "m_p": ("proton mass", "kg"),
    "R_inf": ("Rydberg constant", "1/m"),
}
"""Symbol -> CODATA's name and unit. The Sun's mass stands beside them."""

SUN = ("M_sun", "solar mass", 1.98841e30, "kg")
CHANCE = 0.02
"""A name is given only if fewer candidates than this would be expected as close by accident."""


@dataclass(frozen=True)
class Constant:
    symbol: str
    name: str
    value: float
    dimension: Dimension


@dataclass(frozen=True)
class Named:
    """A number as a product of physical constants: 2*pi/sqrt(g_n)."""

    expression: sympy.Expr
    constants: tuple[Constant, ...]

    def __str__(self) -> str:
        meaning = ", ".join(f"{each.symbol}: {each.name}" for each in self.constants)
        return f"{self.expression} ({meaning})"


@cache
def constants() -> tuple[Constant, ...]:
    from scipy.constants import physical_constants

    found = [
        Constant(symbol, name, physical_constants[name][0], parse_unit(unit).dimension)
        for symbol, (name, unit) in CONSTANTS.items()
    ]
    symbol, name, value, unit = SUN
    return (*found, Constant(symbol, name, value, parse_unit(unit).dimension))


def name_constant(value: float, dimension: Dimension, tolerance: float) -> Named | None:
    """The simplest product of physical constants and a plain number that a measured one may be, if that is no accident.

    Args:
        value: In SI base units.
        dimension: Of the value; a plain number has no name.
        tolerance: How far off the name may be, relative to the value: a few standard errors.
    """
    if not dimension or not value or not 0 <= tolerance < 0.1:
        return None
    tolerance = max(tolerance, 1e-9)
    most = int(CHANCE * math.log(1e3) / (2 * tolerance)) + 1
    for group, factor in _simplest_first(dimension)[:most]:
        size = float(factor) * math.prod(each.value ** float(power) for each, power in group)
        if abs(size / abs(value) - 1) <= tolerance:
            parts = [sympy.Symbol(each.symbol) ** sympy.Rational(power) for each, power in group]
            sign = 1 if value > 0 else -1
            return Named(sign * factor * sympy.Mul(*parts), tuple(each for each, _ in group))
    return None


Group = tuple[tuple[Constant, Fraction], ...]


def _simplest_first(dimension: Dimension) -> list[tuple[Group, sympy.Expr]]:
    listed = [(cost + extra, group, factor) for cost, group in _candidates(dimension) for extra, factor in _factors()]
    return [(group, factor) for _, group, factor in sorted(listed, key=lambda each: each[0])]


def _candidates(dimension: Dimension) -> Iterator[tuple[float, Group]]:
    """Products of powers of one or two constants that have the dimension, with what they cost in simplicity."""
    for count in (1, 2):
        for chosen in itertools.combinations(constants(), count):
            powers = _solve(chosen, dimension)
            if powers and all(power and abs(power) <= 4 and 2 % power.denominator == 0 for power in powers):
                yield count + sum(float(abs(power)) for power in powers) / 4, tuple(zip(chosen, powers))


def _solve(chosen: tuple[Constant, ...], dimension: Dimension) -> list[Fraction] | None:
    """Powers of the constants that give the dimension, if there is exactly one way."""
    bases = sorted({base for each in chosen for base in each.dimension} | set(dimension))
    table = sympy.Matrix(
        len(bases), len(chosen), lambda i, j: sympy.Rational(chosen[j].dimension.get(bases[i], Fraction(0)))
    )
    wanted = sympy.Matrix([sympy.Rational(dimension.get(base, Fraction(0))) for base in bases])
    if table.rank() < len(chosen) or table.row_join(wanted).rank() > len(chosen):
        return None
    solution = (table.T * table).LUsolve(table.T * wanted)
    powers = [Fraction(str(value)) for value in solution]
    same = product(*((each.dimension, power) for each, power in zip(chosen, powers)))
    return powers if same == product((dimension, 1)) else None


@cache
def _factors() -> tuple[tuple[float, sympy.Expr], ...]:
    """Plain numbers from simple to less simple: 1, 2, 1/2, pi, 4*pi**2, ..."""
    numbers = {Fraction(p, q) for p in (1, 2, 3, 4, 8) for q in (1, 2, 3, 4, 8)}
    listed = [
        (
            math.log2(number.numerator) + math.log2(number.denominator) + 1.5 * abs(power),
            sympy.Rational(number) * sympy.pi**power,
        )
        for number in numbers
        for power in (0, 1, 2, -1, -2)
    ]
    return tuple(sorted(listed, key=lambda each: (each[0], str(each[1]))))
