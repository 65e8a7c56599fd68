"""The formula behind the data: the order of the parts, the stop, the answer."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import sparse
from numerate.discover.choose import Chooser
from numerate.discover.clock import Clock, OutOfTime
from numerate.discover.differences import apply_differences, find_differences
from numerate.discover.few import few_inputs
from numerate.discover.formula import Dimensions, Formula, Found
from numerate.discover.groups import Groups, find_groups
from numerate.discover.monomial import monomials
from numerate.discover.noise import noise_level
from numerate.discover.pool import Candidate, Pool, Solved
from numerate.discover.rational import rationals
from numerate.discover.view import View, root


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
        seconds: of CPU time; the best so far is given back when they are used, and on KeyboardInterrupt.
        functions: allowed functions (sqrt exp log sin cos tan asin acos atan sinh cosh tanh abs); None for all.
        dimensions: physical dimensions of inputs and target.
        seed: the same seed gives the same formula.
        progress: called with the best formula and the seconds used when the best improves.
    """
    clock = Clock(seconds)
    X, y = np.asarray(X, float), np.asarray(y, float)
    order = np.random.default_rng((seed, 0)).permutation(len(y))
    X, y, w = X[order], y[order], None if weights is None else np.asarray(weights, float)[order]
    seen = len(y) - min(len(y) // 6, 400)
    chooser = Chooser(X, y, w, seen, names)

    def improved(candidate: Candidate) -> None:
        if progress is not None:
            progress(chooser.formula(candidate, rounded=False), clock.elapsed)

    allowed = None if functions is None else frozenset(functions)
    pool = Pool(X[:seen], y[:seen], None if w is None else w[:seen], clock, allowed, improved)
    run = _Run(pool, clock, seed, root(X[:seen], y[:seen], None if w is None else w[:seen]))
    with np.errstate(all="ignore"):
        try:
            run.all()
        except (Solved, OutOfTime):
            pass
        except KeyboardInterrupt:
            if not pool.found:
                raise
        best = chooser.formula(pool.best)
        front = chooser.front(pool.found, best)
    noise = 0.0 if best.relative_error < 1e-9 or pool.noise is None else best.error
    groups = [{names[i]: q for i, q in enumerate(row) if q} for row in run.groups]
    return Found(best, front, best.exact, noise, groups, clock.elapsed)


class _Run:
    """One search: which part sees which view, in which order."""

    def __init__(self, pool: Pool, clock: Clock, seed: int, view: View) -> None:
        self.pool, self.clock, self.seed, self.view = pool, clock, seed, view
        self.groups: list[list[Fraction]] = []
        self.rows = 300

    def offer(self, trees: Iterator[ex.Tree], source: str) -> None:
        for tree in trees:
            self.pool.offer(tree, source)
        self.pool.check_noise()

    def all(self) -> None:
        view, d = self.view, self.view.k
        mean = float(np.average(view.t, weights=view.w**2))
        self.offer(iter([ex.const(mean)]), "constant")
        self.offer(iter([ex.linear([mean] + [1.0] * d, [ex.ONE, *view.variables])]), "linear")
        self.set_noise(noise_level(view))
        self.pool.check_noise()
        self.offer(monomials(view), "monomial")
        self.quick(view, "sparse")
        plans = find_groups(view, self.clock, self.seed)
        if plans and self.pool.noise is None:
            best = min(plans, key=lambda g: g.error)
            self.set_noise(noise_level(best.apply(view)))
        noise = self.pool.noise
        if plans and (plans[0].error < 0.01 or (noise is not None and plans[0].error < 1.3 * noise)):
            self.follow(view, plans, "groups")
            plans = []
        if plans and plans[0].error > 0.05 and d <= 2:
            self.few(view, "dictionary")
        self.differences(view)
        self.follow(view, plans, "groups")
        if d <= 3:
            self.few(view, "dictionary")
        self.thorough(view, "sparse")

    def set_noise(self, level: float | None) -> None:
        if level is not None:
            self.pool.noise = level / (np.sqrt(np.mean(self.view.t**2)) + 1e-300)
            self.rows = 500

    @property
    def noisy(self) -> bool:
        return self.pool.noise is not None

    def quick(self, view: View, source: str) -> None:
        """Sums of monomials and rationals."""
        self.offer(sparse.laurent_sums(view, self.clock), f"{source} laurent")
        self.offer(
            sparse.polynomial_sums(view, self.clock, ("id", "sq", "inv", "invsq", "log", "exp")), f"{source} polynomial"
        )
        self.offer(rationals(view, self.clock, self.noisy), f"{source} rational")

    def thorough(self, view: View, source: str) -> None:
        """Polynomials joined or multiplied by one function."""
        for extra in sparse.extra_functions(view.k):
            trees = sparse.sums_with_function(view, self.clock, extra, ("id", "sq", "inv", "invsq", "log", "exp"))
            self.offer(trees, f"{source} with {extra[0]}")

    def few(self, view: View, source: str) -> None:
        self.offer(few_inputs(view, self.clock, self.noisy, self.pool.allowed, self.rows), f"{source} few")

    def follow(self, view: View, plans: list[Groups], source: str) -> None:
        for plan in plans[:4]:
            inner = plan.apply(view)
            if not (np.isfinite(inner.P).all() and np.isfinite(inner.t).all()):
                continue
            self.groups = plan.rows
            self.quick(inner, f"{source} {len(plan.rows)}")
            self.few(inner, f"{source} {len(plan.rows)}")
            if plan.error > 0.1 and any(plan.front):
                self.few(
                    view.of([ex.monomial(view.variables, r) for r in plan.rows]), f"{source} {len(plan.rows)} no front"
                )

    def differences(self, view: View) -> None:
        pairs = find_differences(view)
        if not pairs:
            return
        inner = apply_differences(view, pairs)
        self.quick(inner, "differences")
        self.follow(inner, find_groups(inner, self.clock, self.seed), "differences groups")
        if inner.k <= 3:
            self.few(inner, "differences")
        self.thorough(inner, "differences")
