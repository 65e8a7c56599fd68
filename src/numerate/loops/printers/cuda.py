"""Kernels as CUDA C++ with the names and functions of ``prelude.cuh``."""

from numerate.loops.form.operations import REDUCTIONS, Number, Operation
from numerate.loops.kernel.form import (
    Array,
    Divergence,
    Draw,
    EvaluateTogether,
    For,
    Function,
    LeaveIfDead,
    MeanLosses,
    Records,
    SharedMemory,
    Statement,
    Stream,
    ThreadReduce,
    Threads,
    TurnToMember,
)
from numerate.loops.kernel.values import Broadcast, Drawn, Given, Packed
from numerate.loops.printers.printer import Printer, place

_DIVERGENCE = {
    "declare": "u64 diverged_at = ~0ull;",
    "begin": "bool finite = true;",
    "check": "finite = finite && is_finite({name});",
    "end": "if (!finite && diverged_at == ~0ull) diverged_at = start + t;",
    "tell": "if (diverged_at != ~0ull) atomicMin(diverged + member, diverged_at);  // -1 is the largest",
}


class CudaPrinter(Printer):
    whole = {"int": "int", "int64": "long long", "uint32": "u32", "uint64": "u64"}
    not_a_number, multiply_add, table_qualifier = "__int_as_float(0x7fffffff)", "fmaf", "__constant__"

    def signature(self, function: Function) -> str:
        kind = 'extern "C" __global__ void __launch_bounds__(BLOCK)' if function.exported else "INLINE void"
        template = f"template <int {function.template}> " if function.template else ""
        return f"{template}{kind} {function.name}({self.parameters(function)})"

    def spelling(self, operation: Operation, exact: bool) -> str:
        return (operation.cuda_exact if exact else None) or operation.cuda

    def number(self, value: Number) -> str:
        if not isinstance(value, bool) and abs(value) == float("inf"):
            return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
        text = super().number(value)
        return f"({text})" if text.startswith("-") else text

    def pragma(self, loop: For) -> list[str]:
        return [f"#pragma unroll {loop.unroll}"] if loop.unroll and loop.unroll is not True else []

    def loop(self, loop: For) -> list[str]:
        lines = super().loop(loop)
        return [f"UNROLL {lines[0]}", *lines[1:]] if loop.unroll is True else lines

    def array(self, array: Array) -> list[str]:
        shared = "__shared__ " if array.memory == "shared" else ""
        return [f"{shared}{line}" for line in super().array(array)]

    def loaded(self, value: Packed | Broadcast | Drawn | Given) -> str:
        match value:
            case Packed(array, _, at):
                return f"{array}[{place(at)}]"
            case Broadcast(array, row, at):
                return f"{array}[{row} + {place(at)}]"
            case Given(index, _, row):
                return f"numbers[({place(index)}) * count + {row}]"
            case Drawn(array, index):
                return f"{array}[{place(index)}]"

    def stream(self, node: Stream) -> str:
        return f"Stream {node.name} = {{seeds[member], {node.domain}}};"

    def draw(self, node: Draw) -> str:
        return f"{node.stream}.draw<{node.blocks}>({node.block}, {node.array});"

    def barrier(self) -> str:
        return "together();"

    def thread_reduce(self, node: ThreadReduce) -> str:
        join = REDUCTIONS[node.reduction].cuda
        whole = f"over_threads<{join}>({node.name}, scratch)"
        return f"{node.name} = {whole if node.scope == 'member' else f'over_warp<{join}>({node.name})'};"

    def of_threads(self, node: Statement) -> list[str]:
        match node:
            case Threads(False):
                return ["const int thread = threadIdx.x;"]
            case Threads(True):
                return [
                    "const int thread = threadIdx.x % THREADS;",
                    "const int place = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;",
                    "const int member = place < members ? place : members - 1;  // if there are too many threads",
                ]
            case SharedMemory(arrays, floats):
                return [
                    "extern __shared__ __align__(16) float memory[];",
                    f"float *const own = memory + threadIdx.x / THREADS * {floats};",
                    *(f"float *const {name} = own + {offset};" for name, offset in arrays),
                ]
            case TurnToMember(widths):
                rows = ", ".join(f"{array} += u64(member) * {width}" for array, width in widths.items())
                return [f"{rows};"]
            case LeaveIfDead(count):
                return [
                    "bool alive = false;",
                    f"for (int e = thread; e < {count}; e += THREADS) alive = alive || state[e] == state[e];",
                    "if (!__syncthreads_or(alive)) {",
                    "  if (thread == 0) atomicMin(diverged + member, start);",
                    "  return;",
                    "}",
                ]
            case Divergence(moment, name):
                return [_DIVERGENCE[moment].format(name=name)]
            case Records(name, fields, count):
                return [f"struct {{ {' '.join(f'{kind} {field};' for kind, field in fields)} }} {name}[{count}];"]
            case MeanLosses(count):
                return [f"mean_over_threads<{count}>(sums, parts, losses, member, count);"]
            case EvaluateTogether():
                return _evaluate_together(node)
            case _:
                return super().of_threads(node)


def _evaluate_together(node: EvaluateTogether) -> list[str]:
    if node.count == 1:
        return [f"{node.alone}(losses, fixed, numbers, blockIdx.x, count);"]
    return [
        f"const int first = blockIdx.x * {node.count};",
        f"bool equal = first + {node.count} <= members;",
        f"for (int m = 1; m < {node.count} && equal; m++) {{",
        f"  const float *const one = fixed + u64(first) * {node.width};",
        f"  const float *const other = one + m * {node.width};",
        *(f"  equal = equal && one[{at}] == other[{at}];" for at in node.places),
        "}",
        f"if (equal) {node.together}(losses, fixed, numbers, first, count);",
        f"else for (int m = first; m < members && m < first + {node.count}; m++) {{",
        f"  {node.alone}(losses, fixed, numbers, m, count);",
        "}",
    ]
