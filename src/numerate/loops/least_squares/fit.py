"""Nonlinear least squares of a function written in torch, from many starts at once."""

import importlib
import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import jacfwd, vmap

from numerate.loops.least_squares.marquardt import (
    Array,
    Found,
    LevenbergMarquardt,
    levenberg_marquardt,
    standard_errors,
)
from numerate.loops.least_squares.residual import Emitted, Function
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered

log = logging.getLogger("numerate")

Backend = Literal["auto", "emitted", "plain"]


@dataclass(frozen=True)
class LeastSquaresResult:
    """Where each of S starts ended.

    Args:
        parameters: (S, P) float64.
        residual: (S,) root mean square of the residuals; NaN where a start gives no number.
        standard_errors: (S, P), sqrt(diag((JᵀJ)⁻¹) rᵀr / (n - P)); NaN where the data do not determine a parameter.
        iterations: (S,) evaluations of the function and its Jacobian.
        converged: (S,) bool; otherwise the evaluations ran out, or no step helped.
        backend: "emitted" or "plain".
    """

    parameters: Tensor
    residual: Tensor
    standard_errors: Tensor
    iterations: Tensor
    converged: Tensor
    backend: str

    @property
    def best(self) -> int:
        """The start with the smallest residual."""
        return int(torch.nan_to_num(self.residual, nan=math.inf).argmin())


def least_squares(
    function: Function,
    parameters: Tensor,
    data: Tensor | Sequence[Tensor],
    *,
    optimiser: LevenbergMarquardt | None = None,
    backend: Backend = "auto",
    threads: int | None = None,
) -> LeastSquaresResult:
    """Minimise the sum of squares of ``function(parameters, *data)`` by Levenberg–Marquardt, from every start.

    >>> x, y = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 0.5, 0.25])
    >>> found = least_squares(lambda p, x, y: p[0] * torch.exp(-p[1] * x) - y, torch.tensor([[1.0, 1.0]]), (x, y))
    >>> found.parameters
    tensor([[2.0000, 0.6931]], dtype=torch.float64)

    Args:
        function: ``(parameters (P,), *data) -> residuals (n,) or (n, O)``; pure, and differentiable by torch.
        parameters: (S, P), one row for each start.
        data: tensors with the n rows as first axis. All is computed in float64.
        optimiser: its settings.
        backend: "emitted": native code, a start in each lane of a vector. "plain": NumPy and torch, the reference.
            "auto": the first where it is possible, else the second with a notice.
        threads: at most so many; None for torch's number.
    """
    starts, columns = _checked(function, parameters, data)
    optimiser, used, found = optimiser or LevenbergMarquardt(), "plain", None
    if backend != "plain":
        try:
            found, used = _emitted(function, starts, columns, optimiser, threads), "emitted"
        except (NotLowered, native.NoCompiler, native.CompileError) as error:
            if backend == "emitted":
                raise
            log.info("least squares by plain torch: %s", str(error).splitlines()[0])
    if found is None:
        found = levenberg_marquardt(_Plain(function, columns), starts, optimiser)
    return _result(found, _residuals(function, starts[0], columns).size, used)


def _emitted(
    function: Function, starts: Array, columns: list[Tensor], optimiser: LevenbergMarquardt, threads: int | None
) -> Found:
    emitted = Emitted(function, starts.shape[1], columns)
    together = _residuals(function, starts[0], columns)
    chosen = range(0, len(columns[0]), max(1, len(columns[0]) // 16))
    alone = [_residuals(function, starts[0], [column[i : i + 1] for column in columns])[0] for i in chosen]
    if not np.allclose(
        np.stack(alone), together[list(chosen)], rtol=1e-9, atol=1e-12 * _size(together), equal_nan=True
    ):
        raise NotLowered("a residual that depends on other rows")
    return emitted.fit(starts, columns, optimiser, threads)


def _size(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def _residuals(function: Function, point: Array, columns: list[Tensor]) -> Array:
    """(n, O)"""
    with torch.no_grad():
        return function(torch.from_numpy(point), *columns).reshape(len(columns[0]), -1).numpy()


def _checked(function: Function, parameters: Tensor, data: Tensor | Sequence[Tensor]) -> tuple[Array, list[Tensor]]:
    """Starts and columns in float64. Raises ValueError if their shapes or the function's do not fit."""
    columns = [
        torch.as_tensor(c).detach().to("cpu", torch.float64) for c in ([data] if isinstance(data, Tensor) else data)
    ]
    starts = torch.as_tensor(parameters).detach().to("cpu", torch.float64)
    if starts.ndim != 2 or 0 in starts.shape:
        raise ValueError(f"parameters must be (starts, P) with at least one of each, got {tuple(starts.shape)}")
    if not columns or any(c.ndim == 0 or len(c) != len(columns[0]) or len(c) == 0 for c in columns):
        shapes = ", ".join(str(tuple(c.shape)) for c in columns) or "none"
        raise ValueError(f"data must be tensors with the same rows, at least one, got {shapes}")
    with torch.no_grad():
        shape = function(starts[0], *columns).shape
    if len(shape) not in (1, 2) or shape[0] != len(columns[0]) or 0 in shape:
        raise ValueError(f"function must give residuals (n,) or (n, O) for {len(columns[0])} rows, got {tuple(shape)}")
    return starts.numpy(), columns


class _Plain:
    """A :class:`~numerate.loops.least_squares.marquardt.Model`: residuals and Jacobians of all starts by vmap."""

    fixed_frame = True

    def __init__(self, function: Function, columns: list[Tensor]) -> None:
        def both(point: Tensor) -> tuple[Tensor, Tensor]:
            residual = function(point, *columns).reshape(-1)
            return residual, residual

        _load_forward_mode()
        self.linear = vmap(jacfwd(both, has_aux=True))

    def evaluate(self, trial: Array) -> tuple[Array, Array, Any]:
        jacobian, residual = (part.numpy() for part in self.linear(torch.from_numpy(trial)))
        return trial, np.sum(residual**2, 1), (jacobian, residual)

    def linearise(self, evaluated: Any, which: Array) -> tuple[Array, Array, Array]:
        J, r = (part[which] for part in evaluated)
        return J.swapaxes(1, 2) @ J, -np.einsum("snp,sn->sp", J, r), np.empty((len(J), 0))

    def length(self, points: Array, scale: Array) -> Array:
        return np.sqrt(np.sum((scale * points) ** 2, -1))

    def move(self, points: Array, steps: Array, frames: Array) -> Array:
        return points + steps


@cache
def _load_forward_mode() -> None:
    """What torch loads when it first differentiates forwards; it warns of its own use of ``torch.jit``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def _result(found: Found, residuals: int, backend: str) -> LeastSquaresResult:
    errors = standard_errors(found.normals, found.losses, residuals)
    arrays = (found.points, np.sqrt(found.losses / residuals), errors, found.evaluations, found.converged)
    parameters, residual, errors, evaluations, converged = map(torch.from_numpy, arrays)
    return LeastSquaresResult(parameters, residual, errors, evaluations, converged, backend)
