"""Forms of empirical laws, with power products of any exponents: sums of them, (1 + u)^p, exp u, 1 - exp u, log(1 + u).

A *term* is c x^e with all of c and e free. Each form is fitted from many random starts at once by Levenberg–Marquardt,
on logarithms of the inputs that are centred, so that all constants are of the same size. Exponents that are nothing or
simple fractions are then written so, and the formula is in the inputs themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock, refit_work
from numerate.discover.index import fraction
from numerate.discover.refit import OPTIMISER, compiled, refit
from numerate.discover.tapes import to_tape
from numerate.discover.view import View
from numerate.loops.least_squares import tape as least_squares

STARTS, TOGETHER = 24, 8
EVALUATIONS = 80
CLOSE = 1e-6  # relative error below which a fit is a formula
NOTHING = 1e-4  # exponents below this are zero, and near a fraction are that fraction
MINUS = ex.fixed(-1.0)


class Terms:
    """Draws terms of k inputs with random constants."""

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        self.k, self.rng = k, rng

    def exponents(self) -> list[ex.Tree]:
        e = self.rng.normal(size=self.k) * self.rng.choice([0.3, 1.0])
        return [ex.mul(ex.const(v), ex.var(j)) for j, v in enumerate(e)]

    def any(self, size: float = 1.0) -> ex.Tree:
        """c x^e with c of any sign."""
        c = size * self.rng.choice([-1.0, 1.0]) * self.rng.uniform(0.2, 1.5)
        return ex.mul(ex.const(c), ("exp", ex.add(*self.exponents())))

    def positive(self) -> ex.Tree:
        return ("exp", ex.add(ex.const(self.rng.normal()), *self.exponents()))

    def unit(self) -> ex.Tree:
        """Without a coefficient."""
        return ("exp", ex.add(*self.exponents()))


Form = Callable[[Terms], ex.Tree]


def _sum(number: int) -> Form:
    return lambda terms: ex.add(*[terms.any() for _ in range(number)])


def _binomial(terms: Terms) -> ex.Tree:
    size, p = terms.rng.choice([1.0, 0.2]), terms.rng.choice([-1.0, 0.5, 2.0])  # one plus a negative term: positive
    return ex.mul(terms.any(), ("power", ex.add(ex.ONE, terms.any(size)), ex.const(p)))


def _exponential(terms: Terms) -> ex.Tree:
    return ex.mul(terms.any(), ("exp", terms.any()))


def _saturation(terms: Terms) -> ex.Tree:
    return ex.mul(terms.any(), ex.add(ex.ONE, ex.mul(MINUS, ("exp", terms.any()))))


def _logarithm(terms: Terms) -> ex.Tree:
    return ex.mul(terms.any(), ("log", ex.add(ex.ONE, terms.positive())))


def _log_of_sum(terms: Terms) -> ex.Tree:
    return ex.mul(ex.const(terms.rng.normal()), ("log", ex.add(terms.unit(), terms.positive())))


BOTH = (False, True)
FORMS: list[tuple[Form, tuple[str, ...], tuple[bool, ...], str]] = [
    # form, outer functions, whether a constant is added, functions it needs
    (_sum(1), ("id", "inv", "log", "sq"), (True,), ""),
    (_sum(2), ("id", "inv", "log", "sq"), BOTH, ""),
    (_binomial, ("id",), BOTH, ""),
    (_exponential, ("id",), BOTH, "exp"),
    (_saturation, ("id",), BOTH, "exp"),
    (_logarithm, ("id",), BOTH, "log"),
    (_log_of_sum, ("id", "inv", "sq", "invroot"), (True,), "log"),
    (_sum(3), ("id", "inv", "sq"), BOTH, ""),
]


def empirical_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = 200) -> Iterator[ex.Tree]:
    """Formulas of these forms that are exact, with and without a constant added; for positive inputs."""
    if not 1 <= view.k <= 6 or not view.positive.all() or len(view.t) < 60:
        return
    means = np.log(view.P[:rows]).mean(0)
    Z = np.log(view.P[:rows]) - means
    for form, outers, constants, needs in FORMS:
        if allowed is not None and needs and needs not in allowed:
            continue
        for outer in (o for name in outers if (o := view.outer(name)) is not None):
            scale = np.sqrt(np.mean(outer.t[:rows] ** 2))
            for constant in constants:
                found = _best(form, constant, Z, outer.t[:rows] / scale, clock)
                if found is not None:
                    yield outer.lift(in_inputs(times(scale, joined(found)), means))


def _best(form: Form, constant: bool, Z: np.ndarray, t: np.ndarray, clock: Clock) -> ex.Tree | None:
    """The fitted form, if one of the starts leads to an exact one; None otherwise."""
    terms = Terms(Z.shape[1], np.random.default_rng(3))
    fit = least_squares.refit_native if compiled() else least_squares.refit_numpy
    optimiser = replace(OPTIMISER, evaluations=EVALUATIONS, enough=1e-20)
    for _ in range(0, STARTS, TOGETHER):
        trees = [ex.add(form(terms), *([ex.const(terms.rng.normal())] if constant else [])) for _ in range(TOGETHER)]
        clock.spend(TOGETHER * EVALUATIONS * refit_work(len(t), ex.size(trees[0])) / 120)
        got = fit([to_tape(tree) for tree in trees], Z, t, None, optimiser, threads=1)
        errors = np.where(np.isfinite(got.error), got.error, np.inf)
        best = int(np.argmin(errors))
        if errors[best] < CLOSE:
            return refit(ex.with_constants(trees[best], got.constants[best]), Z, t, steps=10).tree
    return None


def joined(tree: ex.Tree) -> ex.Tree:
    """a log(u + v) + b as a log(s u + s v): a constant beside a logarithm says nothing more."""
    if tree[0] != "add" or len(tree) != 3 or tree[1][0] != "mul" or tree[1][2][0] != "log" or tree[2][0] != "c":
        return tree
    a, log = tree[1][1:]
    if a[0] != "c" or log[1][0] != "add":
        return tree
    s = np.exp(tree[2][1] / a[1])
    return ex.mul(a, ("log", ex.add(*[ex.mul(ex.const(s), part) for part in log[1][1:]])))


def times(factor: float, tree: ex.Tree) -> ex.Tree:
    """The tree times a number, which goes into the constants that it has."""
    if tree[0] == "c":
        return ex.const(factor * tree[1])
    if tree[0] == "add":
        return ex.add(*[times(factor, part) for part in tree[1:]])
    return ex.mul(times(factor, tree[1]), *tree[2:])


def in_inputs(tree: ex.Tree, means: np.ndarray) -> ex.Tree:
    """The form in the inputs: c exp(a + e . z) with z = log x - mean is c' x^e."""
    if tree[0] == "mul" and len(tree) == 3 and tree[1][0] == "c" and tree[2][0] == "exp":
        term = _term(tree[2][1], means)
        return tuple(_all(tree, means)) if term is None else ex.mul(ex.const(tree[1][1] * term[0]), *term[1])
    if tree[0] == "exp":
        term = _term(tree[1], means)
        return tuple(_all(tree, means)) if term is None else ex.mul(ex.const(term[0]), *term[1])
    return tuple(_all(tree, means))


def _all(tree: ex.Tree, means: np.ndarray) -> Iterator:
    return (in_inputs(s, means) if isinstance(s, tuple) else s for s in tree)


def _term(linear: ex.Tree, means: np.ndarray) -> tuple[float, list[ex.Tree]] | None:
    """exp(a + e . z) as a coefficient and powers of the inputs; None where the argument is not of this kind."""
    parts = linear[1:] if linear[0] == "add" else (linear,)
    a = sum(p[1] for p in parts if p[0] == "c")
    parts = [p for p in parts if p[0] != "c"]
    if not all(p[0] == "mul" and len(p) == 3 and p[1][0] == "c" and p[2][0] == "x" for p in parts):
        return None
    e = {p[2][1]: p[1][1] for p in parts}
    powers = [_power(ex.var(j), q) for j, q in e.items() if abs(q) > NOTHING]
    return float(np.exp(a - sum(q * means[j] for j, q in e.items()))), powers


def _power(tree: ex.Tree, q: float) -> ex.Tree:
    near = fraction(q, NOTHING, (1, 2, 3, 4))
    return ("power", tree, ex.const(q)) if near is None else ex.power(tree, near)
