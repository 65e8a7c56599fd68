"""Every row of the table of operations, spelled in C++ and in CUDA, computes what its reference does."""

import ctypes

import pytest
import torch
from device_compiler import needs_compiler, said_about

from numerate.loops.cuda.source import prelude
from numerate.loops.form.operations import OPERATIONS, REDUCTIONS, Operation, spelled
from numerate.loops.toolchain import native

LETTERS = "xyz"


def kinds(operation: Operation) -> list[str]:
    """Of the operands."""
    if operation.name in ("to_float", "where"):
        return ["bool", "float", "float"][: operation.arity]
    return ["bool" if operation.operands == "bool" else "float"] * operation.arity


def of_vectors(operation: Operation) -> str:
    """A function of one vector, and of a block of four that are equal: the sum of both, as float."""

    def call(block: bool) -> str:
        wrap = {"float": "B({})", "bool": "BM({} > c(0.5f))"} if block else {"float": "{}", "bool": "({} > c(0.5f))"}
        operands = [wrap[kind].format(letter) for kind, letter in zip(kinds(operation), LETTERS)]
        text = f"({spelled(operation.cpp, operands)})"
        text = f"{text}.r" if block else text
        return f"to_float({text})" if operation.result == "bool" else text

    loads = " ".join(f"const V {letter} = load({letter}_ + i);" for letter in LETTERS)
    body = f"store(out + i, {call(False)}); store(out + count + i, {call(True)});"
    arguments = "const float *x_, const float *y_, const float *z_, float *out, int64_t count"
    loop = f"for (int64_t i = 0; i < count; i += LANES) {{ {loads} {body} }}"
    return f'extern "C" void call_{operation.name}({arguments}) {{ {loop} }}'


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return native.library("\n".join(['#include "prelude.hpp"', *map(of_vectors, OPERATIONS.values())]))


@pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_in_cpp(library, name):
    operation = OPERATIONS[name]
    torch.manual_seed(0)
    values = torch.rand(3, 160) * 2
    values[1, :16] = values[0, :16]  # equal numbers, for comparisons
    out = torch.empty(2, 160)
    library[f"call_{name}"](*map(native.pointer, (*values, out)), ctypes.c_int64(160))
    operands = [value > 0.5 if kind == "bool" else value for kind, value in zip(kinds(operation), values)]
    expected = operation(*operands).float()
    torch.testing.assert_close(out, expected.expand(2, -1), rtol=5e-7, atol=1e-7)


@needs_compiler
def test_all_operations_in_cuda():
    lines = ["#define THREADS 32", "#define BLOCK 32", prelude()]
    for operation in OPERATIONS.values():
        parameters = ", ".join(f"{kind} {letter}" for kind, letter in zip(kinds(operation), LETTERS))
        for suffix, spelling in (("", operation.cuda), ("_exact", operation.cuda_exact)):
            if spelling is not None:
                text = spelled(spelling, list(LETTERS[: operation.arity]))
                result = operation.result or "float"
                head = f'extern "C" __device__ {result} call_{operation.name}{suffix}({parameters})'
                lines.append(f"{head} {{ return {text}; }}")
    for name, reduction in REDUCTIONS.items():
        lines.append(f'extern "C" __device__ float join_{name}(float x) {{ return over_warp<{reduction.cuda}>(x); }}')
    lines.append('extern "C" __global__ void nothing() {}')
    assert "nothing" in said_about("\n".join(lines))


def test_a_reduction_joins_by_its_operation_and_starts_with_its_neutral_number():
    torch.manual_seed(0)
    for name, reduction in REDUCTIONS.items():
        values = torch.rand(5) > 0.3 if name in ("and", "or") else torch.randn(5)
        joined = torch.tensor(reduction.neutral)
        for value in values:
            joined = OPERATIONS[reduction.operation](joined, value)
        torch.testing.assert_close(joined, reduction.reference(values, dim=-1))
