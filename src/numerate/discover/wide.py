"""Many targets against one span: is (t - s) / m, under some outer function g, a combination of known columns?

One orthogonal factorisation of the columns tests all terms s, factors m and outer functions g by one product of
matrices. Only what fits to the last digits counts, so that thousands of tests bring no accident.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice, product
from typing import NamedTuple

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover import spans, sparse
from numerate.discover.clock import Clock, linear_work
from numerate.discover.spans import Design
from numerate.discover.view import View

EXACT = 1e-9  # of the spread of a target
LARGE = ("polynomial", "rich", "laurent", "halves", "laurent with functions")  # designs that all targets are tried on
MINUS = ex.fixed(-1.0)


class Recipe(NamedTuple):
    """How a target is made: the term taken off, the factor divided out, the outer function, then another factor."""

    term: ex.Tree | None
    factor: ex.Tree | None
    outer: str
    after: ex.Tree | None = None


@dataclass(frozen=True)
class Targets:
    """Targets made from one view: values (rows, targets) of unit spread, and how each was made."""

    view: View
    T: np.ndarray
    recipes: list[Recipe]

    @classmethod
    def of(cls, view: View, recipes: Sequence[Recipe], rows: int) -> "Targets":
        head, kept, columns = view.head(rows), [], []
        for recipe in recipes:
            made = made_by(head, recipe)
            spread = 0.0 if made is None or not made.usable else np.std(made.t)
            if made is not None and spread > 1e-9 * np.sqrt(np.mean(made.t**2)):
                kept.append(recipe)
                columns.append(made.t / spread)
        return cls(view, np.stack(columns, 1) if columns else np.zeros((len(head.t), 0)), kept)

    def inside(self, design: Design) -> list[View]:
        """Views whose target lies in the span of the columns, as made by the simplest recipes."""
        A = design.A / (np.linalg.norm(design.A, axis=0) + 1e-300)
        Q = np.linalg.qr(A)[0]
        level = np.sqrt(np.mean((self.T - Q @ (Q.T @ self.T)) ** 2, 0) / (1 - A.shape[1] / len(A)))
        views = [made_by(self.view, self.recipes[i]) for i in np.where(level < EXACT)[0][:3]]
        return [v for v in views if v is not None]


def made_by(view: View, recipe: Recipe) -> View | None:
    view = view if recipe.term is None else view.minus(recipe.term)
    outer = (view if recipe.factor is None else view.over(recipe.factor)).outer(recipe.outer)
    return outer if outer is None or recipe.after is None else outer.over(recipe.after)


def recipes(view: View, most: int = 6000) -> list[Recipe]:
    """Outer functions alone, with a factor, with one term of coefficient one taken off, with two."""
    return list(islice(_all_recipes(view), most))


def _all_recipes(view: View) -> Iterator[Recipe]:
    """Simplest first; of many inputs, far more than can be tried."""
    V, k = view.variables, view.k
    divisors = factors(view)
    yield from (Recipe(None, None, name) for name in spans.OUTERS)
    yield from (Recipe(None, m, name) for m in divisors for name in ("id", "sq", "log", "exp", "inv"))
    terms = V + [ex.power(x, 2) for x in V] + [ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)]
    signed = [t for m in terms for t in (m, ex.mul(MINUS, m))]
    yield from (Recipe(s, None, name) for s in signed for name in ("exp", "sq", "inv", "log", "fourth", "cos", "sin"))
    pure = V + [ex.power(x, -1) for x in V]
    yield from (Recipe(s, m, name) for s in signed for m in pure for name in ("exp", "sq", "log"))
    yield from (Recipe(s, None, "sq", m) for s in (None, *signed[: 2 * k]) for m in divisors)
    two = ((i, j) for i, j in combinations(range(len(signed)), 2) if i // 2 != j // 2)
    yield from (Recipe(ex.add(signed[i], signed[j]), None, name) for i, j in two for name in ("exp", "sq"))
    few = (None, *signed[: 2 * k])
    yield from (Recipe(s, None, name, m) for s in few for name in ("exp", "fourth") for m in divisors)


def factors(view: View) -> list[ex.Tree]:
    """Small monomials, roots of positive inputs among them."""
    V, k = view.variables, view.k
    powers = [ex.power(x, q) for q in (1, -1, 2, -2) for x in V]
    powers += [ex.power(x, q) for x, p in zip(V, view.positive) if p for q in (Fraction(1, 2), Fraction(-1, 2))]
    pairs = [(V[i], V[j]) for i, j in product(range(k), repeat=2) if i != j]
    return powers + [ex.mul(a, b) for a, b in pairs if a < b] + [ex.mul(a, ex.power(b, -1)) for a, b in pairs]


def signed_laurent(P: np.ndarray, most: int) -> Design | None:
    """Monomials with negative powers of inputs of any sign, as many as fit."""
    k = P.shape[1]
    for cost in (6, 5, 4, 3, 2):
        if k * cost > 24 and cost > 2:
            continue
        exps = sparse.laurent_exponents(k, cost, (-3, -2, -1, 1, 2, 3) if k <= 2 else (-2, -1, 1, 2))
        if len(exps) < most:
            V = [ex.var(i) for i in range(k)]
            return finite_columns("laurent", P, [ex.ONE] + [ex.monomial(V, e) for e in exps])
    return None


def laurent_with(P: np.ndarray, most: int, allowed: frozenset[str] | None) -> Iterator[Design | None]:
    """Monomials with negative powers, these times a function of one input; and times the logarithms of all."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    pos = np.asarray((P > 0).all(0))
    exps = sparse.laurent_exponents(k, {1: 5, 2: 4, 3: 3}.get(k, 2), (-2, -1, 1, 2))
    plain = [ex.ONE] + [ex.monomial(V, e) for e in exps]
    logs = tuple(("log", x if p else ("abs", x)) for x, p in zip(V, pos))
    sets: list[tuple[ex.Tree, ...]] = [logs, *[(log,) for log in logs]]
    sets += [(("exp", x), ("exp", ex.mul(MINUS, x))) for x in V] + [(("sin", x), ("cos", x)) for x in V]
    sets += [(("sqrt", x),) for x, p in zip(V, pos) if p]
    for functions in sets:
        small = (1 + len(functions)) * len(plain) < most
        if small and (allowed is None or set().union(*map(ex.functions, functions)) <= allowed):
            products = [f if ex.is_one(t) else ex.mul(t, f) for f in functions for t in plain]
            yield finite_columns("laurent with functions", P, plain + products)


def rich(P: np.ndarray, most: int, allowed: frozenset[str] | None) -> Design | None:
    """A polynomial, quotients of two inputs, and logarithms, roots and waves of each."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    pos = np.asarray((P > 0).all(0))
    extra = [ex.power(x, -1) for x in V]
    extra += [ex.mul(V[i], ex.power(V[j], -1)) for i, j in product(range(k), repeat=2) if i != j]
    extra += [("log", x if p else ("abs", x)) for x, p in zip(V, pos)]
    extra += [("sqrt", x) for x, p in zip(V, pos) if p]
    extra += [(name, x) for x in V for name in ("sin", "cos", "exp")]
    extra = [t for t in extra if allowed is None or ex.functions(t) <= allowed]
    degree = poly.best_degree(k, most - len(extra), {1: 6, 2: 4}.get(k, 3))
    return make_design("rich", P, [ex.ONE] + [ex.monomial(V, e) for e in poly.exponents(k, degree)] + extra, most)


def make_design(name: str, P: np.ndarray, trees: list[ex.Tree], most: int) -> Design | None:
    """None if there are more columns than ``most``."""
    made = finite_columns(name, P, trees)
    return None if len(made.trees) > most else made


def finite_columns(name: str, P: np.ndarray, trees: Sequence[ex.Tree]) -> Design:
    """The columns of the trees that are finite and not near overflow."""
    with np.errstate(all="ignore"):
        A = np.stack([ex.column(t, P) for t in trees], 1)
    good = np.isfinite(A).all(0) & (np.abs(A).max(0) < 1e15)
    return Design(name, A[:, good], [t for t, g in zip(trees, good) if g])


def designs(view: View, rows: int, allowed: frozenset[str] | None) -> Iterator[Design | None]:
    """Large spans, cheapest first."""
    P = view.P[:rows]
    most = int(0.5 * len(P))
    yield spans.polynomial(P, poly.best_degree(view.k, min(most, 140), 9))
    yield rich(P, most, allowed)
    yield signed_laurent(P, most)
    yield spans.halves(P, len(P))
    yield from laurent_with(P, most, allowed)
    for functions in spans.function_sets(P, allowed):
        for degree in (4, 3, 2, 1):
            if (1 + len(functions)) * (1 + poly.count(view.k, degree)) < min(most, 180):
                yield spans.with_functions(P, functions, degree)
                break


def wide_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 500) -> Iterator[ex.Tree]:
    """Formulas from every design that holds a target; all recipes on the first, fewer on polynomials with functions."""
    n = min(rows, len(view.t))
    made = recipes(view)
    clock.spend(5e-5 * len(made))
    targets = Targets.of(view, made, rows)
    for design in designs(view, rows, allowed):
        if design is not None and design.name not in LARGE:
            targets = Targets(view, targets.T[:, :400], targets.recipes[:400])
        if design is None or not 1 < design.A.shape[1] < 0.7 * n:
            continue
        p = design.A.shape[1]
        clock.spend(linear_work(n, p) + 1e-10 * n * p * len(targets.recipes))
        for inner in targets.inside(design):
            tree = sparse.emit(inner, design.A, design.trees, rows)
            if tree is not None:
                yield tree
