"""Dimensionless groups of a view: candidates by the index model, rounded, with the monomial in front."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import index
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock, check_time, linear_work
from numerate.discover.view import View

DEGREE = {1: 8, 2: 6, 3: 5, 4: 4}


@dataclass(frozen=True)
class Groups:
    """y = x^front H(groups) with relative error ``error`` for a free polynomial H."""

    error: float
    front: list[Fraction]
    rows: list[list[Fraction]]

    def description(self, n: int) -> float:
        """Length in nats of a description of n rows: residuals, the link's coefficients, the exponents."""
        link = len(poly.exponents(len(self.rows), DEGREE[len(self.rows)]))
        exponents = [q for row in [self.front, *self.rows] for q in row]
        return n * np.log(self.error) + link + sum(abs(q.numerator) + 2 * (q.denominator - 1) for q in exponents)

    @property
    def trivial(self) -> bool:
        """The inputs themselves, with nothing in front."""
        own = [[Fraction(int(i == j)) for j in range(len(self.front))] for i in range(len(self.front))]
        return not any(self.front) and sorted(self.rows) == sorted(own)

    def apply(self, view: View) -> View:
        """The view with the front divided out, as a function of the groups."""
        return view.over(ex.monomial(view.variables, self.front)).of(
            [ex.monomial(view.variables, r) for r in self.rows]
        )


def find_groups(view: View, clock: Clock, seed: int = 0, most: int = 3, rows: int = 600) -> list[Groups]:
    """Groups by power units with a free link, fewest first. Inputs of both signs stay themselves.

    Under noise the exponents are known less well: more rows, every rounding, and those with the shortest description
    first.
    """
    v = view.head(2 * rows if view.noise else rows)
    y, d = v.t, v.k
    pos = view.positive
    if d < 2 or not pos.any():
        return []
    rng = np.random.default_rng((seed, 1))
    Z = logarithms(v.P, pos)
    found: list[Groups] = []
    tried = set()
    fits: list[tuple[float, np.ndarray, np.ndarray]] = []
    for r in range(1, min(most, d) + 1):
        if clock.left < 0.1 * clock.seconds or (r == 3 and d == 3):
            break
        fits = [(0.0, np.zeros(d), np.eye(d))] if r == d else _fits(Z, y, r, rng, clock, fits[:1])
        for _, _, B in fits[:2]:
            for pivots, R in _roundings(B, pos, bool(view.noise)):
                key = (pivots, tuple(map(tuple, R)))
                if key not in tried:
                    tried.add(key)
                    clock.spend(40 * linear_work(len(y), len(poly.exponents(r, DEGREE[r]))))
                    found += _with_front(Z, y, pos, pivots, R, DEGREE[r], bool(view.noise))
                if not view.noise:
                    break
        if r == 1 and view.noise and pos.all():
            found += _of_the_monomial(Z, y, pos)
        if found and min(g.error for g in found) < 1e-5:
            break
    best = min((g.error for g in found), default=0.0)
    if view.noise:
        likely = sorted(found, key=lambda g: g.description(len(y)))
        return [g for g in likely if g.error < 1.5 * best][:6]
    good = [g for g in found if g.error < (1.5 if best > 1e-3 else 6) * best + 1e-6]
    return sorted(good, key=lambda g: (len(g.rows), g.error))


def logarithms(P: np.ndarray, pos: np.ndarray) -> np.ndarray:
    """log of the positive inputs; the others standardised."""
    Z = np.where(pos, np.log(np.abs(P) + 1e-300), P)
    return (Z - Z.mean(0)) / np.where(pos, 1.0, Z.std(0) + 1e-300)


def _fits(Z: np.ndarray, y: np.ndarray, r: int, rng: np.random.Generator, clock: Clock, fewer: list):
    """The index model from the surrogate's gradients, from the fit with one group less, and from random starts.

    All starts take a few steps with a link of degree two; the best go on with the full degree.
    """
    n, d = Z.shape
    starts: list[index.Start] = []
    if (y > 0).all() or (y < 0).all():
        t = np.log(np.abs(y))
        G = index.gradients(Z, t, 3 if d > 6 else 4)
        directions = np.linalg.svd(G - G.mean(0), full_matrices=False)[2]
        a = np.linalg.lstsq(np.concatenate([np.ones((n, 1)), Z], 1), t, rcond=None)[0][1:]
        starts.append((a, directions[:r]))
    starts += [
        (a, np.concatenate([B, rng.normal(size=(1, d))])) for _, a, B in fewer if len(B) == r - 1 for _ in range(4)
    ]
    starts.append((np.zeros(d), rng.normal(size=(r, d))))
    starts += [(rng.normal(size=d), rng.normal(size=(r, d))) for _ in range(12)]
    late = lambda: clock.elapsed > clock.seconds  # noqa: E731
    clock.spend(_work(300, r, d, 2, 25 * len(starts)))
    rough = index.fit_index(Z[:300], y[:300], starts, 2, steps=25, stop=late)
    again = starts[:1] + [(a, B) for _, a, B in rough[:7]]
    clock.spend(_work(n, r, d, DEGREE[r], 60 * len(again)))
    return index.fit_index(Z, y, again, DEGREE[r], stop=late)


def _work(n: int, r: int, d: int, degree: int, evaluations: int) -> float:
    columns = len(poly.exponents(r, degree)) + (r + 1) * (d - r)
    return 2e-10 * evaluations * n * columns**2


def _roundings(
    B: np.ndarray, pos: np.ndarray, noisy: bool = False
) -> Iterator[tuple[tuple[int, ...], list[list[Fraction]]]]:
    """The row space of B rounded, finely first; under noise to whole numbers and halves, too."""
    coarse = [(0.51, (1,)), (0.26, (1, 2))] if noisy else []
    for tolerance, denominators in [*((t, (1, 2, 3)) for t in (0.03, 0.12, 0.3)), *coarse]:
        e = index.echelon(B, tolerance, denominators)
        if e is None:
            continue
        mixed = any(row[j] and sum(1 for v in row if v) > 1 for row in e[1] for j in range(len(pos)) if not pos[j])
        if not mixed:
            yield e


def _with_front(
    Z: np.ndarray,
    y: np.ndarray,
    pos: np.ndarray,
    pivots: tuple[int, ...],
    R: list[list[Fraction]],
    degree: int,
    noisy: bool = False,
) -> list[Groups]:
    """With the groups fixed, the exponents in front by variable projection; under noise also coarser ones, and none."""
    n, d = Z.shape
    free = [j for j in range(d) if j not in pivots and pos[j]]
    t = y / (np.sqrt(np.mean(y**2)) + 1e-300)
    U = Z @ np.array([[float(v) for v in row] for row in R]).T
    H = np.concatenate(
        [np.ones((n, 1)), poly.columns(U / (np.abs(U).max(0) + 1e-9), poly.exponents(len(R), degree))], 1
    )

    def residual(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        check_time()
        Hw = H * np.exp(np.clip(Z @ a, -30, 30))[:, None]
        Q = np.linalg.qr(Hw / np.linalg.norm(Hw, axis=0))[0]
        return t - Q @ (Q.T @ t), Q

    a = _front_exponents(Z, y, t, H, free, residual)
    fronts = {tuple(index.fraction(v, 0.3, (1, 2)) for v in a)}
    if noisy:
        fronts |= {tuple(index.fraction(v, 0.51, (1,)) for v in a), (Fraction(0),) * d}
    out = []
    for front in fronts:
        if None not in front:
            r = residual(np.array([float(v) for v in front]))[0]  # type: ignore[arg-type]
            out.append(Groups(float(np.sqrt(np.mean(r**2))), list(front), R))  # type: ignore[arg-type]
    return out


def _of_the_monomial(Z: np.ndarray, y: np.ndarray, pos: np.ndarray) -> list[Groups]:
    """The product of powers nearest to y as the only group: near a power law, group and front look alike."""
    size = np.maximum(np.abs(y), 1e-3 * np.sqrt(np.mean(y**2)))
    A = np.concatenate([np.ones((len(y), 1)), Z], 1) * size[:, None]
    e = np.round(np.linalg.lstsq(A, np.log(size) * size, rcond=None)[0][1:])
    if not e.any() or np.abs(e).max() > 6:
        return []
    pivot = int(np.flatnonzero(e)[0])
    row = [Fraction(int(q)) / int(e[pivot]) for q in e]
    return _with_front(Z, y, pos, (pivot,), [row], DEGREE[1], noisy=True)


def _front_exponents(Z, y, t, H, free, residual) -> np.ndarray:
    d = Z.shape[1]
    best = (np.inf, np.zeros(d))
    for start in range(3):
        a = np.zeros(d)
        if start == 0 and free and ((y > 0).all() or (y < 0).all()):
            A = np.concatenate([H, Z[:, free]], 1)
            a[free] = np.linalg.lstsq(A, np.log(np.abs(y)), rcond=None)[0][H.shape[1] :]
        elif start == 2:
            a[free] = np.random.default_rng(5).normal(size=len(free))
        r, Q = residual(a)
        damping = 1e-3
        for _ in range(25 if free else 0):
            J = (t - r)[:, None] * Z[:, free]
            J = J - Q @ (Q.T @ J)
            S = J.T @ J
            step = np.linalg.lstsq(
                S + (damping * np.trace(S) / len(free) + 1e-14) * np.eye(len(free)), J.T @ r, rcond=None
            )[0]
            a2 = a.copy()
            a2[free] += step
            r2, Q2 = residual(a2)
            if r2 @ r2 < r @ r:
                small = 1 - (r2 @ r2) / (r @ r) < 1e-6
                a, r, Q, damping = a2, r2, Q2, damping / 5
                if small:
                    break
            else:
                damping *= 10
        error = float(np.sqrt(r @ r / len(t)))
        best = min(best, (error, a), key=lambda b: b[0])
        if error < 1e-4 or not free:
            break
    return best[1]


def by_input(row: list[Fraction], parts: Sequence[ex.Tree], count: int) -> list[Fraction]:
    """Exponents of a view's inputs as exponents of the data's; the view's are some of these."""
    out = [Fraction(0)] * count
    for part, exponent in zip(parts, row):
        out[part[1]] = exponent
    return out
