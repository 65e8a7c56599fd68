"""Index models by variable projection: power units followed by a free link, from many starts at once.

y = x^a · H(x^b₁, …, x^b_r) = exp(a·z) H(Bz) with z = log x and H a polynomial of r variables. The coefficients of H are
eliminated (Golub & Pereyra, 1973, with Kaufman's Jacobian); a and the row space of B are found by Levenberg–Marquardt.
Two functions of one signature: :func:`fit_index_native` has one start in each lane of a vector,
:func:`fit_index_numpy` is the reference.

The rows of B are kept orthonormal, and a orthogonal to them: what lies in their span belongs to the link. A step moves
along the orthogonal complement N of B alone, (r + 1)(d - r) numbers instead of (r + 1) d.
"""

import ctypes
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch

from numerate.loops.least_squares.marquardt import Array, LevenbergMarquardt, levenberg_marquardt
from numerate.loops.least_squares.source import source
from numerate.loops.toolchain import native

OPTIMISER = LevenbergMarquardt(damping=1e-2, small_gain=1e-4, small_step=1e-12, evaluations=80, refusals=6)
ROWS, MOST_DEGREE, MOST_INPUTS = 4, 12, 64
"""As in ``index.hpp``."""


@dataclass(frozen=True)
class IndexFit:
    """Where each start ended: a (S, d), B (S, r, d) with orthonormal rows.

    ``error`` (S,) is the root mean square residual relative to that of y, NaN where a start gives no number.
    """

    a: Array
    B: Array
    error: Array
    evaluations: Array
    converged: Array


def fit_index(
    Z: Array,
    y: Array,
    a: Array,
    B: Array,
    degree: int,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> IndexFit:
    """Fit y = exp(a·z) H(Bz) from every start; natively where there is a compiler.

    Args:
        Z: (n, d) logarithms of the inputs, or inputs that are to enter linearly.
        y: (n,) targets of any sign.
        a: (S, d) starts of the exponents in front.
        B: (S, r, d) starts of the exponents of the groups, r < d.
        degree: total degree of the link.
        weights: (n,) of the squared residuals, or None for ones.
        optimiser: its settings.
        threads: at most so many; None for torch's number.
    """
    fit = fit_index_native if native.available() else fit_index_numpy
    return fit(Z, y, a, B, degree, weights, optimiser, threads)


def fit_index_numpy(
    Z: Array,
    y: Array,
    a: Array,
    B: Array,
    degree: int,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> IndexFit:
    """:func:`fit_index` in NumPy, vectorised over the starts."""
    table = _Table.of(Z, y, a, B, degree, weights)
    found = levenberg_marquardt(_Projection(table), table.starts(a, B), table.scaled(optimiser))
    return table.result(found.points, found.losses, found.evaluations, found.converged)


def fit_index_native(
    Z: Array,
    y: Array,
    a: Array,
    B: Array,
    degree: int,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> IndexFit:
    """:func:`fit_index` as native code. Raises NoCompiler or CompileError where it cannot be compiled."""
    table = _Table.of(Z, y, a, B, degree, weights)
    padding = -len(table.target) % ROWS
    rows = [np.pad(part, [(0, padding), *[(0, 0)] * (part.ndim - 1)], mode) for part, mode in (  # type: ignore[call-overload]
        (table.Z, "edge"), (table.target, "constant"), (table.root, "constant")
    )]  # fmt: skip
    starts = table.starts(a, B)
    points, losses = np.empty_like(starts), np.empty(len(starts))
    evaluations, converged = (np.empty(len(starts), np.int64) for _ in range(2))
    arrays = [np.ascontiguousarray(array) for array in (*rows, gram_places(table.groups, degree), starts)]
    results = [points, losses, evaluations, converged]
    pointers = [native.pointer(torch.from_numpy(array)) for array in arrays]
    outs = [native.pointer(torch.from_numpy(array)) for array in results]
    packed = table.scaled(optimiser).packed()
    sizes = [ctypes.c_int64(n) for n in (len(rows[0]), table.inputs, degree)]
    function = _library(table.groups).fit

    def run(first: int, last: int) -> None:
        function(ctypes.c_int64(first), ctypes.c_int64(last), *sizes, *pointers, ctypes.byref(packed), *outs)

    native.over_parts(run, len(starts), threads)
    return table.result(points, losses, evaluations, converged.astype(bool))


@lru_cache(maxsize=8)
def _library(groups: int) -> ctypes.CDLL:
    return native.library(f"const int GROUPS = {groups};\n{source('marquardt.hpp', 'index.hpp')}")


# ---------------------------------------------------------------- the link's polynomials


@lru_cache(maxsize=64)
def exponents(variables: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """All exponents of total degree at most ``degree``, in lexicographic order."""
    if variables == 0:
        return ((),)
    return tuple((k, *rest) for k in range(degree + 1) for rest in exponents(variables - 1, degree - k))


@lru_cache(maxsize=64)
def gram_places(variables: int, degree: int) -> Array:
    """For each entry of the lower triangle of the Gram matrix, the 2^r moments it is the mean of; int32."""
    place = {e: i for i, e in enumerate(exponents(variables, 2 * degree))}
    terms = exponents(variables, degree)
    pairs = ((p, q) for i, p in enumerate(terms) for q in terms[: i + 1])
    both = ([(j + k, abs(j - k)) for j, k in zip(p, q)] for p, q in pairs)
    return np.array([[place[e] for e in product(*choices)] for choices in both], np.int32)


def _chebyshev(x: Array, degree: int) -> tuple[Array, Array]:
    """T_0, ..., T_degree and their derivatives, along a new last axis."""
    T, D = [np.ones_like(x), x], [np.zeros_like(x), np.ones_like(x)]
    for _ in range(degree - 1):
        D.append(2 * T[-1] + 2 * x * D[-1] - D[-2])
        T.append(2 * x * T[-1] - T[-2])
    return np.stack(T[: degree + 1], -1), np.stack(D[: degree + 1], -1)


# ---------------------------------------------------------------- the problem


@dataclass(frozen=True)
class _Table:
    """Checked input; ``target`` has rms 1, and both it and each row of the model are multiplied by ``root``."""

    Z: Array
    target: Array
    root: Array
    groups: int
    degree: int

    @property
    def inputs(self) -> int:
        return self.Z.shape[1]

    @classmethod
    def of(cls, Z: Array, y: Array, a: Array, B: Array, degree: int, weights: Array | None) -> "_Table":
        Z, y = np.ascontiguousarray(Z, float), np.asarray(y, float)
        n, d = Z.shape
        r = np.shape(B)[1] if np.ndim(B) == 3 else 0
        if y.shape != (n,) or np.shape(a) != (len(B), d) or np.shape(B) != (len(B), r, d):
            shapes = f"Z {Z.shape}, y {y.shape}, a {np.shape(a)}, B {np.shape(B)}"
            raise ValueError(f"needs Z (n, d), y (n,), a (S, d) and B (S, r, d), got {shapes}")
        if not 1 <= r < d <= MOST_INPUTS or not 1 <= degree <= MOST_DEGREE or len(B) == 0:
            limits = f"fewer groups than inputs, at most {MOST_INPUTS} inputs and degree 1 to {MOST_DEGREE}"
            raise ValueError(f"needs {limits} and at least one start, got {r} groups, {d} inputs, degree {degree}")
        if not np.isfinite(Z).all() or not np.isfinite(y).all():
            raise ValueError("Z and y must be finite")
        root = np.ones(n) if weights is None else np.sqrt(np.asarray(weights, float) / np.mean(weights))
        target = y * root
        return cls(Z, target / (math.sqrt(np.mean(target**2)) + 1e-300), root, r, degree)

    def starts(self, a: Array, B: Array) -> Array:
        return np.concatenate([np.asarray(a, float)[:, None], np.asarray(B, float)], 1).reshape(len(B), -1)

    def scaled(self, optimiser: LevenbergMarquardt) -> LevenbergMarquardt:
        """A relative error of 1e-12 is enough, unless the settings ask for less."""
        return LevenbergMarquardt(**{**vars(optimiser), "enough": max(optimiser.enough, 1e-24) * len(self.target)})

    def result(self, points: Array, losses: Array, evaluations: Array, converged: Array) -> IndexFit:
        parts = points.reshape(len(points), 1 + self.groups, self.inputs)
        return IndexFit(parts[:, 0], parts[:, 1:], np.sqrt(losses / len(self.target)), evaluations, converged)


class _Projection:
    """A :class:`~numerate.loops.least_squares.marquardt.Model`; the links of all starts by one stacked QR."""

    fixed_frame = False

    def __init__(self, table: _Table) -> None:
        self.table = table
        self.exponents = np.array(exponents(table.groups, table.degree))

    def evaluate(self, trial: Array) -> tuple[Array, Array, Any]:
        t, r = self.table, self.table.groups
        parts = trial.reshape(len(trial), 1 + r, t.inputs)
        Q = _orthonormal(parts[:, 1:])
        B, N = Q[:, :r], Q[:, r:]
        a = parts[:, 0] - np.einsum("srd,srk,sk->sd", B, B, parts[:, 0])
        w = t.root * np.exp(np.clip(a @ t.Z.T, -30, 30))  # (S, n)
        U = t.Z @ B.swapaxes(1, 2)  # (S, n, r)
        low, high = U.min(1, keepdims=True), U.max(1, keepdims=True)
        half = np.maximum((high - low) / 2, 1e-9)
        T, D = _chebyshev((U - (high + low) / 2) / half, t.degree)
        Phi = self.products([T] * r) * w[..., None]
        norms = np.sqrt(np.sum(Phi**2, 1, keepdims=True)) + 1e-150
        finite = np.isfinite(Phi).all((1, 2))
        orthonormal, R = np.linalg.qr(np.where(finite[:, None, None], Phi / norms, 0.0))
        pivots = np.einsum("smm->sm", R)
        kept = np.abs(pivots) > 3e-7
        orthonormal = orthonormal * kept[:, None]
        h = np.einsum("snm,n->sm", orthonormal, t.target)
        residual = t.target - np.einsum("snm,sm->sn", orthonormal, h)
        loss = np.where(finite, np.sum(residual**2, 1), np.nan)
        point = np.concatenate([a[:, None], B], 1).reshape(trial.shape)
        return point, loss, (w, U, T, D, half, norms, orthonormal, R, kept, h, residual, a, N)

    def products(self, tables: list[Array]) -> Array:
        """The terms of the link from the polynomials (S, n, r, degree + 1) of each variable: (S, n, terms)"""
        factors = [table[:, :, j, self.exponents[:, j]] for j, table in enumerate(tables)]
        return math.prod(factors[1:], start=factors[0])

    def linearise(self, evaluated: Any, which: Array) -> tuple[Array, Array, Array]:
        t, r = self.table, self.table.groups
        w, U, T, D, half, norms, orthonormal, R, kept, h, residual, a, N = (part[which] for part in evaluated)
        eye = np.eye(R.shape[-1])
        system = np.where(kept[:, :, None], R, eye)
        c = np.linalg.solve(system, np.where(kept, h, 0.0)[..., None])[..., 0] / norms[:, 0]
        values = [t.target - residual]
        for j in range(r):
            slopes = self.products([D if i == j else T for i in range(r)])
            values.append(w * np.einsum("snm,sm->sn", slopes, c) / half[:, :, j])
        along = t.Z @ N.swapaxes(1, 2)  # (S, n, d - r)
        J = np.stack(values, -1)[..., None] * along[..., None, :]  # (S, n, 1 + r, d - r)
        J[:, :, 1:] -= (values[0][..., None] * U)[..., None] * np.einsum("sjd,sd->sj", N, a)[
            :, None, None
        ]  # a turns with B
        J = J.reshape(*w.shape, J.shape[2] * J.shape[3])
        J = J - orthonormal @ (orthonormal.swapaxes(1, 2) @ J)
        return J.swapaxes(1, 2) @ J, np.einsum("snk,sn->sk", J, residual), N

    def length(self, points: Array, scale: Array) -> Array:
        return np.sqrt(np.sum(scale**2, -1))

    def move(self, points: Array, steps: Array, frames: Array) -> Array:
        along = steps.reshape(len(steps), 1 + self.table.groups, frames.shape[1]) @ frames
        return points + along.reshape(points.shape)


def _orthonormal(B: Array) -> Array:
    """Rows that span those of B, and rows orthogonal to them: (S, r, d) -> (S, d, d)."""
    finite = np.isfinite(B).all((1, 2), keepdims=True)
    Q = np.linalg.qr(np.where(finite, B, 1.0).swapaxes(1, 2), mode="complete")[0].swapaxes(1, 2)
    return np.where(finite, Q, np.nan)
