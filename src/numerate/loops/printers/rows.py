"""Rows of a recurrent step: the two dialects with a type ``R`` of numbers, and vectors or threads along the units.

The names are those of ``rows.hpp`` (C++), of ``rowloop.cuh`` (CUDA, a block computes a row) and of ``scalar.cuh``.
"""

import math
from collections.abc import Iterable, Sequence

from numerate.loops.form.operations import OPERATIONS, REDUCTIONS, Number, spelled
from numerate.loops.kernel.form import OverUnits, ReduceUnits, ScanUnits, Statement
from numerate.loops.kernel.values import Type, UnitElement, Value
from numerate.loops.printers.cpp import CppPrinter
from numerate.loops.printers.cuda import CudaPrinter
from numerate.loops.printers.printer import Printer


def _number(value: Number) -> str:
    """A number of type R."""
    if isinstance(value, bool):
        return str(value).lower()
    if math.isnan(value):
        return "R(NOT_A_NUMBER)"
    return f"R({'-' if value < 0 else ''}INF)" if math.isinf(value) else f"R({float(value)!r})"


def _loops(axes: Iterable[int], first: int = 0, kind: str = "int64_t") -> list[str]:
    return [f"for ({kind} i{k} = 0; i{k} < {n}; i{k}++)" for k, n in enumerate(axes, first)]


def _opened(loops: Sequence[str]) -> list[str]:
    return [*loops[:-1], f"{loops[-1]} {{"] if loops else ["{"]


def _terms(strides: Iterable[int]) -> list[str]:
    return [f"i{k} * {stride}" for k, stride in enumerate(strides) if stride]


class CppRowPrinter(CppPrinter):
    """Vectors along the units. ``hidden``: widths are multiples of it, and written as multiples of ``H``."""

    def __init__(self, hidden: int | None = None) -> None:
        self.hidden = hidden

    def type(self, type: Type) -> str:
        return "M" if type.kind == "bool" else "V"

    def number(self, value: Number) -> str:
        return _number(value)

    def width(self, size: int) -> str:
        """A number of units, or a distance in memory."""
        if self.hidden is None or size == 0:
            return str(size)
        assert size % self.hidden == 0, "an elementwise step has blocks of one width"
        return "H" if size == self.hidden else f"{size // self.hidden} * H"

    def row_address(self, element: UnitElement, terms: Iterable[str] = ()) -> str:
        place = [self.width(element.place)] if element.place else []
        return " + ".join([element.array.name, *place, *terms])

    def load_unit(self, element: UnitElement) -> str:
        terms, stride = _terms(element.outer), element.stride
        if stride == 0:
            text = f"c(*({self.row_address(element, terms)}))"
        elif stride == 1:
            text = f"load({self.row_address(element, [*terms, 'j'])}, lanes)"
        else:
            text = f"gather({self.row_address(element, [*terms, f'j * {stride}'])}, {stride}, lanes)"
        return f"({text} != c(R(0)))" if element.kind == "bool" else text

    def store_unit(self, target: UnitElement, value: str) -> str:
        terms, stride = _terms(target.outer), target.stride
        value = f"to_float({value})" if target.kind == "bool" else value
        if stride == 1:
            return f"store({self.row_address(target, [*terms, 'j'])}, {value}, lanes);"
        return f"scatter({self.row_address(target, [*terms, f'j * {stride}'])}, {stride}, {value}, lanes);"

    def of_threads(self, node: Statement) -> list[str]:
        match node:
            case OverUnits(axes, body):
                *outer, size = axes or (1,)
                width = self.width(size) if axes else "1"
                return [*_loops(outer), f"over_units({width}, {_LAMBDA}", *self.indented(body), "});"]
            case ReduceUnits():
                return self.reduce_units(node)
            case ScanUnits():
                return self.scan_units(node)
            case _:
                return super().of_threads(node)

    def reduce_units(self, node: ReduceUnits) -> list[str]:
        neutral = self.number(REDUCTIONS[node.reduction].neutral)
        factors = " * ".join(self.value(factor) for factor in node.factors)
        target = _all_terms(node.target, len(node.axes))
        return [
            *_opened(_loops(node.axes)),
            f"  const auto join = [](V x, V y) INLINED {{ return {_join(self, node.reduction)}; }};",
            f"  V sum = c({neutral});",
            *(f"  {line}" for line in _loops(node.inner[:-1], len(node.axes))),
            f"  over_units({node.inner[-1] if node.inner else 1}, {_LAMBDA}",
            f"    sum = join(sum, among({factors}, {neutral}, lanes));",
            "  });",
            f"  *({self.row_address(node.target, target)}) = across(sum, join);",
            "}",
        ]

    def scan_units(self, node: ScanUnits) -> list[str]:
        last, count = len(node.axes) - 1, len(node.axes)
        source, target = (f"*({self.row_address(e, _all_terms(e, count))})" for e in (node.source, node.target))
        reduction = REDUCTIONS[node.reduction]
        step = f"running = {spelled(OPERATIONS[reduction.operation].cpp, ['running', source])};"
        lines = [step, f"{target} = running;"]
        return [
            *_opened(_loops(node.axes[:-1])),
            f"  R running = {int(reduction.neutral)};",
            f"  for (int64_t i{last} = 0; i{last} < {node.axes[-1]}; i{last}++) {{",
            *(f"    {line}" for line in (reversed(lines) if node.exclusive else lines)),
            "  }",
            "}",
        ]


_LAMBDA = "[&](const int64_t j, const auto lanes) INLINED {"


class CudaUnitPrinter(CudaPrinter):
    """One unit of one row, by a thread; arrays have one number per block of ``hidden`` units: ``gx[2]``."""

    def __init__(self, hidden: int) -> None:
        self.hidden = hidden

    def type(self, type: Type) -> str:
        return "M" if type.kind == "bool" else "V"

    def number(self, value: Number) -> str:
        return f"c({_number(value)})"

    def unit(self, element: UnitElement) -> str:
        array, number = element.array, element.array.number
        name = "fresh" if array.role == "new" else array.role
        return f"{name}[{element.place // self.hidden if number is None else number}]"

    def load_unit(self, element: UnitElement) -> str:
        return f"({self.unit(element)} != 0)" if element.kind == "bool" else self.unit(element)

    def store_unit(self, target: UnitElement, value: str) -> str:
        return f"{self.unit(target)} = {value};"

    def of_threads(self, node: Statement) -> list[str]:
        if isinstance(node, OverUnits):
            return [line for statement in node.body for line in self.statement(statement)]
        return super().of_threads(node)


class CudaRowPrinter(CudaUnitPrinter):
    """One row, whose units the threads of a block share; ``scratch`` is in their shared memory."""

    def row_address(self, element: UnitElement, terms: Iterable[str] = ()) -> str:
        return " + ".join([element.array.name, *([str(element.place)] if element.place else []), *terms])

    def load_unit(self, element: UnitElement) -> str:
        last = [f"j * {element.stride}"] if element.stride else []
        text = f"load({self.row_address(element, [*_terms(element.outer), *last])})"
        return f"({text} != 0)" if element.kind == "bool" else text

    def store_unit(self, target: UnitElement, value: str) -> str:
        terms = [*_terms(target.outer), f"j * {target.stride}"]
        return f"store({self.row_address(target, terms)}, {value});"

    def of_threads(self, node: Statement) -> list[str]:
        match node:
            case OverUnits(axes, body):
                return self.over_places(axes, "j", [line for s in body for line in self.statement(s)])
            case ReduceUnits():
                return self.reduce_units(node)
            case ScanUnits():
                return self.scan_units(node)
            case _:
                return super().of_threads(node)

    def over_places(self, axes: tuple[int, ...], last: str, body: Sequence[str]) -> list[str]:
        """``body`` for all places, in which the last index has the name ``last`` and others ``i0``, ``i1``, ..."""
        lines = [f"for (int flat = threadIdx.x; flat < {math.prod(axes)}; flat += THREADS) {{"]
        sizes, inner = axes or (1,), 1
        for k, size in reversed(list(enumerate(sizes))):
            name = last if k == len(sizes) - 1 else f"i{k}"
            lines.append(f"  const int {name} = flat / {inner} % {size};")
            inner *= size
        return [*lines, *(f"  {line}" for line in body), "}", "__syncthreads();"]

    def reduce_units(self, node: ReduceUnits) -> list[str]:
        axes, inner, count = node.axes, node.inner, len(node.axes)

        def factor(value: Value) -> str:
            if not isinstance(value, UnitElement):
                return self.value(value)
            return f"load({self.row_address(value, _all_terms(value, count + len(inner)))})"

        product = " * ".join(map(factor, node.factors))
        start = [
            f"const auto join = [](float x, float y) {{ return {_join(self, node.reduction)}; }};",
            f"float sum = {_number(REDUCTIONS[node.reduction].neutral)};",
        ]
        target = self.row_address(node.target, _all_terms(node.target, count))
        if axes:
            loops = _loops(inner, count, "int")
            body = [*start, *loops, f"  sum = join(sum, {product});", f"store({target}, sum);"]
            return self.over_places(axes, f"i{count - 1}", body)
        steps = [math.prod(inner[k + 1 :]) for k in range(len(inner))]
        lines = [  # of the whole row: all threads together
            *start,
            f"for (int flat = threadIdx.x; flat < {math.prod(inner)}; flat += THREADS) {{",
            *(f"  const int i{k} = flat / {step} % {n};" for k, (n, step) in enumerate(zip(inner, steps))),
            f"  sum = join(sum, {product});",
            "}",
            "sum = across(sum, join);",
            f"if (threadIdx.x == 0) store({target}, sum);",
            "__syncthreads();",
        ]
        return ["{", *(f"  {line}" for line in lines), "}"]

    def scan_units(self, node: ScanUnits) -> list[str]:
        places = ", ".join(f"{self.row_address(e)}, {e.stride}" for e in (node.source, node.target))
        return [f"running_sum({node.axes[0]}, {places});"]


def _join(printer: Printer, reduction: str) -> str:
    operation = OPERATIONS[REDUCTIONS[reduction].operation]
    return spelled(printer.spelling(operation, exact=False), ["x", "y"])


def _all_terms(element: UnitElement, axes: int) -> list[str]:
    """Where an element lies if the index of the last of so many axes is i_k, too."""
    return _terms((*element.outer, element.stride) if axes else ())
