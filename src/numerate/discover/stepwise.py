"""Sums of few features by stepwise selection: a law where one fits exactly, else the approximations a table deserves.

Features are functions of one input and products of two such functions. Each step adds the feature that explains most of
what is left, then exchanges every chosen one for a better one, as long as that helps: selection alone fails where two
features are needed together.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock, check_time
from numerate.discover.dictionary import Features
from numerate.discover.view import View

EXACT = 1e-20  # unexplained fraction of the target's variance
MOST = 4000  # features
TERMS = 8
DISTINCT = 1e-3  # squared length outside the others' span that a feature of an approximation must have
FEWEST = 30  # rows: fewer can be fitted by chance
EVEN = 12.0  # largest value over root mean square, up to which a feature may serve an approximation


def of_one(x: ex.Tree, v: np.ndarray) -> Iterator[ex.Tree]:
    """Functions of one input that are finite on its values, simplest first."""
    yield x
    yield ex.power(x, 2)
    if (v > 0).all():
        yield from (("sqrt", x), ("log", x), ex.power(x, -1))
    elif (v != 0).all():
        yield ex.power(x, -1)
    yield from (("sin", x), ("cos", x))
    if np.abs(v).max() < 30:
        yield from (("exp", x), ("exp", ex.mul(ex.fixed(-1.0), x)))
    yield from (ex.power(x, 3), ("tanh", x), ("exp", ex.mul(ex.fixed(-1.0), ex.power(x, 2))), ("atan", x))
    if not (v > 0).all():
        yield ("abs", x)
    if (v > 0).all():
        yield from (ex.power(x, Fraction(3, 2)), ex.power(x, -2), ("log", ex.add(ex.ONE, x)))


def features(P: np.ndarray, allowed: frozenset[str] | None, most: int = MOST) -> Features:
    """Functions of one input and products of two; fewer of these where there are many inputs, or none."""
    found = Features(P, allowed)
    k = P.shape[1]
    single = [list(of_one(ex.var(i), P[:, i])) for i in range(k)]
    pairs = list(combinations(range(k), 2))
    each = max(1, int(np.sqrt(most / max(len(pairs), 1)))) if len(pairs) <= MOST else 0
    for tree in (tree for trees in single for tree in trees):
        found.offer(tree)
    for i, j in pairs:
        for a, b in product(single[i][:each], single[j][:each]):
            found.offer(ex.mul(a, b))
    return found


def select(
    t: np.ndarray, F: np.ndarray, terms: int = TERMS, price: np.ndarray | None = None
) -> Iterator[tuple[float, list[int]]]:
    """The best columns found of F, one more each time: (unexplained fraction, columns).

    t: (n,) and F: (n, p), centred. ``price``: (p,) of each column, in nats of description length.
    """
    F = F / (np.linalg.norm(F, axis=0) + 1e-300)
    distinct = 1e-8 if price is None else DISTINCT
    price = np.zeros(F.shape[1]) if price is None else 2 * price / len(t)
    total = float(t @ t) + 1e-300
    chosen: list[int] = []
    while len(chosen) < min(terms, F.shape[1]):
        left, chosen = _with_best(t, F, price, chosen, distinct)
        for _ in range(3 * len(chosen)):
            others = (chosen[:i] + chosen[i + 1 :] for i in range(len(chosen)))
            better = min((_with_best(t, F, price, each, distinct) for each in others), key=lambda e: e[0])
            if better[0] > 0.98 * left or left < EXACT * total:
                break
            left, chosen = better
        yield left / total, list(chosen)
        if left < EXACT * total:
            return


def _with_best(
    t: np.ndarray, F: np.ndarray, price: np.ndarray, chosen: list[int], distinct: float
) -> tuple[float, list[int]]:
    """What the chosen columns and the best one beside them leave, and these columns."""
    check_time()
    Q = np.linalg.qr(F[:, chosen])[0]
    r = t - Q @ (Q.T @ t)
    length = 1 - np.sum((Q.T @ F) ** 2, 0)  # squared, of each unit column outside the span
    gain = np.where(length > distinct, (r @ F) ** 2 / np.maximum(length, 1e-300), 0.0)
    cost = np.log(np.maximum(r @ r - gain, 1e-30 * (t @ t) + 1e-300)) + price
    cost[chosen] = np.inf
    both = [*chosen, int(np.argmin(cost))]
    q = np.linalg.qr(F[:, both])[0]
    r = t - q @ (q.T @ t)
    return float(r @ r), both


def exact_sums(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 400) -> Iterator[ex.Tree]:
    """Sums of one to five features, under an outer function, that fit to the last digits."""
    if len(view.t) < FEWEST:
        return
    found = features(view.P[:rows], allowed, _most(clock))
    for name in ("id", "log", "inv", "sq"):
        for left, tree in _sums(view, name, found, np.arange(len(found)), 5, clock):
            if left < EXACT:
                yield tree


def approximations(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 400) -> Iterator[ex.Tree]:
    """Sums of one to eight features for the target and for its logarithm, shortest first."""
    found = features(view.P[:rows], allowed, _most(clock))
    even = np.array([np.abs(v).max() < EVEN * np.sqrt(np.mean(v**2)) for v in found.columns], bool)
    terms = min(TERMS, len(view.t) // 10)
    sums = [_sums(view, name, found, np.where(even)[0], terms, clock, 1.5) for name in ("id", "log")]
    trees = [tree for each in sums for _, tree in each]
    yield from sorted(trees, key=ex.size)


def leftover(view: View, most: int = 1000) -> np.ndarray:
    """What a sum of eight features leaves of the target; (n,)"""
    F = features(view.P, None, most).matrix()
    z, A = view.t - view.t.mean(), F - F.mean(0)
    chosen = [columns for _, columns in select(z, A)][-1]
    return z - A[:, chosen] @ np.linalg.lstsq(A[:, chosen], z, rcond=None)[0]


def _most(clock: Clock) -> int:
    return int(MOST * min(1.0, clock.seconds / 9))


def _sums(
    view: View, name: str, found: Features, columns: np.ndarray, terms: int, clock: Clock, price: float = 0.0
) -> Iterator[tuple[float, ex.Tree]]:
    """Sums of few features for the target under an outer function: (unexplained fraction, formula for y).

    ``price``: of each node of a feature.
    """
    outer = view.outer(name)
    if outer is None or not outer.usable or not len(columns):
        return
    F = found.matrix()[:, columns]
    t, w = outer.t[: len(F)], outer.w[: len(F)]
    w = np.minimum(w, np.quantile(w, 0.98))
    w = w / np.sqrt(np.mean(w**2))
    clock.spend(1e-9 * F.size * terms**2)
    prices = price * np.array([ex.size(found.trees[j]) for j in columns]) if price else None
    for left, chosen in select(_centred(t[:, None], w)[:, 0], _centred(F, w), terms, prices):
        design = np.concatenate([np.ones((len(t), 1)), F[:, chosen]], 1) * w[:, None]
        c = np.linalg.lstsq(design, t * w, rcond=None)[0]
        yield left, outer.lift(ex.linear(c, [ex.ONE, *[found.trees[columns[j]] for j in chosen]]))


def _centred(F: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weighted columns without their weighted mean; F: (n, p), w: (n,)"""
    one = w / np.linalg.norm(w)
    W = F * w[:, None]
    return W - one[:, None] * (one @ W)
