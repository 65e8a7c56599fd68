"""One product of powers: a straight line between logarithms, exponents rounded to fractions."""

from collections.abc import Iterator

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.index import fraction
from numerate.discover.view import View


def monomials(view: View) -> Iterator[ex.Tree]:
    """t = c x^e for positive inputs; rows of the wrong sign (noise) are left out."""
    if not view.positive.all():
        return
    sign = np.sign(np.median(view.t))
    ok = view.t * sign > 0
    if ok.mean() < 0.8:
        return
    size = np.abs(view.t[ok])
    A = np.concatenate([np.ones((ok.sum(), 1)), np.log(view.P[ok])], 1)
    w = np.minimum(size, np.quantile(size, 0.95)) * view.w[ok]  # the relative noise is smaller where t is larger
    c = np.linalg.lstsq(A * w[:, None], np.log(size) * w, rcond=None)[0]
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
