"""Operations that reduce: sums, scans, moments and matrix products."""

import math
from collections.abc import Callable
from typing import Any, Literal

from numerate.loops.form.ir import Map, Number, Scan, View, operands
from numerate.loops.lowering.elementwise import ELEMENTWISE
from numerate.loops.lowering.lowering import Filled, Lowering, Product, Rules, Value, axis_of, is_bool, with_shape
from numerate.loops.tracing.trace import NotLowered

REDUCTIONS = Rules()


def _reduced(self: Lowering, function: str, a: Value | Product, axes: Any) -> Value:
    """Reduce ``axes`` (None: all), first within the example, then over the batch; they stay with size 1."""
    chosen = _axes(axes, len(a.shape))
    batch = self.batch_axis()
    inner = [axis for axis in chosen if axis != batch and a.shape[axis] != 1]
    value: Any = a
    if inner:
        value = self.reduce(function, value, inner)
    if batch in chosen:
        if function != "sum":
            raise NotLowered(f"{self.node.target} over the batch; only sums and means are known there")
        value = self.batch_sum(value)
    return self.map("mul", *value.factors, shape=value.shape) if isinstance(value, Product) else value


def _axes(axes: Any, ndim: int) -> list[int]:
    """Axes of a reduction as torch gives them: one, some, or all."""
    wanted = range(ndim) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    return sorted({axis_of(axis, ndim) for axis in wanted}) if ndim else []


def _shaped(self: Lowering, value: Value) -> Value:
    """``value`` in the shape of the current node, where only sizes 1 differ."""
    return with_shape(value, self.here)


_OF_TRUTH = {"max": "or", "min": "and"}


def _reduction(function: str) -> Callable[..., Value]:
    def rule(self: Lowering, a: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
        if function in ("or", "and") and not is_bool(a):
            a = self.map("ne", a, 0.0, shape=a.shape)
        chosen = _OF_TRUTH.get(function, function) if is_bool(a) else function
        return _shaped(self, _reduced(self, chosen, self.as_float(a) if function == "prod" else a, axes))

    return rule


for _aten, _function in {"prod": "prod", "amax": "max", "amin": "min", "any": "or", "all": "and"}.items():
    REDUCTIONS[_aten] = _reduction(_function)


@REDUCTIONS("sum")
def _sum(self: Lowering, a: Value | Product, axes: Any = None, *_: Any, **__: Any) -> Value:
    return _shaped(self, _reduced(self, "sum", self.as_float(a), axes))


@REDUCTIONS("mean")
def _mean(self: Lowering, a: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    return ELEMENTWISE["div"](self, _shaped(self, _reduced(self, "sum", a, axes)), _count(self, axes))


@REDUCTIONS("var")
def _var(self: Lowering, a: Value, axes: Any = None, *, correction: Number = 1, keepdim: bool = False) -> Value:
    variance, _ = _moments(self, a, axes, correction)
    return _shaped(self, variance)


@REDUCTIONS("var_mean")
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


@REDUCTIONS("cumsum", "cumprod")
def _scan(self: Lowering, a: Value, axis: int, **_: Any) -> Value:
    a, axis = self.as_float(a), axis_of(axis, len(a.shape))
    if self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} along the batch")
    if a.shape == () or a.shape[axis] == 1:
        return a
    arg = self.materialised(a) if isinstance(a, Filled) else a
    out = self.new(a.shape, "float", (arg,))
    order = (*(d for d in range(len(a.shape)) if d != axis), axis)
    function: Literal["sum", "prod"] = "sum" if "cumsum" in str(self.node.target) else "prod"
    before = _before(self, arg, axis, 0.0 if function == "sum" else 1.0)
    self.statements.append(Scan(out.permute(order), function, (before or arg).permute(order), before is not None))
    return out


def _before(self: Lowering, a: View, axis: int, neutral: float) -> View | None:
    """x, where ``a`` is ``neutral`` followed by all of x but the last: the gradient of a product is full of these."""
    writers = [s for s in self.statements if s.out.buffer is a.buffer]
    if len(writers) != 2 or not all(isinstance(s, Map) and s.function == "copy" for s in writers):
        return None
    (start,), (x,) = (operands(s) for s in writers)
    places = [s.out.offset for s in writers], [s.out.strides for s in writers]
    moved = ([a.offset, a.offset + a.strides[axis]], [a.strides, a.strides])
    if isinstance(start, View) or start != neutral or not isinstance(x, View) or places != moved:
        return None
    if any(have < want - (d == axis) for d, (have, want) in enumerate(zip(x.shape, a.shape))):
        return None
    longer = View(x.buffer, a.shape, x.strides, x.offset)
    ends = [(size - 1) * stride for size, stride in zip(longer.shape, longer.strides)]
    first, last = (longer.offset + sum(limit(end, 0) for end in ends) for limit in (min, max))
    return longer if first >= 0 and last < x.buffer.size else None


@REDUCTIONS("mm", "bmm", "matmul")
def _matrix_product(self: Lowering, a: Value, b: Value) -> Value:
    """(..., m, k) x (..., k, n) -> (..., m, n), as a sum over k of products; k may be the batch."""
    *lead, m, k = a.shape
    n = b.shape[-1]
    domain = (*lead, m, n, k)
    transposed = b if isinstance(b, Filled) else b.permute((*range(len(lead)), len(lead) + 1, len(lead)))
    left, right = with_shape(a, (*lead, m, 1, k)), with_shape(transposed, (*lead, 1, n, k))
    product = Product((left, right), domain)
    contracts_batch = self.batch_axis() == len(a.shape) - 1
    return _shaped(self, self.batch_sum(product) if contracts_batch else self.reduce("sum", product, [len(domain) - 1]))


@REDUCTIONS("mv", "dot")
def _vector_product(self: Lowering, a: Value, b: Value) -> Value:
    """(m, k) x (k,) -> (m,), or (k,) x (k,) -> ()."""
    product = Product((a, b), a.shape)
    last = len(a.shape) - 1
    return _shaped(self, self.batch_sum(product) if self.batch_axis() == last else self.reduce("sum", product, [last]))
