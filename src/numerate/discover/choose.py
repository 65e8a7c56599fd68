"""From candidates to formulas: constants rounded, exactness decided on rows kept apart, error against size."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import sympy as sp

from numerate.discover import expressions as ex
from numerate.discover.formula import Formula
from numerate.discover.pool import Candidate
from numerate.discover.refit import Fit, refit, relative_error
from numerate.discover.rounding import drop_idle, exact, round_constants

FACTORED = 40  # operations up to which a quotient is looked through for factors that cancel
LAW = 1e-10  # relative error on rows kept apart, up to which a formula may be a law


def readable(expression: sp.Expr, positive: bool = False) -> sp.Expr:
    """The formula over one denominator, where that is shorter: a/(1 + b/a) is a**2/(a + b), a*(b - c/a) is a*b - c.

    Factors that cancel are left out, and exp(b*(log(a) + log(c)/b)) is c*a**b. One with free constants stays as it is:
    it shows the numbers whose standard errors are known. With ``positive`` inputs, roots of squares are resolved.
    """
    if expression.has(sp.Float):
        return expression
    above = {symbol: sp.Symbol(str(symbol), positive=True) for symbol in expression.free_symbols} if positive else {}
    known = cast(sp.Expr, expression.xreplace(above))
    known = cast(sp.Expr, known.replace(sp.exp, _exponential))
    joined = cast(sp.Expr, sp.together(known))
    divided = any(each.free_symbols and each.exp.is_negative for each in known.atoms(sp.Pow))
    shown = [joined if divided or sp.denom(joined).free_symbols else known]
    if sp.denom(joined).free_symbols and sp.count_ops(joined) <= FACTORED:
        shown.append(cast(sp.Expr, sp.factor(joined)))
    names = {symbol: plain for plain, symbol in above.items()}
    return min([*(cast(sp.Expr, each.xreplace(names)) for each in shown), expression], key=sp.count_ops)


def _exponential(inside: sp.Expr) -> sp.Expr:
    """exp of a sum in which logarithms are powers: exp(b log a + c) is a^b exp c."""
    if not inside.has(sp.log):
        return cast(sp.Expr, sp.exp(inside))
    factors = []
    for term in sp.Add.make_args(sp.expand(inside)):
        logs = [part for part in sp.Mul.make_args(term) if isinstance(part, sp.log)]
        factors.append(logs[0].args[0] ** (term / logs[0]) if len(logs) == 1 else sp.exp(term))
    return sp.Mul(*factors)


class Chooser:
    """Turns candidates into formulas on all the data.

    Args:
        X, y, weights: all rows; the first ``seen`` of them were searched.
        names: of the inputs.
        fitted: how many of the rows constants are fitted to; None for all.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None,
        seen: int,
        names: Sequence[str],
        fitted: int | None = None,
    ) -> None:
        self.X, self.y, self.weights, self.seen = X, y, weights, seen
        self.fitted = slice(0, fitted)
        self.names = tuple(names)
        self.symbols = [sp.Symbol(n) for n in names]

    def formula(self, candidate: Candidate, rounded: bool = True) -> Formula:
        """The candidate with its idle terms dropped and its constants rounded."""
        X, y, w = self.X[self.fitted], self.y[self.fitted], self.weights
        w = None if w is None else w[self.fitted]
        fit = Fit(candidate.tree, candidate.error, candidate.standard_errors)
        marks: dict[int, sp.Expr] = {}
        if rounded:
            fit = drop_idle(refit(ex.factors_outside(fit.tree), X, y, w, steps=10), X, y, w)
            fit, marks = round_constants(fit, X, y, w)
        expression = self._expression(fit.tree, marks)
        if expression.has(sp.zoo, sp.nan, sp.oo, sp.I):  # sympy joined constants into a pole that the floats are not
            marks = {}
            expression = ex.to_sympy(fit.tree, self.symbols)
        return self._described(fit, marks, readable(expression, positive=bool((self.X > 0).all())))

    def _described(self, fit: Fit, marks: dict[int, sp.Expr], expression: sp.Expr) -> Formula:
        error = relative_error(fit.tree, self.X, self.y, self.weights)
        scale = float(np.sqrt(np.average(self.y**2, weights=self.weights)))
        values = ex.constants(fit.tree)
        free = [i for i in range(len(values)) if i not in marks]
        return Formula(
            expression=expression,
            error=error * scale,
            relative_error=error,
            size=ex.size(fit.tree),
            constants={f"c{n}": (values[i], float(fit.standard_errors[i])) for n, i in enumerate(free)},
            exact=self.is_law(fit.tree, marks),
            names=self.names,
            tree=fit.tree,
        )

    def _expression(self, tree: ex.Tree, marks: dict[int, sp.Expr]) -> sp.Expr:
        order = iter(range(len(ex.constants(tree))))

        def go(t: ex.Tree) -> ex.Tree:
            if t[0] == "c":
                i = next(order)
                return ("k", marks.get(i, sp.Float(t[1], 15)))
            return tuple(go(s) if isinstance(s, tuple) else s for s in t)

        return ex.to_sympy(go(tree), self.symbols, lambda v: v if isinstance(v, sp.Basic) else exact(v))

    def is_law(self, tree: ex.Tree, marks: dict[int, sp.Expr]) -> bool:
        """Exact on rows kept apart, few constants that are not simple, and still exact where it was not fitted.

        The last test refits the constants on the inner rows and asks for the outer ones: a law extrapolates to the last
        digits, an approximant does not.
        """
        X, y, w = self.X, self.y, self.weights
        c = ex.constants(tree)
        free = len(c) - len(marks)
        if relative_error(tree, X[self.seen :], y[self.seen :], None) > LAW or relative_error(tree, X, y, w) > LAW:
            return False
        if len(y) < 3 * len(c) + 5 or free > 3 or len(c) > 10 or ex.size(tree) > 80:
            return False
        if len(c) < 3:
            return True
        centre, spread = np.median(X, 0), np.std(X, 0) + 1e-300
        distance = np.max(np.abs((X - centre) / spread), 1)
        inner = distance <= np.quantile(distance, 0.6)
        if inner.sum() < 2 * len(c) or inner.all():
            return True
        again = refit(tree, X[inner], y[inner], steps=10)
        scale = np.sqrt(np.mean(y**2))
        with np.errstate(all="ignore"):
            miss = np.sqrt(np.mean((ex.column(again.tree, X[~inner]) - y[~inner]) ** 2)) / scale
        return bool(miss < 1e-8)

    def front(self, candidates: Sequence[Candidate], best: Formula, most: int = 12) -> list[Formula]:
        """Each formula better than every smaller one, smallest first."""
        by_size: dict[int, Candidate] = {}
        for c in candidates:
            s = ex.size(c.tree)
            if s not in by_size or c.error < by_size[s].error:
                by_size[s] = c
        kept: list[Candidate] = []
        for s in sorted(by_size):
            if not kept or by_size[s].error < 0.99 * kept[-1].error:
                kept.append(by_size[s])
        formulas = [self.formula(c, rounded=False) for c in kept if ex.size(c.tree) != best.size][:most]
        formulas = [f for f in formulas if f.size < best.size or f.relative_error < 0.99 * best.relative_error]
        return sorted([*formulas, best], key=lambda f: f.size)
