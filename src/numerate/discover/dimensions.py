"""Buckingham's theorem from units: the monomial with the target's dimension, and the dimensionless groups."""

from fractions import Fraction
from typing import Any

import sympy as sp

from numerate.discover.formula import Dimensions
from numerate.discover.groups import Groups


def groups_from(dimensions: Dimensions) -> Groups:
    """x^front has the dimension of the target; each row makes a group without dimension.

    Raises:
        ValueError: no product of powers of the inputs has the target's dimension.
    """
    D = sp.Matrix([[_rational(v) for v in row] for row in dimensions.inputs]).T  # base units x inputs
    target = sp.Matrix([_rational(v) for v in dimensions.target])
    names = sp.symbols(f"a0:{D.shape[1]}")
    solutions: Any = list(sp.linsolve((D, target), *names))
    if not solutions:
        unit = " ".join(f"{n}^{v}" for n, v in zip(dimensions.names, dimensions.target) if v) or "none"
        raise ValueError(
            f"No product of powers of the inputs has the dimension of the target ({unit}): "
            "add the constant that is missing as an input, or leave the units out."
        )
    front = [_fraction(e.subs(dict.fromkeys(names, 0))) for e in solutions[0]]
    rows = [[_fraction(v) for v in vector] for vector in D.nullspace()]
    return Groups(0.0, front, rows)


def _rational(value: Any) -> Any:
    f = Fraction(value).limit_denominator(1000)
    return sp.Rational(f.numerator, f.denominator)


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))
