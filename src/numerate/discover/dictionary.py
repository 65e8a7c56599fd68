"""An enumerated dictionary of features in few inputs, and least squares over all its pairs in closed form."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.sparse import HALF, laurent_exponents

POWERS = (-4, -3, -2, -1, -HALF, HALF, 1, 2, 3, 4, 5, 6)
FUNCTIONS = ("sin", "cos", "exp", "log", "tanh")


class Features:
    """Columns with their trees; copies (up to a factor), constants and columns that are not finite are refused."""

    def __init__(self, X: np.ndarray, allowed: frozenset[str] | None = None) -> None:
        self.X, self.allowed = X, allowed
        self.columns: list[np.ndarray] = []
        self.trees: list[ex.Tree] = []
        self._seen: set[int] = set()

    def __len__(self) -> int:
        return len(self.columns)

    def offer(self, tree: ex.Tree, values: np.ndarray | None = None) -> np.ndarray | None:
        if self.allowed is not None and not ex.functions(tree) <= self.allowed:
            return None
        with np.errstate(all="ignore"):
            v = ex.column(tree, self.X) if values is None else values
        if not np.isfinite(v).all():
            return None
        most = np.abs(v).max()
        if most == 0 or most > 1e12 or v.max() - v.min() < 1e-9 * most:
            return None
        key = hash(np.round(v[:12] / v[np.argmax(np.abs(v[:7]))], 7).tobytes())
        if key in self._seen:
            return None
        self._seen.add(key)
        self.columns.append(v)
        self.trees.append(tree)
        return v

    def matrix(self) -> np.ndarray:
        return np.stack(self.columns, 1) if self.columns else np.zeros((len(self.X), 0))


def build(X: np.ndarray, limit: int = 1500, allowed: frozenset[str] | None = None) -> tuple[Features, Features]:
    """Two dictionaries for the columns of X: features to be summed, and factors to be multiplied."""
    k = X.shape[1]
    V = [ex.var(i) for i in range(k)]
    sums, factors = Features(X, allowed), Features(X, allowed)
    for i in np.where(~(X > 0).all(0))[0]:
        factors.offer(V[i])
        sums.offer(("abs", V[i]))
        sums.offer(ex.mul(V[i], ("abs", V[i])))
    small = _monomials(X, V, sums, limit)
    unary = _functions(X, V, [t for t, c in small if c <= 2], sums)
    _shifted(V, sums)
    _binomials(X, V, small, sums, factors)
    _differences(k, small, factors, limit)
    _products(k, small, unary, sums, factors, limit)
    _exponents(X, V, sums, factors)
    return sums, factors


def _monomials(X: np.ndarray, V: list[ex.Tree], sums: Features, limit: int) -> list[tuple[ex.Tree, float]]:
    """Monomials into the sums; returns the small ones with their cost."""
    k, pos = len(V), np.asarray((X > 0).all(0))
    small = []
    for e in laurent_exponents(k, {1: 6, 2: 4, 3: 4}.get(k, 2), POWERS):
        if not all(pos[j] or q == int(q) for j, q in enumerate(e)):
            continue
        cost = sum(1.5 if isinstance(q, Fraction) else abs(q) for q in e)
        tree = ex.monomial(V, e)
        if cost <= (3 if k <= 2 else 2):
            small.append((tree, cost))
        if len(sums) < limit * 0.5:
            sums.offer(tree)
    return small


def _functions(X: np.ndarray, V: list[ex.Tree], arguments: list[ex.Tree], sums: Features):
    """Functions of small monomials, sums and differences, scaled; (tree, values, simple)."""
    k = len(V)
    minus = ex.fixed(-1.0)
    arguments = arguments + [ex.add(V[i], V[j]) for i in range(k) for j in range(i + 1, k)]
    arguments += [ex.add(V[i], ex.mul(minus, V[j])) for i in range(k) for j in range(k) if i != j]
    if k == 1:
        arguments += [ex.add(V[0], ex.mul(ex.const(c), ex.power(V[0], 2))) for c in (1.0, -1.0)]
    scales = [1.0, 2.0, 0.5, np.pi, 2 * np.pi]
    if k == 1:
        scales = sorted({*scales, *np.round(np.geomspace(0.03, 12, 28), 4)})
    out = []
    for a in arguments:
        with np.errstate(all="ignore"):
            va = ex.column(a, X)
        for c in scales if k == 1 or a[0] == "x" else scales[:3]:
            for name in FUNCTIONS:
                if name == "log" and c != 1.0:
                    continue
                for s in (c, -c) if name == "exp" else (c,):
                    if name == "exp" and (np.nanmax(s * va) > 40 or np.nanmin(s * va) < -700):
                        continue
                    tree = (name, a if s == 1 else ex.mul(ex.const(s), a))
                    with np.errstate(all="ignore"):
                        v = ex.UNARY[name](s * va)
                    if sums.offer(tree, v) is not None:
                        out.append((tree, v, c == 1.0 and ex.size(a) <= 2))
        if (va > 0).all():
            sums.offer(("log", a))
            sums.offer(("sqrt", a))
        if a[0] == "add":
            for q in (2, 3, -1, -2):
                sums.offer(ex.power(a, q))
        if (np.abs(va) < 1).all():
            sums.offer(("asin", a))
            sums.offer(("acos", a))
        sums.offer(("atan", a))
    return out


def _exponents(X: np.ndarray, V: list[ex.Tree], sums: Features, factors: Features) -> None:
    """One of two inputs to the power of the other."""
    for i, j in ((0, 1), (1, 0)) if len(V) == 2 else ():
        if (X[:, i] > 0).all():
            for features in (sums, factors):
                features.offer(("power", V[i], V[j]))


def _shifted(V: list[ex.Tree], sums: Features) -> None:
    """Steps and logarithms of one input that start elsewhere than at zero; the refit moves both constants."""
    for x in V if len(V) <= 2 else ():
        for c in (0.5, 1.0, 2.0, 4.0):
            for d in (-1.0, 1.0):
                sums.offer(("tanh", ex.add(ex.mul(ex.const(c), x), ex.const(d * c))))
            sums.offer(("log", ex.add(ex.ONE, ex.mul(ex.const(c), x))))


def _binomials(X: np.ndarray, V: list[ex.Tree], small: list[tuple[ex.Tree, float]], sums: Features, factors: Features):
    """One plus or minus a monomial, and its powers."""
    k = len(V)
    for tree, _ in small:
        for s in (1.0, -1.0):
            b = ex.add(ex.ONE, ex.mul(ex.const(s), tree))
            with np.errstate(all="ignore"):
                v = ex.column(b, X)
            factors.offer(b, v)
            for q in (Fraction(-1), HALF, -HALF, Fraction(2), Fraction(-2)):
                if q.denominator == 1 or (v > 0).all():
                    sums.offer(ex.power(b, q))
            if k == 1:
                for c in (2.0, 3.0, 0.5, 1 / 3, 0.25, 4.0, 0.1, 10.0):
                    b = ex.add(ex.ONE, ex.mul(ex.const(s * c), tree))
                    factors.offer(b)
                    sums.offer(ex.power(b, -1))
    _saturations(V, sums)
    for x in V:
        for q in (3, 4, -3, -4):
            for s in (1.0, -1.0):
                sums.offer(ex.power(ex.add(ex.ONE, ex.mul(ex.const(s), ex.power(x, q))), -1))


def _saturations(V: list[ex.Tree], sums: Features) -> None:
    """m / (1 + c x^q): the terms of enzymes, predators and bacteria, for one or two inputs."""
    k = len(V)
    above = V + [ex.mul(V[i], V[j]) for i in range(k) for j in range(i, k)]
    for x, q, c in product(V, (1, 2), (0.3, 1.0, 3.0)) if k <= 2 else ():
        under = ex.power(ex.add(ex.ONE, ex.mul(ex.const(c), ex.power(x, q))), -1)
        for m in above:
            sums.offer(ex.mul(m, under))


def _differences(k: int, small: list[tuple[ex.Tree, float]], factors: Features, limit: int) -> None:
    """Sums and differences of two monomials, with or without one."""
    for i, (a, cost_a) in enumerate(small):
        for b, cost_b in small[:i]:
            if cost_a + cost_b <= (4 if k <= 2 else 3) and len(factors) < limit:
                for s in (1.0, -1.0):
                    both = ex.add(a, ex.mul(ex.const(s), b))
                    factors.offer(both)
                    if k >= 2:
                        factors.offer(ex.add(ex.ONE, both))


def _products(k: int, small, unary, sums: Features, factors: Features, limit: int) -> None:
    """A function times a small monomial, one plus such a product, and products of functions."""
    for tree, v, simple in unary:
        factors.offer(tree, v)
        for s in (1.0, -1.0):
            factors.offer(ex.add(ex.ONE, ex.mul(ex.const(s), tree)), 1 + s * v)
        if not (simple or k == 1):
            continue
        for m, cost in small:
            if cost <= 2 and len(sums) < limit:
                sums.offer(ex.mul(m, tree))
            if simple and cost <= 2 and len(factors) < limit * 1.5:
                for s in (1.0, -1.0):
                    factors.offer(ex.add(ex.ONE, ex.mul(ex.const(s), m, tree)))
    plain = [(t, v) for t, v, simple in unary if simple]
    for i, (a, va) in enumerate(plain):
        for b, vb in plain[: i + 1]:
            if len(sums) < limit * 1.4:
                sums.offer(ex.mul(a, b), va * vb)
    waves = [(t, v) for t, v in plain if t[0] in ("sin", "cos") and t[1][0] == "x"] if k <= 2 else []
    for i, (a, va) in enumerate(waves):
        for j, (b, vb) in enumerate(waves[: i + 1]):
            for c, vc in waves[: j + 1]:
                sums.offer(ex.mul(a, b, c), va * vb * vc)


Chosen = tuple[float, tuple[int, ...]]  # unexplained fraction of the target, columns


def best_pairs(
    target: np.ndarray,
    base: np.ndarray,
    F: np.ndarray,
    top: int = 30,
    penalty: np.ndarray | None = None,
    chunk: int = 600,
) -> list[Chosen]:
    """The best single columns and the best pairs of F for the target, after the base is projected out."""
    Q = np.linalg.qr(base)[0]
    t = target - Q @ (Q.T @ target)
    length = np.linalg.norm(t)
    if length < 1e-12 * (np.linalg.norm(target) + 1e-300):
        return [(0.0, ())]
    t = t / length
    P = F - Q @ (Q.T @ F)
    norms = np.linalg.norm(P, axis=0)
    ids = np.where(norms > 1e-6 * np.linalg.norm(F, axis=0))[0]
    P = P[:, ids] / norms[ids]
    c = P.T @ t
    price = np.zeros(len(ids)) if penalty is None else penalty[ids]
    single = np.argsort(np.log(np.maximum(1 - c**2, 1e-15)) + price)[:top]
    out = [(max(1 - c[j] ** 2, 0.0), (int(ids[j]),)) for j in single]
    return out + _pairs(P, c, ids, price, t, top, chunk)


def _pairs(
    P: np.ndarray, c: np.ndarray, ids: np.ndarray, price: np.ndarray, t: np.ndarray, top: int, chunk: int
) -> list[Chosen]:
    """The best partner of each column by single precision, the best of these pairs measured in double."""
    P4, c4, price4 = P.astype(np.float32), c.astype(np.float32), price.astype(np.float32)
    ranked = []
    for s in range(0, len(ids), chunk):
        G = P4[:, s : s + chunk].T @ P4[:, s:]
        ci, cj = c4[s : s + chunk, None], c4[s:]
        den = 1 - G * G
        den[den < 1e-5] = np.inf
        G *= -2 * ci * cj
        G += ci * ci
        G += cj * cj
        G /= den
        np.subtract(1, G, out=G)
        np.maximum(G, 1e-7, out=G)
        np.log(G, out=G)
        G += price4[s : s + chunk, None]
        G += price4[s:]
        partner = np.argmin(G, axis=1)
        lowest = G[np.arange(len(G)), partner]
        ranked += [(float(lowest[i]), i + s, int(partner[i]) + s) for i in np.argsort(lowest)[: 4 * top]]
    best = []
    for _, i, j in sorted(ranked)[: 3 * top]:
        if i == j:
            continue
        g = P[:, i] @ P[:, j]
        rest = max(1 - (c[i] ** 2 + c[j] ** 2 - 2 * c[i] * c[j] * g) / max(1 - g * g, 1e-12), 0.0)
        best.append((np.log(max(rest, 1e-15)) + price[i] + price[j], rest, (int(ids[i]), int(ids[j]))))
    best.sort(key=lambda b: b[0])
    return [(float(rest), pair) for _, rest, pair in best[:top]]


def extend(target: np.ndarray, base: np.ndarray, F: np.ndarray, start: Sequence[int], terms: int) -> list[Chosen]:
    """Greedy orthogonal least squares from a starting set, up to so many terms; one result for each length."""
    Q = np.linalg.qr(np.concatenate([base, F[:, list(start)]], 1))[0]
    Q0 = np.linalg.qr(base)[0]
    total = np.linalg.norm(target - Q0 @ (Q0.T @ target)) ** 2 + 1e-300
    r = target - Q @ (Q.T @ target)
    squares = np.einsum("ij,ij->j", F, F) + 1e-300
    left = squares - np.sum((Q.T @ F) ** 2, 0)  # squared length of each column outside the span
    chosen, out = list(start), []
    while len(chosen) < terms:
        score = np.where(left > 1e-10 * squares, (F.T @ r) ** 2 / np.maximum(left, 1e-300), 0.0)
        j = int(np.argmax(score))
        if score[j] == 0:
            break
        q = F[:, j] - Q @ (Q.T @ F[:, j])
        q = q - Q @ (Q.T @ q)
        q = q / (np.linalg.norm(q) + 1e-300)
        Q = np.concatenate([Q, q[:, None]], 1)
        r = r - q * (q @ r)
        left = left - (q @ F) ** 2
        chosen.append(j)
        out.append((float(r @ r / total), tuple(chosen)))
        if r @ r / total < 1e-11:
            break
    return out
