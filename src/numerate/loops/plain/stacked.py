"""All members as one stacked computation: the step is vmapped, traced once, and executed block by block.

Any module that ``torch.func`` can differentiate runs here, on CPU or CUDA. Members are always computed in blocks of one
fixed size (the last one padded), so a member's bits do not depend on how many others there are. They may depend on its
place in the block where torch sums or convolves rows that do not fill whole vectors (LayerNorm, softmax, Conv1d), by
rounding alone; elementwise operations and matrix products round the same everywhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize, grad, vmap

from numerate.loops.step import (
    Members,
    State,
    Step,
    Tensors,
    adam,
    at_step,
    clipped,
    corrections,
    total_loss,
)
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import TRACING
from numerate.streams import Domain, uniform
from numerate.torch_internals import make_fx, traceable_functions, tree_flatten, tree_unflatten

_ELEMENTS = 2**18  # numbers in a block's largest tensor: about what a core's second-level cache holds
_STEPS = 64  # random numbers are drawn for this many steps at once


def block_size(step: Step, device: torch.device) -> int:
    """Members computed together: a power of two from 16 to 256 on CPU, 4096 on CUDA; depends on the step alone."""
    width = max([step.draws, *(shape.numel() for shape in step.parameters.values())])
    if device.type == "cuda":
        return max(256, min(4096, 2 ** (2**28 // (step.batch * width)).bit_length() // 2))
    return max(16, min(256, 2 ** ((_ELEMENTS // (step.batch * width)).bit_length() - 1)))


class Stacked:
    """One vmapped step for a block of members; ``compiled=True`` uses ``torch.compile``, slow to start."""

    def __init__(self, step: Step, device: torch.device | str = "cpu", *, compiled: bool = False) -> None:
        self.step, self.device, self.compiled = step, torch.device(device), compiled
        self.block = block_size(step, self.device)
        self._advance: Callable[..., Any] | None = None
        self._loss = vmap(self._evaluate_one, in_dims=(0, 0, None))

    def train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        with one_thread():
            self._train(state, members, table, steps)

    def _train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        correction = corrections(self.step, state.step, steps, self.device)
        for index in _blocks(len(members), self.block, members.seeds.device):
            part, who = _to(state.take(index), self.device, self.step), members.take(index).to(self.device)
            who.constants = {name: who.constants[name] for name in self.step.constants}
            self._train_block(part, who, table[:, :, index].to(self.device), correction)
            kept = index[: _unpadded(index, len(members))]
            for group, values in (
                (state.parameters, part.parameters),
                (state.exp_avg, part.exp_avg),
                (state.exp_avg_sq, part.exp_avg_sq),
            ):
                for name, value in values.items():
                    group[name][kept] = value[: len(kept)].to(group[name].device)
            state.diverged[kept] = part.diverged[: len(kept)].to(state.diverged.device)
        state.step += steps

    @torch.no_grad()
    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        with one_thread():
            return self._evaluate(parameters, constants, uniforms)

    def _evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        count = len(next(iter(parameters.values())))
        losses = []
        # at most so many members at once that a layer stays near 2**22 numbers, long examples near 2**25
        n, draws = uniforms.shape
        block = max(1, min(self.block, 2**22 // max(1, n * self._widest()), 2**25 // max(1, n * draws)))
        for index in _blocks(count, block, uniforms.device):
            chosen = [{k: v[index].to(self.device) for k, v in group.items()} for group in (parameters, constants)]
            losses.append(self._loss(chosen[0], chosen[1], uniforms.to(self.device))[: _unpadded(index, count)])
        return torch.cat(losses).to(next(iter(parameters.values())).device)

    def _widest(self) -> int:
        return max(shape[-1] if shape else 1 for shape in self.step.parameters.values())

    def _evaluate_one(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        x, y = self.step.examples(uniforms, constants)
        return self.step.error(self.step.predict(parameters, x), y).mean()

    @torch.no_grad()
    def _train_block(self, state: State, members: Members, table: Tensor, correction: Tensor) -> None:
        steps = len(correction)
        carried = (state.parameters, state.exp_avg, state.exp_avg_sq, state.diverged)
        for first in range(0, steps, _STEPS):
            count = min(_STEPS, steps - first)
            uniforms, noise = _drawn(self.step, members.seeds, state.step + first, count)
            for i in range(count):
                t = first + i
                now = torch.full((), state.step + t, dtype=torch.int64, device=self.device)
                fixed = (members.constants, members.rate, members.clip, table[:, t].T, correction[t], now)
                arguments = (*carried, uniforms[i], None if noise is None else noise[i], *fixed)
                carried = self._compiled_advance(arguments)(*arguments)
        state.parameters, state.exp_avg, state.exp_avg_sq, state.diverged = carried

    def _compiled_advance(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        if self._advance is None:
            self._advance = self._traced(arguments)
        return self._advance

    def _traced(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The vmapped step as a flat graph of tensor operations: no autograd and no vmap at run time."""
        shared = {len(arguments) - 2, len(arguments) - 1}  # correction and now
        dims = tuple(None if i in shared or value is None else 0 for i, value in enumerate(arguments))
        stacked = vmap(self._advance_one, in_dims=dims)
        leaves, shape = tree_flatten(arguments)
        kept = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        out_shape: list[Any] = []

        def flat(*tensors: Tensor) -> list[Tensor]:
            filled = list(leaves)
            for i, tensor in zip(kept, tensors):
                filled[i] = tensor
            out, spec = tree_flatten(stacked(*tree_unflatten(filled, shape)))
            out_shape[:] = [spec]
            return out

        with TRACING, traceable_functions():
            graph = make_fx(functionalize(flat), tracing_mode="real")(*(leaves[i] for i in kept))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        run = torch.compile(graph, dynamic=False) if self.compiled else graph

        def advance(*arguments: Any) -> Any:
            leaves = tree_flatten(arguments)[0]
            return tree_unflatten(list(run(*(leaves[i] for i in kept))), out_shape[0])

        return advance

    def _advance_one(
        self,
        parameters: Tensors,
        exp_avg: Tensors,
        exp_avg_sq: Tensors,
        diverged: Tensor,
        uniforms: Tensor,
        noise: Tensor | None,
        constants: Tensors,
        rate: Tensor,
        clip: Tensor | None,
        row: Tensor,
        correction: Tensor,
        now: Tensor,
    ) -> tuple[Tensors, Tensors, Tensors, Tensor]:
        x, y = self.step.examples(uniforms, constants)
        scales, rate, correction = at_step(self.step, row, rate, correction)
        gradients = grad(lambda p: total_loss(self.step, p, x, y, noise, scales))(parameters)
        gradients = clipped(self.step, gradients, clip)
        new, exp_avg, exp_avg_sq = adam(self.step, parameters, exp_avg, exp_avg_sq, gradients, rate, correction)
        finite = torch.stack([v.isfinite().all() for v in new.values()]).all()
        return new, exp_avg, exp_avg_sq, torch.where((diverged < 0) & ~finite, now, diverged)


def _drawn(step: Step, seeds: Tensor, start: int, count: int) -> tuple[Tensor, Tensor | None]:
    """Numbers of ``count`` steps, (count, S, batch, draws) and (count, S, batch, noise); drawn natively if possible."""

    def table(domain: Domain, width: int) -> Tensor:
        size = step.batch * width
        if seeds.device.type == "cpu" and native.draws():
            flat = native.philox_uniform(seeds, domain, start, count, size)
        else:
            flat = torch.stack([uniform(seeds, domain, start + i, size) for i in range(count)])
        return flat.unflatten(-1, (step.batch, width))

    return table(Domain.TRAIN, step.draws), table(Domain.NOISE, step.noise) if step.noise else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's own operations on one core: they are too small to share out, and sums keep a fixed order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _blocks(count: int, block: int, device: torch.device) -> list[Tensor]:
    """Indices 0 .. count - 1 in blocks of exactly ``block``; the last block is padded by repeating the last member."""
    places = torch.arange(block, device=device)
    return [(i + places).clamp(max=count - 1) for i in range(0, count, block)]


def _unpadded(index: Tensor, count: int) -> int:
    return min(len(index), count - int(index[0]))


def _to(state: State, device: torch.device, step: Step) -> State:
    """``state`` on ``device``, in the order of the step's parameters, by which the traced step takes them."""

    def moved(group: Tensors) -> Tensors:
        return {name: group[name].to(device) for name in step.parameters}

    diverged = state.diverged.to(device)
    return State(moved(state.parameters), moved(state.exp_avg), moved(state.exp_avg_sq), diverged, state.step)
