"""One term beside the rest: y = s + c x^a u^q with s a sum of up to two terms of coefficient one and u a small sum.

log |y - s| is linear in the logarithms of the inputs and of u. Thousands of s and u are tried by one product of
matrices; the exponents come out of the fit and must be simple fractions. Inputs and targets may have any sign.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations, islice
from math import lcm

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import inner
from numerate.discover.clock import Clock, check_time
from numerate.discover.index import fraction
from numerate.discover.view import View

SURE = 1e-9  # unexplained fraction of the logarithm
MINUS = ex.fixed(-1.0)
TARGETS, SUMS = 2000, 3000


def terms_off(view: View) -> list[ex.Tree | None]:
    """Nothing, one or two of the inputs, their squares and products, with signs."""
    V = view.variables
    terms = V + [ex.power(x, 2) for x in V] + [ex.mul(a, b) for a, b in combinations(V, 2)]
    signed = [(i, t) for i, m in enumerate(terms) for t in (m, ex.mul(MINUS, m))]
    pairs = (ex.add(a, b) for (i, a), (j, b) in combinations(signed, 2) if i != j)
    return list(islice(chain([None], (t for _, t in signed), pairs), TARGETS))


def power_fits(view: View, clock: Clock, rows: int = 400) -> Iterator[ex.Tree]:
    """Formulas of this form that are exact."""
    v = view.head(rows)
    if v.k < 2 or (v.P == 0).any():
        return
    offs = terms_off(v)
    with np.errstate(all="ignore"):
        T = np.stack([np.log(np.abs(v.t if s is None else v.t - ex.column(s, v.P))) for s in offs], 1)
    clock.spend(1e-8 * T.size + 1e-10 * T.size * SUMS)
    ok = np.where(np.isfinite(T).all(0))[0]
    base = np.concatenate([np.ones((len(T), 1)), np.log(np.abs(v.P))], 1)
    U, trees = _sums(v.P)
    Q = np.linalg.qr(base)[0]
    T, F = (M - Q @ (Q.T @ M) for M in (T[:, ok], U))
    spread = np.linalg.norm(T, axis=0)
    for j in np.where(spread < 1e-6 * np.sqrt(len(T)))[0]:
        yield from _emitted(view, offs[ok[j]], base, None, rows)
    norms = np.linalg.norm(F, axis=0)
    F, T = (F / (norms + 1e-300)).astype(np.float32), (T / (spread + 1e-300)).astype(np.float32)
    for i, j in _nearest(F, T, 20):
        yield from _emitted(view, offs[ok[j]], np.concatenate([base, U[:, [i]]], 1), trees[i], rows)


def _nearest(F: np.ndarray, T: np.ndarray, most: int, block: int = 500) -> list[tuple[int, int]]:
    """Pairs of a column of F and one of T, of unit length, that are nearly parallel; the nearest first."""
    found: list[tuple[float, int, int]] = []
    for start in range(0, F.shape[1], block):
        check_time()
        left = 1 - (F[:, start : start + block].T @ T) ** 2
        near = np.argwhere(left < 1e-3)
        near = near[np.argsort(left[near[:, 0], near[:, 1]], kind="stable")][:most]
        found += [(float(left[i, j]), start + int(i), int(j)) for i, j in near]
    return [(i, j) for _, i, j in sorted(found)[:most]]


def _sums(P: np.ndarray) -> tuple[np.ndarray, list[ex.Tree]]:
    """log |u| for sums of two and three terms, and for an input and a function of one."""
    columns, trees = [], []
    with np.errstate(all="ignore"):
        for u in inner.sums(P, SUMS):
            columns.append(np.log(np.abs(u.values)))
            trees += [u.tree(j) for j in range(u.values.shape[1])]
        V = [ex.var(i) for i in range(P.shape[1])]
        functions = [ex.mul(s, (f, z)) for z in V for f in ("sin", "cos", "exp") for s in (ex.ONE, MINUS)]
        mixed = list(islice((ex.add(x, f) for x in V for f in functions), SUMS))
        columns.append(np.log(np.abs(np.stack([ex.column(t, P) for t in mixed], 1))))
    L, trees = np.concatenate(columns, 1), trees + mixed
    good = np.asarray(np.isfinite(L).all(0))
    return L[:, good], [t for t, g in zip(trees, good) if g]


def _emitted(view: View, off: ex.Tree | None, A: np.ndarray, u: ex.Tree | None, rows: int) -> Iterator[ex.Tree]:
    rest = view if off is None else view.minus(off)
    z = np.log(np.abs(rest.t[:rows]))
    c, *e = b = np.linalg.lstsq(A, z, rcond=None)[0]
    if np.mean((z - A @ b) ** 2) > SURE * np.var(z):
        return
    simple = [fraction(q, 0.01, (1, 2, 3, 4)) for q in e]
    if any(q is None for q in simple):
        return
    factors = [*view.variables, *([] if u is None else [u])]
    product = _product(factors, simple, view.P)  # type: ignore[arg-type]
    if product is not None:
        sign = np.sign(np.median(rest.t * ex.column(product, view.P)))
        yield rest.lift(ex.mul(ex.const(sign * np.exp(c)), product))


def _product(factors: Sequence[ex.Tree], exponents: Sequence[Fraction], P: np.ndarray) -> ex.Tree | None:
    """Whole powers outside, the others together under one root; None where what is under the root is negative."""
    outside = ex.monomial(factors, [q if q.denominator == 1 else 0 for q in exponents])
    d = lcm(*[q.denominator for q in exponents])
    if d == 1:
        return outside
    inside = ex.monomial(factors, [q * d if q.denominator > 1 else 0 for q in exponents])
    with np.errstate(all="ignore"):
        values = ex.column(inside, P)
    if (values < 0).all():
        inside = ex.mul(MINUS, inside)
    elif not (values > 0).all():
        return None
    root = ex.power(inside, Fraction(1, d))
    return root if ex.is_one(outside) else ex.mul(outside, root)
