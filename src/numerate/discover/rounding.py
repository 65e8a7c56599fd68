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
    """Constants to the simplest number within their error, if the fit does not suffer: all at once, else one by one.

    Where constants stay free, the same with a constant before each sum: the ratios of its terms may be simple numbers.
    Returns the fit with the others refitted, and the exact value of each rounded constant by position.
    """
    if not 0 < len(ex.constants(fit.tree)) <= 20:
        return fit, {}
    if np.isnan(fit.standard_errors).any():  # constants that the data fix only together
        fit = refit(merged(before_sums(fit.tree)), X, y, weights, steps=10)
    best, names = _round(fit, X, y, weights)
    free = len(ex.constants(best.tree)) - len(names)
    tree = merged(before_sums(fit.tree))
    if free > 1 and tree != fit.tree and fit.error > 1e-9:
        other, others = _round(refit(tree, X, y, weights, steps=10), X, y, weights)
        if len(ex.constants(other.tree)) - len(others) < free:
            return other, others
    return best, names


def before_sums(tree: ex.Tree) -> ex.Tree:
    """a f + b g as a (f + (b/a) g), for each sum whose terms all have a constant factor."""
    tree = tuple(before_sums(part) if isinstance(part, tuple) else part for part in tree)
    if tree[0] != "add":
        return tree
    terms = [apart for term in tree[1:] if (apart := _apart(term)) is not None]
    if len(terms) < max(2, len(tree) - 1):
        return tree
    first = terms[0][0]
    inner = [
        terms[0][1],
        *(ex.const(c / first) if ex.is_one(t) else ex.mul(ex.const(c / first), t) for c, t in terms[1:]),
    ]
    return ex.mul(ex.const(first), ex.add(*inner))


def merged(tree: ex.Tree) -> ex.Tree:
    """Products within products as one, their constants multiplied."""
    tree = tuple(merged(part) if isinstance(part, tuple) else part for part in tree)
    if tree[0] != "mul":
        return tree
    parts = [p for part in tree[1:] for p in (part[1:] if part[0] == "mul" else [part])]
    constants = [p[1] for p in parts if p[0] == "c"]
    rest = [p for p in parts if p[0] != "c"]
    return ex.mul(*([ex.const(math.prod(constants))] if constants else []), *rest)


def _apart(term: ex.Tree) -> tuple[float, ex.Tree] | None:
    """A term as (constant, the rest); None if it has not exactly one constant factor."""
    if term[0] == "c":
        return (term[1], ex.ONE) if term[1] else None
    parts = list(term[1:]) if term[0] == "mul" else [term]
    constants = [p[1] for p in parts if p[0] == "c"]
    rest = [p for p in parts if p[0] != "c"]
    return (constants[0], ex.mul(*rest)) if len(constants) == 1 and constants[0] and rest else None


def _round(fit: Fit, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> tuple[Fit, dict[int, sp.Expr]]:
    """:func:`round_constants` of one form."""
    for sigmas in (2.5, 4.0):
        together = _round_together(fit, X, y, weights, sigmas)
        if together is not None:
            return together
    n, held, names = len(y), {}, {}
    best, allowed = fit, max(fit.error * (1 + 3.0 / n), 2e-10)
    for i in range(len(ex.constants(fit.tree))):
        near = _near(best, i, 2.5)
        if near is None:
            continue
        trial = refit(best.tree, X, y, weights, steps=12, held=held | {i: near[1]})
        if trial.error <= allowed:
            held, names, best = held | {i: near[1]}, names | {i: near[0]}, trial
    return best, names


def _near(fit: Fit, i: int, sigmas: float) -> tuple[sp.Expr, float] | None:
    c, error = ex.constants(fit.tree)[i], fit.standard_errors[i]
    near = simplest(c, max(1e-10 * abs(c), sigmas * error if np.isfinite(error) else 0.0))
    return None if near is None or near[1] == 0.0 else near  # terms that do nothing were dropped before


def _round_together(fit: Fit, X, y, weights, sigmas: float) -> tuple[Fit, dict[int, sp.Expr]] | None:
    """All constants at once; the loss of likelihood must be what so many parameters gain by chance."""
    near = [_near(fit, i, sigmas) for i in range(len(ex.constants(fit.tree)))]
    k = len(near)
    if any(v is None for v in near):
        return None
    tree = ex.with_constants(fit.tree, [v[1] for v in near if v is not None])
    error = relative_error(tree, X, y, weights)
    allowed = max(fit.error * np.exp(0.5 * (k + 3 * np.sqrt(2 * k)) / len(y)), 2e-13)
    if error > allowed:
        return None
    return Fit(tree, error, np.zeros(k)), {i: v[0] for i, v in enumerate(near) if v is not None}


def drop_idle(fit: Fit, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Fit:
    """Terms that the description length does not want are taken out of the tree, the others refitted."""
    n = len(y)
    i = len(ex.constants(fit.tree))
    while i > 0 and len(ex.constants(fit.tree)) > 1:
        i -= 1
        c = ex.constants(fit.tree)
        if i >= len(c):
            continue
        c[i] = 0.0
        tree = without_zeros(ex.with_constants(fit.tree, c))
        trial = refit(tree, X, y, weights, steps=15) if not _is_zero(tree) else fit
        gone = len(c) - len(ex.constants(tree))
        if gone and np.log(max(trial.error, 1e-14) / max(fit.error, 1e-14)) * n < 0.5 * gone * np.log(n) + 1:
            fit = trial
    return fit


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
