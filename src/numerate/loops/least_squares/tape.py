"""Constants of many expressions at once, on one table: every candidate of a search refitted by one call.

An expression is a :class:`Tape`, a list of instructions, so that nothing is compiled for it. :func:`refit_native` runs
tapes with a lane for each row and takes steps with a lane for each expression; :func:`refit_numpy` is the reference.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from numerate.loops.least_squares.marquardt import (
    Array,
    LevenbergMarquardt,
    full_matrices,
    levenberg_marquardt,
    standard_errors,
)
from numerate.loops.least_squares.source import source
from numerate.loops.toolchain import native

OPTIMISER = LevenbergMarquardt(evaluations=100)
LEAVES = ("input", "number", "constant")

_Rule = tuple[Callable[..., Any], ...]
OPERATIONS: dict[str, _Rule] = {  # f(x, y), then its derivatives by x and y, given x, y and f
    "add": (lambda x, y: x + y, lambda x, y, f: 1.0, lambda x, y, f: 1.0),
    "sub": (lambda x, y: x - y, lambda x, y, f: 1.0, lambda x, y, f: -1.0),
    "mul": (lambda x, y: x * y, lambda x, y, f: y, lambda x, y, f: x),
    "div": (lambda x, y: x / y, lambda x, y, f: 1 / y, lambda x, y, f: -f / y),
    "pow": (np.power, lambda x, y, f: y * np.power(x, y - 1), lambda x, y, f: f * np.log(x)),
    "neg": (np.negative, lambda x, f: -1.0),
    "abs": (np.abs, lambda x, f: np.sign(x)),
    "sign": (np.sign, lambda x, f: 0.0),
    "sqrt": (np.sqrt, lambda x, f: 0.5 / f),
    "square": (np.square, lambda x, f: 2 * x),
    "exp": (np.exp, lambda x, f: f),
    "log": (np.log, lambda x, f: 1 / x),
    "sin": (np.sin, lambda x, f: np.cos(x)),
    "cos": (np.cos, lambda x, f: -np.sin(x)),
    "tan": (np.tan, lambda x, f: 1 + f * f),
    "sinh": (np.sinh, lambda x, f: np.cosh(x)),
    "cosh": (np.cosh, lambda x, f: np.sinh(x)),
    "tanh": (np.tanh, lambda x, f: 1 - f * f),
    "asin": (np.arcsin, lambda x, f: 1 / np.sqrt(1 - x * x)),
    "acos": (np.arccos, lambda x, f: -1 / np.sqrt(1 - x * x)),
    "atan": (np.arctan, lambda x, f: 1 / (1 + x * x)),
}
_CODES = {name: code for code, name in enumerate((*LEAVES, *OPERATIONS))}


@dataclass
class Tape:
    """An expression as instructions, each of earlier ones; its value is that of the last.

    >>> tape = Tape()
    >>> place = tape.call("mul", tape.constant(1.0), tape.call("sin", tape.input(0)))  # c sin(x0), from c = 1
    """

    code: list[tuple[str, int, int]] = field(default_factory=list)
    """Operation and the places of its arguments; a leaf has its column or the number of its constant."""
    numbers: list[float] = field(default_factory=list)
    """The value of each instruction that is a number."""
    starts: list[float] = field(default_factory=list)
    """Where each constant starts."""

    def input(self, column: int) -> int:
        """A column of the table."""
        return self._append("input", column)

    def number(self, value: float) -> int:
        """A number that stays as it is."""
        return self._append("number", 0, value=value)

    def constant(self, start: float) -> int:
        """A constant to be fitted."""
        self.starts.append(float(start))
        return self._append("constant", len(self.starts) - 1)

    def call(self, operation: str, left: int, right: int | None = None) -> int:
        """An operation on earlier instructions. Raises ValueError if there is none of that name and arguments."""
        if operation not in OPERATIONS or len(OPERATIONS[operation]) != (2 if right is None else 3):
            raise ValueError(
                f"there is no operation {operation} of {1 if right is None else 2}; known: {', '.join(OPERATIONS)}"
            )
        return self._append(operation, left, right)

    def _append(self, operation: str, left: int, right: int | None = None, value: float = 0.0) -> int:
        place = len(self.code)
        self.code.append((operation, left, place if right is None else right))
        self.numbers.append(float(value))
        return place

    def varies(self) -> list[bool]:
        """Whether each instruction depends on a constant."""
        found: list[bool] = []
        for operation, left, right in self.code:
            own = [] if operation in LEAVES else [found[left], *found[right : right + 1]]
            found.append(operation == "constant" or any(own))
        return found


@dataclass(frozen=True)
class Refits:
    """For each expression: constants and their standard errors, and the rms residual relative to that of the target.

    ``error`` is NaN where an expression has no number at its start.
    """

    constants: list[Array]
    standard_errors: list[Array]
    error: Array
    evaluations: Array
    converged: Array


def refit(
    tapes: Sequence[Tape],
    X: Array,
    y: Array,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> Refits:
    """Minimise Σ w (f(X; c) - y)² over the constants c of every expression; natively where there is a compiler.

    Args:
        tapes: the expressions.
        X: (n, d) inputs.
        y: (n,) targets.
        weights: (n,) or None for ones.
        optimiser: its settings.
        threads: at most so many; None for torch's number.
    """
    run = refit_native if native.available() else refit_numpy
    return run(tapes, X, y, weights, optimiser, threads)


def refit_numpy(
    tapes: Sequence[Tape],
    X: Array,
    y: Array,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> Refits:
    """:func:`refit` in NumPy, one expression after the other."""
    table = _Table.of(tapes, X, y, weights)
    found = [levenberg_marquardt(_Expression(tape, table), np.array([tape.starts]), optimiser) for tape in tapes]
    points, normals = [f.points[0] for f in found], [f.normals for f in found]
    losses, evaluations, converged = (
        np.array([getattr(f, name)[0] for f in found]) for name in ("losses", "evaluations", "converged")
    )
    return table.result(points, normals, losses, evaluations, converged)


def refit_native(
    tapes: Sequence[Tape],
    X: Array,
    y: Array,
    weights: Array | None = None,
    optimiser: LevenbergMarquardt = OPTIMISER,
    threads: int | None = None,
) -> Refits:
    """:func:`refit` as native code. Raises NoCompiler or CompileError where it cannot be compiled."""
    table, library = _Table.of(tapes, X, y, weights), _library()
    rows, block = len(table.target), library.rows_at_once()
    stride = -(-rows // block) * block
    columns = _aligned(len(table.X.T) + 2, stride)
    for column, values in zip(columns, (*table.X.T, table.target, table.root)):
        column[:rows], column[rows:] = values, values[-1]
    columns[-2:, rows:] = 0.0
    size = max(len(tape.starts) for tape in tapes)
    starts = np.zeros((len(tapes), size))
    for row, tape in zip(starts, tapes):
        row[: len(tape.starts)] = tape.starts
    code = np.array(
        [(_CODES[o], a, b, v) for tape in tapes for (o, a, b), v in zip(tape.code, tape.varies())], np.int32
    )
    numbers = np.array([number for tape in tapes for number in tape.numbers])
    begins = np.cumsum([0, *(len(tape.code) for tape in tapes)])
    points, losses, normals = (
        np.empty_like(starts),
        np.empty(len(tapes)),
        np.empty((len(tapes), size * (size + 1) // 2)),
    )
    evaluations, converged = (np.empty(len(tapes), np.int64) for _ in range(2))
    arrays = (columns[:-2], columns[-2], columns[-1], begins, code, numbers, starts)
    given = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    outs = [array.ctypes.data_as(ctypes.c_void_p) for array in (points, losses, normals, evaluations, converged)]
    sizes = [ctypes.c_int64(n) for n in (size, max(len(tape.code) for tape in tapes), rows, stride)]
    packed = optimiser.packed()

    def run(first: int, last: int) -> None:
        library.fit(ctypes.c_int64(first), ctypes.c_int64(last), *sizes, *given, ctypes.byref(packed), *outs)

    native.over_parts(run, len(tapes), threads)
    counts = [len(tape.starts) for tape in tapes]
    matrices = full_matrices(normals, size)
    cut = [matrix[None, :k, :k] for matrix, k in zip(matrices, counts)]
    return table.result([p[:k] for p, k in zip(points, counts)], cut, losses, evaluations, converged.astype(bool))


def _aligned(rows: int, columns: int) -> Array:
    """Zeros whose address is a multiple of 64, the size of the largest vector."""
    memory = np.zeros(rows * columns + 8)
    skip = -memory.ctypes.data // 8 % 8
    return memory[skip : skip + rows * columns].reshape(rows, columns)


@cache
def _library() -> ctypes.CDLL:
    names = ", ".join(f"{name.upper()} = {code}" for name, code in _CODES.items())
    return native.library(f"enum {{ {names} }};\n{source('marquardt.hpp', 'tape.hpp')}")


@dataclass(frozen=True)
class _Table:
    """Checked input; ``target`` has rms 1, and the expressions' values are multiplied by ``root`` as y was for it."""

    X: Array
    target: Array
    root: Array

    @classmethod
    def of(cls, tapes: Sequence[Tape], X: Array, y: Array, weights: Array | None) -> "_Table":
        X, y = np.asarray(X, float), np.asarray(y, float)
        if X.ndim != 2 or y.shape != (len(X),) or len(y) == 0:
            raise ValueError(f"needs X (n, d) and y (n,) with at least one row, got {X.shape} and {y.shape}")
        widest = max((a for tape in tapes for o, a, _ in tape.code if o == "input"), default=-1)
        if widest >= X.shape[1] or not all(tape.code for tape in tapes) or not tapes:
            raise ValueError(f"needs expressions of the {X.shape[1]} inputs, at least one and none empty")
        root = np.ones(len(y)) if weights is None else np.sqrt(np.asarray(weights, float) / np.mean(weights))
        root = root / (np.sqrt(np.mean((y * root) ** 2)) + 1e-300)
        return cls(X, y * root, root)

    def result(
        self, points: list[Array], normals: list[Array], losses: Array, evaluations: Array, converged: Array
    ) -> Refits:
        rows = int(np.count_nonzero(self.root))
        errors = [standard_errors(n, losses[i : i + 1], rows)[0] for i, n in enumerate(normals)]
        return Refits(points, errors, np.sqrt(losses / len(self.target)), evaluations, converged)


class _Expression:
    """A :class:`~numerate.loops.least_squares.marquardt.Model` of one expression; gradients by the tape backwards."""

    fixed_frame = True

    def __init__(self, tape: Tape, table: _Table) -> None:
        self.tape, self.table, self.varies = tape, table, tape.varies()

    def evaluate(self, trial: Array) -> tuple[Array, Array, Any]:
        values: list[Any] = []
        for (operation, left, right), number in zip(self.tape.code, self.tape.numbers):
            if operation == "input":
                values.append(self.table.X[:, left])
            elif operation in LEAVES:
                values.append(trial[0, left] if operation == "constant" else np.float64(number))
            else:
                f = OPERATIONS[operation][0]
                values.append(f(values[left]) if right == len(values) else f(values[left], values[right]))
        used = self.table.root > 0
        residual = np.where(used, self.table.root * values[-1] - self.table.target, 0.0)
        return trial, np.array([residual @ residual]), (values, residual, used)

    def linearise(self, evaluated: Any, which: Array) -> tuple[Array, Array, Array]:
        values, residual, used = evaluated
        jacobian = np.zeros((len(self.tape.starts), len(residual)))
        gradients: list[Any] = [0.0] * len(values)
        gradients[-1] = self.table.root
        for place in reversed(range(len(values))):
            operation, left, right = self.tape.code[place]
            if not self.varies[place]:
                continue
            if operation == "constant":
                jacobian[left] += np.where(used, gradients[place], 0.0)
                continue
            arguments = [left] if right == place else [left, right]
            for argument, slope in zip(arguments, OPERATIONS[operation][1:]):
                if self.varies[argument]:
                    slopes = slope(*(values[a] for a in arguments), values[place])
                    gradients[argument] = gradients[argument] + gradients[place] * slopes
        parts = (jacobian @ jacobian.T, -jacobian @ residual, np.empty(0))
        normal, slope, frame = (part[None][which] for part in parts)
        return normal, slope, frame

    def length(self, points: Array, scale: Array) -> Array:
        return np.sqrt(np.sum((scale * points) ** 2, -1))

    def move(self, points: Array, steps: Array, frames: Array) -> Array:
        return points + steps
