"""Constants as people write them: rationals, multiples of pi, roots, short decimals."""

import math
from fractions import Fraction

import numpy as np
import sympy as sp

from numerate.discover import expressions as ex
from numerate.discover.refit import Fit, refit, relative_error

FACTORS = {  # what a rational may be multiplied with, and what that costs in bits
    sp.Integer(1): 0.0,
    sp.pi: 3.0,
    1 / sp.pi: 3.0,
    sp.sqrt(2): 4.0,
    sp.pi**2: 5.0,
    1 / sp.pi**2: 5.0,
    1 / sp.sqrt(sp.pi): 5.0,
    1 / sp.sqrt(2 * sp.pi): 5.0,
    sp.sqrt(3): 5.0,
    sp.sqrt(sp.pi): 6.0,
    sp.E: 6.0,
    1 / sp.E: 6.0,
    sp.log(2): 6.0,
    1 / sp.log(10): 7.0,
    sp.log(10): 7.0,
}
_VALUES = [(name, float(name), cost) for name, cost in FACTORS.items()]


def exact(value: float, tolerance: float = 1e-9) -> sp.Expr:
    """The number as sympy writes it exactly, if a simple one lies within the relative tolerance; else a Float."""
    found = simplest(value, abs(value) * tolerance)
    return sp.Float(value, 15) if found is None else found[0]


def simplest(value: float, width: float) -> tuple[sp.Expr, float] | None:
    """The simplest number within ``width`` of ``value``: (as sympy, as float), or None.

    A number counts only if few numbers as simple lie as close by chance: 2^bits * width / |value| < 0.6.
    """
    if not np.isfinite(value):
        return None
    if abs(value) <= width:
        return sp.Integer(0), 0.0
    width = max(width, 4e-16 * abs(value))
    best: tuple[float, sp.Expr, float] | None = None
    for name, factor, extra in _VALUES:
        got = _rational(value / factor, width / factor)
        if got is not None and (best is None or got[1] + extra < best[0]):
            best = (got[1] + extra, sp.Rational(got[0].numerator, got[0].denominator) * name, float(got[0]) * factor)
    for digits in range(1, 5):
        short = round(value, digits)
        bits = math.log2(abs(short) * 10**digits + 1) + 2
        if short and abs(short - value) <= width and (best is None or bits < best[0]):
            best = (bits, sp.Rational(Fraction(str(short)).numerator, Fraction(str(short)).denominator), short)
            break
    if best is None or (best[0] >= 4 and best[0] + math.log2(2 * width / abs(value)) > math.log2(0.6)):
        return None
    return best[1], best[2]


def _rational(value: float, width: float, most: int = 40) -> tuple[Fraction, float] | None:
    """The fraction of smallest denominator within the width, and its cost in bits."""
    for den in range(1, most + 1):
        num = round(value * den)
        if num and abs(num / den - value) <= width:
            return Fraction(num, den), math.log2(abs(num) + 1) + 1.2 * math.log2(den)
    return None


def round_constants(
    fit: Fit, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> tuple[Fit, dict[int, sp.Expr]]:
    """Constants one after another to the simplest number within 2.5 standard errors, if the fit does not suffer.

    Returns the fit with the others refitted, and the exact value of each rounded constant by position.
    """
    n, held, names = len(y), {}, {}
    if not 0 < len(ex.constants(fit.tree)) <= 20:
        return fit, {}
    best, allowed = fit, max(fit.error * (1 + 3.0 / n), 2e-10)
    for i in range(len(ex.constants(fit.tree))):
        c, error = ex.constants(best.tree)[i], best.standard_errors[i]
        width = max(1e-10 * abs(c), 2.5 * error if np.isfinite(error) else 0.0)
        near = simplest(c, width)
        if near is None:
            continue
        trial = refit(best.tree, X, y, weights, steps=12, held=held | {i: near[1]})
        if trial.error <= allowed:
            held, names, best = held | {i: near[1]}, names | {i: near[0]}, trial
    return best, names


def drop_idle(fit: Fit, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Fit:
    """Terms whose constant does nothing are taken out of the tree."""
    tree = fit.tree
    for i in reversed(range(len(ex.constants(tree)))):
        c = ex.constants(tree)
        c[i] = 0.0
        with np.errstate(all="ignore"):
            trial = ex.with_constants(tree, c)
            if relative_error(trial, X, y, weights) <= max(fit.error * (1 + 0.5 / len(y)), 1e-14):
                tree = trial
    if tree is fit.tree:
        return fit
    tree = without_zeros(tree)
    return refit(tree, X, y, weights, steps=20)


def without_zeros(tree: ex.Tree) -> ex.Tree:
    """Products with a zero constant vanish, and sums lose such terms."""
    if tree[0] in ("x", "c", "k"):
        return tree
    parts = [without_zeros(s) if isinstance(s, tuple) else s for s in tree[1:]]
    if tree[0] == "mul":
        return ex.fixed(0.0) if any(_is_zero(p) for p in parts) else ex.mul(*parts)
    if tree[0] == "add":
        kept = [p for p in parts if not _is_zero(p)]
        return ex.add(*kept) if kept else ex.fixed(0.0)
    return (tree[0], *parts)


def _is_zero(tree: ex.Tree) -> bool:
    return tree[0] in ("c", "k") and tree[1] == 0.0
