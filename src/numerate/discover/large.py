"""A polynomial plus two features from a large dictionary: functions of small expressions times small monomials."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import sparse, wide
from numerate.discover.clock import Clock
from numerate.discover.view import View

HALF = Fraction(1, 2)
MINUS = ex.fixed(-1.0)
FEATURES = 8000
OUTERS = ("id", "log", "sq", "inv", "exp")
SURE = 1e-11  # unexplained fraction of the target


@dataclass(frozen=True)
class Large:
    """Features as products of multipliers M and functions U: column i is M[:, m[i]] U[:, u[i]]."""

    F: np.ndarray
    pairs: list[tuple[int, int]]
    multipliers: list[ex.Tree]
    functions: list[ex.Tree]

    def tree(self, i: int) -> ex.Tree:
        m, u = self.pairs[i]
        return self.functions[u] if ex.is_one(self.multipliers[m]) else ex.mul(self.multipliers[m], self.functions[u])


def arguments(P: np.ndarray) -> list[ex.Tree]:
    """What functions are taken of: inputs, their squares, roots and inverses, two or three of them joined."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    pos = np.asarray((P > 0).all(0))
    out = V + [ex.power(x, 2) for x in V] + [ex.power(x, -1) for x in V]
    out += [ex.mul(ex.fixed(2.0), x) for x in V] + [ex.mul(ex.fixed(2.0), ex.power(x, -1)) for x in V]
    out += [ex.power(x, HALF) for x, p in zip(V, pos) if p]
    for i, j in combinations(range(k), 2):
        out += [ex.add(V[i], ex.mul(MINUS, V[j])), ex.add(V[i], V[j]), ex.mul(V[i], V[j])]
        out += [ex.mul(V[i], ex.power(V[j], -1)), ex.mul(V[j], ex.power(V[i], -1))]
    terms = V + [ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)] + [ex.power(x, 2) for x in V]
    if k <= 4:
        for a, b in combinations(range(len(terms)), 2):
            out += [ex.add(terms[a], terms[b]), ex.add(terms[a], ex.mul(MINUS, terms[b]))]
    if k <= 3:
        for chosen in combinations(terms, 3):
            for s, r in product((1, -1), repeat=2):
                out.append(ex.add(chosen[0], *[t if q > 0 else ex.mul(MINUS, t) for t, q in zip(chosen[1:], (s, r))]))
    return list(dict.fromkeys(out))


def functions(a: ex.Tree, v: np.ndarray, outside: bool) -> Iterator[tuple[ex.Tree, np.ndarray]]:
    """Functions of one argument that are finite on its values; waves alone ``outside`` the simplest arguments."""
    if (v < 0).all():
        a, v = ex.mul(MINUS, a), -v
    yield ("sin", a), np.sin(v)
    c = np.cos(v)
    yield ("cos", a), c
    if outside:
        return
    if (c > 0).all():
        yield ("sqrt", ("cos", a)), np.sqrt(c)
    if np.abs(v).max() < 30:
        yield ("exp", a), np.exp(v)
        yield ("exp", ex.mul(MINUS, a)), np.exp(-v)
    if (v > 0).all():
        yield ("sqrt", a), np.sqrt(v)
        yield ex.power(a, -HALF), 1 / np.sqrt(v)
        yield ("log", a), np.log(v)
        yield ex.power(("log", a), -1), 1 / np.log(v)
    elif (v != 0).all():
        yield ("log", ("abs", a)), np.log(np.abs(v))
    yield ex.power(a, -1), 1 / v
    yield ("tanh", a), np.tanh(v)


def multipliers(P: np.ndarray) -> list[ex.Tree]:
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    pos = np.asarray((P > 0).all(0))
    out = [ex.ONE, *V, *[ex.power(x, -1) for x in V], *[ex.power(x, HALF) for x, p in zip(V, pos) if p]]
    pairs = [ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)] + [ex.power(x, 2) for x in V]
    ratios = [ex.mul(V[i], ex.power(V[j], -1)) for i, j in product(range(k), repeat=2) if i != j]
    logs = [("log", x) for x, p in zip(V, pos) if p]
    if k <= 2:
        logs += [ex.mul(m, log) for log in logs for m in (*V, *[("sqrt", x) for x, p in zip(V, pos) if p])]
    roots = [ex.mul(V[i], ("sqrt", V[j])) for i, j in product(range(k), repeat=2) if pos[j]] if k <= 3 else []
    return out + logs + pairs + ratios + roots


def build(P: np.ndarray, allowed: frozenset[str] | None, most: int = FEATURES) -> Large:
    """Functions times multipliers, smallest first, as long as there is room."""
    U, trees = [], []
    with np.errstate(all="ignore"):
        for a in arguments(P):
            v = ex.column(a, P)
            if not np.isfinite(v).all():
                continue
            for tree, values in functions(a, v, ex.size(a) > 5):
                if np.isfinite(values).all() and (allowed is None or ex.functions(tree) <= allowed):
                    U.append(values)
                    trees.append(tree)
    M = multipliers(P)
    values = [ex.column(m, P) for m in M]
    sizes = [ex.size(m) for m in M], [ex.size(u) for u in trees]
    pairs = sorted(product(range(len(M)), range(len(U))), key=lambda p: sizes[0][p[0]] + sizes[1][p[1]])[:most]
    F = np.stack([values[m] * U[u] for m, u in pairs], 1) if pairs else np.zeros((len(P), 0))
    good = np.isfinite(F).all(0) & (np.abs(F).max(0) < 1e12)
    return Large(F[:, good], [p for p, g in zip(pairs, good) if g], M, trees)


def large_fits(
    view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 400, most: int = FEATURES
) -> Iterator[ex.Tree]:
    """g(t / m) = a rich polynomial and two of at most so many features, exactly."""
    P = view.P[:rows]
    base = wide.rich(P, int(0.4 * len(P)), allowed)
    if base is None:
        return
    large = build(P, allowed, int(most * min(1.0, (clock.seconds / 9) ** 0.5)))
    recipes = [wide.Recipe(None, None, name) for name in OUTERS]
    recipes += [wide.Recipe(None, m, "id") for x in view.variables for m in (x, ex.power(x, -1))]
    targets = wide.Targets.of(view, recipes, rows)
    n, p = large.F.shape
    clock.spend(2e-5 * p + 2e-11 * n * p**2 + 1e-9 * len(targets.recipes) * p**2)
    for i, found in enumerate(best_pairs(base.A, large.F, targets.T, check=clock.check)):
        outer = wide.made_by(view, targets.recipes[i])
        for rest, chosen in found[:2]:
            if rest < SURE and outer is not None:
                A = np.concatenate([base.A, large.F[:, list(chosen)]], 1)
                tree = sparse.emit(outer, A, base.trees + [large.tree(i) for i in chosen], rows)
                if tree is not None:
                    yield tree


def best_pairs(
    base: np.ndarray,
    F: np.ndarray,
    T: np.ndarray,
    top: int = 20,
    chunk: int = 500,
    check: Callable[[], None] = lambda: None,
    distinct: float = 1e-5,
) -> list[list[tuple[float, tuple[int, int]]]]:
    """For each column of T the pairs of columns of F that leave least of it, the base projected out: (rest, pair).

    The squared correlation with a pair is (c_i^2 + c_j^2 - 2 c_i c_j g) / (1 - g^2); ranked in single precision, the
    best measured in double. ``check`` is called between chunks. Pairs with 1 - g^2 below ``distinct`` are left out.
    """
    Q = np.linalg.qr(base / np.linalg.norm(base, axis=0))[0]
    T = T - Q @ (Q.T @ T)
    T = T / (np.linalg.norm(T, axis=0) + 1e-300)
    P = F - Q @ (Q.T @ F)
    norms = np.linalg.norm(P, axis=0)
    ids = np.where(norms > 1e-6 * np.linalg.norm(F, axis=0))[0]
    P = P[:, ids] / norms[ids]
    C = P.T @ T
    P4, C4 = P.astype(np.float32), C.astype(np.float32)
    ranked: list[list[tuple[float, int, int]]] = [[] for _ in T.T]
    for s in range(0, len(ids), chunk):
        check()
        G = P4[:, s : s + chunk].T @ P4[:, s:]
        scale = 1 - G * G
        np.divide(1, scale, out=scale, where=scale > distinct)
        scale[scale < 1] = 0  # a pair of equal columns
        G *= -2 * scale
        for t, rank in enumerate(ranked):
            ci, cj = C4[s : s + chunk, t, None], C4[s:, t]
            got = G * (ci * cj)
            got += scale * (ci * ci + cj * cj)
            partner = np.argmax(got, axis=1)
            most = got[np.arange(len(got)), partner]
            rank += [(float(most[i]), i + s, int(partner[i]) + s) for i in np.argsort(-most)[:top]]
    return [_measured(P, C[:, t], ids, sorted(rank, reverse=True)[:top]) for t, rank in enumerate(ranked)]


def _measured(P: np.ndarray, c: np.ndarray, ids: np.ndarray, ranked: list) -> list[tuple[float, tuple[int, int]]]:
    out = []
    for _, i, j in ranked:
        g = P[:, i] @ P[:, j]
        rest = 1 - (c[i] ** 2 + c[j] ** 2 - 2 * c[i] * c[j] * g) / max(1 - g * g, 1e-12)
        out.append((float(max(rest, 0.0)), (int(ids[i]), int(ids[j]))))
    return sorted(out)
