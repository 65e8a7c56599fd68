"""The search in few inputs: products and sums of two or more features of the dictionary."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from numerate.discover import dictionary as dic
from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock
from numerate.discover.index import fraction
from numerate.discover.sparse import emit
from numerate.discover.view import OUTER, View

POWERS = tuple(Fraction(q, 2) for q in (-4, -2, -1, 1, 2, 4))
EXACT = 1e-9  # unexplained fraction below which a linear fit counts as a solution


@dataclass(frozen=True)
class _Logarithms:
    """target: (n,), base: (n, 1 + positive inputs), columns: (n, factors), which factors, which inputs are positive."""

    target: np.ndarray
    base: np.ndarray
    columns: np.ndarray
    ids: np.ndarray
    pos: list[int]


class Few:
    """Features of a view's inputs, built once and used under every outer function."""

    def __init__(self, view: View, clock: Clock, noisy: bool, allowed: frozenset[str] | None, rows: int) -> None:
        self.view, self.clock, self.noisy = view, clock, noisy
        self.rows = min(rows, len(view.t))
        self.head = view.head(rows)
        self.sums, self.factors = dic.build(self.head.P, allowed=allowed)
        self.F = self.sums.matrix()
        clock.spend(3e-5 * (len(self.sums) + len(self.factors)))

    def products(self) -> Iterator[ex.Tree]:
        """log |t| = e . log x + sum q log f: the best products first."""
        logs = self._logarithms()
        if logs is None:
            return
        n, features = logs.columns.shape
        penalty = np.array([3.0 * ex.size(self.factors.trees[i]) / n for i in logs.ids])
        self.clock.spend(self._pairs_work(features) + 10 * self._extend_work(features))
        found = dic.best_pairs(logs.target, logs.base, logs.columns, top=100, penalty=penalty)
        for _, chosen in sorted(found)[:10]:
            found = found + dic.extend(logs.target, logs.base, logs.columns, chosen, 4)
        ranked = self._products_of(found, logs)
        best = ranked[:10] + sorted(ranked, key=lambda r: r[1])[: 12 if self.view.k == 1 else 5]
        best += sorted(ranked[:60], key=lambda r: _complexity(r[2]))[: 25 if self.noisy else 8]
        for _, _, tree in best:
            yield self.view.lift(tree)

    def triples(self, simplest: int = 60, top: int = 30) -> Iterator[ex.Tree]:
        """Products of powers of any three of the simplest factors, all of them compared.

        Steps from one factor to the next miss those of which no two alone come close: cos(x)/tan(y) has three.
        """
        logs = self._logarithms(simplest)
        if logs is None or len(logs.ids) < 3:
            return
        triples = np.array(list(combinations(range(len(logs.ids)), 3)))
        self.clock.spend(1e-6 * len(triples))
        Q = np.linalg.qr(logs.base)[0]
        L, z = (a - Q @ (Q.T @ a) for a in (logs.columns, logs.target))
        norms = np.linalg.norm(L, axis=0) + 1e-300
        L = L / norms
        G, b = L.T @ L, L.T @ z
        blocks = G[triples[:, :, None], triples[:, None, :]] + 1e-9 * np.eye(3)
        right = b[triples]
        left = 1 - np.sum(right * np.linalg.solve(blocks, right[:, :, None])[:, :, 0], 1) / (z @ z + 1e-300)
        found = [(float(left[i]), tuple(int(j) for j in triples[i])) for i in np.argsort(left)[:top]]
        for _, _, tree in self._products_of(found, logs)[:10]:
            yield self.view.lift(tree)

    def _logarithms(self, simplest: int | None = None) -> "_Logarithms | None":
        """Logarithms of the target, of positive inputs and of the factors, weighted as errors of the target are."""
        v = self.head
        W = np.abs(self.factors.matrix())
        ids = np.where((W > 0).all(0))[0]
        if simplest is not None:
            ids = np.array(sorted(ids, key=lambda i: ex.size(self.factors.trees[i]))[:simplest], int)
        if not len(ids):
            return None
        pos = [j for j in range(v.k) if (v.P[:, j] > 0).all()]
        size = np.abs(v.t * v.w)
        w = np.minimum(size, np.quantile(size, 0.9))[:, None]
        base = np.concatenate([np.ones((len(v.t), 1)), np.log(v.P[:, pos])], 1) * w
        return _Logarithms(np.log(np.abs(v.t) + 1e-300) * w[:, 0], base, np.log(W[:, ids]) * w, ids, pos)

    def _products_of(self, found: list[dic.Chosen], logs: "_Logarithms") -> list[tuple[float, float, ex.Tree]]:
        """The choices of factors whose exponents are fractions, scored in the target itself; the best of each form."""
        ranked, seen, pos = [], set(), logs.pos
        for rest, chosen in found:
            A = np.concatenate([logs.base, logs.columns[:, list(chosen)]], 1)
            e = [fraction(q, 0.3, (1, 2)) for q in np.linalg.lstsq(A, logs.target, rcond=None)[0][1:]]
            if None in e or (chosen, tuple(e)) in seen:
                continue
            seen.add((chosen, tuple(e)))
            mono = ex.monomial([ex.var(j) for j in pos], e[: len(pos)])
            powers = [ex.power(self.factors.trees[logs.ids[i]], q) for i, q in zip(chosen, e[len(pos) :]) if q]
            factors = ([] if ex.is_one(mono) else [mono]) + powers
            if factors:
                ranked.append(self._scored(rest, factors))
        ranked = sorted((r for r in ranked if r is not None), key=lambda r: r[0])
        forms: dict[ex.Tree, tuple[float, float, ex.Tree]] = {}
        for r in ranked:  # the best start of each form
            forms.setdefault(ex.shape(r[2]), r)
        return list(forms.values())

    def simple_products(self, most: int = 24) -> Iterator[ex.Tree]:
        """t = c x^e f^q with few exponents and a simple factor f, all of them measured in y itself: shortest first.

        The logarithms of :meth:`products` bend under noise, and hundreds of factors fit as well as the true one.
        """
        v, k = self.head, self.head.k
        if k > 2 or not (v.P > 0).all():
            return
        ids = [i for i, tree in enumerate(self.factors.trees) if _plain(tree) and (self.factors.columns[i] > 0).all()]
        steps = [Fraction(q, 2) for q in (range(-4, 5) if k == 1 else (-4, -2, -1, 0, 1, 2, 4))]
        exponents = list(product(steps, repeat=k))
        M = np.exp(np.log(v.P) @ np.array(exponents, float).T).T * v.w  # (exponents, rows)
        y = v.t * v.w
        G = np.stack([self.factors.columns[i] for i in ids], 1) if ids else np.zeros((len(y), 0))
        self.clock.spend(4e-10 * len(POWERS) * M.size * max(len(ids), 1))
        ranked = []
        for q in POWERS:
            with np.errstate(all="ignore"):
                Gq = G ** float(q)
                c = ((M * y) @ Gq) / ((M * M) @ (Gq * Gq))
                left = 1 - c * ((M * y) @ Gq) / (y @ y)
            length = 0.5 * len(y) * np.log(np.maximum(np.where(np.isfinite(left), left, 1.0), 1e-24))
            length += np.array([1.5 * sum(map(_weight, e)) for e in exponents])[:, None]
            length += np.array([1.5 * _complexity(self.factors.trees[i]) + 1.5 * _weight(q) for i in ids])
            for flat in np.argsort(length, axis=None)[: 2 * most]:
                a, b = np.unravel_index(flat, length.shape)
                ranked.append((float(length[a, b]), float(c[a, b]), exponents[a], ids[b], q))
        for _, c, e, i, q in sorted(ranked)[:most]:
            mono = ex.monomial(self.view.variables, e)
            parts = [*([] if ex.is_one(mono) else [mono]), ex.power(self.factors.trees[i], q)]
            yield self.view.lift(ex.mul(ex.const(c), *parts))

    def _pairs_work(self, features: int) -> float:
        return 1.2e-8 * features**2 + 6e-11 * self.rows * features**2

    def _extend_work(self, features: int) -> float:
        return 3e-9 * self.rows * features

    def _scored(self, rest: float, factors: list[ex.Tree]) -> tuple[float, float, ex.Tree] | None:
        v = self.head
        with np.errstate(all="ignore"):
            f = ex.column(ex.mul(*factors), v.P) * v.w
        if not np.isfinite(f).all() or not f @ f:
            return None
        y = v.t * v.w
        c = f @ y / (f @ f)
        error = np.sqrt(np.mean((y - c * f) ** 2) / np.mean(y**2))
        tree = ex.mul(ex.const(c), *factors)
        return len(y) * np.log(max(error, 1e-12)) + 1.5 * ex.size(tree), rest, tree

    def sums_under(self, name: str) -> Iterator[ex.Tree]:
        """g(t) = sum of features under the outer function g, best first."""
        outer = self.view.outer(name)
        if outer is None or np.abs(outer.t).max() > 1e8:
            return
        v = outer.head(self.rows)
        n = len(v.t)
        w = np.minimum(v.w, np.quantile(v.w, 0.98))
        w = (w / w.mean())[:, None]
        z = v.t * w[:, 0]
        one = np.ones((n, 1))
        penalty = np.array([3.0 * ex.size(t) / n for t in self.sums.trees])
        p = self.F.shape[1]
        self.clock.spend(self._pairs_work(p) + (12 * self._extend_work(p) if v.k <= 3 else 0))
        found = dic.best_pairs(z, one * w, self.F * w, top=30, penalty=penalty)
        if v.k <= 3:
            for _, chosen in sorted(found)[:12]:
                found = found + dic.extend(z, one * w, self.F * w, chosen, 5)
        if name in ("id", "log") and self.clock.left > 0.1 * self.clock.seconds:
            yield from self._with_polynomial(outer, z, w)
        for chosen in self._worth_a_refit(found, n):
            A = np.concatenate([one, self.F[:, list(chosen)]], 1)
            c = np.linalg.lstsq(A * w, z, rcond=None)[0]
            keep = [j for j in range(len(chosen)) if abs(c[1 + j]) * np.std(A[:, 1 + j]) > 1e-7 * np.std(v.t)]
            if not keep:
                continue
            terms = [ex.mul(ex.const(c[1 + j]), self.sums.trees[chosen[j]]) for j in keep]
            if abs(c[0]) > 1e-7 * np.sqrt(np.mean(v.t**2)):
                terms.insert(0, ex.const(c[0]))
            yield outer.lift(ex.add(*terms))

    def _worth_a_refit(self, found: list[dic.Chosen], n: int) -> Iterator[tuple[int, ...]]:
        """The best of each form: sums, then single features, whose inner constants are still those of a grid."""
        alone = sorted(f for f in found if len(f[1]) == 1)
        together = sorted(found, key=lambda f: self._cost(f, n))[:150]
        forms: set[frozenset[ex.Tree]] = set()
        for ranked, most in ((together, 20 if self.noisy else 10), (alone, 6 if self.head.k == 1 else 2)):
            others = 0
            for rest, chosen in ranked:
                form = frozenset(ex.shape(self.sums.trees[i]) for i in chosen)
                if rest > EXACT:
                    if form in forms:
                        continue
                    others += 1
                    if others > most:
                        break
                forms.add(form)
                yield chosen

    def _cost(self, found: dic.Chosen, n: int) -> float:
        rest, chosen = found
        sizes = sum(1.5 * ex.size(self.sums.trees[i]) + 0.5 * np.log(n) for i in chosen)
        return 0.5 * n * np.log(max(rest + 1e-13 * len(chosen), 1e-14)) + sizes

    def _with_polynomial(self, outer: View, z: np.ndarray, w: np.ndarray) -> Iterator[ex.Tree]:
        """A sparse polynomial and up to two features."""
        P = self.head.P
        exps = poly.exponents(outer.k, {1: 4, 2: 3, 3: 2}.get(outer.k, 2))
        H = np.concatenate([np.ones((len(P), 1)), poly.columns(P, exps)], 1)
        trees = [ex.ONE] + [ex.monomial(outer.variables, e) for e in exps]
        self.clock.spend(self._pairs_work(self.F.shape[1]))
        for rest, chosen in sorted(dic.best_pairs(z, H * w, self.F * w, top=6))[:3]:
            if rest < 1e-7 or self.noisy:
                A = np.concatenate([H, self.F[:, list(chosen)]], 1)
                tree = emit(outer, A, trees + [self.sums.trees[i] for i in chosen], self.rows)
                if tree is not None:
                    yield tree


def _weight(q: Fraction) -> float:
    """What an exponent costs in nodes: nothing for zero, one for one, more for others."""
    return 0.0 if q == 0 else abs(q.numerator) + 2 * q.denominator - 2


def _plain(tree: ex.Tree) -> bool:
    """Whether the constants of a feature are one, two or a half, which a refit does not have to move."""
    return all(abs(c) in (0.5, 1.0, 2.0) for c in ex.constants(tree))


def _complexity(tree: ex.Tree) -> float:
    """Size, with powers counted by their numbers: a seventh half is less simple than a first."""
    own = abs(tree[2].numerator) + 2 * tree[2].denominator - 2 if tree[0] == "pow" else 1
    return own + sum(_complexity(s) for s in tree[1:] if isinstance(s, tuple))


def few_inputs(view: View, clock: Clock, noisy: bool, allowed: frozenset[str] | None, rows: int) -> Iterator[ex.Tree]:
    """All of the above for one view, products first, and of these the simplest."""
    few = Few(view, clock, noisy, allowed, rows)
    yield from few.simple_products() if noisy else few.triples()
    yield from few.products()
    for name in (n for n in OUTER if n not in ("fourth", "invroot")):
        clock.check()
        yield from few.sums_under(name)
