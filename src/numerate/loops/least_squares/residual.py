"""A residual function written in torch, traced with its Jacobian and emitted as C++ that fits many starts at once.

The function is traced for one row together with its vector-Jacobian products (:mod:`numerate.loops.tracing`), lowered
to the intermediate form, and taken apart into single numbers (:mod:`~numerate.loops.least_squares.scalars`). What
depends on the parameters alone is computed once per evaluation; what depends on the data alone once, as further columns
of the table, a lane being a row; the rest for every row, a lane being a start.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp

from numerate.loops.least_squares.marquardt import Array, Found, LevenbergMarquardt, full_matrices
from numerate.loops.least_squares.scalars import Scalar, Scalars, Value
from numerate.loops.least_squares.source import piece, source
from numerate.loops.lowering.lower import lower
from numerate.loops.step import Tensors
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered, trace_example

Function = Callable[..., Tensor]
"""(parameters (P,), *columns (n, ...)) -> residuals (n,) or (n, O)"""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "logical_and": "&", "logical_or": "|", "logical_xor": "^",
}  # fmt: skip
_PREFIX = {"neg": "-", "logical_not": "~"}
_NAMES = {"exp": "exp_lanes", "log": "log_lanes", "sqrt": "sqrt_lanes", "abs": "abs_lanes"}
_TRUTH = {"lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not"}
_PARAMETERS = "parameters"


class Emitted:
    """The native fit of a residual function; raises NotLowered where it cannot be expressed.

    Args:
        function: (parameters (P,), *columns) -> residuals of the rows.
        size: P.
        columns: the data, each (n, ...) float64; their numbers do not matter.
    """

    def __init__(self, function: Function, size: int, columns: Sequence[Tensor]) -> None:
        self.size = size
        self.scalars = _scalars(function, size, columns)
        self.residuals = self.scalars.outputs["residual"]
        self.jacobian = self.scalars.outputs["jacobian"]
        self.widths = [math.prod(column.shape[1:]) for column in columns]
        self.values = self.scalars.needed()
        self.source = self.emit()

    # ------------------------------------------------------------ text

    def emit(self) -> str:
        """The C++ source."""
        kinds = _kinds(self.values)
        made = [v for v in self.values if v.args]
        read = {a for v in made if kinds[v] == "row" for a in v.args if isinstance(a, Scalar)}
        read |= {v for v in (*self.residuals, *self.jacobian) if isinstance(v, Scalar)}
        hoisted = [v for v in made if kinds[v] == "parameters" and v in read]
        self.prepared = [v for v in made if kinds[v] == "data" and v in read]
        inputs = sum(self.widths)
        texts = {v: f"h[{i}]" for i, v in enumerate(hoisted)}
        texts |= {v: f"c(table[{inputs + i} * stride])" for i, v in enumerate(self.prepared)}
        lines = [source("marquardt.hpp")]
        lines += [f"const int PARAMETERS = {self.size}, OUTPUTS = {len(self.residuals)}, HOISTED = {len(hoisted)};"]
        lines += ["static INLINE void hoisted(const V *p, V *h) {"]
        lines += self.body([v for v in made if kinds[v] == "parameters"])
        lines += [*(f"  h[{i}] = {_as_number(v, f'v{v.index}')};" for i, v in enumerate(hoisted)), "}"]
        lines += ["static INLINE void row(const double *table, int64_t stride, const V *p, const V *h, V *out) {"]
        for value in (*hoisted, *self.prepared):
            text = texts[value]
            lines.append(f"  const {_type(value)} v{value.index} = {f'{text} != 0.0' if _is_truth(value) else text};")
        lines += self.body([v for v in made if kinds[v] == "row"])
        lines += [f"  out[{i}] = {self.operand(v)};" for i, v in enumerate((*self.residuals, *self.jacobian))]
        lines += [
            "}",
            "// Columns that depend on the data alone.",
            'extern "C" void prepare(int64_t stride, double *columns) {',
        ]
        lines += [
            "  for (int64_t first = 0; first < stride; first += LANES) {",
            "    const double *const table = columns + first;",
        ]
        lines += self.body([v for v in made if kinds[v] == "data"], wide=True)
        for i, value in enumerate(self.prepared):
            lines.append(
                f"    *(V *)(columns + {inputs + i} * stride + first) = {_as_number(value, f'v{value.index}')};"
            )
        lines += ["  }", "}", piece("residual.hpp"), 'extern "C" int64_t lanes() { return LANES; }']
        return "\n".join(lines)

    def body(self, values: list[Scalar], wide: bool = False) -> list[str]:
        """A line for each value; ``wide``: a lane is a row of the table."""
        return [f"  const {_type(v)} v{v.index} = {self.call(v, wide)};" for v in values]

    def call(self, value: Scalar, wide: bool) -> str:
        args = [self.operand(a, wide) for a in value.args]
        if value.function in _INFIX:
            return f"{args[0]} {_INFIX[value.function]} {args[1]}"
        if value.function in _PREFIX:
            return _PREFIX[value.function] + args[0]
        return f"{_NAMES.get(value.function, value.function)}({', '.join(args)})"

    def operand(self, value: Value, wide: bool = False) -> str:
        if not isinstance(value, Scalar):
            return _constant(value)
        if value.args:
            return f"v{value.index}"
        if value.function == _PARAMETERS:
            return f"p[{value.place}]"
        column = sum(self.widths[: int(value.function)]) + value.place
        return f"*(const V *)(table + {column} * stride)" if wide else f"c(table[{column} * stride])"

    # ------------------------------------------------------------ run

    def fit(
        self, starts: Array, columns: Sequence[Tensor], optimiser: LevenbergMarquardt, threads: int | None = None
    ) -> Found:
        """Fit from every start; starts: (S, P)."""
        library = _library(self.source)
        rows = len(columns[0])
        stride = -(-rows // library.lanes()) * library.lanes()
        flat = torch.cat([column.reshape(rows, -1) for column in columns], 1).T
        table = torch.zeros(flat.shape[0] + len(self.prepared) + 1, stride, dtype=torch.float64)
        skip = -table.data_ptr() // 8 % library.lanes()  # vectors lie at multiples of their size
        table = table.flatten()[skip : skip + (table.shape[0] - 1) * stride].view(-1, stride)
        table[: len(flat), :rows] = flat
        table[: len(flat), rows:] = flat[:, -1:]
        library.prepare(ctypes.c_int64(stride), native.pointer(table))
        starts = np.ascontiguousarray(starts, float)
        count, size = starts.shape
        points, losses, normals = np.empty_like(starts), np.empty(count), np.empty((count, size * (size + 1) // 2))
        evaluations, converged = (np.empty(count, np.int64) for _ in range(2))
        outs = [native.pointer(torch.from_numpy(a)) for a in (points, losses, normals, evaluations, converged)]
        arguments = (native.pointer(table), native.pointer(torch.from_numpy(starts)), ctypes.byref(optimiser.packed()))

        def run(first: int, last: int) -> None:
            counts = (ctypes.c_int64(n) for n in (first, last, rows, stride))
            library.fit(*counts, *arguments, *outs)

        native.over_parts(run, count, threads)
        return Found(points, losses, full_matrices(normals, size), evaluations, converged.astype(bool))


@lru_cache(maxsize=32)
def _library(source: str) -> ctypes.CDLL:
    return native.library(source)


def _scalars(function: Function, size: int, columns: Sequence[Tensor]) -> Scalars:
    """Residual and Jacobian of one row as single numbers."""

    def joint(values: Tensors) -> Tensors:
        row = [values[str(k)] for k in range(len(columns))]
        residual, pull, *_ = vjp(lambda p: function(p, *row).reshape(-1), values[_PARAMETERS])
        basis = torch.eye(len(residual), dtype=residual.dtype)
        return {"residual": residual, "jacobian": torch.stack([pull(each)[0] for each in basis])}

    examples = {_PARAMETERS: torch.zeros(size, dtype=torch.float64)}
    examples |= {str(k): torch.zeros(1, *column.shape[1:], dtype=torch.float64) for k, column in enumerate(columns)}
    try:
        traced = trace_example(joint, examples)
    except NotLowered:
        raise
    except RuntimeError as error:
        raise NotLowered(f"a function that cannot be traced ({str(error).splitlines()[0]})") from None
    return Scalars(lower(traced), torch.float64)


def _kinds(values: list[Scalar]) -> dict[Scalar, str]:
    """Whether each value depends on the ``parameters`` alone, on the ``data`` alone, or on both (``row``)."""
    kinds: dict[Scalar, str] = {}
    for value in values:
        if value.args:
            found = {kinds[a] for a in value.args if isinstance(a, Scalar)}
            kinds[value] = found.pop() if len(found) == 1 else "row"
        else:
            kinds[value] = "parameters" if value.function == _PARAMETERS else "data"
    return kinds


def _is_truth(value: Scalar) -> bool:
    if value.function == "where":
        return all(_is_truth(a) if isinstance(a, Scalar) else isinstance(a, bool) for a in value.args[1:])
    return value.function in _TRUTH


def _type(value: Scalar) -> str:
    return "M" if _is_truth(value) else "V"


def _as_number(value: Scalar, text: str) -> str:
    return f"to_float({text})" if _is_truth(value) else text


def _constant(value: float | bool) -> str:
    if isinstance(value, bool):
        return f"c({str(value).lower()})"
    if math.isnan(value):
        return "c(NOT_A_NUMBER)"
    return f"c({'-' if value < 0 else ''}INF)" if math.isinf(value) else f"c({float(value)!r})"
