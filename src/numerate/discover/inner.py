"""One function with a sum inside, beside a rich base: g((t - s) / m) = base + a f(u), u a sum of two or three terms.

Tens of thousands of arguments u are tried at once: after the base is projected out, one product of matrices in single
precision says how much of each target each function explains. A function with constants inside, f(c u), f(u + c) or
f(c u + v), is tried on a grid of c as fine as the function needs, and the best are refined by variable projection. Only
what fits to the last digits counts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import sparse, wide
from numerate.discover.clock import Clock
from numerate.discover.view import View

MINUS = ex.fixed(-1.0)
SURE = 1e-10  # unexplained fraction of what the base leaves
LIKELY = 2e-3  # the same in single precision
NEAR = 0.75  # on a grid
MOST_TERMS = 100  # with many inputs, the smallest
BLOCK = 2000
ARGUMENTS = 9000
TIMES_LINES = 2400  # arguments whose functions are multiplied by polynomials of degree one
WAVES = "sin cos"
TARGETS = 120

Make = Callable[[ex.Tree], tuple[ex.Tree, ...]]  # the columns that one argument gives


@dataclass(frozen=True)
class Arguments:
    """Values (n, b) of arguments and the tree of each.

    Args:
        free: their constants lie on a grid.
        factors: the function is also tried times each input.
    """

    values: np.ndarray
    tree: Callable[[int], ex.Tree]
    free: bool = False
    factors: bool = False


def _root4(a: ex.Tree) -> ex.Tree:
    return ex.power(a, Fraction(1, 4))


FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], list[np.ndarray]], Make]] = {
    WAVES: (lambda v: [np.sin(v), np.cos(v)], lambda a: (("sin", a), ("cos", a))),
    "exp": (lambda v: [np.exp(v)], lambda a: (("exp", a),)),
    "exp minus": (lambda v: [np.exp(-v)], lambda a: (("exp", ex.mul(MINUS, a)),)),
    "sqrt": (lambda v: [np.sqrt(v)], lambda a: (("sqrt", a),)),
    "log": (lambda v: [np.log(v)], lambda a: (("log", a),)),
    "log abs": (lambda v: [np.log(np.abs(v))], lambda a: (("log", ("abs", a)),)),
    "inverse": (lambda v: [1 / v], lambda a: (ex.power(a, -1),)),
    "inverse root": (lambda v: [1 / np.sqrt(v)], lambda a: (ex.power(a, Fraction(-1, 2)),)),
    "fourth root": (lambda v: [np.sqrt(np.sqrt(v))], lambda a: (_root4(a),)),
    "tanh": (lambda v: [np.tanh(v)], lambda a: (("tanh", a),)),
}


def terms(P: np.ndarray) -> list[ex.Tree]:
    """What arguments are summed from, simplest first."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    pos = np.asarray((P > 0).all(0))
    out = V + [ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)] + [ex.power(x, 2) for x in V]
    out += [("sqrt", x) for x, p in zip(V, pos) if p] + [("log", x) for x, p in zip(V, pos) if p]
    out += [ex.power(x, -1) for x in V]
    if k <= 4:
        out += [ex.mul(V[i], ex.power(V[j], -1)) for i, j in product(range(k), repeat=2) if i != j]
        out += [ex.power(x, 3) for x in V]
    if k <= 5:
        out += [ex.mul(V[i], ("log", V[j])) for i, j in product(range(k), repeat=2) if pos[j]]
    return out + [("exp", V[i]) for i in range(k) if np.abs(P[:, i]).max() < 20]


def sums(P: np.ndarray, most: int) -> Iterator[Arguments]:
    """One, two or three terms with signs."""
    T = terms(P)
    with np.errstate(all="ignore"):
        A = np.stack([ex.column(t, P) for t in T], 1)
    ids = [i for i in range(len(T)) if np.isfinite(A[:, i]).all()]
    price = {i: ex.size(T[i]) for i in ids}
    ids = sorted(ids, key=lambda i: price[i])[:MOST_TERMS] if len(ids) > MOST_TERMS else ids
    chosen = [c for n in (1, 2, 3) for c in combinations(ids, n)]
    chosen = sorted(chosen, key=lambda c: sum(price[i] + 1 for i in c))[:most]
    signed = [(c, (1, *s)) for c in chosen for s in product((1, -1), repeat=len(c) - 1)][:most]
    for start in range(0, len(signed), BLOCK):
        block = signed[start : start + BLOCK]
        S = np.zeros((len(T), len(block)))
        for j, (c, signs) in enumerate(block):
            S[list(c), j] = signs
        values = A[:, ids] @ S[ids]
        values, turned = np.where(values.max(0) < 0, -values, values), values.max(0) < 0
        yield Arguments(values, lambda j, b=block, t=turned: _sum(T, *b[j], bool(t[j])), factors=start == 0)


def _sum(T: Sequence[ex.Tree], chosen: Sequence[int], signs: Sequence[int], turned: bool) -> ex.Tree:
    return ex.add(*[T[i] if (s > 0) != turned else ex.mul(MINUS, T[i]) for i, s in zip(chosen, signs)])


def scaled(P: np.ndarray, most: int) -> Iterator[Arguments]:
    """c u for waves: one term, or c x_i + d x_j; the grid is as fine as the phase needs."""
    k = P.shape[1]
    for t in terms(P):
        with np.errstate(all="ignore"):
            v = ex.column(t, P)
        if np.isfinite(v).all():
            c = _grid(v, 600)
            yield Arguments(v[:, None] * c, lambda j, t=t, c=c: ex.mul(ex.const(c[j]), t), True, True)
    pairs = list(combinations(range(k), 2))
    each = int(np.sqrt(most / max(2 * len(pairs), 1)))
    for i, j in pairs:
        c, d = (_grid(P[:, q], each) for q in (i, j))
        both = np.array([(a, b) for a in c for b in np.concatenate([d, -d])])
        yield Arguments(P[:, [i, j]] @ both.T, lambda q, b=both, i=i, j=j: _plane(b[q], i, j), True, k <= 5)


def _plane(c: np.ndarray, i: int, j: int) -> ex.Tree:
    return ex.add(ex.mul(ex.const(c[0]), ex.var(i)), ex.mul(ex.const(c[1]), ex.var(j)))


def _grid(v: np.ndarray, most: int) -> np.ndarray:
    """Factors at which the phase of a wave changes by at most about one radian from one to the next."""
    step = 2.0 / (np.abs(v - np.median(v)).max() + 1e-300)
    return step * np.arange(1, 1 + int(np.clip(7.0 / step, 8, most)))


def shifted(P: np.ndarray) -> Iterator[Arguments]:
    """u + c, for functions that are smooth in c."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    out = V + [ex.mul(MINUS, x) for x in V]
    for i, j in combinations(range(k), 2):
        out += [ex.add(V[i], V[j]), ex.add(V[i], ex.mul(MINUS, V[j])), ex.add(V[j], ex.mul(MINUS, V[i]))]
        out += [ex.mul(V[i], V[j]), ex.mul(MINUS, V[i], V[j])]
    out += [ex.power(x, 2) for x in V]
    values, trees = [], []
    for t in out:
        v = ex.column(t, P)
        low, spread = v.min(), v.std()
        for s in (0.01, 0.1, 0.5, 2.0):
            values.append(v - low + s * spread)
            trees.append(ex.add(t, ex.const(s * spread - low)))
    yield Arguments(np.stack(values, 1), lambda j: trees[j], free=True, factors=True)


@dataclass(frozen=True)
class Problem:
    """Targets beside a base: Q spans the base, T are the targets outside it, of unit length."""

    view: View
    base: wide.Design
    Q: np.ndarray
    T: np.ndarray
    recipes: list[wide.Recipe]

    @classmethod
    def of(cls, view: View, allowed: frozenset[str] | None, rows: int) -> "Problem | None":
        """None where the rows are too few for the base, or all targets lie in it."""
        n = min(rows, len(view.t))
        base = wide.rich(view.P[:rows], int(0.4 * n), allowed)
        return None if base is None or n < 60 else cls.beside(view, base, recipes(view), rows, TARGETS)

    @classmethod
    def beside(
        cls, view: View, base: wide.Design, made: Sequence[wide.Recipe], rows: int, most: int
    ) -> "Problem | None":
        """At most so many targets that do not lie in the base; None if all do."""
        targets = wide.Targets.of(view, made, rows)
        Q = np.linalg.qr(base.A / np.linalg.norm(base.A, axis=0))[0]
        T = targets.T - Q @ (Q.T @ targets.T)
        norms = np.linalg.norm(T, axis=0)
        kept = np.where(norms > 1e-6 * np.linalg.norm(targets.T, axis=0))[0][:most]
        found = cls(view, base, Q, T[:, kept] / norms[kept], [targets.recipes[i] for i in kept])
        return found if len(kept) else None

    def outside(self, F: np.ndarray) -> np.ndarray:
        return F - self.Q @ (self.Q.T @ F)

    def rest(self, columns: np.ndarray, target: int) -> float:
        """What the columns leave of a target, as a fraction of its square."""
        F = self.outside(columns)
        F = F / (np.linalg.norm(columns, axis=0) + 1e-300)
        q = np.linalg.qr(F)[0]
        r = self.T[:, target] - q @ (q.T @ self.T[:, target])
        return float(r @ r)


def recipes(view: View) -> list[wide.Recipe]:
    """Outer functions; a factor; one term of coefficient one under an outer function."""
    V, k = view.variables, view.k
    factors = V + [ex.power(x, -1) for x in V]
    terms = V + ([ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)] + [ex.power(x, 2) for x in V])
    signed = [t for m in terms for t in (m, ex.mul(MINUS, m))]
    out = [wide.Recipe(None, None, name) for name in ("id", "sq", "log", "inv", "exp", "fourth")]
    out += [wide.Recipe(None, m, "id") for m in factors]
    out += [wide.Recipe(s, None, name) for s in signed[: 2 * k] for name in ("sq", "fourth", "exp")]
    out += [wide.Recipe(None, m, name) for m in factors for name in ("sq", "log")]
    out += [wide.Recipe(None, None, name, m) for name in ("sq", "exp") for m in factors]
    out += [wide.Recipe(s, None, name) for s in signed[2 * k :] for name in ("sq", "exp")]
    out += [wide.Recipe(s, m, name) for s in signed[: 2 * k] for m in factors for name in ("inv", "sq")]
    return out


def inner_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 400) -> Iterator[ex.Tree]:
    """Formulas with one function of a sum of terms, or of such a sum and a constant; exact to the last digits."""
    problem = Problem.of(view, allowed, rows)
    if problem is not None:
        for arguments, name in product((*sums(view.P[:rows], ARGUMENTS), *shifted(view.P[:rows])), names(allowed)):
            yield from _searched(problem, arguments, name, clock, rows)


def dearer_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 400) -> Iterator[ex.Tree]:
    """The same for functions times polynomials of degree one, and for waves with constants inside."""
    problem = Problem.of(view, allowed, rows)
    if problem is None:
        return
    for arguments, name in product(sums(view.P[:rows], TIMES_LINES), names(allowed)):
        yield from _times_lines(problem, arguments, name, clock, rows)
    for arguments in scaled(view.P[:rows], ARGUMENTS) if WAVES in names(allowed) else ():
        yield from _searched(problem, arguments, WAVES, clock, rows)


def names(allowed: frozenset[str] | None) -> list[str]:
    return [name for name in FUNCTIONS if allowed is None or _needs(name) <= allowed]


def _needs(name: str) -> set[str]:
    return set().union(*map(ex.functions, FUNCTIONS[name][1](ex.var(0))))


def _searched(problem: Problem, u: Arguments, name: str, clock: Clock, rows: int) -> Iterator[ex.Tree]:
    for factor in (ex.ONE, *problem.view.variables) if u.factors else (ex.ONE,):
        yield from hits(problem, u, name, factor, clock, rows)


def _times_lines(problem: Problem, u: Arguments, name: str, clock: Clock, rows: int) -> Iterator[ex.Tree]:
    """A function times a polynomial of degree one."""
    evaluate, make = FUNCTIONS[name]
    P = problem.view.P[:rows]
    lines, trees = np.concatenate([np.ones((len(P), 1)), P], 1), [ex.ONE, *problem.view.variables]
    ids = _domain(u.values, name)
    for start in range(0, len(ids), 50):
        some = ids[start : start + 50]
        with np.errstate(all="ignore"):
            columns = [c[:, :, None] * lines[:, None, :] for c in evaluate(u.values[:, some])]
        F = np.concatenate(columns, 2)  # (n, b, q)
        clock.spend(F.size * (2e-9 * F.shape[2] + 8e-11 * (problem.Q.shape[1] + problem.T.shape[1])))
        for j, target in _best(_unexplained_by_many(problem, F), LIKELY):
            features = [f if ex.is_one(m) else ex.mul(m, f) for f in make(u.tree(int(some[j]))) for m in trees]
            yield from _formula(problem, features, target, rows)


def _unexplained_by_many(problem: Problem, F: np.ndarray) -> np.ndarray:
    """(b, targets): what the columns F: (n, b, q) of each argument leave of each target, in single precision."""
    n, b, q = F.shape
    Q, T = problem.Q.astype(np.float32), problem.T.astype(np.float32)
    F = (F / (np.linalg.norm(F, axis=0) + 1e-300)).reshape(n, b * q).astype(np.float32)
    F -= Q @ (Q.T @ F)
    basis = np.linalg.qr(F.reshape(n, b, q).transpose(1, 0, 2))[0]
    return 1 - np.sum((basis.transpose(0, 2, 1) @ T) ** 2, 1)


def _formula(problem: Problem, features: Sequence[ex.Tree], target: int, rows: int) -> Iterator[ex.Tree]:
    """The sum of few columns of the base and the features, if it is exact."""
    P = problem.view.P[:rows]
    with np.errstate(all="ignore"):
        F = np.stack([ex.column(f, P) for f in features], 1)
    outer = wide.made_by(problem.view, problem.recipes[target])
    if outer is None or problem.rest(F, target) > SURE:
        return
    A = np.concatenate([problem.base.A, F], 1)
    formula = sparse.emit(outer, A, [*problem.base.trees, *features], rows)
    if formula is not None:
        yield formula


def hits(problem: Problem, u: Arguments, name: str, factor: ex.Tree, clock: Clock, rows: int) -> Iterator[ex.Tree]:
    """Arguments of one block that explain a target under one function, times a factor."""
    evaluate, make = FUNCTIONS[name]
    ids = _domain(u.values, name)
    if not len(ids):
        return
    with np.errstate(all="ignore"):
        columns = [c * ex.column(factor, problem.view.P[:rows])[:, None] for c in evaluate(u.values[:, ids])]
    clock.spend(len(columns) * columns[0].size * (1.2e-8 + 1.2e-10 * (problem.Q.shape[1] + problem.T.shape[1])))
    left = _unexplained(problem, columns)
    for j, target in _best(left, NEAR if u.free else LIKELY):
        features: tuple[ex.Tree, ...] | None = make(u.tree(int(ids[j])))
        features = features if ex.is_one(factor) else tuple(ex.mul(factor, f) for f in features)
        if u.free:
            features = _refined(problem, features, target)
        if features is not None:
            yield from _formula(problem, features, target, rows)


def _domain(v: np.ndarray, name: str) -> np.ndarray:
    """Arguments on all of whose values the function is finite and not beyond what single precision holds."""
    low, high = v.min(0), v.max(0)
    most = np.maximum(np.abs(low), np.abs(high))
    if name == WAVES:
        ok = most < 1e5
    elif name.startswith("exp"):
        ok = most < 40
    elif name == "tanh":
        ok = most < 1e3
    elif name == "log abs":
        ok = (low < 0) & (high > 0) & (np.abs(v).min(0) > 1e-12 * most)
    elif name == "inverse":
        ok = (np.abs(v).min(0) > 1e-9 * most) & ((low > 0) | (high < 0) | (most < 1e6))
    else:
        ok = (low > 0) & (most < 1e12)
    return np.where(ok & (high - low > 1e-9 * most))[0]


def _unexplained(problem: Problem, columns: list[np.ndarray]) -> np.ndarray:
    """(b, targets): what one or two columns of each argument leave of each target, in single precision."""
    Q, T = problem.Q.astype(np.float32), problem.T.astype(np.float32)
    F = []
    for c in columns:
        f = (c / (np.linalg.norm(c, axis=0) + 1e-300)).astype(np.float32)
        f -= Q @ (Q.T @ f)
        F.append(f)
    norms = [np.einsum("nb,nb->b", f, f) for f in F]
    C = [f.T @ T for f in F]
    small = norms[0] < 1e-8
    if len(F) == 1:
        got = C[0] ** 2 / np.maximum(norms[0], 1e-8)[:, None]
    else:
        cross = np.einsum("nb,nb->b", F[0], F[1])
        det = norms[0] * norms[1] - cross**2
        small |= det < 1e-6 * norms[0] * norms[1]
        got = norms[1][:, None] * C[0] ** 2 + norms[0][:, None] * C[1] ** 2 - 2 * cross[:, None] * C[0] * C[1]
        got /= np.maximum(det, 1e-30)[:, None]
    got[small] = 0.0
    return 1 - got


def _best(left: np.ndarray, most: float, top: int = 2) -> list[tuple[int, int]]:
    """The best arguments of each target that leave less than ``most``, best first: (argument, target)."""
    found = []
    for target in np.where(left.min(0) < most)[0]:
        for j in np.argsort(left[:, target])[:top]:
            if left[j, target] < most:
                found.append((float(left[j, target]), int(j), int(target)))
    return [(j, target) for _, j, target in sorted(found)[:12]]


def _refined(
    problem: Problem, features: tuple[ex.Tree, ...], target: int, steps: int = 25
) -> tuple[ex.Tree, ...] | None:
    """The constants inside the features, equal in all of them, by Gauss–Newton on the projected problem."""
    P, t = problem.view.P[: len(problem.Q)], problem.T[:, target]
    c = np.array(ex.constants(features[0]))

    def state(c: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        with np.errstate(all="ignore"):
            parts = [ex.derivatives(f, P, c) for f in features]
        F = problem.outside(np.stack([np.broadcast_to(v, t.shape) for v, _ in parts], 1))
        if not np.isfinite(F).all():
            return np.inf, t, F
        q = np.linalg.qr(F)[0]
        r = t - q @ (q.T @ t)
        a = np.linalg.lstsq(F, t, rcond=1e-10)[0]
        J = np.stack([sum(w * d[i] for w, (_, d) in zip(a, parts)) for i in range(len(c))], 1)
        J = problem.outside(J)
        return float(r @ r), r, J - q @ (q.T @ J)

    loss, r, J = state(c)
    start = loss
    for step in range(steps):
        if not np.isfinite(J).all():
            return None
        move, reach = np.linalg.lstsq(J, r, rcond=1e-12)[0], 1.0
        while reach > 0.02:
            trial = state(c + reach * move)
            if trial[0] < loss:
                break
            reach /= 3
        else:
            break
        gain = trial[0] / loss
        c, (loss, r, J) = c + reach * move, trial
        if loss < 1e-26 or gain > 0.999 or (step == 5 and loss > 0.6 * start):
            break
    return tuple(ex.with_constants(f, c) for f in features) if loss < SURE else None
