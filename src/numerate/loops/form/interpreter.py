"""Run a program of the intermediate form with torch, statement by statement: the reference semantics.

Emitted code is compared with the plain loop; the interpreter tells on which side of the intermediate form a difference
arose.
"""

from typing import Any

import torch
from torch import Tensor

from numerate.loops.form.ir import BatchSum, Buffer, Map, Operand, Program, Reduce, Scan, Statement, View
from numerate.loops.form.operations import OPERATIONS, REDUCTIONS
from numerate.loops.step import Tensors


def interpret(program: Program, inputs: Tensors) -> Tensors:
    """Outputs of ``program``; ``inputs`` and outputs by name, those of an example with the batch as first dimension."""
    examples = next(len(inputs[name]) for name, view in program.inputs.items() if view.buffer.batch)
    memory: dict[Buffer, Tensor] = {}
    for name, view in program.inputs.items():
        rows = examples if view.buffer.batch else 1
        memory[view.buffer] = inputs[name].reshape(rows, view.buffer.size).clone()
    for stage in program.stages:
        for statement in (*stage.member, *stage.batch):
            _execute(statement, memory, examples)
    return {name: _read(value, memory) for name, value in program.outputs.items()}


def _elements(view: View, memory: dict[Buffer, Tensor], rows: int) -> Tensor:
    """The view of a buffer as a tensor (rows, *shape) that shares its memory; negative strides give a copy."""
    buffer = view.buffer
    if buffer not in memory:
        dtype = torch.bool if buffer.kind == "bool" else torch.float32
        start = torch.zeros(buffer.size) if buffer.values is None else torch.tensor(buffer.values)
        memory[buffer] = start.to(dtype).expand(rows if buffer.batch else 1, buffer.size).clone()
    return memory[buffer][:, _places(view)]


def _places(view: View) -> Tensor:
    """Where in the buffer each element is; (*shape)."""
    place = torch.tensor(view.offset)
    for size, stride in zip(view.shape, view.strides):
        place = place.unsqueeze(-1) + torch.arange(size) * stride
    return place


def _write(view: View, value: Tensor, memory: dict[Buffer, Tensor], rows: int) -> None:
    _elements(view, memory, rows)
    target = memory[view.buffer]
    target[:, _places(view)] = value.to(target.dtype).expand(len(target), *view.shape)


def _execute(statement: Statement, memory: dict[Buffer, Tensor], rows: int) -> None:
    def value(operand: Operand) -> Tensor:
        return _elements(operand, memory, rows) if isinstance(operand, View) else torch.tensor(operand)

    def product(operands: tuple[Operand, ...], shape: tuple[int, ...]) -> Tensor:
        result: Any = value(operands[0])
        for operand in operands[1:]:
            result = result * value(operand)
        return torch.broadcast_to(result, (len(result) if result.ndim else 1, *shape))

    out = statement.out
    if isinstance(statement, Map):
        _write(out, OPERATIONS[statement.function](*map(value, statement.args)), memory, rows)
    elif isinstance(statement, Reduce):
        terms = product(statement.args, out.shape + statement.inner).flatten(1 + len(out.shape))
        _write(out, REDUCTIONS[statement.function].reference(terms, dim=-1), memory, rows)
    elif isinstance(statement, Scan):
        running = torch.cumsum if statement.function == "sum" else torch.cumprod
        each = value(statement.arg)
        if statement.exclusive:
            start = torch.full_like(each[..., :1], 0.0 if statement.function == "sum" else 1.0)
            each = torch.cat([start, each[..., :-1]], -1)
        _write(out, running(each, -1), memory, rows)
    elif isinstance(statement, BatchSum):
        each = product(statement.args, out.shape)
        _write(out, each.expand(rows, *out.shape).sum(0, keepdim=True), memory, rows)


def _read(value: Operand, memory: dict[Buffer, Tensor]) -> Tensor:
    if not isinstance(value, View):
        return torch.tensor(value)
    return _elements(value, memory, 1) if value.buffer.batch else _elements(value, memory, 1)[0]
