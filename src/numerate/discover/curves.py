"""Curves of one input with constants inside: shifted steps, bells, waves, logarithms, free powers, damped waves."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.refit import refit
from numerate.discover.view import View

X = ex.var(0)


def _line(c: float, d: float) -> ex.Tree:
    return ex.add(ex.mul(ex.const(c), X), ex.const(d))


def _square(tree: ex.Tree) -> ex.Tree:
    return ex.power(tree, 2)


def families(x: np.ndarray) -> Iterator[list[list[ex.Tree]]]:
    """Each family: its starts, each a list of columns to be summed with a constant and a straight line."""
    middle, spread = float(x.mean()), float(x.std()) + 1e-300
    lines = [
        _line(c / spread, -c * (middle + s * spread) / spread) for c, s in product((0.5, 1.0, 2.0), (-1.0, 0.0, 1.0))
    ]
    yield [[("tanh", a)] for a in lines]
    yield [[("exp", ex.mul(ex.fixed(-1.0), _square(a)))] for a in lines]
    yield [[ex.power(ex.add(ex.ONE, _square(a)), -1)] for a in lines]
    rates = [s / spread for s in (0.3, 1.0, 2.0, 3.0)]
    yield [[("sin", _line(w, d))] for w, d in product(rates, (0.0, 1.5))]
    yield [[ex.mul(("exp", ex.mul(ex.const(-w / 3), X)), ("sin", _line(w, d)))] for w, d in product(rates, (0.0, 1.5))]
    yield [[("exp", ex.mul(ex.const(s * w), X))] for w in rates[:3] for s in (-1.0, 1.0)]
    yield [[("exp", ex.mul(ex.const(-w), X)), ("exp", ex.mul(ex.const(-3 * w), X))] for w in rates[:3]]
    low = float(x.min())
    high = float(x.max())
    shift = [_shift(spread * s - low) for s in (0.1, 1.0)] + [_shift(spread * s + high, -1.0) for s in (0.1, 1.0)]
    yield [[("log", a)] for a in shift]
    yield [[("power", a, ex.const(p))] for a, p in product(shift, (-1.0, 0.5, 1.5))]
    if low > 0:
        yield [[("power", X, ex.const(p))] for p in (-1.5, -0.5, 0.5, 1.5, 2.5)]
        yield [[("power", X, ex.const(p)), ("power", X, ex.const(q))] for p, q in ((0.5, 2.0), (-1.0, 1.0), (1.3, 2.6))]
        damped = ("exp", ex.mul(ex.const(-1 / spread), X))
        yield [[ex.mul(("power", X, ex.const(p)), damped)] for p in (-0.5, 0.5, 1.5)]


def _shift(d: float, sign: float = 1.0) -> ex.Tree:
    return ex.add(X if sign > 0 else ex.mul(ex.fixed(-1.0), X), ex.const(d))


def curves(view: View, rows: int = 200) -> Iterator[ex.Tree]:
    """The best fit of each family, with and without a straight line beside it."""
    v = view.head(rows)
    w = np.minimum(v.w, np.quantile(v.w, 0.98))
    for starts in families(v.P[:, 0]):
        for beside in ([ex.ONE], [ex.ONE, X]):
            best = None
            for columns in starts:
                fit = _fitted(v, w, [*beside, *columns])
                if fit is not None and (best is None or fit.error < best.error):
                    best = fit
                if best is not None and best.error < 1e-10:
                    break
            if best is not None:
                yield view.lift(best.tree)


def _fitted(v: View, w: np.ndarray, columns: list[ex.Tree]):
    with np.errstate(all="ignore"):
        A = np.stack([ex.column(c, v.P) for c in columns], 1)
    if not np.isfinite(A).all():
        return None
    c = np.linalg.lstsq(A * w[:, None], v.t * w, rcond=1e-10)[0]
    fit = refit(ex.linear(c, columns), v.P, v.t, w**2, steps=25)
    return fit if np.isfinite(fit.error) else None
