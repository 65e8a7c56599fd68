"""Text of the statements of :mod:`numerate.loops.timeloops.pointwise`: C++ with vectors along the units, or CUDA.

Elementwise statements over the same axis share one loop, in which values stay in registers; what another loop reads
lies in memory. Folds and scans are loops of their own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from numerate.loops.form.ir import Buffer, Fold, Map, Operand, Scan, Statement, Total, View, operands
from numerate.loops.timeloops.pointwise import Pointwise, domain, strides
from numerate.loops.tracing.trace import NotLowered

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "logical_and": "&", "logical_or": "|", "logical_xor": "^",
}  # fmt: skip
JOIN = {"sum": "x + y", "prod": "x * y", "max": "maximum(x, y)", "min": "minimum(x, y)"}
NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}

CUDA_NAMES = {
    "abs": "fabsf", "sqrt": "sqrtf", "exp": "expf", "expm1": "expm1f", "log": "logf", "log1p": "log1pf", "sin": "sinf",
    "cos": "cosf", "tanh": "tanhf", "atan": "atanf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "trunc": "truncf", "pow": "powf", "atan2": "atan2f", "fma": "fmaf", "to_float": "float",
}  # fmt: skip
"""Functions that have another name in CUDA."""

Key = tuple[Buffer, int, tuple[int, ...]]
"""What distinguishes views of the same shape: buffer, offset, strides."""


def key(view: View) -> Key:
    return view.buffer, view.offset, strides(view)


def number(value: float) -> str:
    """A number of type R."""
    if math.isnan(value):
        return "R(NOT_A_NUMBER)"
    return f"R({'-' if value < 0 else ''}INF)" if math.isinf(value) else f"R({float(value)!r})"


def constant(value: float | bool) -> str:
    """A vector with the same number in all lanes."""
    return f"c({str(value).lower()})" if isinstance(value, bool) else f"c({number(value)})"


def call(function: str, values: list[str]) -> str:
    if function in INFIX:
        return f"{values[0]} {INFIX[function]} {values[1]}"
    if function in ("copy", "neg"):
        return {"copy": "", "neg": "-"}[function] + values[0]
    return f"{function}({', '.join(values)})"


@dataclass
class Loop:
    """Elementwise statements over the same axes, or one fold or scan."""

    axes: tuple[int, ...]
    statements: list[Statement] = field(default_factory=list)

    @property
    def fused(self) -> bool:
        return all(isinstance(s, (Map, Total)) for s in self.statements)


def arrange(statements: list[Statement]) -> list[Loop]:
    """Put every statement into the first loop over its axes that comes after all that it depends on."""
    loops: list[Loop] = []
    writers: dict[Buffer, list[tuple[int, Statement]]] = {}
    for statement in statements:
        axes, fusible, earliest = domain(statement), isinstance(statement, (Map, Total)), 0
        for view in (a for a in operands(statement) if isinstance(a, View)):
            for place, writer in writers.get(view.buffer, []):
                together = fusible and loops[place].fused and loops[place].axes == axes and key(writer.out) == key(view)
                earliest = max(earliest, place if together else place + 1)
        candidates = [n for n in range(earliest, len(loops)) if fusible and loops[n].fused and loops[n].axes == axes]
        if not candidates:
            candidates = [len(loops)]
            loops.append(Loop(axes))
        loops[candidates[0]].statements.append(statement)
        writers.setdefault(statement.out.buffer, []).append((candidates[0], statement))
    return loops


class RowCode:
    """Lines of C++ for one row. With ``symbolic`` widths are multiples of ``H``, which is known only when they run."""

    def __init__(self, program: Pointwise, statements: list[Statement], symbolic: bool = True) -> None:
        self.program, self.statements = program, statements
        self.symbolic = program.elementwise and symbolic
        self.loops = arrange(statements)
        self.homes = dict(program.homes)
        self.scratch = 0
        self.lines: list[str] = []
        for buffer in self._between():
            self.homes[buffer] = ("scratch", self.scratch)
            self.scratch += buffer.size
        if self.scratch:
            self.lines += self.room(self.scratch)
        for loop in self.loops:
            self.lines += self._fused(loop) if loop.fused else self._single(loop.statements[0])

    def room(self, numbers: int) -> list[str]:
        """Memory for what one loop gives to another."""
        return [f"R scratch[{numbers}];"]

    def arrays(self) -> set[str]:
        """Names of the arrays that are read or written."""
        views = [v for s in self.statements for v in (s.out, *operands(s)) if isinstance(v, View)]
        return {self.homes[v.buffer][0] for v in views if v.buffer in self.homes}

    def _between(self) -> list[Buffer]:
        """Buffers without a home that one loop writes and another one reads."""
        writers: dict[Buffer, set[int]] = {}
        for n, loop in enumerate(self.loops):
            for statement in loop.statements:
                writers.setdefault(statement.out.buffer, set()).add(n)
        found: dict[Buffer, None] = {}
        for n, loop in enumerate(self.loops):
            for view in (v for s in loop.statements for v in operands(s) if isinstance(v, View)):
                if view.buffer.values is not None:
                    raise NotLowered("a vector of constants")
                if view.buffer not in self.homes and (writers[view.buffer] != {n} or not loop.fused):
                    found[view.buffer] = None
        return list(found)

    # ------------------------------------------------------------ memory

    def width(self, size: int) -> str:
        """A number of units, or a distance in memory."""
        hidden = self.program.sizes.hidden
        if not self.symbolic or size == 0:
            return str(size)
        assert size % hidden == 0, "an elementwise step has blocks of one width"
        return "H" if size == hidden else f"{size // hidden} * H"

    def address(self, view: View, terms: Iterable[str] = ()) -> str:
        array, start = self.homes[view.buffer]
        place = start + view.offset
        return " + ".join([array, *([self.width(place)] if place else []), *terms])

    def load(self, view: View, terms: list[str]) -> str:
        """A vector of a view along its last axis."""
        (*_, stride) = strides(view) or (0,)
        if stride == 0:
            text = f"c(*({self.address(view, terms)}))"
        elif stride == 1:
            text = f"load({self.address(view, [*terms, 'j'])}, lanes)"
        else:
            text = f"gather({self.address(view, [*terms, f'j * {stride}'])}, {stride}, lanes)"
        return f"({text} != c(R(0)))" if view.buffer.kind == "bool" else text

    def store(self, view: View, terms: list[str], value: str) -> str:
        (*_, stride) = strides(view) or (1,)
        value = f"to_float({value})" if view.buffer.kind == "bool" else value
        if stride == 1:
            return f"store({self.address(view, [*terms, 'j'])}, {value}, lanes);"
        return f"scatter({self.address(view, [*terms, f'j * {stride}'])}, {stride}, {value}, lanes);"

    def call(self, function: str, values: list[str]) -> str:
        return call(function, values)

    # ------------------------------------------------------------ loops

    def _fused(self, loop: Loop) -> list[str]:
        *outer, size = loop.axes or (1,)
        opening = [f"for (int64_t i{k} = 0; i{k} < {n}; i{k}++)" for k, n in enumerate(outer)]
        body = self.body(loop)
        head = f"over_units({self.width(size) if loop.axes else 1}, [&](const int64_t j, const auto lanes) INLINED {{"
        return [*opening, head, *("  " + line for line in body), "});"]

    def body(self, loop: Loop) -> list[str]:
        """What a fused loop does at place ``j``."""
        lines: list[str] = []
        known: dict[Key, str] = {}

        def outer_terms(view: View) -> list[str]:
            return [f"i{k} * {stride}" for k, stride in enumerate(strides(view)[:-1]) if stride]

        def value(operand: Operand) -> str:
            if not isinstance(operand, View):
                return constant(operand)
            if key(operand) not in known:
                known[key(operand)] = name = f"v{len(known)}"
                kind = "M" if operand.buffer.kind == "bool" else "V"
                lines.append(f"const {kind} {name} = {self.load(operand, outer_terms(operand))};")
            return known[key(operand)]

        for statement in loop.statements:
            out = statement.out
            if isinstance(statement, Total):
                term = " * ".join(value(a) for a in statement.args)
                lines.append(self.store(out, outer_terms(out), f"{self.load(out, outer_terms(out))} + {term}"))
                continue
            assert isinstance(statement, Map)
            kind = "M" if out.buffer.kind == "bool" else "V"
            text = self.call(statement.function, [value(a) for a in statement.args])
            known[key(out)] = name = f"v{len(known)}"
            lines.append(f"const {kind} {name} = {text};")
            if out.buffer in self.homes:
                lines.append(self.store(out, outer_terms(out), name))
        return lines

    def _single(self, statement: Statement) -> list[str]:
        axes = domain(statement)
        if isinstance(statement, Scan):
            return self._scan(statement, axes)
        assert isinstance(statement, Fold)
        if statement.function not in JOIN:
            raise NotLowered(f"{statement.function} along the units")
        inner = tuple(n for n in statement.inner if n != 1)
        opening = [f"for (int64_t i{k} = 0; i{k} < {n}; i{k}++)" for k, n in enumerate(axes)]
        opening[-1:] = [opening[-1] + " {"] if opening else ["{"]
        loops = [f"for (int64_t i{k} = 0; i{k} < {n}; i{k}++)" for k, n in enumerate(inner[:-1], len(axes))]

        def terms(view: View) -> list[str]:
            outer = strides(view)[: len(axes) + len(inner) - 1]
            return [f"i{k} * {stride}" for k, stride in enumerate(outer) if stride]

        factors = [self.load(a, terms(a)) if isinstance(a, View) else constant(a) for a in statement.args]
        neutral, out = number(NEUTRAL[statement.function]), statement.out
        places = [f"i{k} * {stride}" for k, stride in enumerate(strides(out)) if stride]
        return [
            *opening,
            f"  const auto join = [](V x, V y) INLINED {{ return {JOIN[statement.function]}; }};",
            f"  V sum = c({neutral});",
            *("  " + line for line in loops),
            f"  over_units({inner[-1] if inner else 1}, [&](const int64_t j, const auto lanes) INLINED {{",
            f"    sum = join(sum, among({' * '.join(factors)}, {neutral}, lanes));",
            "  });",
            f"  *({self.address(out, places)}) = across(sum, join);",
            "}",
        ]

    def _scan(self, statement: Scan, axes: tuple[int, ...]) -> list[str]:
        opening = [f"for (int64_t i{k} = 0; i{k} < {n}; i{k}++)" for k, n in enumerate(axes[:-1])]
        opening[-1:] = [opening[-1] + " {"] if opening else ["{"]
        last = len(axes) - 1
        source, target = (
            self.address(view, [f"i{k} * {stride}" for k, stride in enumerate(strides(view)) if stride])
            for view in (statement.arg, statement.out)
        )
        sign, start = ("+", 0) if statement.function == "sum" else ("*", 1)
        store, step = f"*({target}) = running;", f"running = running {sign} *({source});"
        return [
            *opening,
            f"  R running = {start};",
            f"  for (int64_t i{last} = 0; i{last} < {axes[-1]}; i{last}++) {{",
            f"    {store if statement.exclusive else step}",
            f"    {step if statement.exclusive else store}",
            "  }",
            "}",
        ]


class UnitCode(RowCode):
    """Lines of CUDA for one unit of one row of an elementwise step; arrays have one number per block: ``gx[2]``."""

    def __init__(self, program: Pointwise, statements: list[Statement]) -> None:
        if not program.elementwise:
            raise NotLowered("a step that looks along the units")
        super().__init__(program, statements)
        self.lines = self.body(self.loops[0]) if self.loops else []

    def _element(self, view: View) -> str:
        array, start = self.homes[view.buffer]
        stem = array.rstrip("0123456789")
        return f"{stem}[{array[len(stem) :] or (start + view.offset) // self.program.sizes.hidden}]"

    def load(self, view: View, terms: list[str]) -> str:
        text = self._element(view)
        return f"({text} != 0)" if view.buffer.kind == "bool" else text

    def store(self, view: View, terms: list[str], value: str) -> str:
        return f"{self._element(view)} = {value};"

    def call(self, function: str, values: list[str]) -> str:
        return call(CUDA_NAMES.get(function, function), values)


class BlockCode(RowCode):
    """Lines of CUDA for one row, whose units the threads of a block share; ``scratch`` is in their shared memory."""

    def __init__(self, program: Pointwise, statements: list[Statement]) -> None:
        super().__init__(program, statements, symbolic=False)

    def room(self, numbers: int) -> list[str]:
        return []

    def load(self, view: View, terms: list[str]) -> str:
        (*_, stride) = strides(view) or (0,)
        text = f"load({self.address(view, [*terms, *([f'j * {stride}'] if stride else [])])})"
        return f"({text} != 0)" if view.buffer.kind == "bool" else text

    def store(self, view: View, terms: list[str], value: str) -> str:
        (*_, stride) = strides(view) or (1,)
        return f"store({self.address(view, [*terms, f'j * {stride}'])}, {value});"

    def call(self, function: str, values: list[str]) -> str:
        return call(CUDA_NAMES.get(function, function), values)

    def _fused(self, loop: Loop) -> list[str]:
        return self._shared(loop.axes, "j", self.body(loop))

    def _shared(self, axes: tuple[int, ...], last: str, body: list[str]) -> list[str]:
        """``body`` for all places, in which the last index has the name ``last`` and others ``i0``, ``i1``, ..."""
        lines = [f"for (int flat = threadIdx.x; flat < {math.prod(axes)}; flat += THREADS) {{"]
        inner = 1
        for k, size in reversed(list(enumerate(axes or (1,)))):
            name = last if k == len(axes or (1,)) - 1 else f"i{k}"
            lines.append(f"  const int {name} = flat / {inner} % {size};")
            inner *= size
        return [*lines, *("  " + line for line in body), "}", "__syncthreads();"]

    def _single(self, statement: Statement) -> list[str]:
        axes = domain(statement)
        if isinstance(statement, Scan):
            return self._scan(statement, axes)
        assert isinstance(statement, Fold)
        if statement.function not in JOIN:
            raise NotLowered(f"{statement.function} along the units")
        inner, count = tuple(n for n in statement.inner if n != 1), len(axes)
        names = [f"i{k}" for k in range(count + len(inner))]

        def terms(view: View) -> list[str]:
            return [f"{name} * {stride}" for name, stride in zip(names, strides(view)) if stride]

        def value(operand: Operand) -> str:
            return f"load({self.address(operand, terms(operand))})" if isinstance(operand, View) else constant(operand)

        product = " * ".join(value(a) for a in statement.args)
        join = f"const auto join = [](float x, float y) {{ return {JOIN[statement.function]}; }};"
        start = f"float sum = {number(NEUTRAL[statement.function])};"
        target = self.address(statement.out, [f"i{k} * {s}" for k, s in enumerate(strides(statement.out)) if s])
        if not axes:  # of the whole row: all threads together
            size = math.prod(inner)
            sizes = [math.prod(inner[k + 1 :]) for k in range(len(inner))]
            places = [f"const int i{k} = flat / {step} % {n};" for k, (n, step) in enumerate(zip(inner, sizes))]
            body = [f"for (int flat = threadIdx.x; flat < {size}; flat += THREADS) {{", *("  " + p for p in places)]
            body += [f"  sum = join(sum, {product});", "}"]
            body += ["sum = across(sum, join);", f"if (threadIdx.x == 0) store({target}, sum);", "__syncthreads();"]
            return ["{", *("  " + line for line in (join, start, *body)), "}"]
        loops = [f"for (int i{count + k} = 0; i{count + k} < {n}; i{count + k}++)" for k, n in enumerate(inner)]
        body = [join, start, *loops, f"  sum = join(sum, {product});", f"store({target}, sum);"]
        return self._shared(axes, f"i{count - 1}", body)

    def _scan(self, statement: Scan, axes: tuple[int, ...]) -> list[str]:
        if statement.function != "sum" or statement.exclusive or len(axes) != 1:
            before = " of what comes before" if statement.exclusive else ""
            raise NotLowered(f"a running {statement.function}{before} over {len(axes)} axes on a GPU")
        (source,), (target,) = strides(statement.arg), strides(statement.out)
        places = f"{self.address(statement.arg)}, {source}, {self.address(statement.out)}, {target}"
        return [f"running_sum({axes[0]}, {places});"]
