"""What one step of the search looks at: a target as a function of a few quantities, and the way back to the formula.

A view says y = lift(f) where t = f(P). Peeling a factor, a term or an outer function, or going over to dimensionless
groups, makes another view of the same data; every part of the search works on any view.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex

OUTER = {  # name: (g, g', the inverse as a tree); t = inverse(g(t))
    "id": (lambda t: t, lambda t: np.ones_like(t), lambda f: f),
    "inv": (lambda t: 1 / t, lambda t: 1 / t**2, lambda f: ex.power(f, -1)),
    "sq": (lambda t: t * t, lambda t: 2 * t, lambda f: ("sqrt", f)),
    "invsq": (lambda t: 1 / t**2, lambda t: 2 / t**3, lambda f: ex.power(f, Fraction(-1, 2))),
    "log": (np.log, lambda t: 1 / t, lambda f: ("exp", f)),
    "sqrt": (np.sqrt, lambda t: 0.5 / np.sqrt(t), lambda f: ex.power(f, 2)),
    "invroot": (lambda t: 1 / np.sqrt(t), lambda t: 0.5 / np.sqrt(t) ** 3, lambda f: ex.power(f, -2)),
    "fourth": (lambda t: t**4, lambda t: 4 * t**3, lambda f: ex.power(f, Fraction(1, 4))),
    "exp": (np.exp, np.exp, lambda f: ("log", f)),
    "sin": (np.sin, np.cos, lambda f: ("asin", f)),
    "cos": (np.cos, np.sin, lambda f: ("acos", f)),
    "tan": (np.tan, lambda t: 1 / np.cos(t) ** 2, lambda f: ("atan", f)),
    "logit": (
        lambda t: np.log(1 / t - 1),
        lambda t: 1 / (t * (1 - t)),
        lambda f: ex.power(ex.add(ex.ONE, ("exp", f)), -1),
    ),
    "rest": (
        lambda t: np.log(1 - t),
        lambda t: 1 / (1 - t),
        lambda f: ex.add(ex.ONE, ex.mul(ex.fixed(-1.0), ("exp", f))),
    ),
    "more": (
        lambda t: np.log(1 + t),
        lambda t: 1 / (1 + t),
        lambda f: ex.add(("exp", f), ex.fixed(-1.0)),
    ),
    "bose": (
        lambda t: np.log(1 + 1 / t),
        lambda t: 1 / (t * (1 + t)),
        lambda f: ex.power(ex.add(("exp", f), ex.fixed(-1.0)), -1),
    ),
    "tanh": (np.arctanh, lambda t: 1 / (1 - t * t), lambda f: ("tanh", f)),
}
DOMAIN = {"log": (0, np.inf), "sqrt": (0, np.inf), "logit": (0, 1), "rest": (-np.inf, 1), "tanh": (-1, 1)}
DOMAIN |= {"sin": (-np.pi / 2, np.pi / 2), "cos": (0, np.pi), "tan": (-np.pi / 2, np.pi / 2), "exp": (-300, 300)}


@dataclass(frozen=True)
class View:
    """t: (n,) wanted as a function of the columns of P: (n, k).

    Args:
        P: values of the view's inputs.
        t: values of the view's target.
        w: (n,) the size of dy/dt: how much an error of t weighs in y.
        parts: the view's inputs as expressions of the original ones.
        lift: from a tree in the view's inputs to the formula for y.
        noise: the error of y that no formula can go below; 0 where none is known.
    """

    P: np.ndarray
    t: np.ndarray
    w: np.ndarray
    parts: tuple[ex.Tree, ...]
    lift: Callable[[ex.Tree], ex.Tree]
    noise: float = 0.0

    @property
    def k(self) -> int:
        return self.P.shape[1]

    @property
    def variables(self) -> list[ex.Tree]:
        return [ex.var(i) for i in range(self.k)]

    @property
    def positive(self) -> np.ndarray:
        return np.asarray((self.P > 0).all(0))

    @property
    def one_sign(self) -> bool:
        return bool((self.t > 0).all() or (self.t < 0).all())

    @property
    def scale(self) -> float:
        """Root mean square of the target as it weighs in y."""
        return float(np.sqrt(np.mean((self.t * self.w) ** 2))) + 1e-300

    @property
    def usable(self) -> bool:
        return bool(np.isfinite(self.P).all() and np.isfinite(self.t).all() and np.isfinite(self.w).all())

    def head(self, rows: int) -> "View":
        """The first rows; they are in random order."""
        return replace(self, P=self.P[:rows], t=self.t[:rows], w=self.w[:rows])

    def of(self, inputs: Sequence[ex.Tree]) -> "View":
        """The same target as a function of other quantities, given as trees in this view's inputs."""
        with np.errstate(all="ignore"):
            P = np.stack([ex.column(p, self.P) for p in inputs], 1) if inputs else np.zeros((len(self.t), 0))
        lift, old = self.lift, list(inputs)
        parts = tuple(ex.substitute(p, self.parts) for p in inputs)
        return replace(self, P=P, parts=parts, lift=lambda f: lift(ex.substitute(f, old)))

    def over(self, front: ex.Tree) -> "View":
        """The target divided by a factor."""
        if ex.is_one(front):
            return self
        with np.errstate(all="ignore"):
            f = ex.column(front, self.P)
            lift = self.lift
            return replace(self, t=self.t / f, w=self.w * np.abs(f), lift=lambda g: lift(ex.mul(front, g)))

    def minus(self, term: ex.Tree) -> "View":
        """The target less a term."""
        lift = self.lift
        with np.errstate(all="ignore"):
            return replace(self, t=self.t - ex.column(term, self.P), lift=lambda g: lift(ex.add(term, g)))

    def _off(self, name: str) -> np.ndarray:
        """Rows within two standard deviations of the end of an outer function's domain, or beyond it.

        They are left out, with weight zero: noise may have carried them there.
        """
        low, high = _domain(name, float(np.sign(np.median(self.t))))
        near = 2 * self.noise / np.maximum(self.w, 1e-12 * self.w.max())
        poles = np.abs(self.t) < near if name == "inv" else False
        return (self.t < low + near) | (self.t > high - near) | poles

    def outer(self, name: str) -> "View | None":
        """The target under an outer function, or None where that is not defined for all of it."""
        g, slope, inverse = OUTER[name]
        if name == "id":
            return self
        if self.noise and (off := self._off(name)).any():
            if off.mean() > 0.25:
                return None
            inside = replace(self, t=np.where(off, np.median(self.t[~off]), self.t), noise=0.0).outer(name)
            return None if inside is None else replace(inside, w=np.where(off, 0.0, inside.w), noise=self.noise)
        if name in ("sq", "invsq", "fourth") and not self.one_sign:
            return None
        low, high = DOMAIN.get(name, (-np.inf, np.inf))
        if (self.t < low).any() or (self.t > high).any():
            return None
        with np.errstate(all="ignore"):
            z, dz = g(self.t), np.abs(slope(self.t))
        if not (np.isfinite(z).all() and np.isfinite(dz).all()):
            return None
        w = self.w / np.maximum(dz, 1e-6 * np.median(dz) + 1e-300)
        lift, minus = self.lift, name in ("sq", "invsq", "fourth") and self.t[0] < 0
        return replace(self, t=z, w=w, lift=lambda f: lift(ex.mul(ex.fixed(-1.0), inverse(f)) if minus else inverse(f)))


def _domain(name: str, sign: float) -> tuple[float, float]:
    """Where the outer function of a target of this sign is defined and monotonous."""
    if name in ("sq", "invsq", "fourth"):
        return (0.0, np.inf) if sign > 0 else (-np.inf, 0.0)
    return DOMAIN.get(name, (-np.inf, np.inf))


def root(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> View:
    """The data themselves."""
    w = np.ones(len(y)) if weights is None else np.sqrt(weights / weights.mean())
    return View(X, y, w, tuple(ex.var(i) for i in range(X.shape[1])), lambda f: f)
