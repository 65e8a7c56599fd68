"""The machinery of lowering: values, and the statements that compute them.

Tensors filled with one number stay numbers, common subexpressions are computed once, and constants are folded. The
operations themselves are in :mod:`numerate.loops.lowering.lower`.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from numerate.loops.form.ir import (
    BatchSum,
    Buffer,
    Kind,
    Map,
    Number,
    Operand,
    Program,
    Reduce,
    Statement,
    View,
    arrange,
    needed,
)
from numerate.loops.form.operations import OPERATIONS
from numerate.loops.tracing.trace import NotLowered, Traced
from numerate.torch_internals import operation_name


@dataclass(frozen=True)
class Filled:
    """A tensor filled with one number."""

    number: Number
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """An elementwise product that is only summed; the sum fuses it."""

    factors: tuple["View | Filled", "View | Filled"]
    shape: tuple[int, ...]


Value = View | Filled


_COUNTING = ("sum", "where", "add", "sub", "mul")
"""Operations whose integer results (counts of Booleans) are exact in float32."""


class Rules(dict[str, Callable[..., Any]]):
    """Name of an operation -> how it is lowered; called with names, it registers the function below it."""

    def __call__(self, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.update(dict.fromkeys(names, function))
            return function

        return register


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    return axis % ndim if ndim else 0


class Lowering:
    """The state of lowering while the nodes are visited one after another."""

    def __init__(self, traced: Traced, rules: Mapping[str, Callable[..., Any]]) -> None:
        self.traced, self.rules = traced, rules
        self.dtype: torch.dtype = next(iter(traced.inputs.values())).meta["val"].dtype
        self.values: dict[Node, Any] = {}
        self.statements: list[Statement] = []
        self.computed: dict[Any, View] = {}
        self.node: Node
        self.count = 0

    def program(self) -> Program:
        inputs = {name: self.input(name, node) for name, node in self.traced.inputs.items()}
        for node in self.traced.module.graph.nodes:
            self.node = node
            if node.op == "get_attr":
                self.values[node] = self.constant(getattr(self.traced.module, str(node.target)))
            elif node.op == "call_function":
                self.values[node] = self.call(node)
        outputs = {name: self.output(self.values[node]) for name, node in self.traced.outputs.items()}
        found = needed([s for s in self.statements if 0 not in s.out.shape], outputs)
        if any(isinstance(s, Reduce) and 0 in s.inner for s in found):
            raise NotLowered("a sum or product of no elements")
        return Program(inputs, arrange(found), outputs)

    # ------------------------------------------------------------ nodes

    def input(self, name: str, node: Node) -> View:
        shape = self.shape(node)
        level = 0 if self.traced.batch[node] is None else 1
        view = View.whole(Buffer(self.identifier(name), math.prod(shape), level=level), shape)
        self.values[node] = view
        return view

    def identifier(self, name: str) -> str:
        """``name`` as a unique identifier that does not end like an element of an array (``_3``)."""
        readable = re.sub(r"\W", "_", name, flags=re.ASCII)
        taken = {view.buffer.name for view in self.values.values()}
        return f"{readable}_n{len(taken)}" if readable in taken or re.search(r"_n?\d+$", readable) else readable

    def output(self, value: Value) -> Operand:
        return value.number if isinstance(value, Filled) else value

    def call(self, node: Node) -> Any:
        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]
        name = operation_name(node.target)
        arguments: Any = map_arg(node.args, self.values.__getitem__)
        options: Any = map_arg(node.kwargs, self.values.__getitem__)
        if name == "arange" or any(isinstance(a, Tensor) for a in arguments if not _in_loop(arguments)):
            known = self.constant(node.target(*arguments, **options))  # type: ignore[operator]
            if self.traced.batch[node] is not None and not isinstance(known, Filled):
                raise NotLowered(f"{node.target} gives numbers that depend on the place in the batch")
            return known
        rule = self.rules.get(name)
        if rule is None:
            raise NotLowered(f"{node.target} is not known to the emitted loops")
        meta = node.meta.get("val")
        if isinstance(meta, Tensor) and meta.dtype.is_complex:
            raise NotLowered(f"{node.target} gives {meta.dtype}; this loop computes in {self.dtype}")
        try:
            value = rule(self, *arguments, **options)
        except TypeError:  # an argument that the rule has not got
            given = f"with {', '.join(options)}" if options else "with these arguments"
            raise NotLowered(f"{node.target} is not known to the emitted loops {given}") from None
        exact = (self.dtype, torch.bool, *((torch.int64,) if name in _COUNTING else ()))
        if isinstance(value, View) and isinstance(meta, Tensor) and meta.dtype not in exact:
            raise NotLowered(f"{node.target} gives {meta.dtype}; this loop computes in {self.dtype}")
        return value

    def constant(self, tensor: Tensor) -> Value | Tensor:
        """A tensor of the module that is not a parameter; integers can only serve as an index."""
        if not tensor.dtype.is_floating_point and tensor.dtype != torch.bool:
            return tensor
        shape, numbers = tuple(tensor.shape), tensor.flatten().tolist()
        if len(set(numbers)) == 1:
            return Filled(numbers[0], shape)
        kind: Kind = "bool" if tensor.dtype == torch.bool else "float"
        return View.whole(Buffer(self.name("k"), len(numbers), kind, values=tuple(numbers)), shape)

    # ------------------------------------------------------------ shapes

    def shape(self, node: Node) -> tuple[int, ...]:
        """Shape of a node's value with size 1 for the batch."""
        axis = self.traced.batch[node]
        return tuple(1 if d == axis else int(size) for d, size in enumerate(node.meta["val"].shape))

    @property
    def here(self) -> tuple[int, ...]:
        return self.shape(self.node)

    def true_shape(self, argument: int = 0) -> torch.Size:
        """Shape of an argument of the current node, with the batch at its true size."""
        node = self.node.args[argument]
        assert isinstance(node, Node)
        return node.meta["val"].shape

    def batch_axis(self, argument: int = 0) -> int | None:
        """Axis of the batch in an argument of the current node."""
        node = self.node.args[argument]
        assert isinstance(node, Node)
        return self.traced.batch[node]

    # ------------------------------------------------------------ statements

    def name(self, letter: str = "t") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def new(self, shape: tuple[int, ...], kind: Kind, args: Sequence[Operand], *, total: bool = False) -> View:
        """A buffer for what is computed from ``args``, at the earliest level where all of them are known."""
        buffers = [a.buffer for a in args if isinstance(a, View)]
        level = max((b.level for b in buffers), default=0)
        if total or any(b.batch for b in buffers):
            level |= 1  # a member's value from after pass k - 1 is used in pass k
        return View.whole(Buffer(self.name(), math.prod(shape), kind, level + total), shape)

    def map(self, function: str, *values: Value | Number, shape: tuple[int, ...] | None = None) -> Value:
        """Elementwise ``function``, with common subexpressions shared and constants folded."""
        shape = self.here if shape is None else shape
        values = tuple(map(self.as_value, values))
        if all(map(is_bool, values)):
            function = OPERATIONS[function].of_bools or function
        args = tuple(operand_of(value, shape) for value in self.promoted(function, values))
        known = _simplified(function, args, self.dtype)
        if isinstance(known, View):
            return known
        if known is not None:
            return Filled(known, shape)
        key = (function, shape, *(_identity(a) for a in args))
        if key not in self.computed:
            self.computed[key] = self.new(shape, kind_of(function, args), args)
            self.statements.append(Map(self.computed[key], function, args))
        return self.computed[key]

    def promoted(self, function: str, values: Sequence[Value | Number]) -> list[Value | Number]:
        """Booleans are 0 and 1 in arithmetic; numbers are true in logic unless they are 0."""
        takes = OPERATIONS[function].operands
        if takes == "any" and function != "where":
            return list(values)
        if takes == "bool":
            return [value if is_bool(value) else self.map("ne", value, 0.0) for value in values]
        free, rest = (values[:1], values[1:]) if function == "where" else ((), values)
        if function == "where" and all(map(is_bool, rest)):
            return list(values)
        return [*free, *(self.as_float(value) for value in rest)]

    def as_value(self, value: Any) -> Any:
        """Integers that are known, as the numbers they stand for."""
        return self.constant(value.to(self.dtype)) if isinstance(value, Tensor) else value

    def as_float(self, value: Any) -> Any:
        if isinstance(value, View) and value.buffer.kind == "bool":
            return self.map("to_float", value, shape=value.shape)
        if isinstance(value, Filled):
            return Filled(float(value.number), value.shape)
        return float(value) if isinstance(value, bool) else value

    def assign(self, out: View, value: Value) -> None:
        """Copy ``value`` into a part of a buffer."""
        self.statements.append(Map(out, "copy", (operand_of(value, out.shape),)))

    def reduce(self, function: Any, value: Value | Product, axes: Sequence[int]) -> View:
        """Reduce ``axes``, which stay with size 1."""
        kept = tuple(axis for axis in range(len(value.shape)) if axis not in axes)
        inner, outer = (tuple(value.shape[axis] for axis in group) for group in (axes, kept))
        order = (*kept, *axes)
        args = tuple(
            operand_of(factor, value.shape, order)
            for factor in (value.factors if isinstance(value, Product) else (value,))
        )
        out = self.new(outer, "bool" if function in ("and", "or") else "float", args)
        self.statements.append(Reduce(out, function, args, inner))
        return out.reshaped(tuple(1 if axis in axes else size for axis, size in enumerate(value.shape)))

    def batch_sum(self, value: Value | Product) -> View:
        """Sum over the batch."""
        factors = value.factors if isinstance(value, Product) else (value,)
        args = tuple(operand_of(factor, value.shape) for factor in factors)
        out = self.new(value.shape, "float", args, total=True)
        self.statements.append(BatchSum(out, args))
        return out

    def materialised(self, value: Value) -> View:
        """A dense copy."""
        out = self.new(
            value.shape, kind_of("copy", (operand_of(value, value.shape),)), (operand_of(value, value.shape),)
        )
        self.assign(out, value)
        return out


# ---------------------------------------------------------------- helpers on values


def _in_loop(arguments: Any) -> bool:
    """Whether any argument is computed in the loop, rather than known now."""
    leaves = (leaf for a in arguments for leaf in (a if isinstance(a, (list, tuple)) else (a,)))
    return any(isinstance(leaf, (View, Filled, Product)) for leaf in leaves)


def operand_of(value: Value | Number, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> Operand:
    """``value`` broadcast to ``shape``, its axes then put in ``order``."""
    if isinstance(value, Filled):
        return value.number
    if not isinstance(value, View):
        return value if isinstance(value, bool) else float(value)
    expanded = value.expand(shape)
    return expanded if order is None else expanded.permute(order)


def _identity(operand: Operand) -> Any:
    """Equal for operands that are the same."""
    if not isinstance(operand, View):
        return type(operand), operand
    return id(operand.buffer), operand.shape, operand.strides, operand.offset


def is_bool(value: Value | Number) -> bool:
    if isinstance(value, View):
        return value.buffer.kind == "bool"
    return isinstance(value.number if isinstance(value, Filled) else value, bool)


def kind_of(function: str, args: Sequence[Operand]) -> Kind:
    result = OPERATIONS[function].result
    if result is not None:
        return result
    kinds = {a.buffer.kind if isinstance(a, View) else "bool" if isinstance(a, bool) else "float" for a in args[-2:]}
    return "bool" if kinds == {"bool"} else "float"


def _simplified(function: str, args: tuple[Operand, ...], dtype: torch.dtype) -> Operand | None:
    """The result if it needs no computation: of numbers, or of a view and a neutral number."""
    if all(not isinstance(a, View) for a in args):
        return computed(function, args, dtype)
    if function == "copy":
        return args[0]
    if function == "mul":
        first, second = args
        return first if second == 1 else second if first == 1 else None
    return args[0] if function == "div" and args[1] == 1 else None


def computed(function: str, args: Sequence[Any], dtype: torch.dtype) -> Number:
    """``function`` of numbers, rounded to ``dtype``."""
    tensors = [torch.tensor(a, dtype=torch.bool if isinstance(a, bool) else dtype) for a in args]
    return OPERATIONS[function](*tensors).item()


def with_shape(value: Value, shape: tuple[int, ...]) -> Value:
    """``value`` in another shape that differs in sizes 1 alone."""
    return Filled(value.number, shape) if isinstance(value, Filled) else value.reshaped(shape)
