"""Which part of the search sees which view, in which order; views of views by recursion."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import rational, spans
from numerate.discover.clock import Clock, linear_work, refit_work
from numerate.discover.curves import curves
from numerate.discover.differences import apply_differences, find_differences
from numerate.discover.domains import domain_fits
from numerate.discover.empirical import empirical_fits
from numerate.discover.factor import factors
from numerate.discover.few import few_inputs
from numerate.discover.front import find_front
from numerate.discover.groups import Groups, by_input, find_groups
from numerate.discover.implicit import implicit_quadratics
from numerate.discover.inner import dearer_fits, inner_fits
from numerate.discover.large import large_fits
from numerate.discover.merges import merged
from numerate.discover.mixed import mixed_fits
from numerate.discover.mixing import mixed_inputs
from numerate.discover.monomial import monomials
from numerate.discover.noise import Noise, noise_level
from numerate.discover.pool import Pool, Solved
from numerate.discover.powers import power_fits
from numerate.discover.products import product_fits
from numerate.discover.relevant import relevant_inputs
from numerate.discover.scans import scan_fits
from numerate.discover.separate import Separation, pure_powers, separate, simplified
from numerate.discover.solved_for import solved_fits
from numerate.discover.sparse import emit
from numerate.discover.stepwise import approximations, exact_sums
from numerate.discover.view import View, root
from numerate.discover.wide import wide_fits

DEEPEST = 3
MANY = 6  # inputs from which on some may have nothing to do with the target
LINEAR = 4e7  # rows times squared inputs that the sum of all inputs is fitted to, for each second
NEARLY = 1e-5  # noise below this, relative to the target: a component that is known nearly as well as the target

T = TypeVar("T")


def _attempt(part: Callable[..., T], *arguments: Any) -> T | None:
    """What a part finds; None where a factorisation does not converge, as with values near overflow."""
    try:
        return part(*arguments)
    except np.linalg.LinAlgError:
        return None


class Solver:
    """One search on one pool.

    Args:
        pool: takes the candidates.
        clock: CPU time.
        seed: of the random starts.
        depth: how often a part was peeled off before.
    """

    def __init__(self, pool: Pool, clock: Clock, seed: int, depth: int = 0) -> None:
        self.pool, self.clock, self.seed, self.depth = pool, clock, seed, depth
        self.groups: list[list[Fraction]] = []
        self._done: set[str] = set()  # parts that look at the data themselves once

    def offer(self, trees: Iterable[ex.Tree], source: str, keep: bool = False) -> None:
        try:
            for tree in trees:
                self.pool.offer(tree, source, keep)
        except np.linalg.LinAlgError:  # a factorisation that does not converge: the part has nothing to offer
            pass
        self.pool.check_noise()

    def rows(self, view: View) -> int:
        return 500 if view.noise else 300

    def start(self, view: View) -> None:
        """The whole search from the data themselves."""
        mean = float(np.average(view.t, weights=view.w**2))
        self.offer([view.lift(ex.const(mean))], "constant")
        if view.k == 0:
            return
        self.linear(view)
        few = view = self.with_noise(view, _attempt(noise_level, view))
        try:
            few = self.relevant(view)
            share = 0.95 if self.pool.gaussian else 0.7 if view.noise else 0.5
            with self.clock.share(share * self.clock.seconds):
                self.solve(view, "")
            if not view.noise and not self.pool.explained:
                self.exponent(few)
                self.last(few)
                for part in (self.again, self.exactly) if few.positive.all() else (self.exactly, self.again):
                    if not (self.pool.explained or (self.pool.gaussian and part == self.exactly)):
                        part(few)
        except Solved:
            if self.pool.solved:
                raise
        clean = replace(few, noise=0.0)
        if self.pool.noise is not None and not (self.pool.explained or self.pool.gaussian):
            self.exactly(clean)
        if not (self.pool.explained or self.pool.gaussian):
            self.rest(clean)
            if few.k < view.k:  # an input inside a fast wave passes for an idle one
                Solver(self.pool, self.clock, self.seed).rest(replace(view, noise=0.0))

    def relevant(self, view: View) -> View:
        """Sums of few features first; where some inputs have nothing to do with the target, the search without them.

        Returns the view of the inputs that have.
        """
        mine = _attempt(relevant_inputs, view) if view.k >= MANY else None
        few = view if mine is None else view.of([ex.var(i) for i in mine])
        if not view.noise:
            self.offer(exact_sums(few, self.clock, self.pool.allowed), "sum of features")
        if few.k < view.k:
            with self.clock.share(0.5 * self.clock.seconds):
                self.solve(few, "")
        return few

    def again(self, view: View) -> None:
        """Noise that the polynomials did not show."""
        if self.pool.best.error > 1e-4:
            level = self.pool.best.error if self.pool.noise is None else self.pool.noise
            with self.clock.share((0.5 if self.pool.gaussian else 0.25) * self.clock.seconds):
                self.solve(replace(view, noise=level * view.scale), "again")

    def exactly(self, view: View) -> None:
        """What looks like noise may be waves or poles too fine for a polynomial: only an exact formula says so."""
        noisy = self.pool.noise is not None
        with self.exact_only(), self.clock.share((0.3 if noisy else 0.6) * self.clock.seconds):
            if noisy:
                self.once("sum", lambda: self.plain(view, ""))
            self.inner(view)
            self.many(view)
            self.dearer(view)
            self.once("term off", lambda: self.terms(view))

    def rest(self, view: View) -> None:
        """Until the time is used: what the shares have cut off."""
        with self.exact_only():
            self.many(view)
            self.inner(view)
            self.fits("mixed base", mixed_fits, view, self.clock, self.pool.allowed)
            self.dearer(view)
            self.once("term off", lambda: self.terms(view))

    @contextmanager
    def exact_only(self) -> Iterator[None]:
        """Inside, nothing but a fit to the last digits ends the search."""
        self.pool.exact_only = True
        try:
            yield
        finally:
            self.pool.exact_only = False

    def once(self, name: str, part: Callable[[], None]) -> None:
        """A part that has come to its end is not run again; one that a share around it has cut off is."""
        if name not in self._done:
            part()
            self.clock.check()  # a share within the part has kept quiet about the one around it
            self._done.add(name)

    def fits(self, name: str, part: Callable[..., Iterator[ex.Tree]], *arguments: Any, **options: Any) -> None:
        """Offer what a part finds that is not begun twice: a share ends between such parts, not within one."""
        with self.clock.whole():
            self.once(name, lambda: self.offer(part(*arguments, **options), name))

    def many(self, view: View) -> None:
        """Large spans, high degrees, a large dictionary, for a target without noise."""
        clock, allowed = self.clock, self.pool.allowed
        self.fits("domain", domain_fits, view, clock, allowed)
        self.fits("term and powers", power_fits, view, clock)
        self.fits("solved for the target", solved_fits, view, clock, allowed)
        self.fits("wide span", wide_fits, view, clock, allowed)
        self.fits("wide quotient", rational.rationals, view, clock, wide=True)
        self.fits("wide root", rational.roots_of_quadratics, view, clock, wide=True)
        self.fits("large dictionary", large_fits, view, clock, allowed)

    def inner(self, view: View) -> None:
        self.fits("function of a sum", inner_fits, view, self.clock, self.pool.allowed)

    def dearer(self, view: View) -> None:
        name = "function of a sum with constants"
        self.once(name, lambda: self.offer(dearer_fits(view, self.clock, self.pool.allowed), name))

    def linear(self, view: View) -> None:
        rows = int(LINEAR * self.clock.seconds / view.k**2)
        A = np.concatenate([np.ones((len(view.t), 1)), view.P], 1)[: max(rows, 4 * view.k)]
        if A.shape[1] < 0.5 * len(A):
            tree = emit(view, A, [ex.ONE, *view.variables], len(A))
            self.offer([] if tree is None else [tree], "linear")

    def with_noise(self, view: View, noise: Noise | None) -> View:
        if noise is None:
            return view
        self.pool.noise, self.pool.gaussian = noise.level / self.pool.scale, noise.gaussian
        return replace(view, noise=noise.level)

    def sense(self, view: View) -> View:
        """Noise that shows only in fewer quantities than there are inputs, or that a formula has shown since."""
        if self.pool.noise is not None:
            return view if view.noise else replace(view, noise=self.pool.noise * self.pool.scale)
        if self.pool.senses == 0 or view.k == self.pool.X.shape[1]:
            return view
        self.pool.senses -= 1
        self.clock.spend(2 * linear_work(min(len(view.t), 2000), 150))
        return self.with_noise(view, _attempt(noise_level, view, self.pool.X))

    def solve(self, view: View, source: str, grouped: bool = False) -> None:
        """Everything for one view, cheap parts first."""
        if not view.usable or view.k == 0:
            return
        self.offer(monomials(view), f"{source} monomial")
        view = self.sense(view)
        if view.noise > NEARLY * view.scale:
            self.noisy(view, source, grouped)
            return
        self.plain(view, source)
        if not view.noise and not source.endswith("merged"):
            self.merge(view, source)
        self.mixing(view, source)
        if view.k == 1:
            self.scan(view, source)
            self.curves(view, source)
        self.functions(view, source)
        if view.k > 1 and not view.noise:
            self.offer(product_fits(view, self.clock, self.pool.allowed), f"{source} product")
            self.offer(empirical_fits(view, self.clock, self.pool.allowed), f"{source} empirical")
        if view.k == 2:
            self.scan(view, source)
        if view.k == 1:
            if not view.noise and not source:
                self.many(view)
            self.few(view, source)
            return
        if not source and not view.positive.all():  # else the groups come first
            self.many(view)
        self.peel(view, source)
        self.factor(view, source)
        front = None if grouped or "front" in source else _attempt(find_front, view)
        if front is not None and front.error < 1e-3:
            self.front(view, front, source)
            front = None
        plans = [] if grouped else _attempt(find_groups, view, self.clock, self.seed) or []
        noisy = self.sense_in(view, plans)
        if noisy.noise:
            self.noisy(noisy, source, grouped)
            return
        good = [p for p in plans if p.error < 0.02]
        self.follow(view, good, source)
        if not grouped:
            self.differences(view, source)
        self.front(view, front, source)
        if view.k > 2:
            self.scan(view, source)
        if view.k <= 3:
            self.few(view, source)
        self.follow(view, [p for p in plans if p not in good], source)

    def noisy(self, view: View, source: str, grouped: bool) -> None:
        """The same under noise: groups and the dictionary come first, which fit few constants to all the rows.

        Sums of many columns and components that a polynomial has taken apart are approximants within the noise.
        """
        self.plain(view, source)
        self.mixing(view, source)
        if view.k <= 2:
            self.few(view, source)
        if view.k == 1:
            self.curves(view, source)
        plans = [] if grouped else _attempt(find_groups, view, self.clock, self.seed) or []
        good = self.good(view, plans)
        front = None if grouped or "front" in source else _attempt(find_front, view, 1200)
        enough = [p for p in [front, *good] if p is not None and p.error < 1.3 * view.noise / view.scale]
        if self.pool.noise is None or not enough:  # a guess of the noise, or groups that do not explain the target
            self.functions(view, source)
        if front in enough and front is min(enough, key=lambda p: p.description(len(view.t))):
            self.front(view, front, source)
            front = None
        self.follow(view, good[:2], source)
        if self.pool.noise is not None and enough:
            self.functions(view, source)
        if view.k == 1:
            return
        if front is not None and front.error < 1.2 * view.noise / view.scale:
            self.front(view, front, source)
            front = None
        if not grouped:
            self.differences(view, source)
        if view.k == 3:
            self.few(view, source)
        self.peel(view, source)
        self.factor(view, source)
        self.follow(view, good[2:], source)
        self.front(view, front, source)
        self.follow(view, [p for p in plans if p not in good], source)

    def curves(self, view: View, source: str) -> None:
        with self.clock.share(0.1 * self.clock.seconds):
            self.offer(self.checked(curves(view)), f"{source} curve")

    def checked(self, trees: Iterable[ex.Tree]) -> Iterator[ex.Tree]:
        for tree in trees:
            self.clock.spend(20 * refit_work(200, 12))
            yield tree

    def plain(self, view: View, source: str) -> None:
        rows = 500
        names = ("id", "sq", "inv", "log") if view.noise else spans.OUTERS
        self.offer(spans.span_fits(view, spans.plain_designs(view, rows), names, self.clock, rows), f"{source} sum")
        if view.k <= 2 and not view.noise:
            for one in (ex.ONE, ex.fixed(-1.0)):
                less = view.minus(one)
                fits = spans.span_fits(
                    less, spans.plain_designs(view, rows), ("sq", "inv", "invsq", "log"), self.clock, rows
                )
                self.offer(fits, f"{source} less one")
        with self.clock.share(0.1 * self.clock.seconds):
            self.offer(rational.rationals(view, self.clock), f"{source} quotient")
            if not view.noise:
                self.offer(rational.roots_of_quadratics(view, self.clock), f"{source} root")
                self.offer(implicit_quadratics(view, self.clock), f"{source} implicit")

    def functions(self, view: View, source: str) -> None:
        rows = 500
        names = ("id", "sq", "inv", "log") if view.noise else spans.OUTERS
        designs = spans.function_designs(view, rows, self.pool.allowed)
        with self.clock.share((0.05 if view.noise else 0.12) * self.clock.seconds):
            self.offer(spans.span_fits(view, designs, names, self.clock, rows), f"{source} sum with functions")
            if view.k <= 5 and not view.noise:
                for functions in spans.quotient_functions(view.P[:rows], self.pool.allowed):
                    trees = rational.rationals_with(view, functions, self.clock)
                    self.offer(trees, f"{source} quotient with functions")

    def few(self, view: View, source: str) -> None:
        with self.clock.share(0.35 * self.clock.seconds):
            trees = few_inputs(view, self.clock, bool(view.noise), self.pool.allowed, self.rows(view))
            self.offer(trees, f"{source} dictionary")

    def good(self, view: View, plans: list[Groups]) -> list[Groups]:
        """The plans that leave no more than the noise, as far as any does."""
        least = max(view.noise / view.scale, min((p.error for p in plans), default=0.0))
        return [p for p in plans if p.error < 1.08 * least]

    def sense_in(self, view: View, plans: list[Groups]) -> View:
        """Noise that shows only in the groups: many inputs."""
        for plan in sorted(plans, key=lambda p: p.error)[:3] if not view.noise else ():
            noise = self.sense(plan.apply(view)).noise
            if noise:
                return replace(view, noise=noise)
        return self.sense(view)

    def follow(self, view: View, plans: list[Groups], source: str) -> None:
        for plan in (p for p in plans[:4] if not p.trivial):
            inner = plan.apply(view)
            if self.depth == 0 and not source and not self.groups:
                self.groups = [by_input(row, view.parts, self.pool.X.shape[1]) for row in plan.rows]
            self.solve(inner, f"{source} groups {len(plan.rows)}", grouped=True)

    def front(self, view: View, plan: Groups | None, source: str) -> None:
        """A monomial of the inputs that enter in no other way."""
        if plan is not None:
            with self.clock.share(0.4 * self.clock.seconds):
                self.solve(plan.apply(view), f"{source} front")

    def scan(self, view: View, source: str) -> None:
        """One constant inside; components of a target are known nearly as well as the target itself."""
        if view.noise <= NEARLY * view.scale:
            with self.clock.share(0.12 * self.clock.seconds):
                self.offer(scan_fits(view, self.clock, self.pool.allowed), f"{source} scan")

    def merge(self, view: View, source: str) -> None:
        """Inputs that enter by one quantity of them."""
        inner = _attempt(merged, view, self.clock)
        if inner is not None:
            with self.clock.share(0.4 * self.clock.seconds):
                self.solve(inner, f"{source} merged")

    def mixing(self, view: View, source: str) -> None:
        """From one input to another, by a share that depends on neither."""
        for inner in _attempt(lambda: list(mixed_inputs(view, self.clock))) or [] if source in ("", " merged") else []:
            with self.clock.share(0.15 * self.clock.seconds):
                self.solve(inner, "mixing")

    def exponent(self, view: View) -> None:
        """The logarithm of the target as a law of its own."""
        outer = view.outer("log")
        if outer is not None and np.std(outer.t) > 0:
            with self.clock.share(0.15 * self.clock.seconds):
                self.solve(outer, "exponent")

    def differences(self, view: View, source: str) -> None:
        self.clock.spend((1 + view.k) * view.k * linear_work(1000, 80))
        pairs = _attempt(find_differences, view)
        if pairs:
            self.solve(apply_differences(view, pairs), f"{source} differences")

    def peel(self, view: View, source: str) -> None:
        """Separable targets: one component first, then the rest."""
        if self.depth >= DEEPEST:
            return
        self.clock.spend((1 + view.k) * view.k * linear_work(800, 60))
        for separation in (_attempt(separate, view) or [])[:2]:
            with self.clock.share(0.4 * self.clock.seconds):
                self.peel_one(view, separation, f"{source} {separation.name} apart")

    def factor(self, view: View, source: str) -> None:
        """A function of one input, or of a difference, as a factor of a target of both signs."""
        if self.depth >= DEEPEST or view.one_sign:
            return
        self.clock.spend(3 * (1 + view.k) * view.k * linear_work(500, 50))
        for tree, others in (_attempt(factors, view) or [])[:2]:
            with self.clock.share(0.3 * self.clock.seconds):
                rest = view.over(tree).of([ex.var(i) for i in others])
                Solver(self.pool, self.clock, self.seed, self.depth + 1).solve(rest, f"{source} {tree[0]} off")

    def peel_one(self, view: View, s: Separation, source: str) -> None:
        if s.name == "log":
            powers = pure_powers(view.P, s)
            if powers is not None:
                front, others = powers
                rest = view.over(ex.monomial(view.variables, front)).of([ex.var(i) for i in others])
                Solver(self.pool, self.clock, self.seed, self.depth + 1).solve(rest, f"{source} powers")
                return
        first = min(range(len(s.components)), key=lambda i: len(s.components[i]))
        mine = s.components[first]
        others = [i for i in range(view.k) if i not in mine]
        values = np.exp(s.values[first]) if s.name == "log" else s.values[first]
        outer = view if s.name == "log" else view.outer(s.name)
        if outer is None:
            return
        w = outer.w * (np.abs(view.t / values) if s.name == "log" else 1.0)
        noise = max(s.errors[first], 1e-12 * view.scale)
        found = [(tree, 10 * noise) for tree in self.component(outer.P[:, mine], values, w, noise)]
        simple = [plain for tree, _ in found if (plain := simplified(tree, s.name)) is not None]
        for tree, left in [(plain, 0.0) for plain in simple[:1]] + found:
            there = ex.substitute(tree, [ex.var(i) for i in mine])
            rest = outer.over(there) if s.name == "log" else outer.minus(there)
            rest = replace(rest.of([ex.var(i) for i in others]), noise=max(view.noise, left))
            if rest.usable:
                inner = Solver(self.pool, self.clock, self.seed, self.depth + 1)
                inner.solve(rest, source)

    def terms(self, view: View) -> None:
        """One term with the coefficient one peeled off: y = x_i + g(rest), y = x_i x_j + g(rest)."""
        V, k = view.variables, view.k
        candidates = V + ([ex.mul(V[i], V[j]) for i, j in combinations(range(k), 2)] if k <= 4 else [])
        with self.clock.share(0.3 * self.clock.seconds):
            for term in candidates:
                for tree in (term, ex.mul(ex.fixed(-1.0), term)):
                    rest = view.minus(tree)
                    self.plain(rest, "term off")
                    for name in ("exp", "sq"):
                        outer = rest.outer(name)
                        if outer is not None:
                            self.offer(rational.rationals(outer, self.clock), f"term off {name} quotient")

    def component(self, P: np.ndarray, values: np.ndarray, w: np.ndarray, noise: float) -> list[ex.Tree]:
        """The best formulas for one component, which is known up to ``noise``."""
        part = replace(root(P, values, w**2), noise=0.0)
        scale = np.sqrt(np.mean(w**2))
        part = replace(part, noise=noise / scale)
        pool = Pool(P, values, w**2 / np.mean(w**2), self.clock, self.pool.allowed)
        pool.noise = pool.floor = 3 * part.noise / part.scale
        pool.patience = 0.0
        inner = Solver(pool, self.clock, self.seed, self.depth + 1)
        try:
            with self.clock.share(0.2 * self.clock.seconds):
                inner.solve(part, "component")
        except Solved:
            pass
        return [c.tree for c in pool.found[:2] if c.error < pool.noise]

    def last(self, view: View) -> None:
        """What is left when nothing has solved the problem: approximations of the data themselves."""
        self.approximate(view)
        rough = replace(view, noise=0.5 * view.scale)
        self.offer(rational.rationals(rough, self.clock), "approximation")

    def approximate(self, view: View) -> None:
        """Sums of few features, all lengths."""
        self.once(  # of all inputs too: many weak ones pass for idle ones
            f"approximation by {view.k} inputs",
            lambda: self.offer(approximations(view, self.clock, self.pool.allowed), "approximation", keep=True),
        )
