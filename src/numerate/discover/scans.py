"""One constant inside: g(t) from columns that hold x_i + c, exp(c x_i), x_i^c, f(c x_i), 1 + c x_i² or log(x_i)^c.

All other constants are linear. For each c of a grid, fitted to the range of x_i, one factorisation says what is left of
every target; the best are refined by Gauss-Newton on the projected problem. The columns are summed, or appear above and
below a fraction. Only what fits to the last digits counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import rational, sparse
from numerate.discover.clock import Clock
from numerate.discover.polynomials import exponents
from numerate.discover.view import View

NARROW = 6  # columns beside the constant up to which a refinement costs next to nothing
SURE = 1e-9  # what may be left of a target, relative to its spread
OUTERS = ("id", "log", "inv", "sq", "exp", "rest", "more", "logit", "bose", "invsq", "sqrt")
QUOTIENT_OUTERS = ("id", "log", "sq")
MINUS = ex.fixed(-1.0)

Make = Callable[[float], list[ex.Tree]]  # the functions of x_i that one constant gives


@dataclass(frozen=True)
class Family:
    """Functions of one input with one constant, and the constants to start from."""

    name: str
    grid: np.ndarray
    make: Make


def families(x: np.ndarray, tree: ex.Tree, allowed: frozenset[str] | None) -> Iterator[Family]:
    """Families whose functions are defined on the values x of the input ``tree``."""
    low, high = float(x.min()), float(x.max())
    span = high - low
    ok = lambda *names: allowed is None or set(names) <= allowed  # noqa: E731
    near = _distances(low, span)
    for sign, grid in ((1.0, near - low), (-1.0, near + high)):
        u = tree if sign > 0 else ex.mul(MINUS, tree)
        shifted = lambda c, u=u: ex.add(u, ex.const(c))  # noqa: E731
        if ok("log"):
            yield Family("log", grid, lambda c, s=shifted: [("log", s(c))])
        yield Family("pole", grid, lambda c, s=shifted: [ex.power(s(c), -1)])
        if ok("sqrt"):
            yield Family("root", grid, lambda c, s=shifted: [("sqrt", s(c))])
        if ok("log"):
            yield Family("log and pole", grid, lambda c, s=shifted: [("log", s(c)), ex.power(s(c), -1)])
    if ok("exp"):
        rate = lambda c: ("exp", ex.mul(ex.const(c), tree))  # noqa: E731
        rates = np.geomspace(0.15, 40.0, 30) / span
        yield Family("exp", np.concatenate([rates, -rates]), lambda c: [rate(c)])
        yield Family("two exp", rates, lambda c: [rate(c), rate(-c)])
    if ok("sin", "cos"):
        wave = lambda c: ex.mul(ex.const(c), tree)  # noqa: E731
        yield Family("wave", np.arange(1.0, 40.0, 1.3) / span, lambda c: [("sin", wave(c)), ("cos", wave(c))])
    if low > 0:
        p = np.concatenate([np.arange(-4.05, 0, 0.23), np.arange(0.11, 5.2, 0.23)])
        yield Family("power", p, lambda c: [("power", tree, ex.const(c))])
        if ok("exp") and high > 1.5 * low:
            rates = np.geomspace(0.2, 40.0, 24) / (1 / low - 1 / high)
            inverse = lambda c: ("exp", ex.mul(ex.const(c), ex.power(tree, -1)))  # noqa: E731
            yield Family("exp inverse", np.concatenate([rates, -rates]), lambda c: [inverse(c)])
    yield from _scaled(x, tree, ok)
    if low > 1 and ok("log"):
        yield Family("log power", np.arange(-2.1, 3.2, 0.25), lambda c: [("power", ("log", tree), ex.const(c))])


def _distances(low: float, span: float) -> np.ndarray:
    """Of a pole from the range; nearer where the range is many times its lower end."""
    nearest = min(0.01, max(0.3 * low / span, 1e-5)) if low > 0 else 0.01
    return span * np.geomspace(nearest, 30.0, round(26 + 3.25 * np.log(0.01 / nearest)))


def _scaled(x: np.ndarray, tree: ex.Tree, ok: Callable[..., bool]) -> Iterator[Family]:
    """Functions of c x, and of 1 + c x²."""
    far = float(np.abs(x).max())
    times = lambda name: lambda c: [(name, ex.mul(ex.const(c), tree))]  # noqa: E731
    for name, most in (("tanh", 12.0), ("atan", 30.0), ("asin", 0.99), ("tan", 0.98 * np.pi / 2)):
        if ok(name):
            yield Family(name, np.geomspace(0.05, 1.0, 26) * most / far, times(name))
    grid = np.geomspace(0.05 / far**2, 50 / np.maximum(np.abs(x).min(), 0.05 * far) ** 2, 26)
    square = lambda c: ex.add(ex.ONE, ex.mul(ex.const(c), ex.power(tree, 2)))  # noqa: E731
    if ok("log"):
        yield Family("log of square", grid, lambda c: [("log", square(c))])
    if ok("sqrt"):
        yield Family("root of square", grid, lambda c: [("sqrt", square(c))])


def scan(
    columns: Callable[[float], np.ndarray | None], grid: np.ndarray, base: np.ndarray, T: np.ndarray, sure: float = SURE
):
    """Constants with which the columns, beside the base, hold a target to the last digits.

    Args:
        columns: from a constant to (n, p), or None where it is not allowed.
        base: (n, b) columns without the constant. T: (n, m) targets.
        sure: what may be left of a target, relative to its spread.

    Yields:
        (number of the target, constant), best first.
    """
    Q = np.linalg.qr(base / (np.linalg.norm(base, axis=0) + 1e-300))[0]
    outside = lambda A: A - Q @ (Q.T @ A)  # noqa: E731
    spread = np.std(T, 0) * np.sqrt(len(T)) + 1e-300
    rest = outside(T)
    before = np.linalg.norm(rest, axis=0) / spread
    ids = np.where(before > 1e-7)[0]  # the others need no function
    t = rest[:, ids] / (np.linalg.norm(rest[:, ids], axis=0) + 1e-300)
    sizes = np.full((len(grid), len(ids)), np.inf)
    for row, c in enumerate(grid):
        A = columns(float(c)) if len(ids) else None
        if A is not None:
            q = np.linalg.qr(outside(A))[0]
            sizes[row] = np.sqrt(np.maximum(1 - np.sum((q.T @ t) ** 2, 0), 0))
    for i, c in _lowest(sizes, grid, base.shape[1] <= NARROW):
        c, left = _refined(columns, outside, t[:, i], c)
        if left * before[ids[i]] < sure and _inside(c, grid):
            yield int(ids[i]), c


def _inside(c: float, grid: np.ndarray) -> bool:
    """Far below the grid the functions are polynomials, far above it they are steps."""
    sizes = np.abs(grid)
    return bool(grid.min() - 0.5 * np.ptp(grid) < c < grid.max() + 0.5 * np.ptp(grid) and abs(c) > 0.5 * sizes.min())


def _lowest(sizes: np.ndarray, grid: np.ndarray, narrow: bool, most: int = 4) -> list[tuple[int, float]]:
    """Local minima along the grid, lowest first: (target, constant); with few columns the first of every target."""
    padded = np.pad(sizes, ((1, 1), (0, 0)), constant_values=np.inf)
    low = (sizes <= padded[:-2]) & (sizes <= padded[2:]) & (sizes < 0.35)
    found = sorted((float(sizes[r, i]), int(i), float(grid[r])) for r, i in np.argwhere(low))
    firsts = {i: (left, i, c) for left, i, c in reversed(found)} if narrow else {}  # an approximant may come before
    return [(i, c) for _, i, c in sorted({*found[:most], *firsts.values()})]


def _refined(columns, outside, t: np.ndarray, c: float, steps: int = 12) -> tuple[float, float]:
    """Gauss-Newton on the constant, the coefficients eliminated: (constant, what is left of t)."""

    def state(c: float):
        A = columns(c)
        if A is None:
            return None
        q, R = np.linalg.qr(outside(A))
        r = t - q @ (q.T @ t)
        return r, q, np.linalg.lstsq(R, q.T @ t, rcond=1e-13)[0]

    now = state(c)
    if now is None:
        return c, np.inf
    size = float(np.linalg.norm(now[0]))
    for step in range(steps):
        r, q, b = now
        h = 1e-5 * abs(c)
        above, below = columns(c + h), columns(c - h)
        if above is None or below is None:
            break
        J = outside(((above - below) / (2 * h)) @ b)
        J = J - q @ (q.T @ J)
        move, trial, tried = float(J @ r / (J @ J + 1e-300)), None, np.inf
        for reach in (1.0, 0.3, 0.05):
            trial = state(c + reach * move)
            tried = np.inf if trial is None else float(np.linalg.norm(trial[0]))
            if tried < size:
                break
        if trial is None or tried >= size or (step == 4 and tried > 0.02):
            break
        c, now, gain, size = c + reach * move, trial, tried / size, tried
        if size < 1e-14 or gain > 0.99:
            break
    return c, size


@dataclass(frozen=True)
class Beside:
    """What is tried with the functions of input i: base columns, and what multiplies the functions."""

    base: list[ex.Tree]
    factors: list[ex.Tree]


def surroundings(view: View, i: int) -> Iterator[Beside]:
    """Columns beside the constant.

    For one input: a constant; a line with a logarithm or an inverse; these times the input. For more: a quadratic and
    logarithms.
    """
    V, pos = view.variables, view.positive
    logs = [("log", x) for x, p in zip(V, pos) if p]
    if view.k == 1:
        yield Beside([ex.ONE], [ex.ONE])
        yield Beside([ex.ONE, V[0], *logs], [ex.ONE])
        if pos[0]:
            yield Beside([ex.ONE, V[0], ex.power(V[0], -1)], [ex.ONE])
        more = [*logs, *[ex.mul(V[0], log) for log in logs]] if pos[0] else [ex.power(V[0], 2)]
        yield Beside([ex.ONE, V[0], *more], [ex.ONE, V[0]])
        return
    others = [x for j, x in enumerate(V) if j != i]
    exps = exponents(view.k, 2 if view.k <= 5 else 1)
    yield Beside([ex.ONE, *[ex.monomial(V, e) for e in exps], *logs], [ex.ONE, *others])
    if view.k <= 3:
        pairs = [ex.monomial(others, e) for e in exponents(view.k - 1, 2)]
        inverse = [ex.power(x, -1) for j, x in enumerate(V) if j != i and pos[j]]
        monomials = [ex.monomial(V, e) for e in exponents(view.k, 3)]
        yield Beside([ex.ONE, *monomials, *logs, *inverse], [ex.ONE, *pairs, *inverse])


def scan_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 250) -> Iterator[ex.Tree]:
    """Formulas with one constant inside, as sums under an outer function, then as quotients."""
    head = view.head(rows)
    outers = [(name, o) for name in OUTERS if (o := view.outer(name)) is not None]
    for quotient in (False, True):
        for i in range(view.k):
            for family in families(head.P[:, i], view.variables[i], allowed):
                if quotient:
                    yield from _quotients(view, head, i, family, clock)
                else:
                    yield from _sums(view, head, i, family, [o for _, o in outers], clock)


def _sure(view: View) -> float:
    return max(SURE, 3 * view.noise / view.scale)


def _matrix(trees: list[ex.Tree], P: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.stack([ex.column(t, P) for t in trees], 1)


def _times(functions: list[ex.Tree], factors: list[ex.Tree]) -> list[ex.Tree]:
    return [f if ex.is_one(m) else ex.mul(m, f) for f in functions for m in factors]


def _products(F: np.ndarray, M: np.ndarray) -> np.ndarray | None:
    """All products of a column of F and one of M; None where one is not finite or too large."""
    A = (F[:, :, None] * M[:, None, :]).reshape(len(F), -1)
    return A if np.isfinite(A).all() and np.abs(A).max() < 1e100 else None


def _work(n: int, columns: int, grid: int) -> float:
    return (grid + 40) * (5e-5 + 2.5e-10 * n * columns**2)


def _sums(view: View, head: View, i: int, family: Family, outers: list[View], clock: Clock) -> Iterator[ex.Tree]:
    n = len(head.t)
    T = np.stack([o.t[:n] for o in outers], 1)
    for beside in surroundings(head, i):
        base, M = _matrix(beside.base, head.P), _matrix(beside.factors, head.P)
        width = base.shape[1] + len(family.make(float(family.grid[0]))) * M.shape[1]
        if width > 0.4 * n or not np.isfinite(base).all():
            continue
        clock.spend(_work(n, width, len(family.grid)))
        columns = lambda c, M=M: _products(_matrix(family.make(c), head.P), M)  # noqa: E731
        for t, c in scan(columns, family.grid, base, T, _sure(view)):
            trees = [*beside.base, *_times(family.make(c), beside.factors)]
            tree = sparse.emit(outers[t], _matrix(trees, head.P), trees, n)
            if tree is not None:
                yield tree


def _quotients(view: View, head: View, i: int, family: Family, clock: Clock) -> Iterator[ex.Tree]:
    """t (1 + sum b) = sum a over the inputs and the functions."""
    n = len(head.t)
    plain = [ex.ONE, *head.variables]
    for name in QUOTIENT_OUTERS:
        outer = view.outer(name)
        if outer is None:
            continue
        t = outer.t[:n]
        P1 = _matrix(plain, head.P)
        base = np.concatenate([P1, t[:, None] * P1[:, 1:]], 1)
        M = np.stack([np.ones(n), t], 1)
        width = base.shape[1] + 2 * len(family.make(float(family.grid[0])))
        if width > 0.4 * n:
            continue
        clock.spend(_work(n, width, len(family.grid)))
        columns = lambda c, M=M: _products(_matrix(family.make(c), head.P), M)  # noqa: E731
        for _, c in scan(columns, family.grid, base, t[:, None], _sure(view)):
            trees = [*plain, *family.make(c)]
            both = rational.Columns(_matrix(trees, head.P), trees)
            tree = rational.quotient(both, both, t)
            if tree is not None:
                yield outer.lift(tree)
