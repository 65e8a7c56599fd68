"""Standard errors of the numbers that a formula shows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import sympy as sp

from numerate.discover.formula import Formula
from numerate.discover.refit import standard_errors

STEP = 1e-6  # of a number, for the derivative by it
ASKED = 20_000  # rows that the derivatives are taken at


def with_shown_constants(
    formula: Formula, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, fitted: int | None = None
) -> Formula:
    """The formula with the numbers it shows as its constants, where sympy has joined fitted ones.

    exp(1.2 - 0.4 x) is shown as 3.3 exp(-0.4 x): the standard error wanted is that of 3.3.

    Args:
        formula: As the search gives it.
        X: Inputs, (n, d), rows in random order.
        y: Target, (n,)
        weights: Of the rows, (n,)
        fitted: How many of the rows the constants are fitted to; None for all.
    """
    numbers = sorted(formula.expression.atoms(sp.Float), key=float)
    known = [abs(value) for value, _ in formula.constants.values()]
    if all(np.isclose(abs(float(each)), known, rtol=1e-9, atol=0).any() for each in numbers):
        return formula
    values = np.array([float(each) for each in numbers])
    asked = slice(0, min(ASKED, len(y)))
    errors = _errors(formula, numbers, values, X[asked], y[asked], None if weights is None else weights[asked])
    errors *= np.sqrt(asked.stop / min(len(y), fitted or len(y)))
    return replace(formula, constants={f"c{i}": (float(v), float(e)) for i, (v, e) in enumerate(zip(values, errors))})


def _errors(
    formula: Formula,
    numbers: Sequence[sp.Float],
    values: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
) -> np.ndarray:
    """Standard errors of the numbers, NaN where the data do not say: (k,)"""
    symbols, columns = [sp.Dummy() for _ in numbers], [sp.Dummy() for _ in formula.names]
    inputs = {sp.Symbol(name): column for name, column in zip(formula.names, columns)}
    open_form = formula.expression.xreplace(dict(zip(numbers, symbols)) | inputs)
    function = sp.lambdify([symbols, columns], open_form, "numpy")
    root = 1.0 if weights is None else np.sqrt(weights / weights.mean())

    def residual(c: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return (np.asarray(function(c, X.T), float) - y) * root

    steps = STEP * np.abs(np.diag(values))
    J = np.stack([(residual(values + h) - residual(values - h)) / (2 * h.max()) for h in steps], 1)
    r = residual(values)
    if not (np.isfinite(r).all() and np.isfinite(J).all()):
        return np.full(len(values), np.nan)
    return standard_errors(J, r)
