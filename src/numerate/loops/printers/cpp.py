"""Kernels as C++ with the names and functions of ``prelude.hpp``.

``V`` is a number of each member, ``B`` one of each member for four examples, ``M`` and ``BM`` are Booleans. In
evaluation a lane is an example, and ``B`` four vectors of them.
"""

from numerate.loops.form.operations import Number, Operation
from numerate.loops.kernel.form import (
    AddExamples,
    Array,
    Draw,
    Function,
    NoteDivergence,
    Stream,
    SumExamples,
    SumLanes,
    WhichBound,
)
from numerate.loops.kernel.values import Broadcast, Drawn, Element, Given, Index, Packed, Type
from numerate.loops.printers.printer import Printer, place

_TYPES = {("float", False): "V", ("float", True): "B", ("bool", False): "M", ("bool", True): "BM"}


class CppPrinter(Printer):
    def signature(self, function: Function) -> str:
        return f'extern "C" {super().signature(function)}'

    def type(self, type: Type) -> str:
        return _TYPES.get((type.kind, type.per_example)) or self.scalar(type.kind)

    def spelling(self, operation: Operation, exact: bool) -> str:
        return operation.cpp  # compilers are told to fuse nothing, so that all is exact

    def constant(self, number: Number) -> str:
        return f"c({self.number(number)})"

    def array(self, array: Array) -> list[str]:
        if array.memory == "stack":
            return super().array(array)
        kind, name = self.type(array.type), array.name
        return [  # the address is asked for once, as the question costs a call
            f"static thread_local {kind} {name}_memory[{array.size}];",
            f"{kind} *const {name} = pin_address({name}_memory);",
        ]

    def element(self, element: Element) -> str:
        return f"c({super().element(element)})" if element.table else super().element(element)

    def loaded(self, value: Packed | Broadcast | Drawn | Given) -> str:
        match value:
            case Packed():
                return f"load({self.address(value)})"
            case Broadcast(array, row, at):
                return f"c({array}[{row} + {place(at)}])"
            case Drawn(array, index, width):
                return f"gather({array} + {place(index)}, {width})"
            case Given(index, width):
                return f"adjacent(numbers + b * {width} + ({place(index)}) * EXAMPLES)"

    def address(self, packed: Packed) -> str:
        at = place(packed.place)
        moves = isinstance(packed.place, Index) and not packed.place.known
        return f"{packed.array} + {packed.row} * LANES + {f'({at})' if moves else at} * LANES"

    def store(self, target: Packed, value: str) -> str:
        return f"store({self.address(target)}, {value});"

    def add_examples(self, node: AddExamples) -> str:
        factors = [f"B({self.value(factor)})" for factor in node.factors]
        total = (
            f"total({', '.join(factors)})"
            if node.left is None
            else f"partial_total({' * '.join(factors)}, {node.left})"
        )
        return f"{self.value(node.target)} += {total};"

    def over_lanes(self, node: SumExamples | SumLanes | WhichBound) -> str:
        match node:
            case SumExamples(name, value, left):
                return f"{name} += total_of_first(B({self.value(value)}), {left});"
            case SumLanes(target, name):
                return f"{target} += sum_of_lanes({name});"
            case WhichBound(name, value, bounds, start):
                low, high = (f"same({self.value(value)}, {self.constant(bound)})" for bound in bounds)
                return f"const int {name} = {start} + ({low} ? 0 : {high} ? 1 : 2);"

    def stream(self, node: Stream) -> str:
        return f"Stream {node.name}(load_words(seeds + group * LANES), {node.domain});"

    def draw(self, node: Draw) -> str:
        return f"{node.stream}.draw({node.block}, {node.array} + {node.offset});"

    def note_divergence(self, node: NoteDivergence) -> list[str]:
        """Any parameter that is not finite makes the probe NaN."""
        lines = ["V probe = {};"]
        for name, size, array in node.parameters:
            terms = " + ".join(f"{name}_{i} * 0.0f" for i in range(size))
            loop = f"for (int i = 0; i < {size}; i++) probe += {name}[i] * 0.0f;"
            lines.append(loop if array else f"probe += {terms};")
        return [*lines, "note_divergence(probe, start + t, diverged + group * LANES);"]
