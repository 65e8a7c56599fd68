"""Run the emitted CUDA kernels of a step: pack what they read, launch them, unpack what they wrote.

A group of threads trains one member. The examples of a batch are distributed among the threads, and so are the elements
of large parameters (:mod:`~numerate.loops.passes.distribute`); small values are kept by every thread, in registers
(:mod:`~numerate.loops.passes.placement`). Sums over the batch of a few elements go from register to register; those of
many elements through shared memory: every example leaves the factors there, and each thread adds up its own columns.
How the source is made: :mod:`~numerate.loops.cuda.pipeline`.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from torch import Tensor

from numerate.loops.cuda.pipeline import emit_evaluation, emit_training
from numerate.loops.cuda.source import Source
from numerate.loops.lowering.lower import lower
from numerate.loops.step import Members, State, Step, Tensors, check_shapes, corrections, fixed
from numerate.loops.toolchain import nvrtc
from numerate.loops.toolchain.source_cache import kept
from numerate.loops.tracing.trace import evaluation, training_step


class Cuda:
    """Emitted CUDA loop; the same two methods as every :class:`~numerate.loops.step.Loop`.

    Tensors may lie on any device; results are written where the state lies. Raises
    :class:`~numerate.loops.tracing.trace.NotLowered` or
    :class:`~numerate.loops.toolchain.native.NoCompiler` if the step cannot be compiled; callers fall back to another
    loop.
    """

    def __init__(self, step: Step, device: torch.device | str = "cuda", *, threads: int | None = None) -> None:
        self.step, self.device = step, torch.device(device)
        limit = nvrtc.shared_memory(self.device)
        found = kept(step.name, f"CUDA {threads} {limit}", lambda: _emitted(step, threads, limit))
        self.training, self.evaluation = (Source(**found[purpose]) for purpose in ("training", "evaluation"))
        self._train, self._evaluate = (_compiled(source, self.device) for source in (self.training, self.evaluation))

    def wait(self) -> tuple[nvrtc.Kernel, nvrtc.Kernel]:
        """Both kernels, once they are compiled."""
        return self._train.result(), self._evaluate.result()

    def train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        check_shapes(self.step, state.parameters, members.constants)
        if steps and len(members):
            self._run(state, members, table, steps)
        state.step += steps

    def _run(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        moving = [
            group[k] for group in (state.parameters, state.exp_avg, state.exp_avg_sq) for k in self.step.parameters
        ]
        packed, diverged = self._pack(moving), state.diverged.to(self.device, copy=True)
        table = _moved(table, self.device)
        self._train.result().launch(
            -(-len(members) // self.training.members),
            packed,
            self._pack(fixed(self.step, members)),
            members.seeds.to(self.device).to(torch.int32),  # keeps the low 32 bits, as the key does
            table,
            *table.stride(),
            corrections(self.step, state.step, steps, self.device),
            diverged,
            len(members),
            state.step,
            steps,
        )
        for target, piece in zip(moving, packed.split([tensor[0].numel() for tensor in moving], -1)):
            target.copy_(piece.reshape(target.shape))
        state.diverged.copy_(diverged)

    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        check_shapes(self.step, parameters, constants)
        given = [parameters[name] for name in self.step.parameters] + [constants[name] for name in self.step.constants]
        losses = torch.empty(len(given[0]), device=self.device)
        if len(losses):
            columns = uniforms.to(self.device, torch.float32).t().contiguous()
            arguments = (losses, self._pack(given), columns, len(losses), columns.shape[1])
            self._evaluate.result().launch(-(-len(losses) // self.evaluation.members), *arguments)
        return losses.to(given[0].device)

    def _pack(self, tensors: list[Tensor]) -> Tensor:
        """(S, ...) each -> (S, numbers) on the device."""
        flat = torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], -1)
        return flat.to(self.device, torch.float32).contiguous()


def _moved(table: Tensor, device: torch.device) -> Tensor:
    """``table`` on the device; dimensions that only repeat are not copied."""
    once = table[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in table.stride())]
    return once.to(device, torch.float32).expand(table.shape)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, os.cpu_count() or 4), thread_name_prefix="numerate-nvrtc")


def _compiled(source: Source, device: torch.device) -> Future[nvrtc.Kernel]:
    """Compile in the background: both kernels of a step, and those of several steps, at the same time."""
    return _pool().submit(nvrtc.kernel, source.text, source.name, device, source.block, source.shared)


def _emitted(step: Step, threads: int | None, limit: int) -> dict[str, Any]:
    """Both kernels as plain data."""
    training = emit_training(step, lower(training_step(step)), threads, limit)
    return {"training": asdict(training), "evaluation": asdict(emit_evaluation(lower(evaluation(step)), limit))}
