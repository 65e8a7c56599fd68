"""Two inputs that enter together: y = F(h(x_i, x_j), the others), h read off the ratio of two partial derivatives.

Whatever F is, (dy/dx_j) / (dy/dx_i) = h_j / h_i. Where this ratio is a monomial of the inputs, it names

    h = X_i + c m X_j,   X a power or the logarithm of x, m a monomial of the other inputs:

differences, products and quotients, sums of squares, of inverses, a + p b, log S + r T. The ratio is taken from a free
polynomial and its exponents are rounded, so a merge is only believed where a free polynomial of h and the others fits
as well as one of all inputs does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock, linear_work
from numerate.discover.index import fraction
from numerate.discover.view import View

ROWS = 800
MOST_COLUMNS = 220
STRAIGHT = 0.25  # spread of the logarithm of a ratio that may still be a monomial
SIMPLE = (1.0, 2.0, 0.5, 3.0, 4.0, 0.25)  # coefficients of the second term


@dataclass(frozen=True)
class Merge:
    """x_i and x_j leave, ``tree`` comes; ``spread`` says how far the ratio was from a monomial."""

    i: int
    j: int
    tree: ex.Tree
    spread: float

    def apply(self, view: View) -> View:
        """The view of the inputs that are left, then the new one."""
        return view.of([x for q, x in enumerate(view.variables) if q not in (self.i, self.j)] + [self.tree])


@dataclass(frozen=True)
class Surrogate:
    """A free polynomial for a target: relative error and gradients by the inputs (n, k)."""

    error: float
    slopes: np.ndarray


def coordinates(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs that are positive and spread over a factor of two or more by their logarithms; and dz/dx."""
    low, high = P.min(0), P.max(0)
    logs = (low > 0) & (high > 2 * low)
    Z = np.where(logs, np.log(np.abs(P) + 1e-300), P)
    slope = np.where(logs, 1 / (np.abs(P) + 1e-300), 1.0)
    middle, half = (Z.min(0) + Z.max(0)) / 2, np.maximum((Z.max(0) - Z.min(0)) / 2, 1e-300)
    return (Z - middle) / half, slope / half


def targets(view: View) -> np.ndarray:
    """The target under monotone functions, which change no ratio of derivatives; unit spread. (n, m)"""
    t = view.t
    columns = [t]
    if view.one_sign:
        columns += [np.log(np.abs(t)), 1 / t]
    T = np.stack([c for c in columns if np.isfinite(c).all()], 1)
    return (T - T.mean(0)) / (T.std(0) + 1e-300)


def surrogate(view: View, rows: int = ROWS) -> Surrogate:
    """The polynomial of the target, its logarithm or its inverse that fits best."""
    v = view.head(rows)
    U, slope = coordinates(v.P)
    exps = poly.exponents(v.k, poly.best_degree(v.k, min(len(U) // 3, MOST_COLUMNS), 9))
    H, slopes = poly.columns_and_slopes(U, exps)
    A = np.concatenate([np.ones((len(U), 1)), H], 1)
    T = targets(v)
    if not (np.isfinite(A).all() and np.isfinite(T).all()):
        return Surrogate(np.inf, np.zeros_like(U))
    Q, R = np.linalg.qr(A)
    left = T - Q @ (Q.T @ T)
    errors = np.sqrt(np.sum(left**2, 0) / max(len(U) - A.shape[1], 1))
    best = int(np.argmin(errors))
    c = np.linalg.lstsq(R, Q.T @ T[:, best], rcond=1e-12)[0][1:]
    return Surrogate(float(errors[best]), np.stack([S @ c for S in slopes], 1) * slope)


def monomial_ratio(P: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, list[Fraction], float] | None:
    """b / a = c x^e: (c, e, spread), rows where one of the two is small counting less; None if it is no monomial."""
    size = np.minimum(np.abs(a) / (np.median(np.abs(a)) + 1e-300), np.abs(b) / (np.median(np.abs(b)) + 1e-300))
    w = np.minimum(size, 1.0)
    with np.errstate(all="ignore"):
        z, L = np.log(np.abs(b / a)), np.log(np.abs(P))
    ok = np.isfinite(z) & np.isfinite(L).all(1) & (w > 0.02)
    if ok.sum() < 0.5 * len(z):
        return None
    z, w, L = z[ok], w[ok], L[ok]
    A = np.concatenate([np.ones((len(z), 1)), L], 1)
    coefficients = np.zeros(A.shape[1])
    for _ in range(4):
        coefficients = np.linalg.lstsq(A * w[:, None], z * w, rcond=None)[0]
        r = np.abs(z - A @ coefficients)
        w = np.minimum(w, 1.0) / (1 + r / (2 * np.median(r) + 1e-9))
    exponents = [fraction(q, 0.17, (1, 2)) for q in coefficients[1:]]
    if None in exponents:
        return None
    e = np.array([float(q) for q in exponents])  # type: ignore[arg-type]
    rest = z - L @ e
    order = np.argsort(rest)
    c = float(rest[order][np.searchsorted(np.cumsum(w[order]), 0.5 * w.sum())])  # the weighted median
    spread = float(np.sum(w * np.abs(rest - c)) / np.sum(w))
    odd = [k for k, q in enumerate(exponents) if q.numerator % 2]  # type: ignore[union-attr]
    signs = np.sign(b / a)[ok] * np.prod(np.sign(P[ok][:, odd]), 1)
    sign = np.sign(np.sum(w * signs))
    if np.sum(w * (signs == sign)) < 0.95 * np.sum(w):
        return None
    return float(sign * np.exp(c)), exponents, spread  # type: ignore[return-value]


def combined(i: int, j: int, c: float, e: list[Fraction], P: np.ndarray) -> ex.Tree | None:
    """h with h_j / h_i = c x^e; None where it is not defined."""
    a, b = 1 - e[i], 1 + e[j]
    factor = c * float(a or 1) / float(b or 1)
    near = [s for s in SIMPLE if abs(abs(factor) / s - 1) < 0.06]
    if not near:
        return None
    coefficient = ex.fixed(np.sign(factor) * near[0])
    m = ex.monomial([ex.var(q) for q in range(len(e))], [0 if q in (i, j) else v for q, v in enumerate(e)])
    if a == 0 and b == 0 and ex.is_one(m):
        return ex.monomial([ex.var(i), ex.var(j)], [1, Fraction(np.sign(factor) * near[0])])
    first, second = (("log", ex.var(q)) if p == 0 else ex.power(ex.var(q), p) for q, p in ((i, a), (j, b)))
    parts = [p for p in (coefficient, m, second) if not (p[0] == "k" and p[1] == 1.0)]
    tree = ex.add(first, ex.mul(*parts))
    with np.errstate(all="ignore"):
        values = ex.column(tree, P)
    return tree if np.isfinite(values).all() and np.std(values) > 0 else None


def candidates(view: View, slopes: np.ndarray, rows: int = ROWS) -> Iterator[Merge]:
    """Merges of every pair whose ratio of derivatives is near a monomial."""
    P = view.P[:rows]
    for i, j in combinations(range(view.k), 2):
        ratio = monomial_ratio(P, slopes[:, i], slopes[:, j])
        if ratio is not None and ratio[2] < STRAIGHT:
            tree = combined(i, j, ratio[0], ratio[1], view.P)
            if tree is not None:
                yield Merge(i, j, tree, ratio[2])


def find_merge(view: View, clock: Clock, rows: int = ROWS) -> Merge | None:
    """The pair that enters most surely by one quantity, or None."""
    if not 2 < view.k <= 9 or (view.P == 0).any():
        return None
    n, columns = min(rows, len(view.t)), len(poly.exponents(view.k, poly.best_degree(view.k, MOST_COLUMNS, 9)))
    clock.spend(1.5 * linear_work(n, columns))
    before = surrogate(view, rows)
    if before.error > 0.3:
        return None
    best: tuple[float, Merge] | None = None
    for merge in sorted(candidates(view, before.slopes, rows), key=lambda m: m.spread + 0.01 * ex.size(m.tree))[:4]:
        clock.spend(1.5 * linear_work(n, columns))
        after = surrogate(merge.apply(view), rows).error
        if after < 1.2 * before.error + 1e-9 and (best is None or after < best[0]):
            best = (after, merge)
    return None if best is None else best[1]


def merged(view: View, clock: Clock) -> View | None:
    """The view after all merges that are found one after another; None if there is none."""
    out = None
    while (merge := find_merge(view if out is None else out, clock)) is not None:
        out = merge.apply(view if out is None else out)
    return out
