"""What the rows say of a formula's domain: a root or logarithm of u times a polynomial, beside another polynomial.

Data that a formula has made hold no row on which it is not real. Where a sum, product or quotient of inputs is positive
on every row, though it would not be if the inputs did not know of each other, a root or a logarithm of it is likely.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover import sparse, wide
from numerate.discover.clock import Clock, linear_work
from numerate.discover.spans import Design
from numerate.discover.view import View

MINUS = ex.fixed(-1.0)
ROWS, QUANTITIES, RECIPES = 700, 16, 300
MOST_INPUTS = 7  # with more, the rows are too few for both polynomials
ODDS = 0.02  # of shuffled rows on which the quantity has the other sign


def quantities(k: int) -> list[ex.Tree]:
    """Products and quotients of two inputs; sums of two or three inputs, squares, products and quotients."""
    V = [ex.var(i) for i in range(k)]
    pairs = [ex.mul(a, b) for a, b in combinations(V, 2)]
    terms = V + [ex.power(x, 2) for x in V] + pairs
    out = V + pairs + [ex.mul(a, ex.power(b, -1)) for a, b in permutations(V, 2)]
    for n in (2, 3):
        for chosen in combinations(terms if n == 2 or k <= 4 else V + [ex.power(x, 2) for x in V], n):
            for signs in product((1, -1), repeat=n - 1):
                rest = [t if s > 0 else ex.mul(MINUS, t) for t, s in zip(chosen[1:], signs)]
                out.append(ex.add(chosen[0], *rest))
    return out


def likely_domains(P: np.ndarray, most: int = QUANTITIES) -> list[ex.Tree]:
    """Quantities of one sign to which shuffled inputs give both, as positive ones; nearest to zero first."""
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.permutation(column) for column in P.T], 1)
    found: list[tuple[float, ex.Tree]] = []
    with np.errstate(all="ignore"):
        for tree in quantities(P.shape[1]):
            u = ex.column(tree, P)
            sign = np.sign(u[0])
            if not sign or not (sign * u > 0).all() or not np.isfinite(u).all():
                continue
            if np.mean(sign * ex.column(tree, shuffled) <= 0) > ODDS:
                near = np.quantile(np.abs(u), 0.01) / np.median(np.abs(u))
                found.append((float(near), tree if sign > 0 else ex.mul(MINUS, tree)))
    return [tree for _, tree in sorted(found, key=lambda pair: pair[0])[:most]]


def designs(P: np.ndarray, u: ex.Tree, allowed: frozenset[str] | None) -> Iterator[Design]:
    """A polynomial, inverses, roots and logarithms of inputs, and a polynomial times a function of u."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    positive = [x for x, p in zip(V, np.asarray((P > 0).all(0))) if p]
    signed = [x for x in V if x not in positive]
    over = [ex.power(x, -1) for x in V]
    trees = [ex.ONE] + [ex.monomial(V, e) for e in poly.exponents(k, {1: 5, 2: 4, 6: 2, 7: 2}.get(k, 3))] + over
    trees += [("sqrt", x) for x in positive] + [("log", x if x in positive else ("abs", x)) for x in V]
    trees = [t for t in trees if allowed is None or ex.functions(t) <= allowed]
    more = [ex.ONE] + [ex.monomial(V, e) for e in poly.exponents(k, {1: 6, 2: 5, 3: 4}.get(k, 3))] + over
    more += [("abs", x) for x in signed]
    for f in (("sqrt", u), ex.power(u, Fraction(-1, 2)), ("log", u), ex.power(u, Fraction(1, 4))):
        if allowed is None or ex.functions(f) <= allowed:
            yield wide.finite_columns("domain", P, trees + [f if ex.is_one(m) else ex.mul(m, f) for m in more])


def domain_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = ROWS) -> Iterator[ex.Tree]:
    """Formulas that are exact, with a function of a quantity that the rows keep positive."""
    if view.k > MOST_INPUTS:
        return
    n, P = min(rows, len(view.t)), view.P[:rows]
    clock.spend(2e-9 * n * len(quantities(view.k)))
    likely = likely_domains(P)
    if not likely:
        return
    made = wide.recipes(view, RECIPES)
    clock.spend(5e-5 * len(made))
    targets = wide.Targets.of(view, made, rows)
    for u in likely:
        for design in designs(P, u, allowed):
            if design.A.shape[1] > 0.5 * n:
                continue
            clock.spend(linear_work(n, design.A.shape[1]) + 1e-10 * design.A.size * len(made))
            for exact in targets.inside(design):
                tree = sparse.emit(exact, design.A, design.trees, rows)
                if tree is not None:
                    yield tree
