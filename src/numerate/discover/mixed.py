"""Functions of sums once more, with the time that is left: a larger base, more arguments, more factors.

The base holds functions of each input times and over each input. Arguments are also products, products times an
exponential, and a + c b with a free ratio c. Where a root or logarithm needs a + c b > 0, the rows themselves bound c:
data that a formula has made do not hold rows on which it is not real.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import inner, sparse, wide
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock, linear_work
from numerate.discover.inner import Arguments, Problem
from numerate.discover.spans import Design
from numerate.discover.sparse import laurent_exponents
from numerate.discover.view import View

HALF = Fraction(1, 2)
MINUS = ex.fixed(-1.0)
ROWS, SHARE = 800, 0.45  # rows that are fitted, columns of the base for each
SUMS, PRODUCTS, BLOCK = 2400, 2400, 600
TARGETS = 300
BOUNDED = ("sqrt", "log", "inverse", "inverse root")  # functions of a + c b > 0
OF_PRODUCTS = (inner.WAVES, "exp", "exp minus", "tanh")


def mixed(P: np.ndarray, most: int, allowed: frozenset[str] | None) -> Design:
    """A polynomial, quotients, functions of each input, these times and over each input; as many as have room."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    over = [ex.power(x, -1) for x in V]
    trees = [ex.ONE] + [ex.monomial(V, e) for e in poly.exponents(k, {1: 6, 2: 5, 3: 3, 4: 3}.get(k, 2))]
    trees += over + [ex.mul(V[i], over[j]) for i, j in permutations(range(k), 2)]
    sets = [s for s in functions(P) if allowed is None or set().union(*map(ex.functions, s)) <= allowed]
    groups = [[f for s in sets for f in s]]
    groups += [[ex.mul(x, f) for f in s for x in V] for s in sets]
    groups += [[ex.mul(x, f) for f in s for x in over] for s in sets]
    groups.append([ex.monomial(V, e) for e in poly.exponents(k, 3)[len(poly.exponents(k, 2)) :]] if k > 4 else [])
    groups.append([ex.monomial(V, e) for e in laurent_exponents(k, 3, (-2, -1, 1, 2)) if min(e) < 0 and _new(e)])
    groups += [[ex.mul(f, g) for f, g in product(a, b) if _input(f) != _input(g)] for a, b in combinations(sets, 2)]
    for group in groups:
        if len(trees) + len(group) <= most:
            trees += group
    return wide.finite_columns("mixed", P, trees)


def _new(e: Sequence[int]) -> bool:
    """Whether a monomial is neither 1/x nor x/z."""
    return sorted(q for q in e if q) not in ([-1], [-1, 1])


def _input(f: ex.Tree) -> ex.Tree:
    """The input that a function of one input is taken of."""
    return f if f[0] == "x" else next(_input(part) for part in reversed(f) if isinstance(part, tuple))


def functions(P: np.ndarray) -> list[list[ex.Tree]]:
    """Functions of one input, of all inputs at once."""
    V = [ex.var(i) for i in range(P.shape[1])]
    positive = [x for x, p in zip(V, np.asarray((P > 0).all(0))) if p]
    small = [x for x, p in zip(V, np.abs(P).max(0) < 30) if p]
    sets = [[("sqrt", x) for x in positive], [(name, x) for x in V for name in ("sin", "cos")]]
    sets += [[("log", x if x in positive else ("abs", x)) for x in V], [("exp", x) for x in small]]
    sets += [[ex.power(x, Fraction(3, 2)) for x in positive], [ex.power(x, -HALF) for x in positive]]
    sets += [[("exp", ex.mul(MINUS, x)) for x in small]]
    return [s for s in sets if s]


def recipes(view: View) -> list[wide.Recipe]:
    """Those of functions of sums; under a square also with a product taken off and a factor divided out after."""
    V, k = view.variables, view.k
    pairs = [ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)]
    signed = [t for m in pairs + V for t in (m, ex.mul(MINUS, m))]
    out = inner.recipes(view)[: TARGETS // 2]
    two = [(i, j) for i, j in combinations(range(2 * k), 2) if i // 2 != j // 2]
    lines = [t for x in V for t in (x, ex.mul(MINUS, x))]
    out += [wide.Recipe(ex.add(lines[i], lines[j]), None, name) for i, j in two for name in ("sq", "exp")][
        : TARGETS // 4
    ]
    return out + [wide.Recipe(s, None, "sq", m) for m in V for s in signed]


def products(P: np.ndarray, most: int) -> Iterator[Arguments]:
    """Monomials, and these times an exponential."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    exps = [e for e in laurent_exponents(k, 4 if k < 5 else 3, (-2, -1, 1, 2)) if sum(q != 0 for q in e) > 1]
    plain = [ex.monomial(V, e) for e in exps]
    waves = [("exp", x) for x in V] + [("exp", ex.mul(MINUS, x)) for x in V]
    trees = sorted(plain + [ex.mul(m, f) for m in V + plain for f in waves], key=ex.size)[:most]
    yield from _blocks(P, trees)


def _blocks(P: np.ndarray, trees: Sequence[ex.Tree]) -> Iterator[Arguments]:
    for start in range(0, len(trees), BLOCK):
        block = trees[start : start + BLOCK]
        with np.errstate(all="ignore"):
            A = np.stack([ex.column(t, P) for t in block], 1)
        good = np.where(np.isfinite(A).all(0))[0]
        yield Arguments(A[:, good], lambda j, b=block, g=good: b[int(g[j])])


def ratios(P: np.ndarray) -> Iterator[Arguments]:
    """a + c b > 0 for terms a, b of the inputs, and b = 1 beside a sum of up to three inputs; c within its bounds."""
    k = P.shape[1]
    V = [ex.var(i) for i in range(k)]
    terms = V + [ex.power(x, -1) for x in V] + [ex.power(x, 2) for x in V]
    terms += [("sqrt", x) for x, p in zip(V, np.asarray((P > 0).all(0))) if p]
    terms += [ex.mul(a, b) for a, b in combinations(V, 2)] if k <= 5 else []
    pairs = list(permutations(terms, 2))
    sums = [ex.add(a, *rest) for n in (1, 2) for a, *rest in _signed(V, n + 1)]
    pairs += [(t, ex.ONE) for t in terms + sums]
    values: dict[ex.Tree, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for t in {t for pair in pairs for t in pair}:
            values[t] = np.broadcast_to(ex.column(t, P), len(P))
    columns, trees = [], []
    for (a, b), sign in product(pairs, (1, -1)):
        u, v = sign * values[a], values[b]
        first = a if sign > 0 else ex.mul(MINUS, a)
        for c in within(u, v):
            columns.append(u + c * v)
            trees.append(ex.add(first, ex.const(c) if ex.is_one(b) else ex.mul(ex.const(c), b)))
    for start in range(0, len(trees), BLOCK):
        block = trees[start : start + BLOCK]
        yield Arguments(np.stack(columns[start : start + BLOCK], 1), lambda j, b=block: b[j], free=True)


def _signed(V: Sequence[ex.Tree], n: int) -> Iterator[tuple[ex.Tree, ...]]:
    for chosen in combinations(V, n):
        for signs in product((1, -1), repeat=n - 1):
            yield (chosen[0], *[x if s > 0 else ex.mul(MINUS, x) for x, s in zip(chosen[1:], signs)])


def within(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Some values of c between the bounds that u + c v > 0 puts on it; none where there is no such c."""
    if not (np.isfinite(u).all() and np.isfinite(v).all()):
        return np.zeros(0)
    up, down = v > 0, v < 0
    with np.errstate(all="ignore"):
        low = np.max(-u[up] / v[up]) if up.any() else -np.inf
        high = np.min(-u[down] / v[down]) if down.any() else np.inf
        unit = np.std(u) / np.sqrt(np.mean(v**2))
    if not low < high or not np.isfinite(unit) or (u[v == 0] <= 0).any():
        return np.zeros(0)
    if np.isfinite(low) and np.isfinite(high):
        c = low + (high - low) * np.array([0.02, 0.2, 0.5, 0.8, 0.98])
    else:
        steps = unit * np.array([0.02, 0.2, 1.0, 5.0])
        c = low + steps if np.isfinite(low) else high - steps
    return c[(c != 0) & np.isfinite(c)]


def factors(view: View) -> list[ex.Tree]:
    """One, the inputs, their magnitudes where they have both signs."""
    signed = [x for x, low, high in zip(view.variables, view.P.min(0), view.P.max(0)) if low < 0 < high]
    return [ex.ONE, *view.variables, *[("abs", x) for x in signed]]


def mixed_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = ROWS) -> Iterator[ex.Tree]:
    """Formulas that are exact: a span of the larger base, or beside it one function of one argument."""
    n = min(rows, len(view.t))
    if n < 100:
        return
    P = view.P[:rows]
    base = mixed(P, int(SHARE * n), allowed)
    if base.A.shape[1] > 0.5 * n:  # many inputs: anything would lie in their quotients and squares
        return
    clock.spend(3 * linear_work(n, base.A.shape[1]))
    made = wide.recipes(view)
    clock.spend(5e-5 * len(made) + 1e-10 * n * base.A.shape[1] * len(made))
    for exact in wide.Targets.of(view, made, rows).inside(base):
        tree = sparse.emit(exact, base.A, base.trees, rows)
        if tree is not None:
            yield tree
    problem = Problem.beside(view, base, recipes(view), rows, TARGETS)
    if problem is None:
        return
    names = inner.names(allowed)
    first = next(inner.sums(P, BLOCK))
    for arguments, name in product(inner.sums(P, SUMS), names):
        yield from inner.hits(problem, arguments, name, ex.ONE, clock, rows)
    for arguments, name in product(ratios(P), [name for name in BOUNDED if name in names]):
        yield from inner.hits(problem, arguments, name, ex.ONE, clock, rows)
    for arguments, name in product(products(P, PRODUCTS), [name for name in OF_PRODUCTS if name in names]):
        yield from inner.hits(problem, arguments, name, ex.ONE, clock, rows)
    for factor, name in product(factors(view)[1:], names):
        yield from inner.hits(problem, first, name, factor, clock, rows)
