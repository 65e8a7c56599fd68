"""A formula for slopes that are known only so well: sparse polynomials and quotients of them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sympy

from numerate.discover.export import compiled
from numerate.discover.trajectories import CLEAN

DEGREE = 3
"""Polynomials up to this degree are tried before the search."""
QUOTIENTS = ((2, 1), (2, 2), (3, 2), (4, 2))
"""Degrees above and below of the quotients that are tried where the search has found nothing."""
LEAST = 1e-8
"""Part of their size to which slopes are never known better."""
MOST_TERMS = 12
"""Of a polynomial or a quotient: one with more may be an approximation."""


@dataclass(frozen=True)
class Slopes:
    """Slopes of one state, and how well they are known; states: (n, d), slopes: (n,), weights: (n,)"""

    states: np.ndarray
    slopes: np.ndarray
    weights: np.ndarray
    error: float
    names: tuple[str, ...]

    @classmethod
    def of(cls, states: np.ndarray, slopes: np.ndarray, errors: np.ndarray, names: Sequence[str]) -> "Slopes":
        """Slopes count by how well they are known: weights of mean 1; ``error`` is twice what they leave."""
        floor = np.maximum(errors, max(np.median(errors), LEAST * np.sqrt(np.mean(slopes**2))))
        weights = floor**-2 / np.mean(floor**-2)
        return cls(states, slopes, weights, 2 * float(np.sqrt(np.average(floor**2, weights=weights))), tuple(names))

    @property
    def size(self) -> float:
        """Root mean square of the slopes."""
        return float(np.sqrt(np.average(self.slopes**2, weights=self.weights)))

    def miss(self, formula: sympy.Expr) -> float:
        """Root mean square distance of a formula from the slopes; infinite where it is not defined."""
        rest = self._table([formula])[:, 0] - self.slopes
        return float(np.sqrt(np.average(rest**2, weights=self.weights))) if np.isfinite(rest).all() else np.inf

    def better(self, before: sympy.Expr, after: sympy.Expr) -> sympy.Expr:
        """The formula with its constants fitted to the trajectories, unless the slopes speak against them.

        All states are fitted together: a wrong equation of one state pulls at the constants of the others.
        """
        return after if self.miss(after) <= max(1.5 * self.miss(before), self.error) else before

    def polynomial(self, most_terms: int = MOST_TERMS) -> sympy.Expr | None:
        """The sparsest polynomial of lowest degree that explains the slopes, if there is one (Brunton et al., 2016)."""
        for degree in range(1, DEGREE + 1):
            terms = self._monomials(degree)
            if 3 * len(terms) > len(self.slopes):
                return None
            table = self._table(terms)
            left = self._fit(table)[1]
            if left < self.error:
                limit = min(self.error, max(2 * left, 0.15 * self.error))
                needed = self._pruned(terms, table, limit)
                return _sum(needed) if len(needed) <= most_terms else None
        return None

    def quotient(self) -> sympy.Expr | None:
        """A quotient of sparse polynomials p / q, from q slope = p, if the slopes are known well enough to tell."""
        states = range(len(self.names))
        orders = [[*(k for k in states if k != last), last] for last in reversed(states)]
        for (above, below), order in itertools.product(QUOTIENTS if self.error < CLEAN * self.size else (), orders):
            (p, P), (q, Q) = self._independent(above, order), self._independent(below, order)
            if 3 * (len(p) + len(q)) > len(self.slopes):
                return None
            got = self._sparse_quotient(P, Q)
            if got is None or sum(map(len, got)) > min(MOST_TERMS, (len(p) + len(q)) // 2):
                continue
            over, under = got
            if self._extrapolates(P[:, list(over)], Q[:, list(under)]):
                lead = max(under)
                rest = [(c / under[lead], q[j]) for j, c in under.items() if j != lead]
                return _sum([(c / under[lead], p[j]) for j, c in over.items()]) / (_sum(rest) + q[lead])
        return None

    def _independent(self, degree: int, order: Sequence[int]) -> tuple[list[sympy.Expr], np.ndarray]:
        """Monomials and their columns, without those that depend on simpler ones: a conserved quantity ties them.

        Of the monomials of one degree, powers of the state that comes last in ``order`` are left out first.
        """
        terms = self._monomials(degree, order)
        table = self._table(terms)
        basis, kept = np.zeros((len(table), 0)), []
        for j, column in enumerate(table.T):
            rest = column - basis @ (basis.T @ column)
            rest = rest - basis @ (basis.T @ rest)
            if np.linalg.norm(rest) > 1e-7 * np.linalg.norm(column):
                basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
                kept.append(j)
        return [terms[j] for j in kept], table[:, kept]

    def _sparse_quotient(self, P: np.ndarray, Q: np.ndarray) -> tuple[dict[int, float], dict[int, float]] | None:
        """Coefficients above and below; columns are dropped one by one, the least first, while the slopes agree."""
        result, p = None, P.shape[1]
        W = np.hstack([P, -self.slopes[:, None] * Q]) * np.sqrt(self.weights)[:, None]
        size = np.linalg.norm(W, axis=0) + 1e-300
        kept = list(range(len(size)))
        while len(kept) > 1:
            c = np.zeros(len(size))
            matters = np.linalg.svd(W[:, kept] / size[kept], full_matrices=False)[2][-1]
            c[kept] = matters / size[kept]
            below = Q @ c[p:]
            if (below > 0).all() or (below < 0).all():  # else one of several solutions, with a common factor
                rest = P @ c[:p] / below - self.slopes
                if np.average(rest**2, weights=self.weights) > self.error**2:
                    break
                result = {j: float(c[j]) for j in kept if j < p}, {j - p: float(c[j]) for j in kept if j >= p}
            kept.pop(int(np.argmin(np.abs(matters))))
        return result

    def _extrapolates(self, P: np.ndarray, Q: np.ndarray) -> bool:
        """Whether the quotient fitted to the inner states holds for the outer ones: an approximation does not."""
        distance = np.abs((self.states - np.median(self.states, 0)) / (self.states.std(0) + 1e-300)).max(1)
        inner = distance <= np.quantile(distance, 0.6)
        W = np.hstack([P, -self.slopes[:, None] * Q]) * np.sqrt(self.weights)[:, None]
        size = np.linalg.norm(W, axis=0)
        c = np.linalg.svd(W[inner] / size, full_matrices=False)[2][-1] / size
        rest = (P @ c[: P.shape[1]]) / (Q @ c[P.shape[1] :]) - self.slopes
        miss = float(np.sqrt(np.average(rest[~inner] ** 2, weights=self.weights[~inner])))
        return miss < 100 * self.error

    def _monomials(self, degree: int, order: Sequence[int] | None = None) -> list[sympy.Expr]:
        symbols = [sympy.Symbol(self.names[i]) for i in order or range(len(self.names))]
        powers = [p for p in itertools.product(range(degree, -1, -1), repeat=len(symbols)) if sum(p) <= degree]
        return [sympy.Mul(*(s**k for s, k in zip(symbols, power))) for power in sorted(powers, key=sum)]

    def without_idle_terms(self, expression: sympy.Expr, limit: float) -> sympy.Expr:
        """A sum without the terms that the slopes do not need, the others fitted again."""
        symbols = [sympy.Symbol(name) for name in self.names]
        whole = sympy.Add.make_args(sympy.expand(expression))
        terms = [part.as_independent(*symbols, as_Add=False)[1] for part in whole]
        table = self._table(terms)
        if not np.isfinite(table).all():
            return expression
        needed = self._pruned(terms, table, limit)
        return _sum(needed) if 0 < len(needed) < len(terms) else expression

    def _table(self, terms: Sequence[sympy.Expr]) -> np.ndarray:
        symbols = [sympy.Symbol(name) for name in self.names]
        with np.errstate(all="ignore"):
            columns = [np.asarray(compiled(term, symbols)(*self.states.T), float) for term in terms]
        return np.stack([np.broadcast_to(column, self.slopes.shape) for column in columns], 1)

    def _fit(self, table: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Coefficients, weighted error, and how much each term matters."""
        root = np.sqrt(self.weights)
        scaled = table * root[:, None]
        size = np.linalg.norm(scaled, axis=0) + 1e-300
        c = np.linalg.lstsq(scaled / size, self.slopes * root, rcond=None)[0]
        rest = scaled / size @ c - self.slopes * root
        return c / size, float(np.sqrt(np.sum(rest**2) / np.sum(self.weights))), np.abs(c)

    def _pruned(self, terms: Sequence[sympy.Expr], table: np.ndarray, limit: float) -> list[tuple[float, sympy.Expr]]:
        """(coefficient, term), the terms dropped one by one, the least first, while the others explain the slopes."""
        kept, result = list(range(len(terms))), []
        while kept:
            c, left, matters = self._fit(table[:, kept])
            if left > limit:
                break
            result = [(float(value), terms[j]) for value, j in zip(c, kept)]
            kept.pop(int(np.argmin(matters)))
        return result


def _sum(parts: Sequence[tuple[float, sympy.Expr]]) -> sympy.Expr:
    return sympy.Add(*(sympy.Float(value, 17) * term for value, term in parts))
