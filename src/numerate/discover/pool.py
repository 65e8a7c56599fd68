"""Candidates of one search: refitted, scored by description length, the best kept."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock, refit_work
from numerate.discover.noise import is_gaussian, is_noise
from numerate.discover.refit import Fit, refit
from numerate.discover.rounding import drop_idle, simplest

FLOOR = 1e-13  # relative errors below this are rounding
SOLVED = 1e-12
LOUD = 0.03  # relative noise above which several simple formulas may explain the data
RARE = {"exp": 2.0, "log": 2.0, "sin": 4.0, "cos": 4.0, "abs": 4.0, "sqrt": 0.0}  # nats beside the node; others five


@dataclass(frozen=True)
class Candidate:
    """A refitted formula: score (smaller is better), relative error, tree, standard errors, where it came from."""

    score: float
    error: float
    tree: ex.Tree
    standard_errors: np.ndarray
    source: str


class Solved(Exception):
    """A formula fits to the last digit, or as well as noise allows."""


class Pool:
    """Keeps what was offered.

    Args:
        X, y, weights: the data of the search, in random order.
        clock: raises when the time is used.
        allowed: functions a formula may use, or None for all.
        improved: called when the best changes.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None,
        clock: Clock,
        allowed: frozenset[str] | None = None,
        improved: Callable[[Candidate], None] | None = None,
    ) -> None:
        self.X, self.y, self.weights, self.clock = X, y, weights, clock
        self.allowed, self.improved = allowed, improved
        self.found: list[Candidate] = []
        self.scale = float(np.sqrt(np.average(y**2, weights=weights))) + 1e-300
        self.noise: float | None = None  # relative to the root mean square of y
        self.gaussian = False  # whether it is normally distributed
        self.senses = 8  # how often noise may still be looked for in views of fewer inputs
        self.floor = FLOOR  # errors below this count as this
        self.exact_only = False  # nothing but a fit to the last digits ends the search
        self.patience = 1.0  # of the work until the first such formula
        self.explained = False  # whether the best formula has simple constants and leaves normally distributed noise
        self._seen: set[ex.Tree] = set()
        self._least = np.inf  # error on the rows that candidates are tried on first
        self._settled: float | None = None
        self._looked: Candidate | None = None
        self._left_over = False  # whether the best formula leaves residuals without structure

    @property
    def best(self) -> Candidate:
        return self.found[0]

    def score(self, fit: Fit) -> float:
        """Description length in nats: residuals, constants, structure. A simple constant costs less than a free one."""
        n, free = len(self.y), 0.5 * np.log(len(self.y))
        constants = 0.0
        for c, error in zip(ex.constants(fit.tree), fit.standard_errors):
            whole = np.isfinite(error) and round(c) and abs(c - round(c)) < 2 * error
            constants += min(free, 1.0 + np.log(abs(c) + 1)) if whole else free
        return n * np.log(max(fit.error, self.floor)) + constants + 1.5 * ex.size(fit.tree) + _rarity(fit.tree)

    def _candidate(self, fit: Fit, source: str) -> Candidate:
        return Candidate(self.score(fit), fit.error, fit.tree, fit.standard_errors, source)

    def offer(self, tree: ex.Tree, source: str, keep: bool = False) -> None:
        """Refit on some rows, then on all; raise :class:`Solved` when nothing is left to explain.

        A formula far worse than the best so far is left out, unless it is to be kept for its small size.
        """
        self.clock.check()
        key = ex.shape(tree)
        if key in self._seen or (self.allowed is not None and not ex.functions(tree) <= self.allowed):
            return
        self._seen.add(key)
        if len(ex.constants(tree)) > max(3, len(self.y) // 3):  # they would fit anything
            return
        some = slice(0, 300)
        self.clock.spend(refit_work(len(self.y[some]), ex.size(tree)))
        weights = None if self.weights is None else self.weights[some]
        fit = refit(tree, self.X[some], self.y[some], weights, steps=60)
        if not keep and fit.error > (3 if self.noise is None else 1.1) * max(self._least, self.floor) + 1e-9:
            return
        self._least = min(self._least, fit.error)
        if len(self.y) > 300:
            self.clock.spend(refit_work(len(self.y), ex.size(tree)))
            fit = refit(fit.tree, self.X, self.y, self.weights, steps=25)
        if not np.isfinite(fit.error):
            return
        candidate = self._candidate(fit, source)
        if fit.error > 1e-7 and (not self.found or candidate.score < self.best.score):
            candidate = self._candidate(drop_idle(fit, self.X, self.y, self.weights), source)
        self.found.append(candidate)
        self.found.sort(key=lambda c: c.score)
        if self.best is candidate and self.improved is not None:
            self.improved(candidate)
        if candidate.error < SOLVED and self._is_simple(candidate, 1e-9):
            raise Solved
        if self.best is candidate or self._settled is not None:
            self.check_noise()

    def check_noise(self) -> None:
        """Raise :class:`Solved` when a simple formula fits as well as a free smooth function does.

        The first such formula may be an accident: the search does as much work again as it took to find it, and less
        where nothing speaks for an accident.
        """
        if self.exact_only or not self.found or self.best.source == "constant":
            return
        self._look_for_noise()
        near = 1.05 if self._left_over else 1.004 + 4 / len(self.y)
        if self.noise is None or self.best.error > self.noise * near:
            return
        if self._settled is None and self._is_simple(self.best, 0.0):
            self._settled = self.clock.work
        if self._settled is None:
            return
        if self.explained:
            wait = 0.3 + 0.5 * self._settled if self.noise < LOUD else 1.5 + self._settled
        else:
            wait = 3.0 + self._settled
        if self.clock.work >= self._settled + self.patience * wait:
            raise Solved

    def _look_for_noise(self) -> None:
        """Residuals of the best formula without any structure are noise."""
        if self.best is self._looked or self.best.error < 1e-7:
            return
        self._looked = self.best
        r = ex.column(self.best.tree, self.X) - self.y
        if self.weights is not None:
            r = r * np.sqrt(self.weights)
        self._left_over = self._is_simple(self.best, 0.0) and is_noise(self.X, r)
        if self._left_over:
            self.noise = min(self.best.error, np.inf if self.noise is None else self.noise)
        self.explained = self._left_over and self._odd(self.best, 0.0) == 0 and is_gaussian(r, self.X)

    @property
    def solved(self) -> bool:
        """Whether the best formula fits to the last digits."""
        return bool(self.found) and self.best.error < SOLVED

    @property
    def settled(self) -> bool:
        """Whether the best formula leaves nothing but rounding or noise."""
        if self.noise is None or not ex.inputs(self.best.tree):
            return self.solved
        return self.best.error < 1.1 * self.noise

    def _is_simple(self, candidate: Candidate, width: float) -> bool:
        """Few constants that are not simple numbers: an approximant has many."""
        odd, few = self._odd(candidate, width), len(ex.constants(candidate.tree)) <= 3
        most = 3 if self.noise is None else 1 if few else 0
        return odd <= most and ex.size(candidate.tree) <= 60

    def _odd(self, candidate: Candidate, width: float) -> int:
        """How many constants are no simple numbers within their errors."""
        odd = 0
        for c, error in zip(ex.constants(candidate.tree), candidate.standard_errors):
            near = max(width * abs(c), 2.5 * error if np.isfinite(error) else 0.0)
            odd += simplest(c, near) is None or (self.noise is not None and abs(c) <= near)
        return odd


def _rarity(tree: ex.Tree) -> float:
    """What the functions and exponents of a formula cost beside their nodes; squares, inverses and roots: nothing."""
    if tree[0] in ("x", "c", "k"):
        return 0.0
    own = RARE.get(tree[0], 5.0) if tree[0] in ex.UNARY else 0.0
    if tree[0] == "pow":
        own = 0.7 * max(0, abs(tree[2].numerator) + tree[2].denominator - 3)
    return own + sum(_rarity(part) for part in tree[1:] if isinstance(part, tuple))
