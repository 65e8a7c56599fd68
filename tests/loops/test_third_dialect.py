"""A third dialect, plain C99, in under a hundred lines: one member at a time, and an inner loop over four examples.

It prints the kernel that the C++ loop is printed from; nothing but the spelling is new.
"""

import ctypes
import subprocess

import pytest
from small_steps import largest_difference, make_members, make_state, make_step, make_weights, unit

from numerate.loops.cpp.loop import Cpp
from numerate.loops.cpp.pipeline import training_kernel
from numerate.loops.form.operations import Operation
from numerate.loops.kernel import form, values
from numerate.loops.lowering.lower import lower
from numerate.loops.plain.eager import Eager
from numerate.loops.printers.printer import Printer, place
from numerate.loops.step import Step
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import training_step

pytestmark = pytest.mark.skipif(not native.available(), reason="needs a compiler")

PRELUDE = """
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#define EACH for (int x = 0; x < 4; x++)
typedef struct { uint32_t seed, domain; uint64_t step; } Stream;
static void draw(Stream s, uint32_t block, float *out) {
  uint32_t c[4] = {block, s.step, s.step >> 32, 0}, k[2] = {s.seed, s.domain};
  for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u) {
    const uint64_t p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
    const uint32_t next[4] = {(q >> 32) ^ c[1] ^ k[0], q, (p >> 32) ^ c[3] ^ k[1], p};
    EACH c[x] = next[x];
  }
  EACH out[x] = (c[x] >> 8) * 0x1p-24f;
}
static float minimum(float a, float b) { return b < a || b != b ? b : a; }
static float maximum(float a, float b) { return b > a || b != b ? b : a; }
static float sign(float a) { return (a > 0) - (a < 0); }
static float where(bool m, float a, float b) { return m ? a : b; }
"""


class C99Printer(Printer):
    """Values of an example are arrays of four, and what computes them stands in a loop over these."""

    multiply_add = "fmaf"

    def __init__(self) -> None:
        self.of_examples: set[str] = set()

    def statement(self, node: form.Statement) -> list[str]:
        if isinstance(node, form.Let | form.Array) and node.type.per_example:
            self.of_examples.add(node.name)
        if isinstance(node, form.Let) and node.type.per_example:
            kind = self.type(node.type)
            return [f"{kind} {node.name}[4];", f"EACH {node.name}[x] = {self.value(node.value)};"]
        lines = super().statement(node)
        if isinstance(node, form.Assign) and isinstance(node.target, values.Variable | values.Element):
            name = node.target.name if isinstance(node.target, values.Variable) else node.target.array
            return [f"EACH {lines[0]}"] if name in self.of_examples else lines
        return lines

    def spelling(self, operation: Operation, exact: bool) -> str:
        return "(float)" if operation.name == "to_float" else operation.cuda  # which is C's

    def value(self, value: values.Value) -> str:
        name = getattr(value, "name", getattr(value, "array", None))
        own = isinstance(value, values.Variable | values.Element) and name in self.of_examples
        return super().value(value) + ("[x]" if own else "")

    def array(self, array: form.Array) -> list[str]:
        return [super().array(array)[0].replace(";", "[4];") if array.type.per_example else super().array(array)[0]]

    def loaded(self, value: values.Packed | values.Broadcast | values.Drawn | values.Given) -> str:
        if isinstance(value, values.Packed | values.Broadcast):
            return f"{value.array}[{value.row} + {place(value.place)}]"
        assert isinstance(value, values.Drawn)
        return f"{value.array}[x * {value.width} + {place(value.index)}]"

    def add_examples(self, node: form.AddExamples) -> str:
        left = "" if node.left is None else f"if (x < {node.left}) "
        return f"EACH {left}{self.value(node.target)} += {' * '.join(map(self.value, node.factors))};"

    def stream(self, node: form.Stream) -> str:
        return f"Stream {node.name} = {{seeds[group], {node.domain}, 0}};"

    def start_step(self, node: form.StartStep) -> str:
        return f"{node.stream}.step = {node.step};"

    def draw(self, node: form.Draw) -> str:
        return f"draw({node.stream}, {node.block}, {node.array} + {node.offset});"

    def note_divergence(self, node: form.NoteDivergence) -> list[str]:
        terms = [f"{name}[{i}]" if array else f"{name}_{i}" for name, n, array in node.parameters for i in range(n)]
        finite = " && ".join(f"isfinite({term})" for term in terms)
        return [f"if (!({finite}) && diverged[group] < 0) diverged[group] = start + t;"]


class C99(Cpp):
    """The loop around it: that of C++ with one lane."""

    def __init__(self, step: Step, folder) -> None:
        self.step, self.threads, self.lanes = step, 1, 1
        kernel = training_kernel(step, lower(training_step(step)))
        source, built = folder / "loop.c", folder / "loop.so"
        source.write_text("\n".join([PRELUDE, *C99Printer().function(kernel)]))
        flags = ("-x", "c", "-std=c99", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", built, source, "-lm")
        subprocess.run([*native.find_compiler(), *flags], check=True)
        self.library = ctypes.CDLL(str(built))


@pytest.mark.parametrize(("name", "inputs", "batch"), [("NMU", 2, 32), ("NMU", 2, 10), ("NAU", 20, 16)])
def test_an_nmu_trained_in_c99_follows_the_plain_loop(name, inputs, batch, tmp_path):
    module = unit(name, inputs)
    step, members, steps = make_step(module, inputs, batch=batch), make_members(3), 100
    states = []
    for loop in (Eager(step), C99(step, tmp_path)):
        states.append(make_state(module, 3))
        loop.train(states[-1], members, make_weights(step, steps, 3), steps)
    assert largest_difference(states[0], make_state(module, 3)) > 0.1
    assert largest_difference(*states) < 5e-6
