"""Operations that work number by number, and tensors filled with one number."""

import math
from collections.abc import Callable
from typing import Any

import torch

from numerate.loops.form.ir import Number, View
from numerate.loops.form.operations import OPERATIONS
from numerate.loops.lowering.lowering import Filled, Lowering, Product, Rules, Value, is_bool
from numerate.loops.tracing.trace import NotLowered
from numerate.torch_internals import operation_name

ELEMENTWISE = Rules()


def _elementwise(function: str) -> Callable[..., Value]:
    def rule(self: Lowering, *values: Value | Number) -> Value:
        return self.map(function, *values)

    return rule


for _operation in OPERATIONS.values():
    ELEMENTWISE(*_operation.aten)(_elementwise(_operation.name))


@ELEMENTWISE("add")
def _add(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("add", a, b if alpha == 1 else self.map("mul", b, alpha))


@ELEMENTWISE("sub")
def _sub(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("sub", a, b if alpha == 1 else self.map("mul", b, alpha))


@ELEMENTWISE("rsub")
def _rsub(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("sub", b, a if alpha == 1 else self.map("mul", a, alpha))


@ELEMENTWISE("mul")
def _mul(self: Lowering, a: Value, b: Value | Number) -> Value | Product:
    (*users,) = self.node.users
    if isinstance(a, View) and isinstance(b, View) and len(users) == 1 and operation_name(users[0].target) == "sum":
        return Product((self.as_float(a), self.as_float(b)), self.here)
    return self.map("mul", a, b)


@ELEMENTWISE("div")
def _div(self: Lowering, a: Value, b: Value | Number, rounding_mode: str | None = None) -> Value:
    number = b.number if isinstance(b, Filled) else b
    if not isinstance(number, View) and abs(math.frexp(number)[0]) == 0.5 and 2**-126 <= abs(number) <= 2**126:
        quotient = self.map("mul", a, 1 / number)  # exact for powers of two
    elif rounding_mode == "floor":
        raise NotLowered(f"{self.node.target} rounded down, by anything but a power of two")  # torch goes by the rest
    else:
        quotient = self.map("div", a, b)
    return quotient if rounding_mode is None else self.map(rounding_mode, quotient)


@ELEMENTWISE("reciprocal")
def _reciprocal(self: Lowering, a: Value) -> Value:
    return self.map("div", 1.0, a)


@ELEMENTWISE("rsqrt")
def _rsqrt(self: Lowering, a: Value) -> Value:
    return self.map("div", 1.0, self.map("sqrt", a))


@ELEMENTWISE("square")
def _square(self: Lowering, a: Value) -> Value:
    return self.map("mul", a, a)


@ELEMENTWISE("relu")
def _relu(self: Lowering, a: Value) -> Value:
    return self.map("maximum", a, 0.0)


@ELEMENTWISE("log2", "log10")
def _log_base(self: Lowering, a: Value) -> Value:
    base = 2 if "log2" in str(self.node.target) else 10
    return self.map("mul", self.map("log", a), 1 / math.log(base))


@ELEMENTWISE("exp2")
def _exp2(self: Lowering, a: Value) -> Value:
    return self.map("pow", 2.0, a)


@ELEMENTWISE("sinh")
def _sinh(self: Lowering, a: Value) -> Value:
    grown, shrunk = (
        self.map("expm1", a),
        self.map("expm1", self.map("neg", a)),
    )  # exact near 0, unlike a difference of exp
    return self.map("mul", self.map("sub", grown, shrunk), 0.5)


@ELEMENTWISE("cosh")
def _cosh(self: Lowering, a: Value) -> Value:
    return self.map("mul", self.map("add", self.map("exp", a), self.map("exp", self.map("neg", a))), 0.5)


@ELEMENTWISE("tan")
def _tan(self: Lowering, a: Value) -> Value:
    return self.map("div", self.map("sin", a), self.map("cos", a))


@ELEMENTWISE("asin")
def _asin(self: Lowering, a: Value) -> Value:
    return self.map("atan2", a, _other_side(self, a))


@ELEMENTWISE("acos")
def _acos(self: Lowering, a: Value) -> Value:
    return self.map("atan2", _other_side(self, a), a)


def _other_side(self: Lowering, a: Value) -> Value:
    """The second side of a right triangle with the first, and 1 as the longest."""
    return self.map("sqrt", self.map("mul", self.map("sub", 1.0, a), self.map("add", 1.0, a)))


@ELEMENTWISE("isnan")
def _isnan(self: Lowering, a: Value) -> Value:
    return self.map("ne", a, a)


@ELEMENTWISE("isinf")
def _isinf(self: Lowering, a: Value) -> Value:
    return self.map("eq", self.map("abs", a), math.inf)


@ELEMENTWISE("pow")
def _pow(self: Lowering, a: Value | Number, b: Value | Number) -> Value:
    b = self.as_value(b)
    exponent = b.number if isinstance(b, Filled) else b
    if isinstance(exponent, View):
        return self.map("pow", a, exponent)
    if exponent == 0:
        return Filled(1.0, self.here)
    if exponent == 1:
        return self.map("copy", a)
    if exponent in (2, 3):
        square = self.map("mul", a, a)
        return square if exponent == 2 else self.map("mul", square, a)
    if exponent == 0.5:
        return self.map("sqrt", a)
    if exponent in (-0.5, -1):
        return self.map("div", 1.0, self.map("sqrt", a) if exponent == -0.5 else a)
    return self.map("pow", a, exponent)


@ELEMENTWISE("clamp", "clamp_min", "clamp_max")
def _clamp(self: Lowering, a: Value, min: Any = None, max: Any = None) -> Value:
    if "clamp_max" in str(self.node.target):
        min, max = None, min
    if min is not None:
        a = self.map("maximum", a, min)
    return a if max is None else self.map("minimum", a, max)


@ELEMENTWISE("masked_fill")
def _masked_fill(self: Lowering, a: Value, mask: Value, value: Value | Number) -> Value:
    return self.map("where", mask, value, a)


@ELEMENTWISE("softshrink_backward", "hardshrink_backward")
def _shrink_backward(self: Lowering, gradient: Value, a: Value, threshold: Number) -> Value:
    return self.map("where", self.map("le", self.map("abs", a), threshold), 0.0, gradient)


@ELEMENTWISE("copy")
def _copy(self: Lowering, a: Value, source: Value) -> Value:
    return self.map("copy", source)


@ELEMENTWISE("_to_copy", "to", "_conj", "clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "view_as")
def _same(self: Lowering, a: Value, *_: Any, **__: Any) -> Value:
    boolean, wanted = is_bool(a), self.node.meta["val"].dtype
    if boolean and wanted != torch.bool:
        return self.map("to_float", a)
    if wanted == torch.bool:
        return a if boolean else self.map("ne", a, 0.0)
    return a if wanted.is_floating_point or wanted.is_complex else self.map("trunc", a)


# ---------------------------------------------------------------- filled tensors


@ELEMENTWISE("full", "full_like", "new_full")
def _full(self: Lowering, like: Any, *arguments: Any, **options: Any) -> Filled:
    number = options.get("fill_value", arguments[-1] if arguments else None)
    return _typed(self, number.number if isinstance(number, Filled) else number)


@ELEMENTWISE("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_permuted")
def _zeros(self: Lowering, *_: Any, **__: Any) -> Filled:
    return _typed(self, 0)


@ELEMENTWISE("ones", "ones_like", "new_ones")
def _ones(self: Lowering, *_: Any, **__: Any) -> Filled:
    return _typed(self, 1)


@ELEMENTWISE("fill")
def _fill(self: Lowering, like: Any, number: Any) -> Filled:
    return _typed(self, number.number if isinstance(number, Filled) else number)


@ELEMENTWISE("scalar_tensor")
def _scalar_tensor(self: Lowering, number: Number, **_: Any) -> Filled:
    return _typed(self, number)


def _typed(self: Lowering, number: Any) -> Filled:
    boolean = self.node.meta["val"].dtype == torch.bool
    return Filled(bool(number) if boolean else float(number), self.here)
