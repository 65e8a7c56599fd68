"""Products of any number of inputs: t = c x^e exp(sum of small monomials) f_1^p f_2^q, less a term or one.

The logarithm is linear in e, p and q, so all pairs of some two thousand factors f are tried in closed form: sums of two
or three terms, one plus or minus a monomial, waves, logarithms, 1 - exp; and f^x with an input as the exponent. Only
what fits to the last digits counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import inner, large
from numerate.discover.clock import Clock
from numerate.discover.index import fraction
from numerate.discover.view import View

SURE = 1e-9  # unexplained fraction of the square of the logarithm, before it is measured again
MINUS = ex.fixed(-1.0)
SUMS, FACTORS = 1200, 3500
MOST_INPUTS = 13  # with more, there are more quantities of them than rows


@dataclass(frozen=True)
class Factor:
    """f, or f to the power of an input: its logarithm is x_j log |f|."""

    tree: ex.Tree
    exponent: int | None = None


def quantities(P: np.ndarray) -> list[ex.Tree]:
    """Inputs, their products, quotients, squares, a b / c: what exponentials and functions are taken of."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    out = V + [ex.mul(a, b) for a, b in combinations(V, 2)]
    out += [ex.mul(V[i], ex.power(V[j], -1)) for i, j in product(range(k), repeat=2) if i != j]
    out += [ex.power(x, 2) for x in V] + [ex.power(x, -1) for x in V]
    threes = [ex.mul(a, b, ex.power(c, -1)) for a, b in combinations(V, 2) for c in V if c not in (a, b)]
    return out + (threes if k <= 4 else [])


def factors(P: np.ndarray, allowed: frozenset[str] | None) -> Iterator[Factor]:
    """Factors, simplest first."""
    k, small = P.shape[1], quantities(P)
    sums = [u.tree(q) for u in inner.sums(P, SUMS) for q in range(u.values.shape[1])]
    trees = [*[_one(m, s) for m in small for s in (1, -1)], *_functions(k, small), *sums[: SUMS // 2]]
    yield from (Factor(f) for f in trees if _allows(allowed, f))
    yield from (f for f in _with_exponents(k, small) if _allows(allowed, f.tree))
    yield from (Factor(f) for f in (*_powers(k, small), *_waves(k), *sums[SUMS // 2 :]) if _allows(allowed, f))


def _allows(allowed: frozenset[str] | None, tree: ex.Tree) -> bool:
    return allowed is None or ex.functions(tree) <= allowed


def _one(m: ex.Tree, sign: int = 1) -> ex.Tree:
    return ex.add(ex.ONE, m if sign > 0 else ex.mul(MINUS, m))


def _functions(k: int, small: list[ex.Tree]) -> Iterator[ex.Tree]:
    """Functions of small quantities, sums and differences, and of multiples; one plus or minus exponentials, waves."""
    V = [ex.var(i) for i in range(k)]
    pairs = [ex.add(a, b if s > 0 else ex.mul(MINUS, b)) for a, b in combinations(V, 2) for s in (-1, 1)]
    for a in small + pairs + [ex.mul(ex.fixed(c), x) for c in (0.5, 2.0) for x in V]:
        yield from ((name, a) for name in ("sin", "cos", "log", "tanh"))
    for a in V + pairs:
        yield from (_one((name, a), s) for name in ("sin", "cos") for s in (1, -1))
    inside = small + pairs + [ex.mul(x, a) for x in V for a in pairs if x[1] not in ex.inputs(a)]
    for a in inside:
        yield from (_one(("exp", ex.mul(MINUS, a)), s) for s in (1, -1))


def _waves(k: int) -> Iterator[ex.Tree]:
    """Sums of two waves, each alone or times an input."""
    V = [ex.var(i) for i in range(k)]
    terms = [(name, x) for x in V for name in ("sin", "cos")]
    terms += [ex.mul(y, (name, x)) for x in V for y in V if x != y for name in ("sin", "cos")]
    for a, b in list(combinations(terms, 2))[:500]:
        yield ex.add(a, b)
        yield ex.add(a, ex.mul(MINUS, b))


def _powers(k: int, small: list[ex.Tree]) -> Iterator[ex.Tree]:
    """One plus or minus a power with an input as the exponent."""
    for base, j in _bases(k, small):
        for sign in (1, -1):
            yield _one(("power", base, ex.var(j)), sign)


def _bases(k: int, small: list[ex.Tree]) -> Iterator[tuple[ex.Tree, int]]:
    for j in range(k):
        for m in small[: k + k * (k - 1) // 2 + k * (k - 1)]:
            if j not in ex.inputs(m):
                yield m, j
                if m[0] == "x":
                    yield _one(m), j
                    yield _one(m, -1), j


def _with_exponents(k: int, small: list[ex.Tree]) -> Iterator[Factor]:
    for base, j in _bases(k, small):
        yield Factor(base, j)
        if ex.size(base) <= 3:
            yield Factor(_one(("exp", ex.mul(MINUS, base)), -1), j)


def logarithms(P: np.ndarray, allowed: frozenset[str] | None, most: int = FACTORS) -> tuple[np.ndarray, list[Factor]]:
    """(n, p) and the factor of each column."""
    columns, kept = [], []
    for f in factors(P, allowed):
        if len(kept) >= most:
            break
        with np.errstate(all="ignore"):
            v = ex.column(f.tree, P)
            v = np.log(np.abs(v)) if f.exponent is None else P[:, f.exponent] * np.log(v)
        if np.isfinite(v).all() and np.ptp(v) > 1e-9 * (1 + np.abs(v).max()):
            columns.append(v)
            kept.append(f)
    return np.stack(columns, 1), kept


def targets(view: View) -> list[View]:
    """Views of which the logarithm is tried: t, t less or plus an input, less a product of two, less or plus one."""
    V = view.variables
    out = [view, view.minus(ex.ONE), view.minus(MINUS)]
    inverse = view.outer("inv")
    if inverse is not None:
        out += [inverse.minus(ex.ONE), inverse.minus(MINUS)]
    out += [view.minus(s) for x in V for s in (x, ex.mul(MINUS, x))]
    return [v for v in out if v.usable]


def product_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 300) -> Iterator[ex.Tree]:
    """Formulas of this form that are exact."""
    head = view.head(rows)
    if not 2 <= head.k <= MOST_INPUTS or (head.P == 0).any():
        return
    with np.errstate(all="ignore"):
        logs = Logs.of(head.P, allowed)
        made = targets(view)
        T = np.stack([np.log(np.abs(v.t[:rows])) for v in made], 1)
    good = np.isfinite(T).all(0) & (np.std(T, 0) > 1e-9)
    made, T = [v for v, g in zip(made, good) if g], T[:, good]
    if not made or not np.isfinite(logs.base).all():
        return
    n, p = logs.F.shape
    clock.spend(4e-5 * p + 2e-11 * n * p**2 + 1e-9 * len(made) * p**2)
    alone, pairs = logs.alone(T), large.best_pairs(logs.base, logs.F, T, check=clock.check, distinct=1e-3)
    for i, view in enumerate(made):
        chosen = alone[i] + [pair for rest, pair in pairs[i][:2] if rest < SURE]
        trees = (logs.formula(view, T[:, i], some) for some in chosen[:2])
        yield from (tree for tree in trees if tree is not None)


@dataclass(frozen=True)
class Logs:
    """What the logarithm of the target is summed from.

    Args:
        base: (n, 1 + k + q): one, the logarithms of the inputs, and the quantities ``inside`` an exponential.
        F: (n, p) logarithms of the factors ``kept``.
    """

    k: int
    base: np.ndarray
    inside: list[ex.Tree]
    F: np.ndarray
    kept: list[Factor]

    @classmethod
    def of(cls, P: np.ndarray, allowed: frozenset[str] | None) -> "Logs":
        inside = quantities(P) if allowed is None or "exp" in allowed else []
        base = np.stack([np.ones(len(P)), *np.log(np.abs(P)).T, *[ex.column(q, P) for q in inside]], 1)
        return cls(P.shape[1], base, inside, *logarithms(P, allowed))

    def alone(self, T: np.ndarray) -> list[list[tuple[int, ...]]]:
        """For each target the factors that explain it without another; none at all where the base does."""
        Q = np.linalg.qr(self.base / np.linalg.norm(self.base, axis=0))[0]
        rest, F = (M - Q @ (Q.T @ M) for M in (T, self.F))
        length = np.linalg.norm(rest, axis=0)
        got = (F.T @ rest) ** 2 / ((np.einsum("np,np->p", F, F) + 1e-300)[:, None] * (length**2 + 1e-300))
        nothing = length < 1e-9 * np.linalg.norm(T - T.mean(0), axis=0)
        return [
            [()] if nothing[t] else [(int(i),) for i in np.argsort(-got[:, t])[:1] if 1 - got[i, t] < SURE]
            for t in range(T.shape[1])
        ]

    def formula(self, view: View, z: np.ndarray, chosen: tuple[int, ...]) -> ex.Tree | None:
        """Exponents by least squares, those that are nothing left out, the others rounded where they are fractions."""
        for some in dict.fromkeys(((), chosen[:1], chosen[1:], chosen)):
            A = np.concatenate([self.base, self.F[:, list(some)]], 1)
            used = _needed(A, z)
            if used is not None:
                return self._written(view, z, A, used, some) if len(used) > 1 else None
        return None

    def _written(
        self, view: View, z: np.ndarray, A: np.ndarray, used: list[int], chosen: tuple[int, ...]
    ) -> ex.Tree | None:
        powers: list[ex.Tree] = []
        exponents: list[ex.Tree] = []
        for j, q in zip(used, np.linalg.lstsq(A[:, used], z, rcond=None)[0]):
            if 1 <= j <= self.k:
                powers.append(_power(ex.var(j - 1), q))
            elif self.k < j < self.base.shape[1]:
                exponents.append(_scaled(self.inside[j - 1 - self.k], q))
            elif j:
                f = self.kept[chosen[j - self.base.shape[1]]]
                raised = f.exponent is not None
                powers.append(("power", f.tree, _scaled(ex.var(f.exponent), q)) if raised else _power(f.tree, q))  # type: ignore[arg-type]
        whole = ex.mul(*powers, *([("exp", ex.add(*exponents))] if exponents else []))
        with np.errstate(all="ignore"):
            ratio = view.t / ex.column(whole, view.P)
        return view.lift(ex.mul(ex.const(np.median(ratio)), whole)) if np.isfinite(ratio).all() else None


def _scaled(tree: ex.Tree, q: float) -> ex.Tree:
    near = fraction(q, 1e-6, (1, 2, 3, 4))
    return tree if near == 1 else ex.mul(ex.const(q) if near is None else ex.fixed(float(near)), tree)


def _power(tree: ex.Tree, q: float) -> ex.Tree:
    near = fraction(q, 1e-6, (1, 2, 3, 4))
    return ("power", tree, ex.const(q)) if near is None else ex.power(tree, near)


def _needed(A: np.ndarray, z: np.ndarray) -> list[int] | None:
    """The columns that an exact fit needs, the constant first; None if the fit is not exact."""
    norms = np.linalg.norm(A, axis=0)
    length = np.linalg.norm(z - z.mean())

    def fitted(keep: list[int]) -> tuple[np.ndarray, float]:
        c = np.linalg.lstsq(A[:, keep] / norms[keep], z, rcond=1e-13)[0]
        return c, float(np.linalg.norm(z - A[:, keep] / norms[keep] @ c))

    everything = list(range(A.shape[1]))
    c, left = fitted(everything)
    if left > 1e-8 * length:
        return None
    keep = [0, *[j for j in everything[1:] if abs(c[j]) > 1e-7 * length]]
    return keep if fitted(keep)[1] < 1e-7 * length else None
