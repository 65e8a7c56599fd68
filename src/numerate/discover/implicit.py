"""Roots of quadratics: q_2 t^2 + q_1 t + q_0 = 0 with sparse sums q of columns, from a null vector of [A, tB, t^2 C].

The coefficient of t^2 may hold inputs, and the columns may be waves of an angle: binding equilibria, light response,
ranges of projectiles.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock, linear_work
from numerate.discover.polynomials import exponents
from numerate.discover.rational import Columns, sparsest
from numerate.discover.rounding import simplest
from numerate.discover.sparse import polynomial_columns
from numerate.discover.view import View

EXACT = 1e-10  # smallest singular value of a null vector, relative to the largest
DEGREES = {2: ((2, 2, 1), (4, 2, 2)), 3: ((2, 1, 1), (3, 2, 1)), 4: ((2, 1, 1),), 5: ((2, 1, 1),), 6: ((2, 1, 1),)}
MINUS = ex.fixed(-1.0)


def implicit_quadratics(view: View, clock: Clock, rows: int = 400) -> Iterator[ex.Tree]:
    """Formulas t = (-q_1 ± sqrt(q_1^2 - 4 q_2 q_0)) / (2 q_2) that are exact."""
    v = view.head(rows)
    blocks = [[polynomial(v.P, d) for d in degrees] for degrees in DEGREES.get(v.k, ())]
    if v.k <= 3:
        blocks += [[with_waves(v.P, i, d) for d in (3, 2, 0)] for i in range(v.k) if np.abs(v.P[:, i]).max() < 7]
    for block in blocks:
        width = sum(len(c.trees) for c in block)
        if width < 0.6 * len(v.t):
            clock.spend(2 * linear_work(len(v.t), width))
            tree = root(block, v.P, v.t)
            if tree is not None:
                yield view.lift(tree)


def polynomial(P: np.ndarray, degree: int) -> Columns:
    return Columns(*polynomial_columns(P, degree)[:2])


def with_waves(P: np.ndarray, i: int, degree: int) -> Columns:
    """Waves of x_i up to the second, times a polynomial of the other inputs."""
    x, others = ex.var(i), [ex.var(j) for j in range(P.shape[1]) if j != i]
    sin, cos = ("sin", x), ("cos", x)
    waves = [ex.ONE, sin, cos, ex.mul(sin, cos), ex.power(cos, 2)]
    beside = (
        [ex.ONE, *[ex.monomial(others, e) for e in exponents(len(others), degree)]] if degree and others else [ex.ONE]
    )
    trees = [m if ex.is_one(w) else w if ex.is_one(m) else ex.mul(m, w) for w in waves for m in beside]
    return Columns(np.stack([ex.column(t, P) for t in trees], 1), trees)


def root(block: Sequence[Columns], P: np.ndarray, t: np.ndarray) -> ex.Tree | None:
    """The root that the data lie on, or None if they lie on none."""
    row = 1 / (np.median(np.abs(t)) + np.abs(t)) ** 2
    W = np.concatenate([c.A * (t**power * row)[:, None] for power, c in enumerate(block)], 1)
    norms = np.linalg.norm(W, axis=0) + 1e-300
    if not np.isfinite(norms).all():
        return None
    s, V = np.linalg.svd(np.linalg.qr(W / norms, mode="r"))[1:]
    null = int(np.sum(s < EXACT * s[0]))
    trees = [tree for c in block for tree in c.trees]
    begin = len(block[0].trees) + len(block[1].trees)
    support = sparsest(V[-null:], [ex.size(tree) for tree in trees], begin) if 0 < null <= 40 else None
    if support is None or len(support) > 9:
        return None
    c = np.linalg.svd(W[:, support] / norms[support], full_matrices=False)[2][-1] / norms[support]
    lead = next(v for v, j in zip(c, support) if j >= begin)
    bounds = (0, len(block[0].trees), begin, len(trees))
    sums = [
        [_times(v / lead, trees[j]) for v, j in zip(c, support) if low <= j < high] for low, high in pairwise(bounds)
    ]
    return _solved(sums, P, t)


def _times(value: float, tree: ex.Tree) -> ex.Tree:
    """A coefficient that is a simple number stays as it is; it stands more than once in the formula."""
    near = simplest(value, 1e-8 * abs(value))
    number = ex.const(value) if near is None else ex.fixed(near[1])
    return number if ex.is_one(tree) else tree if ex.is_one(number) else ex.mul(number, tree)


def _solved(sums: list[list[ex.Tree]], P: np.ndarray, t: np.ndarray) -> ex.Tree | None:
    """The formula; which of the two roots it is, the values say.

    A factor f that q_0 holds squared and q_1 once stands before the root: f sqrt(u), not sqrt(f^2 u), is smooth.
    """
    zeroth, first, second = sums
    if not zeroth or not second:
        return None
    front = common_factor(zeroth, first)
    q2, inside = (
        ex.add(*second),
        [ex.mul(ex.fixed(-4.0), ex.add(*second), ex.add(*[_over(q, front, 2) for q in zeroth]))],
    )
    if first:
        inside.append(ex.power(ex.add(*[_over(q, front, 1) for q in first]), 2))
    before = ex.mul(*[ex.power(f, n) for f, n in front.items()]) if front else ex.ONE
    below = ex.power(ex.mul(ex.fixed(2.0), q2), -1)

    def formula(sign: float) -> ex.Tree:
        parts = [ex.mul(MINUS, ex.add(*first))] if first else []
        return ex.mul(ex.add(*parts, ex.mul(ex.fixed(sign), before, ("sqrt", ex.add(*inside)))), below)

    with np.errstate(all="ignore"):
        errors = [np.nanmean(np.abs(ex.column(formula(sign), P) - t)) for sign in (1.0, -1.0)]
    return formula(1.0 if errors[0] < errors[1] else -1.0)


def powers(tree: ex.Tree) -> Counter[ex.Tree]:
    """The factors of a product with their powers, numbers left out."""
    if tree[0] == "mul":
        return sum((powers(part) for part in tree[1:]), Counter())
    if tree[0] == "pow" and tree[2].denominator == 1 and tree[2] > 0:
        return Counter({tree[1]: int(tree[2])})
    return Counter() if tree[0] in ("c", "k") else Counter({tree: 1})


def common_factor(zeroth: Sequence[ex.Tree], first: Sequence[ex.Tree]) -> Counter[ex.Tree]:
    """What divides every term of q_1, and twice every term of q_0."""
    most = [Counter({f: n // 2 for f, n in powers(q).items()}) for q in zeroth] + [powers(q) for q in first]
    return +reduce(lambda a, b: a & b, most)


def _over(tree: ex.Tree, front: Counter[ex.Tree], times: int) -> ex.Tree:
    """A term divided by the factor, once or twice."""
    left = powers(tree) - Counter({f: times * n for f, n in front.items()})
    numbers = [part for part in (tree[1:] if tree[0] == "mul" else [tree]) if part[0] in ("c", "k")]
    return ex.mul(*numbers, *[ex.power(f, n) for f, n in left.items()] or ([] if numbers else [ex.ONE]))
