"""From a step to C++: the passes, in order."""

from numerate.loops.cpp.evaluation import divide, evaluation_function
from numerate.loops.cpp.statements import CpuSchedule, in_memory, nests_of_stages
from numerate.loops.cpp.training import draws_in_loops, training_function
from numerate.loops.form.ir import Program
from numerate.loops.kernel.form import Function
from numerate.loops.lowering.lower import lower
from numerate.loops.passes.batch_sums import reject_batch_sums
from numerate.loops.passes.enumerate_booleans import enumerate_booleans
from numerate.loops.printers.cpp import CppPrinter
from numerate.loops.step import Step
from numerate.loops.tracing.trace import evaluation, training_step


def training_kernel(step: Step, program: Program) -> Function:
    """The kernel form of the training loop."""
    nests = nests_of_stages(program)  # unroll small axes, fuse loops over the others
    draws = draws_in_loops(program, nests)  # draw many random numbers tile by tile, in the loop that uses them
    arrays = in_memory(program, nests) - set(draws)  # place values in memory or registers
    schedule = CpuSchedule(program, nests, arrays, draws)
    return training_function(step, schedule)  # write the kernel: loops over members, steps and the batch


def evaluation_kernel(step: Step, program: Program) -> Function:
    """The kernel form of the evaluation loop."""
    program = enumerate_booleans(reject_batch_sums(program))  # compute once per combination of an example's Booleans
    divided = divide(step, program)  # separate what members share, and what depends on them by a bounded number
    nests = nests_of_stages(divided.program)  # unroll small axes, fuse loops over the others
    arrays = in_memory(divided.program, nests)  # place values in memory or registers
    schedule = CpuSchedule(divided.program, nests, arrays, [])
    return evaluation_function(step, divided, schedule)  # write the kernel: loops over members and examples


def source(step: Step) -> str:
    """The C++ source of both loops of a step."""
    training = training_kernel(step, lower(training_step(step)))  # trace, lower, schedule
    evaluating = evaluation_kernel(step, lower(evaluation(step)))
    printer = CppPrinter()
    lines = ['extern "C" int lanes() { return LANES; }', "", *printer.function(training), ""]
    return "\n".join(['#include "prelude.hpp"', "", *lines, *printer.function(evaluating)])
