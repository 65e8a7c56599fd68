"""Every elementwise operation and every reduction of the intermediate form: one row each.

To add an operation, add a row to :data:`OPERATIONS` and, for C++, a function of that name to ``prelude.hpp`` (for one
vector, and lifted to a block of examples). Lowering, the interpreter, the passes and all printers read this table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["float", "bool"]
Number = float | bool
Cost = Literal["cheap", "moderate", "expensive"]


@dataclass(frozen=True)
class Operation:
    """An elementwise function.

    Args:
        name: as in the intermediate form.
        arity: number of operands.
        cpp: spelling in C++: a name is called, a symbol is written before or between the operands.
        cuda: spelling in CUDA C++, which is that of C; the same as ``cpp`` by default.
        cuda_exact: spelling that the CUDA compiler does not fuse with a neighbouring operation.
        operands: what it takes; with ``any``, the result is of the kind of its last operands.
        result: kind of the result.
        cost: ``cheap`` is about one short instruction, ``moderate`` one long instruction (a division), ``expensive``
            many instructions.
        aten: names of the ATen operations that are lowered to this one without further ado.
        of_bools: the operation that takes its place if all operands are Booleans.
        reference: what computes it in torch; by default torch's function of the same name.
    """

    name: str
    arity: int
    cpp: str
    cuda: str
    cuda_exact: str | None = None
    operands: Literal["float", "bool", "any"] = "float"
    result: Kind | None = "float"
    cost: Cost = "expensive"
    aten: tuple[str, ...] = ()
    of_bools: str | None = None
    reference: Callable[..., Tensor] | None = None

    def __call__(self, *operands: Tensor) -> Tensor:
        """The reference."""
        return (self.reference or getattr(torch, self.name))(*operands)


def spelled(spelling: str, operands: list[str]) -> str:
    """An operation as text: a call if it is spelled as a name, else a symbol before or between the operands."""
    if spelling.isidentifier():
        return f"{spelling}({', '.join(operands)})"
    return spelling + operands[0] if len(operands) == 1 else f"{operands[0]} {spelling} {operands[1]}"


def _function(name: str, cuda: str | None = None, arity: int = 1, cost: Cost = "expensive", *more: str) -> Operation:
    """A function of numbers that ATen and the C++ prelude have under the same name."""
    return Operation(name, arity, name, cuda or name, cost=cost, aten=(name, *more))


def _arithmetic(
    name: str, symbol: str, exact: str | None, cost: Cost = "cheap", of_bools: str | None = None
) -> Operation:
    return Operation(name, 2, symbol, symbol, exact, cost=cost, of_bools=of_bools)


def _comparison(name: str, symbol: str) -> Operation:
    return Operation(name, 2, symbol, symbol, result="bool", cost="cheap", aten=(name,))


def _logic(name: str, arity: int, cpp: str, cuda: str) -> Operation:
    aten = (f"logical_{name}", f"bitwise_{name}")
    return Operation(f"logical_{name}", arity, cpp, cuda, operands="bool", result="bool", cost="cheap", aten=aten)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("copy", 1, "", "", operands="any", result=None, cost="cheap", reference=lambda a: a),
        Operation("neg", 1, "-", "-", cost="cheap", aten=("neg",)),
        _function("abs", "fabsf", 1, "cheap"),
        _function("sign", None, 1, "cheap", "sgn"),
        _function("sqrt", "sqrtf", 1, "moderate"),
        _function("exp", "expf"),
        _function("expm1", "expm1f"),
        _function("log", "logf"),
        _function("log1p", "log1pf"),
        _function("sin", "sinf"),
        _function("cos", "cosf"),
        _function("tanh", "tanhf"),
        _function("sigmoid"),
        _function("atan", "atanf"),
        _function("erf", "erff"),
        _function("floor", "floorf"),
        _function("ceil", "ceilf"),
        _function("round", "rintf"),
        _function("trunc", "truncf"),
        _arithmetic("add", "+", "__fadd_rn", of_bools="logical_or"),
        _arithmetic("sub", "-", "__fsub_rn"),
        _arithmetic("mul", "*", "__fmul_rn", of_bools="logical_and"),
        _arithmetic("div", "/", None, "moderate"),
        Operation("minimum", 2, "minimum", "minimum", cost="cheap", aten=("minimum",), of_bools="logical_and"),  # NaN
        Operation("maximum", 2, "maximum", "maximum", cost="cheap", aten=("maximum",), of_bools="logical_or"),  # if any
        Operation("pow", 2, "pow", "powf"),
        _function("atan2", "atan2f", 2),
        _comparison("lt", "<"),
        _comparison("le", "<="),
        _comparison("gt", ">"),
        _comparison("ge", ">="),
        _comparison("eq", "=="),
        _comparison("ne", "!="),
        _logic("not", 1, "~", "!"),
        _logic("and", 2, "&", "&&"),
        _logic("or", 2, "|", "||"),
        _logic("xor", 2, "^", "!="),
        Operation("to_float", 1, "to_float", "float", operands="any", cost="cheap", reference=lambda a: a.float()),
        Operation("where", 3, "where", "where", operands="any", result=None, cost="cheap", aten=("where",)),
    )
}
"""Name -> elementwise operation."""


def is_cheap(function: str, *, moderate: bool = True) -> bool:
    """Whether an operation is cheap; ``moderate``: divisions and roots count as cheap."""
    return OPERATIONS[function].cost in ("cheap", "moderate") if moderate else OPERATIONS[function].cost == "cheap"


@dataclass(frozen=True)
class Reduction:
    """How many numbers become one.

    Args:
        operation: the operation that joins two of them.
        neutral: what a running result starts with.
        cuda: function of the CUDA prelude that joins two, to be handed over as a template argument.
        reference: what computes it in torch.
    """

    operation: str
    neutral: Number
    cuda: str
    reference: Callable[..., Tensor]


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction("add", 0.0, "add", torch.sum),
    "prod": Reduction("mul", 1.0, "multiply", torch.prod),
    "max": Reduction("maximum", -math.inf, "maximum", torch.amax),
    "min": Reduction("minimum", math.inf, "minimum", torch.amin),
    "and": Reduction("logical_and", True, "both", torch.all),
    "or": Reduction("logical_or", False, "either", torch.any),
}
"""Name -> reduction."""
