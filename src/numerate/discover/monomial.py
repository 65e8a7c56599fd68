"""One product of powers: a straight line between logarithms, exponents rounded to fractions."""

from collections.abc import Iterator

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.index import fraction
from numerate.discover.refit import refit
from numerate.discover.view import View


def monomials(view: View) -> Iterator[ex.Tree]:
    """t = c x^e for positive inputs; rows of the wrong sign (noise) are left out."""
    if not view.positive.all():
        yield from signed_monomials(view)
        return
    sign = np.sign(np.median(view.t))
    ok = view.t * sign > 0
    if ok.mean() < 0.6:
        return
    size = np.abs(view.t[ok])
    A = np.concatenate([np.ones((ok.sum(), 1)), np.log(view.P[ok])], 1)
    w = np.minimum(size, np.quantile(size, 0.95)) * view.w[ok]  # the relative noise is smaller where t is larger
    c = np.linalg.lstsq(A * w[:, None], np.log(size) * w, rcond=None)[0]
    if not ok.all():  # noise that large bends the logarithms: again without them
        free = ex.mul(
            ex.const(sign * np.exp(c[0])), *[("power", x, ex.const(q)) for x, q in zip(view.variables, c[1:])]
        )
        c = np.array(ex.constants(refit(free, view.P, view.t, view.w**2).tree))
        c[0] = np.log(max(c[0] * sign, 1e-300))
    seen = set()
    for denominators in ((1,), (1, 2), (1, 2, 3)):
        e = tuple(fraction(v, 0.5 / max(denominators), denominators) for v in c[1:])
        if None not in e and e not in seen:
            seen.add(e)
            m = ex.monomial(view.variables, e)
            with np.errstate(all="ignore"):
                v = ex.column(m, view.P) * view.w
            yield view.lift(ex.mul(ex.const(v @ (view.t * view.w) / (v @ v)), m))
    free = [("power", x, ex.const(q)) for x, q in zip(view.variables, c[1:]) if abs(q) > 1e-6]
    if free:
        yield view.lift(ex.mul(ex.const(sign * np.exp(c[0])), *free))


def signed_monomials(view: View) -> Iterator[ex.Tree]:
    """t = c x^e where some inputs have both signs: their exponents are whole, and the signs must agree."""
    if (view.P == 0).any() or (view.t == 0).any():
        return
    A = np.concatenate([np.ones((len(view.t), 1)), np.log(np.abs(view.P))], 1)
    c = np.linalg.lstsq(A, np.log(np.abs(view.t)), rcond=None)[0]
    e = [fraction(v, 0.2, (1, 2, 3) if p else (1,)) for v, p in zip(c[1:], view.positive)]
    if None in e or not any(e):
        return
    m = ex.monomial(view.variables, e)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        v = ex.column(m, view.P)
    if np.isfinite(v).all() and abs(np.mean(np.sign(v * view.t))) > 0.9:
        yield view.lift(ex.mul(ex.const(np.median(view.t / v)), m))
