"""Is the target, under some outer function, a combination of few known columns?

A design is a set of columns (all monomials up to a degree, these times a function, ...). One orthogonal factorisation
says for every outer function g at once whether g(t) lies in the span; only then are idle columns dropped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover import sparse
from numerate.discover.clock import Clock, linear_work
from numerate.discover.view import View

EXACT = 1e-8  # of the scale of y
OUTERS = ("id", "sq", "inv", "invsq", "log", "exp", "sin", "cos", "tan", "logit", "rest")


@dataclass(frozen=True)
class Design:
    """Columns A: (n, p) and the tree of each; name says what they are."""

    name: str
    A: np.ndarray
    trees: list[ex.Tree]


def polynomial(P: np.ndarray, degree: int) -> Design:
    A, trees, _ = sparse.polynomial_columns(P, degree)
    return Design("polynomial", A, trees)


def laurent(P: np.ndarray, rows: int) -> Design | None:
    """Monomials with negative powers, and logarithms; positive inputs."""
    k = P.shape[1]
    if not (P > 0).all() or k > 8:
        return None
    cost = {1: 5, 2: 4, 3: 4, 4: 3, 5: 3}.get(k, 2)
    exps = sparse.laurent_exponents(k, cost, (-2, -1, 1, 2) if k > 2 else (-3, -2, -1, 1, 2, 3))
    if len(exps) >= 0.6 * rows:
        return None
    logs = np.log(P)
    V = [ex.var(i) for i in range(k)]
    A = np.concatenate([np.ones((len(P), 1)), np.exp(logs @ np.array(exps, float).T), logs], 1)
    return Design("laurent", A, [ex.ONE] + [ex.monomial(V, e) for e in exps] + [("log", x) for x in V])


def halves(P: np.ndarray, rows: int) -> Design | None:
    """Monomials in the square roots of positive inputs."""
    k = P.shape[1]
    pos = np.asarray((P > 0).all(0))
    if not pos.any() or k > 4:
        return None
    roots = np.where(pos, np.sqrt(np.abs(P)), P)
    V = [ex.var(i) for i in range(k)]
    exps = poly.exponents(k, {1: 8, 2: 6, 3: 5}.get(k, 4))
    if len(exps) >= 0.6 * rows:
        return None
    trees = [ex.monomial(V, [Fraction(q, 2) if pos[i] else q for i, q in enumerate(e)]) for e in exps]
    return Design("halves", np.concatenate([np.ones((len(P), 1)), poly.columns(roots, exps)], 1), [ex.ONE, *trees])


def with_functions(P: np.ndarray, functions: Sequence[ex.Tree], degree: int) -> Design | None:
    """A polynomial plus, for each function, a polynomial times it."""
    A, trees, _ = sparse.polynomial_columns(P, degree)
    columns, all_trees = [A], list(trees)
    for f in functions:
        with np.errstate(all="ignore"):
            v = ex.column(f, P)
        if not np.isfinite(v).all() or np.abs(v).max() > 1e12:
            return None
        columns.append(A * v[:, None])
        all_trees += [f if ex.is_one(t) else ex.mul(t, f) for t in trees]
    return Design(" ".join(f[0] for f in functions), np.concatenate(columns, 1), all_trees)


def arguments(P: np.ndarray) -> list[ex.Tree]:
    """What a function may be taken of: inputs, sums, differences, products and quotients of two."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    out = list(V)
    minus = ex.fixed(-1.0)
    if k > 5:
        return out + [ex.add(V[i], ex.mul(minus, V[j])) for i, j in combinations(range(k), 2)]
    for i, j in combinations(range(k), 2):
        out += [ex.add(V[i], ex.mul(minus, V[j])), ex.mul(V[i], V[j]), ex.add(V[i], V[j])]
        out += [ex.mul(V[i], ex.power(V[j], -1)), ex.mul(V[j], ex.power(V[i], -1))]
    out += [ex.power(x, 2) for x in V]
    return out


def function_sets(P: np.ndarray, allowed: frozenset[str] | None) -> Iterator[tuple[ex.Tree, ...]]:
    """Sets of one to four functions that may multiply polynomials, simplest first."""
    ok = lambda *names: allowed is None or set(names) <= allowed  # noqa: E731
    args = arguments(P)
    minus = ex.fixed(-1.0)
    k = P.shape[1]
    signed = [i for i in range(k) if P[:, i].min() < 0 < P[:, i].max()]
    if ok("sin", "cos"):
        yield from (waves(a) for a in args)
        yield from (waves(ex.mul(ex.fixed(0.5), a), 1) for a in args[:k])
    if ok("exp"):
        yield from ((("exp", a), ("exp", ex.mul(minus, a))) for a in args)
    for name in ("sqrt", "log", "tanh", "atan"):
        if ok(name):
            yield from (((name, a),) for a in args)
    if ok("abs"):
        yield from ((("abs", ex.var(i)),) for i in signed)
    if ok("sin", "cos"):
        for i, j in combinations(range(k), 2):
            a, b = ex.var(i), ex.var(j)
            singles = [("sin", a), ("cos", a), ("sin", b), ("cos", b)]
            yield (*singles, *[ex.mul(f, g) for f in singles[:2] for g in singles[2:]])


def waves(a: ex.Tree, order: int = 2) -> tuple[ex.Tree, ...]:
    """sin and cos of the multiples of an angle."""
    multiples = [a if m == 1 else ex.mul(ex.fixed(float(m)), a) for m in range(1, order + 1)]
    return tuple((name, m) for m in multiples for name in ("sin", "cos"))


def laurent_waves(P: np.ndarray) -> Iterator[Design | None]:
    """Laurent polynomials of all inputs but one, times waves of that one."""
    k, pos = P.shape[1], np.asarray((P > 0).all(0))
    for i in range(k) if 2 <= k <= 3 else ():
        rest = [j for j in range(k) if j != i]
        if not pos[rest].all():
            continue
        exps = sparse.laurent_exponents(k - 1, 6 if k == 3 else 4, (-3, -2, -1, 1, 2, 3))
        base = np.concatenate([np.ones((len(P), 1)), np.exp(np.log(P[:, rest]) @ np.array(exps, float).T)], 1)
        trees = [ex.ONE] + [ex.monomial([ex.var(j) for j in rest], e) for e in exps]
        columns, all_trees = [base], list(trees)
        for f in waves(ex.var(i)):
            columns.append(base * ex.column(f, P)[:, None])
            all_trees += [f if ex.is_one(t) else ex.mul(t, f) for t in trees]
        yield Design("laurent waves", np.concatenate(columns, 1), all_trees)


def tensor_waves(P: np.ndarray) -> Design | None:
    """All products of one, x, sin x, cos x over the inputs."""
    k = P.shape[1]
    if not 2 <= k <= 4 or np.abs(P).max() > 20:
        return None
    choices = [[ex.ONE, ("sin", x), ("cos", x), x] for x in (ex.var(i) for i in range(k))]
    trees = [ex.mul(*[f for f in fs if not ex.is_one(f)] or [ex.ONE]) for fs in product(*choices)]
    return Design("tensor waves", np.stack([ex.column(t, P) for t in trees], 1), trees)


def quotient_functions(P: np.ndarray, allowed: frozenset[str] | None) -> Iterator[tuple[ex.Tree, ...]]:
    """Functions that may enter a quotient of polynomials."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    minus = ex.fixed(-1.0)
    args = V + [ex.add(V[i], ex.mul(minus, V[j])) for i, j in combinations(range(k), 2)]
    for a in args:
        for name in ("cos", "exp"):
            if allowed is None or name in allowed:
                yield ((name, a),)
    for i, x in enumerate(V):
        if (allowed is None or "sin" in allowed) and k < 4:
            yield (("sin", x), ("cos", x))
        if (allowed is None or "sqrt" in allowed) and k < 4 and (P[:, i] > 0).all():
            yield (("sqrt", x),)
        if (allowed is None or "log" in allowed) and k < 4 and (P[:, i] > 0).all():
            yield (("log", x),)
    for i, j in combinations(range(k), 2) if k < 4 else ():
        if allowed is None or "exp" in allowed:
            yield tuple(("exp", ex.mul(minus, V[q])) for q in (i, j))
        if (allowed is None or "log" in allowed) and (P[:, [i, j]] > 0).all():
            yield tuple(("log", V[q]) for q in (i, j))


def worth(view: View, design: Design, name: str, rows: int) -> View | None:
    """The view under the outer function, if its target lies in the span as well as the noise allows."""
    outer = view.outer(name)
    if outer is None:
        return None
    v = outer.head(rows)
    w = weights(v)
    W = design.A * w[:, None]
    z = v.t * w
    Q = np.linalg.qr(W / (np.linalg.norm(W, axis=0) + 1e-300))[0]
    r = z - Q @ (Q.T @ z)
    level = np.sqrt(r @ r / max(len(r) - Q.shape[1], 1))
    return outer if level < max(1.2 * view.noise, EXACT * np.std(z)) else None


def exact_outers(view: View, design: Design, names: Sequence[str], rows: int) -> list[View]:
    """For a target without noise: the outer functions under which it lies in the span, by one factorisation."""
    outers = [o for o in (view.outer(n) for n in names) if o is not None]
    if not outers:
        return []
    T = np.stack([o.t[:rows] for o in outers], 1)
    A = design.A / (np.linalg.norm(design.A, axis=0) + 1e-300)
    Q = np.linalg.qr(A)[0]
    r = T - Q @ (Q.T @ T)
    good = np.sqrt(np.mean(r**2, 0)) < EXACT * np.std(T, 0) * np.sqrt(1 - A.shape[1] / len(T))
    return [o for o, g in zip(outers, good) if g]


def weights(v: View) -> np.ndarray:
    """The weights of the rows, cut at their upper end: a few rows must not decide alone."""
    return np.minimum(v.w, np.quantile(v.w, 0.98))


def span_fits(
    view: View, designs: Iterator[Design | None], names: Sequence[str], clock: Clock, rows: int
) -> Iterator[ex.Tree]:
    """Formulas from every design whose span holds the target."""
    n = min(rows, len(view.t))
    for design in designs:
        if design is None or design.A.shape[1] > 0.6 * n:
            continue
        clock.spend(linear_work(n, design.A.shape[1]) * (len(names) if view.noise else 1))
        if view.noise:
            outers = [o for o in (worth(view, design, name, rows) for name in names) if o is not None]
        else:
            outers = exact_outers(view, design, names, rows)
        for outer in outers:
            tree = sparse.emit(outer, design.A, design.trees, rows)
            if tree is not None:
                yield tree


def plain_designs(view: View, rows: int) -> Iterator[Design | None]:
    """Polynomials, Laurent polynomials, half-integer powers."""
    P = view.P[:rows]
    degree = min({1: 9, 2: 6, 3: 5, 4: 4}.get(view.k, 3), poly.best_degree(view.k, int(0.45 * len(P)), 9))
    for lower in range(2, degree) if view.noise else ():  # fewer columns leave fewer wrong ones
        yield polynomial(P, lower)
    yield polynomial(P, degree)
    yield laurent(P, len(P))
    yield halves(P, len(P))


def function_designs(view: View, rows: int, allowed: frozenset[str] | None) -> Iterator[Design | None]:
    """Polynomials with functions; the degree falls with the number of columns."""
    P = view.P[:rows]
    for functions in function_sets(P, allowed):
        for degree in (3, 2, 1):
            if (1 + len(functions)) * (1 + poly.count(view.k, degree)) < min(0.35 * len(P), 140):
                yield with_functions(P, functions, degree)
                break
    if allowed is None or {"sin", "cos"} <= allowed:
        yield from laurent_waves(P)
        yield tensor_waves(P)
