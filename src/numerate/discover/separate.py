"""Additive and multiplicative separability: which inputs do not interact, and the parts of the target they make.

A free polynomial without the products of x_i and x_j fits as well as one with them, if the two do not interact. The
connected components are then fitted apart, with far higher degrees than all inputs together allow.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import check_time
from numerate.discover.rounding import simplest
from numerate.discover.view import View

DEGREE = {1: 14, 2: 9, 3: 6, 4: 4}


@dataclass(frozen=True)
class Separation:
    """g(t) = sum of f_C(x_C): under ``name`` (id: a sum, log: a product), the inputs of each component, the values."""

    name: str
    components: list[list[int]]
    values: list[np.ndarray]
    error: float  # of y
    errors: list[float]  # of y, by what each component is not known


def separate(view: View, names: tuple[str, ...] = ("id", "log", "inv", "sq"), rows: int = 800) -> list[Separation]:
    """All outer functions under which the target falls into components, best first."""
    v = view.head(rows)
    if not 2 <= v.k <= 9:
        return []
    degree = poly.best_degree(v.k, len(v.t) // 4, 7)
    exps = poly.exponents(v.k, degree)
    H = np.concatenate([np.ones((len(v.t), 1)), poly.columns(poly.standardised(v.P), exps)], 1)
    powers = np.array([(0,) * v.k, *exps]) > 0
    found = []
    for name in names:
        outer = _outer(view, name)
        if outer is None:
            continue
        components = interacting(H, powers, outer.head(rows), view.noise)
        if len(components) > 1:
            found.append(_refined(outer, name, components, min(4 * rows, len(view.t))))
    good = [s for s in found if s is not None and s.error < max(2e-3 * view.scale, 1.3 * view.noise)]
    return sorted(good, key=lambda s: s.error)


def _outer(view: View, name: str) -> View | None:
    if name == "log" and view.one_sign:
        view = replace(view, t=np.abs(view.t))
    return view.outer(name)


def interacting(H: np.ndarray, powers: np.ndarray, v: View, noise: float) -> list[list[int]]:
    """Connected components of the inputs; two are joined if the fit without their products is worse."""
    w = np.minimum(v.w, np.quantile(v.w, 0.98)) if noise else np.ones_like(v.w)
    A = H * w[:, None]
    z = v.t * w
    n, k = len(z), powers.shape[1]
    gram, right = A.T @ A, A.T @ z

    def level(columns: np.ndarray) -> float:
        check_time()
        G = gram[np.ix_(columns, columns)]
        c = np.linalg.lstsq(G + 1e-13 * np.trace(G) / len(G) * np.eye(len(G)), right[columns], rcond=None)[0]
        r = z - A[:, columns] @ c
        return float(np.sqrt(r @ r / max(n - len(c), 1)))

    full = level(np.arange(A.shape[1]))
    spread = float(np.std(z)) + 1e-300
    if full > 0.2 * spread:
        return [list(range(k))]
    joined = list(range(k))
    for i in range(k):
        for j in range(i):
            if joined[i] == joined[j]:
                continue
            without = level(np.where(~(powers[:, i] & powers[:, j]))[0])
            if without > (1.1 if noise else 1.5) * full + 1e-7 * spread:
                old, new = joined[i], joined[j]
                joined = [new if q == old else q for q in joined]
    return [[i for i in range(k) if joined[i] == q] for q in sorted(set(joined))]


def _refined(outer: View, name: str, components: list[list[int]], rows: int) -> Separation | None:
    """Each component by its own polynomial of higher degree; values on all rows."""
    designs = []
    for c in components:
        degree = min(DEGREE.get(len(c), 3), poly.best_degree(len(c), max(rows // (4 * len(components)), 2), 14))
        designs.append(poly.columns(poly.standardised(outer.P[:, c]), poly.exponents(len(c), degree)))
    H = np.concatenate([np.ones((len(outer.t), 1)), *designs], 1)
    w = np.minimum(outer.w, np.quantile(outer.w, 0.98))
    fit = slice(0, rows)
    norms = np.linalg.norm(H[fit], axis=0) + 1e-300
    if H.shape[1] > 0.5 * len(H[fit]):
        return None
    c = np.linalg.lstsq(H[fit] / norms * w[fit, None], outer.t[fit] * w[fit], rcond=1e-14)[0] / norms
    r = (outer.t - H @ c)[fit] * outer.w[fit]
    error = float(np.sqrt(r @ r / max(len(r) - H.shape[1], 1)))
    errors = [3 * error * float(np.sqrt((1 + d.shape[1]) / len(r))) for d in designs]
    values, start = [], 1
    for d in designs:
        values.append(d @ c[start : start + d.shape[1]])
        start += d.shape[1]
    return Separation(name, components, values, error, errors)


def simplified(tree: ex.Tree, name: str, width: float = 1e-5) -> ex.Tree | None:
    """A component without the constant that it shares with the others, its own rounded; None if one is not simple."""
    kind = "mul" if name == "log" else "add"
    if tree[0] == kind:
        tree = (kind, *[part for part in tree[1:] if part[0] != "c"])
        tree = tree[1] if len(tree) == 2 else tree
    near = [simplest(c, width * abs(c)) for c in ex.constants(tree)]
    if len(tree) < 2 or tree[0] == "c" or any(n is None or n[1] == 0.0 for n in near):
        return None
    return ex.with_constants(tree, [n[1] for n in near if n is not None])


def pure_powers(P: np.ndarray, s: Separation) -> tuple[list[Fraction | int], list[int]] | None:
    """The components of a product that are powers of one input: exponents, and the inputs that are left; or None."""
    front: list[Fraction | int] = [0] * P.shape[1]
    for component, values in zip(s.components, s.values):
        x = P[:, component[0]]
        if len(component) > 1 or not (x > 0).all():
            continue
        A = np.stack([np.ones_like(x), np.log(x)], 1)
        c = np.linalg.lstsq(A, values, rcond=None)[0]
        near = Fraction(round(6 * c[1]), 6).limit_denominator(3)
        straight = np.std(values - A @ c) < 0.05 * np.std(values) + 1e-12
        if near and straight and abs(float(near) - c[1]) < 0.02:
            front[component[0]] = near
    if not any(front):
        return None
    others = [i for i in range(P.shape[1]) if not front[i]]
    return (front, others) if others else None
