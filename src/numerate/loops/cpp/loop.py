"""Run the emitted C++ loops of a step: pack what they read, call them on all cores, unpack what they wrote.

One lane of a vector is one member; the loop over the batch takes four examples at a time; parameters and moments stay
in the nearest cache for all steps of a call. How the source is made: :mod:`~numerate.loops.cpp.pipeline`.
"""

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

from numerate.loops.cpp.pipeline import source
from numerate.loops.cpp.tuning import EXAMPLES_AT_ONCE
from numerate.loops.step import Members, State, Step, Tensors, check_shapes, corrections, fixed
from numerate.loops.toolchain import native
from numerate.loops.toolchain.source_cache import kept


class Cpp:
    """Emitted native loop; the same two methods as every :class:`~numerate.loops.step.Loop`.

    Raises :class:`~numerate.loops.tracing.trace.NotLowered` or
    :class:`~numerate.loops.toolchain.native.NoCompiler` if the step cannot be compiled; callers fall back to another
    loop.
    """

    def __init__(self, step: Step, threads: int | None = None) -> None:
        self.step, self.threads = step, threads
        self.source: str = kept(step.name, "C++", lambda: {"source": source(step)})["source"]
        self.library = native.library(self.source)
        self.lanes: int = self.library.lanes()

    def train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        check_shapes(self.step, state.parameters, members.constants)
        groups = [state.parameters, state.exp_avg, state.exp_avg_sq]
        packed = self._pack([group[name] for group in groups for name in self.step.parameters])
        arguments = (
            self._pack([members.seeds.to(torch.int32)]),
            self._pack(fixed(self.step, members)).float(),
            self._pack([table.permute(2, 1, 0)]).float(),
            corrections(self.step, state.step, steps),
            packed,
            diverged := self._pack([state.diverged]),
        )

        def run(first: int, last: int) -> None:
            counts = (ctypes.c_int64(n) for n in (first, last, state.step, steps))
            self.library.train(*counts, *map(native.pointer, arguments))

        native.over_parts(run, len(packed), self.threads)
        targets = [group[name] for group in groups for name in self.step.parameters]
        for target, value in zip(targets, self._unpack(packed, targets)):
            target.copy_(value)
        state.diverged.copy_(next(self._unpack(diverged, [state.diverged])))
        state.step += steps

    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        check_shapes(self.step, parameters, constants)
        own = [parameters[name] for name in self.step.parameters]
        given = [constants[name] for name in self.step.constants]
        numbers, count = _flat([*own, *given]).float(), len(uniforms)
        alike = _alike(numbers[:, sum(tensor[0].numel() for tensor in own) :])
        block = EXAMPLES_AT_ONCE * self.lanes
        padded = torch.nn.functional.pad(uniforms.float(), (0, 0, 0, -count % block))
        table = padded.unflatten(0, (-1, block)).transpose(1, 2).contiguous()
        sums = torch.zeros(len(numbers), dtype=torch.float64)

        def run(first: int, last: int) -> None:
            counts = (ctypes.c_int64(n) for n in (first, last, count))
            self.library.evaluate(*counts, *map(native.pointer, (table, numbers, alike, sums)))

        native.over_parts(run, len(numbers), self.threads)
        return (sums / count).float()

    def _pack(self, tensors: list[Tensor]) -> Tensor:
        """(S, ...) each -> (groups, numbers, lanes), a vector per number; the last group repeats the last member."""
        flat = _flat(tensors)
        padding = flat[-1:].expand(-len(flat) % self.lanes, -1)
        return torch.cat([flat, padding]).unflatten(0, (-1, self.lanes)).transpose(1, 2).contiguous()

    def _unpack(self, packed: Tensor, like: list[Tensor]) -> Iterator[Tensor]:
        """Undo :meth:`_pack`."""
        members = len(like[0])
        flat = packed.transpose(1, 2).flatten(0, 1)[:members]
        for tensor, piece in zip(like, flat.split([tensor[0].numel() for tensor in like], -1)):
            yield piece.reshape(tensor.shape)


def _flat(tensors: list[Tensor]) -> Tensor:
    """(S, ...) each -> (S, numbers)"""
    return torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], -1)


def _alike(rows: Tensor) -> Tensor:
    """For each row, the index of the next row that differs."""
    changes = (rows[1:] != rows[:-1]).any(-1).nonzero().flatten() + 1
    edges = torch.cat([changes.new_zeros(1), changes, changes.new_full((1,), len(rows))])
    return edges[1:].repeat_interleave(edges.diff())
