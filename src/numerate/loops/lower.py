"""Lower a traced graph of ATen operations to the intermediate form of :mod:`numerate.loops.ir`.

One small function per operation; an operation is added by adding one. Reshaping makes views and no statement.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from numerate.loops.ir import Kind, Number, Program, Scan, View
from numerate.loops.lowering import Filled, Lowering, Product, Value, is_bool, kind_of, operand_of, with_shape
from numerate.loops.trace import NotLowered, Traced


def lower(traced: Traced) -> Program:
    """The program of a traced function; raises :class:`NotLowered` with the name of an operation it does not know."""
    return Lowering(traced, _RULES).program()


_RULES: dict[str, Callable[..., Any]] = {}


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _axis(axis: int, ndim: int) -> int:
    return axis % ndim if ndim else 0


# elementwise: ATen name -> function of the intermediate form
_SAME = (
    "neg", "abs", "sign", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sigmoid", "atan", "atan2",
    "erf", "floor", "ceil", "round", "trunc", "minimum", "maximum", "lt", "le", "gt", "ge", "eq", "ne",
    "logical_not", "logical_and", "logical_or", "logical_xor", "where",
)  # fmt: skip
_RENAMED = {"bitwise_not": "logical_not", "bitwise_and": "logical_and", "bitwise_or": "logical_or", "sgn": "sign"}


def _elementwise(function: str) -> Callable[..., Value]:
    def rule(self: Lowering, *values: Value | Number) -> Value:
        return self.map(function, *values)

    return rule


for _aten, _function in {**{name: name for name in _SAME}, **_RENAMED}.items():
    _RULES[_aten] = _elementwise(_function)


@_rule("add")
def _add(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("add", a, b if alpha == 1 else self.map("mul", b, alpha))


@_rule("sub")
def _sub(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("sub", a, b if alpha == 1 else self.map("mul", b, alpha))


@_rule("rsub")
def _rsub(self: Lowering, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return self.map("sub", b, a if alpha == 1 else self.map("mul", a, alpha))


@_rule("mul")
def _mul(self: Lowering, a: Value, b: Value | Number) -> Value | Product:
    (*users,) = self.node.users
    if (
        isinstance(a, View)
        and isinstance(b, View)
        and len(users) == 1
        and getattr(users[0].target, "_opname", "") == "sum"
    ):
        return Product((self.as_float(a), self.as_float(b)), self.here)
    return self.map("mul", a, b)


@_rule("div")
def _div(self: Lowering, a: Value, b: Value | Number, rounding_mode: str | None = None) -> Value:
    if not isinstance(b, View):
        number = b.number if isinstance(b, Filled) else b
        if number != 0 and math.frexp(number)[0] in (0.5, -0.5):
            return self.map("mul", a, 1 / number)  # exact for powers of two
    quotient = self.map("div", a, b)
    return quotient if rounding_mode is None else self.map(rounding_mode, quotient)


@_rule("reciprocal")
def _reciprocal(self: Lowering, a: Value) -> Value:
    return self.map("div", 1.0, a)


@_rule("rsqrt")
def _rsqrt(self: Lowering, a: Value) -> Value:
    return self.map("div", 1.0, self.map("sqrt", a))


@_rule("square")
def _square(self: Lowering, a: Value) -> Value:
    return self.map("mul", a, a)


@_rule("relu")
def _relu(self: Lowering, a: Value) -> Value:
    return self.map("maximum", a, 0.0)


@_rule("log2", "log10")
def _log_base(self: Lowering, a: Value) -> Value:
    base = 2 if "log2" in str(self.node.target) else 10
    return self.map("mul", self.map("log", a), 1 / math.log(base))


@_rule("exp2")
def _exp2(self: Lowering, a: Value) -> Value:
    return self.map("pow", 2.0, a)


@_rule("sinh", "cosh")
def _hyperbolic(self: Lowering, a: Value) -> Value:
    combine = "sub" if "sinh" in str(self.node.target) else "add"
    grown, shrunk = self.map("exp", a), self.map("exp", self.map("neg", a))
    return self.map("mul", self.map(combine, grown, shrunk), 0.5)


@_rule("isnan")
def _isnan(self: Lowering, a: Value) -> Value:
    return self.map("ne", a, a)


@_rule("isinf")
def _isinf(self: Lowering, a: Value) -> Value:
    return self.map("eq", self.map("abs", a), math.inf)


@_rule("pow")
def _pow(self: Lowering, a: Value | Number, b: Value | Number) -> Value:
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


@_rule("clamp", "clamp_min", "clamp_max")
def _clamp(self: Lowering, a: Value, min: Any = None, max: Any = None) -> Value:
    if "clamp_max" in str(self.node.target):
        min, max = None, min
    if min is not None:
        a = self.map("maximum", a, min)
    return a if max is None else self.map("minimum", a, max)


@_rule("masked_fill")
def _masked_fill(self: Lowering, a: Value, mask: Value, value: Value | Number) -> Value:
    return self.map("where", mask, value, a)


@_rule("softshrink_backward", "hardshrink_backward")
def _shrink_backward(self: Lowering, gradient: Value, a: Value, threshold: Number) -> Value:
    return self.map("where", self.map("le", self.map("abs", a), threshold), 0.0, gradient)


@_rule("copy")
def _copy(self: Lowering, a: Value, source: Value) -> Value:
    return self.map("copy", source)


@_rule("_to_copy", "to", "_conj", "clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "view_as")
def _same(self: Lowering, a: Value, *_: Any, **__: Any) -> Value:
    boolean = is_bool(a)
    wanted = self.node.meta["val"].dtype == torch.bool
    if boolean and not wanted:
        return self.map("to_float", a)
    return self.map("ne", a, 0.0) if wanted and not boolean else a


# ---------------------------------------------------------------- filled tensors


@_rule("full", "full_like", "new_full")
def _full(self: Lowering, like: Any, *arguments: Any, **options: Any) -> Filled:
    number = options.get("fill_value", arguments[-1] if arguments else None)
    return _typed(self, number.number if isinstance(number, Filled) else number)


@_rule("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_permuted")
def _zeros(self: Lowering, *_: Any, **__: Any) -> Filled:
    return _typed(self, 0)


@_rule("ones", "ones_like", "new_ones")
def _ones(self: Lowering, *_: Any, **__: Any) -> Filled:
    return _typed(self, 1)


@_rule("fill")
def _fill(self: Lowering, like: Any, number: Any) -> Filled:
    return _typed(self, number.number if isinstance(number, Filled) else number)


@_rule("scalar_tensor")
def _scalar_tensor(self: Lowering, number: Number, **_: Any) -> Filled:
    return _typed(self, number)


def _typed(self: Lowering, number: Any) -> Filled:
    boolean = self.node.meta["val"].dtype == torch.bool
    return Filled(bool(number) if boolean else float(number), self.here)


# ---------------------------------------------------------------- views


def _viewed(rule: Callable[..., View]) -> Callable[..., Value]:
    """A rule on views; a tensor filled with one number only takes the new shape."""

    def either(self: Lowering, a: Value, *arguments: Any, **options: Any) -> Value:
        return Filled(a.number, self.here) if isinstance(a, Filled) else rule(self, a, *arguments, **options)

    return either


@_rule("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "squeeze_dims", "flatten", "unflatten")
@_viewed
def _view(self: Lowering, a: View, *_: Any) -> View:
    return (a if a.can_reshape(self.here) else self.materialised(a)).reshaped(self.here)


@_rule("permute")
@_viewed
def _permute(self: Lowering, a: View, axes: Sequence[int]) -> View:
    return a.permute(tuple(_axis(axis, len(a.shape)) for axis in axes))


@_rule("t", "transpose")
@_viewed
def _transpose(self: Lowering, a: View, first: int = 0, second: int = 1) -> View:
    axes = list(range(len(a.shape)))
    if len(axes) > 1:
        axes[first], axes[second] = axes[second], axes[first]
    return a.permute(tuple(axes))


@_rule("expand", "broadcast_to")
@_viewed
def _expand(self: Lowering, a: View, *_: Any, **__: Any) -> View:
    return a.expand(self.here)


@_rule("select")
@_viewed
def _select(self: Lowering, a: View, axis: int, index: int) -> View:
    return _part(self, a, _axis(axis, len(a.shape)), index % a.shape[axis], 1).reshaped(self.here)


@_rule("slice")
@_viewed
def _slice(self: Lowering, a: View, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> View:
    axis = _axis(axis, len(a.shape))
    if self.batch_axis() == axis:
        if self.true_shape()[axis] != self.node.meta["val"].shape[axis]:
            raise NotLowered(f"{self.node.target} takes a part of the batch")
        return a
    first = slice(start, end, step).indices(a.shape[axis])[0]
    return _part(self, a, axis, first, self.here[axis], step)


def _part(self: Lowering, a: View, axis: int, first: int, size: int, step: int = 1) -> View:
    if self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} takes a part of the batch")
    shape, strides = list(a.shape), list(a.strides)
    offset = a.offset + first * strides[axis]
    shape[axis], strides[axis] = size, strides[axis] * step
    return View(a.buffer, tuple(shape), tuple(strides), offset)


@_rule("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "split_copy")
def _split(self: Lowering, a: Value, *arguments: Any) -> list[Value]:
    pieces = self.node.meta["val"]
    unbind = "unbind" in str(self.node.target)
    axis = _axis(arguments[0] if unbind and arguments else arguments[1] if len(arguments) > 1 else 0, len(a.shape))
    if self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} takes a part of the batch")
    found: list[Value] = []
    first = 0
    for piece in pieces:
        size = 1 if unbind else piece.shape[axis]
        shape = (
            tuple(s for d, s in enumerate(a.shape) if d != axis)
            if unbind
            else (*a.shape[:axis], size, *a.shape[axis + 1 :])
        )
        found.append(
            Filled(a.number, shape) if isinstance(a, Filled) else _part(self, a, axis, first, size).reshaped(shape)
        )
        first += size
    return found


@_rule("flip")
@_viewed
def _flip(self: Lowering, a: View, axes: Sequence[int]) -> View:
    flipped = {_axis(axis, len(a.shape)) for axis in axes}
    if self.batch_axis() in flipped:
        raise NotLowered(f"{self.node.target} changes the order of the batch")
    offset = a.offset + sum((a.shape[axis] - 1) * a.strides[axis] for axis in flipped)
    strides = tuple(-stride if axis in flipped else stride for axis, stride in enumerate(a.strides))
    return View(a.buffer, a.shape, strides, offset)


# ---------------------------------------------------------------- putting together


@_rule("cat", "concatenate")
def _cat(self: Lowering, pieces: Sequence[Value], axis: int = 0) -> Value:
    shape = self.here
    axis = _axis(axis, len(shape))
    if self.traced.batch[self.node] == axis:
        raise NotLowered(f"{self.node.target} joins batches")
    return _joined(self, [piece for piece in pieces if 0 not in piece.shape], axis, shape)


@_rule("stack")
def _stack(self: Lowering, pieces: Sequence[Value], axis: int = 0) -> Value:
    shape = self.here
    axis = _axis(axis, len(shape))
    wide = (*shape[:axis], 1, *shape[axis + 1 :])
    return _joined(self, [with_shape(piece, wide) for piece in pieces], axis, shape)


def _joined(self: Lowering, pieces: Sequence[Value], axis: int, shape: tuple[int, ...]) -> Value:
    if len(pieces) == 1:
        return pieces[0]
    args = tuple(operand_of(piece, piece.shape) for piece in pieces)
    kind: Kind = "bool" if all(kind_of("copy", (a,)) == "bool" for a in args) else "float"
    out = self.new(shape, kind, args)
    first = 0
    for piece in pieces:
        size = piece.shape[axis]
        target = (*shape[:axis], size, *shape[axis + 1 :])
        self.assign(View(out.buffer, target, out.strides, out.offset + first * out.strides[axis]), piece)
        first += size
    return out


@_rule("slice_scatter")
def _slice_scatter(
    self: Lowering, a: Value, piece: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = _axis(axis, len(a.shape))
    if self.batch_axis() == axis:
        return piece  # `slice` let the whole batch pass, and nothing less
    return _placed(self, a, piece, axis, slice(start, end, step).indices(a.shape[axis])[0], step)


@_rule("select_scatter")
def _select_scatter(self: Lowering, a: Value, piece: Value, axis: int, index: int) -> Value:
    axis = _axis(axis, len(a.shape))
    wide = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    return _placed(self, a, with_shape(piece, wide), axis, index % a.shape[axis], 1)


def _placed(self: Lowering, a: Value, piece: Value, axis: int, first: int, step: int) -> Value:
    """A copy of ``a`` with ``piece`` put in at ``first``, ``first + step``, ... of ``axis``."""
    out = self.new(a.shape, "float", [operand_of(a, a.shape), operand_of(piece, piece.shape)])
    self.assign(out, a)
    self.assign(_part(self, out, axis, first, piece.shape[axis], step), piece)
    return out


@_rule("constant_pad_nd")
def _pad(self: Lowering, a: Value, pads: Sequence[int], value: Number = 0.0) -> Value:
    out = self.new(self.here, "float", [operand_of(a, a.shape)])
    offset, shape = out.offset, list(a.shape)
    source = a
    for place, (before, after) in enumerate(zip(pads[::2], pads[1::2])):
        axis = len(shape) - 1 - place
        if before < 0 or after < 0 or (self.batch_axis() == axis and (before or after)):
            raise NotLowered(f"{self.node.target} with pads {tuple(pads)}")
        offset += before * out.strides[axis]
    self.assign(out, Filled(value, out.shape))
    self.assign(View(out.buffer, tuple(shape), out.strides, offset), source)
    return out


@_rule("index_select")
def _index_select(self: Lowering, a: Value, axis: int, index: Any) -> Value:
    axis = _axis(axis, len(a.shape))
    if not isinstance(index, Tensor) or self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} with an index that is computed")
    if isinstance(a, Filled):
        return Filled(a.number, self.here)
    parts = [_part(self, a, axis, int(i) % a.shape[axis], 1) for i in index.flatten()]
    return _joined(self, parts, axis, self.here)


@_rule("index")
def _index(self: Lowering, a: Value, indices: Sequence[Any]) -> Value:
    used = [axis for axis, index in enumerate(indices) if index is not None]
    if len(used) != 1 or not isinstance(indices[used[0]], Tensor) or indices[used[0]].ndim != 1:
        raise NotLowered(f"{self.node.target} with an index that is computed or has several dimensions")
    return _index_select(self, a, used[0], indices[used[0]])


# ---------------------------------------------------------------- reductions


def _reduced(self: Lowering, function: str, a: Value | Product, axes: Any) -> Value:
    """Reduce ``axes`` (None: all), first within the example, then over the batch; they stay with size 1."""
    chosen = _axes(axes, len(a.shape))
    batch = self.batch_axis()
    inner = [axis for axis in chosen if axis != batch and a.shape[axis] != 1]
    value: Any = a
    if inner:
        value = self.fold(function, value, inner)
    if batch in chosen:
        if function != "sum":
            raise NotLowered(f"{self.node.target} over the batch; only sums and means are known there")
        value = self.total(value)
    return self.map("mul", *value.factors, shape=value.shape) if isinstance(value, Product) else value


def _axes(axes: Any, ndim: int) -> list[int]:
    """Axes of a reduction as torch gives them: one, some, or all."""
    wanted = range(ndim) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    return sorted({_axis(axis, ndim) for axis in wanted}) if ndim else []


def _shaped(self: Lowering, value: Value) -> Value:
    """``value`` in the shape of the current node, where only sizes 1 differ."""
    return with_shape(value, self.here)


def _reduction(function: str) -> Callable[..., Value]:
    def rule(self: Lowering, a: Value | Product, axes: Any = None, *_: Any, **__: Any) -> Value:
        return _shaped(self, _reduced(self, function, a, axes))

    return rule


for _aten, _function in {"prod": "prod", "amax": "max", "amin": "min", "any": "or", "all": "and"}.items():
    _RULES[_aten] = _reduction(_function)


@_rule("sum")
def _sum(self: Lowering, a: Value | Product, axes: Any = None, *_: Any, **__: Any) -> Value:
    return _shaped(self, _reduced(self, "sum", self.as_float(a), axes))


@_rule("mean")
def _mean(self: Lowering, a: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    return _div(self, _shaped(self, _reduced(self, "sum", a, axes)), _count(self, axes))


@_rule("var")
def _var(self: Lowering, a: Value, axes: Any = None, *, correction: Number = 1, keepdim: bool = False) -> Value:
    variance, _ = _moments(self, a, axes, correction)
    return _shaped(self, variance)


@_rule("var_mean")
def _var_mean(
    self: Lowering, a: Value, axes: Any = None, *, correction: Number = 1, keepdim: bool = False
) -> list[Value]:
    kept = _moments(self, a, axes, correction)
    if keepdim:
        return list(kept)
    shape = tuple(size for axis, size in enumerate(a.shape) if axis not in _axes(axes, len(a.shape)))
    return [with_shape(value, shape) for value in kept]


def _moments(self: Lowering, a: Value, axes: Any, correction: Number) -> tuple[Value, Value]:
    """Variance and mean; the reduced axes stay with size 1."""
    count = _count(self, axes)
    total = _reduced(self, "sum", a, axes)
    mean = self.map("div", total, count, shape=total.shape)
    deviation = self.map("sub", a, mean, shape=a.shape)
    squares = _reduced(self, "sum", Product((deviation, deviation), a.shape), axes)
    return self.map("div", squares, max(count - correction, 0.0), shape=total.shape), mean


def _count(self: Lowering, axes: Any) -> float:
    """How many numbers a reduction takes together."""
    shape = self.true_shape()
    return float(math.prod(shape[axis] for axis in _axes(axes, len(shape))))


@_rule("cumsum", "cumprod")
def _scan(self: Lowering, a: Value, axis: int, **_: Any) -> Value:
    axis = _axis(axis, len(a.shape))
    if self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} along the batch")
    if a.shape == () or a.shape[axis] == 1:
        return a
    arg = self.materialised(a) if isinstance(a, Filled) else a
    out = self.new(a.shape, "float", (arg,))
    order = (*(d for d in range(len(a.shape)) if d != axis), axis)
    function = "sum" if "cumsum" in str(self.node.target) else "prod"
    self.statements.append(Scan(out.permute(order), function, arg.permute(order)))
    return out


@_rule("mm", "bmm", "matmul")
def _matrix_product(self: Lowering, a: Value, b: Value) -> Value:
    """(..., m, k) x (..., k, n) -> (..., m, n), as a sum over k of products; k may be the batch."""
    *lead, m, k = a.shape
    n = b.shape[-1]
    domain = (*lead, m, n, k)
    transposed = b if isinstance(b, Filled) else b.permute((*range(len(lead)), len(lead) + 1, len(lead)))
    left, right = with_shape(a, (*lead, m, 1, k)), with_shape(transposed, (*lead, 1, n, k))
    product = Product((left, right), domain)
    contracts_batch = self.batch_axis() == len(a.shape) - 1
    return _shaped(self, self.total(product) if contracts_batch else self.fold("sum", product, [len(domain) - 1]))


@_rule("mv", "dot")
def _vector_product(self: Lowering, a: Value, b: Value) -> Value:
    """(m, k) x (k,) -> (m,), or (k,) x (k,) -> ()."""
    product = Product((a, b), a.shape)
    last = len(a.shape) - 1
    return _shaped(self, self.total(product) if self.batch_axis() == last else self.fold("sum", product, [last]))
