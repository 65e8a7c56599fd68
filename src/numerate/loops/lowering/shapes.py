"""Operations that move numbers without changing them: views, which need no statement, and concatenation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from numerate.loops.form.ir import Kind, Number, View
from numerate.loops.lowering.lowering import Filled, Lowering, Rules, Value, axis_of, kind_of, operand_of, with_shape
from numerate.loops.tracing.trace import NotLowered

SHAPES = Rules()


def _viewed(rule: Callable[..., View]) -> Callable[..., Value]:
    """A rule on views; a tensor filled with one number only takes the new shape."""

    def either(self: Lowering, a: Value, *arguments: Any, **options: Any) -> Value:
        return Filled(a.number, self.here) if isinstance(a, Filled) else rule(self, a, *arguments, **options)

    return either


@SHAPES("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "squeeze_dims", "flatten", "unflatten")
@_viewed
def _view(self: Lowering, a: View, *_: Any) -> View:
    before, after = self.batch_axis(), self.traced.batch[self.node]
    if before is not None and math.prod(a.shape[:before]) != math.prod(self.here[:after]):
        raise NotLowered(f"{self.node.target} mixes the batch with another dimension: {tuple(self.true_shape())}")
    return (a if a.can_reshape(self.here) else self.materialised(a)).reshaped(self.here)


@SHAPES("permute")
@_viewed
def _permute(self: Lowering, a: View, axes: Sequence[int]) -> View:
    return a.permute(tuple(axis_of(axis, len(a.shape)) for axis in axes))


@SHAPES("t", "transpose")
@_viewed
def _transpose(self: Lowering, a: View, first: int = 0, second: int = 1) -> View:
    axes = list(range(len(a.shape)))
    if len(axes) > 1:
        axes[first], axes[second] = axes[second], axes[first]
    return a.permute(tuple(axes))


@SHAPES("expand", "broadcast_to")
@_viewed
def _expand(self: Lowering, a: View, *_: Any, **__: Any) -> View:
    return a.expand(self.here)


@SHAPES("select")
@_viewed
def _select(self: Lowering, a: View, axis: int, index: int) -> View:
    return _part(self, a, axis_of(axis, len(a.shape)), index % a.shape[axis], 1).reshaped(self.here)


@SHAPES("slice")
@_viewed
def _slice(self: Lowering, a: View, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> View:
    axis = axis_of(axis, len(a.shape))
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


@SHAPES("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "split_copy")
def _split(self: Lowering, a: Value, *arguments: Any) -> list[Value]:
    pieces = self.node.meta["val"]
    unbind = "unbind" in str(self.node.target)
    axis = axis_of(arguments[0] if unbind and arguments else arguments[1] if len(arguments) > 1 else 0, len(a.shape))
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


@SHAPES("flip")
@_viewed
def _flip(self: Lowering, a: View, axes: Sequence[int]) -> View:
    flipped = {axis_of(axis, len(a.shape)) for axis in axes}
    if self.batch_axis() in flipped:
        raise NotLowered(f"{self.node.target} changes the order of the batch")
    offset = a.offset + sum((a.shape[axis] - 1) * a.strides[axis] for axis in flipped)
    strides = tuple(-stride if axis in flipped else stride for axis, stride in enumerate(a.strides))
    return View(a.buffer, a.shape, strides, offset)


# ---------------------------------------------------------------- putting together


@SHAPES("cat", "concatenate")
def _cat(self: Lowering, pieces: Sequence[Value], axis: int = 0) -> Value:
    shape = self.here
    axis = axis_of(axis, len(shape))
    if self.traced.batch[self.node] == axis:
        raise NotLowered(f"{self.node.target} joins batches")
    return _joined(self, [piece for piece in pieces if 0 not in piece.shape], axis, shape)


@SHAPES("stack")
def _stack(self: Lowering, pieces: Sequence[Value], axis: int = 0) -> Value:
    shape = self.here
    axis = axis_of(axis, len(shape))
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


@SHAPES("slice_scatter")
def _slice_scatter(
    self: Lowering, a: Value, piece: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(axis, len(a.shape))
    if self.batch_axis() == axis:
        return piece  # `slice` let the whole batch pass, and nothing less
    return _placed(self, a, piece, axis, slice(start, end, step).indices(a.shape[axis])[0], step)


@SHAPES("select_scatter")
def _select_scatter(self: Lowering, a: Value, piece: Value, axis: int, index: int) -> Value:
    axis = axis_of(axis, len(a.shape))
    wide = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    return _placed(self, a, with_shape(piece, wide), axis, index % a.shape[axis], 1)


def _placed(self: Lowering, a: Value, piece: Value, axis: int, first: int, step: int) -> Value:
    """A copy of ``a`` with ``piece`` put in at ``first``, ``first + step``, ... of ``axis``."""
    out = self.new(a.shape, "float", [operand_of(a, a.shape), operand_of(piece, piece.shape)])
    self.assign(out, a)
    self.assign(_part(self, out, axis, first, piece.shape[axis], step), piece)
    return out


@SHAPES("constant_pad_nd")
def _pad(self: Lowering, a: Value, pads: Sequence[int], value: Number = 0.0) -> Value:
    """Numbers less than 0 cut something off."""
    if isinstance(a, Filled):
        a = self.materialised(a)
    offset = 0
    out = self.new(self.here, "float", [a])
    for place, (before, after) in enumerate(zip(pads[::2], pads[1::2])):
        axis = len(a.shape) - 1 - place
        if not before and not after:
            continue
        if self.batch_axis() == axis:
            raise NotLowered(f"{self.node.target} with pads {tuple(pads)}")
        first = max(-before, 0)
        a = _part(self, a, axis, first, a.shape[axis] - first - max(-after, 0))
        offset += max(before, 0) * out.strides[axis]
    if all(pad <= 0 for pad in pads):
        return a
    self.assign(out, Filled(value, out.shape))
    self.assign(View(out.buffer, a.shape, out.strides, out.offset + offset), a)
    return out


@SHAPES("index_select")
def _index_select(self: Lowering, a: Value, axis: int, index: Any) -> Value:
    axis = axis_of(axis, len(a.shape))
    if not isinstance(index, Tensor) or self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} with an index that is computed")
    if isinstance(a, Filled):
        return Filled(a.number, self.here)
    parts = [_part(self, a, axis, int(i) % a.shape[axis], 1) for i in index.flatten()]
    return _joined(self, parts, axis, self.here)


@SHAPES("index")
def _index(self: Lowering, a: Value, indices: Sequence[Any]) -> Value:
    return _index_select(self, a, *_only_index(self, indices))


@SHAPES("index_put", "_unsafe_index_put")
def _index_put(self: Lowering, a: Value, indices: Sequence[Any], values: Value, accumulate: bool = False) -> Value:
    axis, index = _only_index(self, indices)
    if self.batch_axis() == axis:
        raise NotLowered(f"{self.node.target} changes a part of the batch")
    shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    wide = (*a.shape[:axis], len(index), *a.shape[axis + 1 :])

    def part(value: Value, place: int) -> Value:
        return Filled(value.number, shape) if isinstance(value, Filled) else _part(self, value, axis, place, 1)

    values = Filled(values.number, wide) if isinstance(values, Filled) else values.expand(wide)
    pieces = [part(a, place) for place in range(a.shape[axis])]
    for k, place in enumerate(index.tolist()):
        piece = part(values, k)
        pieces[place] = self.map("add", pieces[place], piece, shape=shape) if accumulate else piece
    return _joined(self, pieces, axis, self.here)


def _only_index(self: Lowering, indices: Sequence[Any]) -> tuple[int, Tensor]:
    """The axis of the only index, and that index: a list that is known now."""
    used = [axis for axis, index in enumerate(indices) if index is not None]
    if len(used) != 1 or not isinstance(indices[used[0]], Tensor) or indices[used[0]].ndim != 1:
        raise NotLowered(f"{self.node.target} with an index that is computed or has several dimensions")
    return used[0], indices[used[0]]


@SHAPES("repeat")
def _repeat(self: Lowering, a: Value, repeats: Sequence[int]) -> Value:
    if isinstance(a, Filled):
        return Filled(a.number, self.here)
    new = len(repeats) - len(a.shape)
    axis = self.batch_axis()
    if axis is not None and repeats[new + axis] != 1:
        raise NotLowered(f"{self.node.target} repeats the batch")
    wide = a.reshaped((*[1] * new, *a.shape))
    shape = tuple(size for pair in zip(repeats, wide.shape) for size in pair)
    strides = tuple(stride for one in wide.strides for stride in (0, one))
    return self.materialised(View(wide.buffer, shape, strides, wide.offset)).reshaped(self.here)
