"""The formula behind the data."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from numerate.discover.blas import one_thread
from numerate.discover.choose import Chooser
from numerate.discover.clock import Clock, OutOfSlice, OutOfTime
from numerate.discover.dimensions import groups_from
from numerate.discover.formula import Dimensions, Formula, Found
from numerate.discover.noise import is_noise, noise_level
from numerate.discover.pool import Candidate, Pool, Solved
from numerate.discover.solver import Solver
from numerate.discover.view import View, root

SEARCHED = 20_000  # rows that candidates are tried on; more change no choice and take their time
FITTED = 60_000  # rows that constants are fitted to at the end, for each second
FEWEST = 10_000  # of them, however few the seconds
FINISH = 4e-6  # seconds that takes for each row
SAME = 1.1  # of the noise: what a formula leaves up to that is noise


def search(
    X: np.ndarray,
    y: np.ndarray,
    *,
    names: Sequence[str],
    weights: np.ndarray | None = None,
    seconds: float = 10.0,
    functions: Sequence[str] | None = None,
    dimensions: Dimensions | None = None,
    seed: int = 0,
    progress: Callable[[Formula, float], None] | None = None,
) -> Found:
    """The formula y = f(X) that describes the data best.

    Args:
        X: (n, d) inputs. y: (n,) target. names: of the inputs.
        weights: (n,) weight of each row in the squared error.
        seconds: of CPU time of this thread, the only one at work; the best so far is given back when they are used,
            and on KeyboardInterrupt.
        functions: allowed functions (sqrt exp log sin cos tan asin acos atan sinh cosh tanh abs); None for all.
        dimensions: physical dimensions of inputs and target.
        seed: the same seed gives the same formula, unless the time ends the search.
        progress: called with the best formula and the seconds used when the best improves.
    """
    fitted = min(len(y), max(int(FITTED * seconds), FEWEST))
    clock = Clock(0.9 * seconds - FINISH * fitted)  # the rest is for approximations, rounding and the front
    X, y = np.asarray(X, float), np.asarray(y, float)
    order = np.random.default_rng((seed, 0)).permutation(len(y))
    X, y, w = X[order], y[order], None if weights is None else np.asarray(weights, float)[order]
    seen = min(len(y) - min(len(y) // 6, 400), SEARCHED)
    chooser = Chooser(X, y, w, seen, names, fitted)

    def improved(candidate: Candidate) -> None:
        if progress is not None:
            progress(chooser.formula(candidate, rounded=False), clock.elapsed)

    allowed = None if functions is None else frozenset(functions)
    pool = Pool(X[:seen], y[:seen], None if w is None else w[:seen], clock, allowed, improved)
    solver = Solver(pool, clock, seed)
    view = root(X[:seen], y[:seen], None if w is None else w[:seen])
    if dimensions is not None:
        plan = groups_from(dimensions)
        view, solver.groups = plan.apply(view), plan.rows
    with one_thread(), np.errstate(all="ignore"):
        try:
            with suppress(Solved, OutOfTime, OutOfSlice), clock.running():
                solver.start(view)
            if not pool.settled:  # no law, and perhaps no time left: what can be said about the table all the same
                pool.clock = solver.clock = Clock(0.04 * seconds)
                with suppress(Solved, OutOfTime, OutOfSlice), solver.clock.running():
                    solver.approximate(view)
        except KeyboardInterrupt:
            if not pool.found:
                raise
        if not pool.found:
            raise ValueError(f"{seconds:g} s of processor time are too few for a first formula; allow more")
        best = chooser.formula(pool.best)
        front = chooser.front(pool.found, best)
    groups = [{names[i]: q for i, q in enumerate(row) if q} for row in solver.groups]
    noise = _noise(best, pool, root(X[:seen], y[:seen], pool.weights) if dimensions is not None else None)
    return Found(best, front, best.exact, noise, groups, clock.elapsed, clock.cut)


def _noise(best: Formula, pool: Pool, view: View | None) -> float:
    """What is noise of what the best formula leaves; 0.0 where none can be seen.

    Args:
        best: Formula chosen.
        pool: Of the search.
        view: The target as a function of all inputs, where only groups of them were searched: what depends on the
            inputs otherwise is no noise, and too few groups may show none.
    """
    if best.relative_error < 1e-9:
        return 0.0
    level = None if pool.noise is None else pool.noise * pool.scale
    if view is not None:
        if is_noise(view.P, (view.t - best.predict(view.P)) * view.w):
            return best.error
        found = noise_level(view)
        level = None if found is None else found.level
    if level is None:
        return 0.0
    return best.error if best.error < SAME * level else level
