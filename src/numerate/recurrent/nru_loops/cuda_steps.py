"""The NRU's loop over time on a GPU where its weights do not fit into the registers of a persistent kernel.

Each step is two matrix products with a small kernel after each (``nru_steps.cuh``), in which a block computes a row.
That costs four launches a step, so that :mod:`numerate.recurrent.nru_loops.cuda` is preferred where it can do the walk.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numerate.loops.timeloops.cuda_rowloop import order
from numerate.loops.timeloops.cuda_timeloop import STORAGE, THREADS, kernel_source
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.nru_loops.cuda import weight_gradients
from numerate.recurrent.nru_loops.sizes import NRUSizes


class CudaNRUSteps:
    """Loop of the NRU, a few launches for each step; operands as those of ``NRULoop``.

    gx, weights and outputs are of ``dtype``; the memory and its gradient are float32. Products are as exact as torch's
    are set to be.
    """

    takes_models = True

    def __init__(self, sizes: NRUSizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        if self.shared("from_memory") > nvrtc.shared_memory(device):
            raise NotLowered("a memory that is too large for a block")
        self._kernels: dict[str, nvrtc.Kernel] = {}

    def accepts(self, walk: Walk) -> bool:
        return True

    def shared(self, name: str) -> int:
        """Bytes of shared memory of a block."""
        sizes, (forward, backward) = self.sizes, self.sizes.head_room
        numbers = {"to_memory": sizes.width + forward, "from_memory": 2 * sizes.width + sizes.memory + backward}
        return 4 * numbers.get(name, 0)

    def source(self, direction: str) -> str:
        """The CUDA source of the kernels of one direction."""
        constants = {"THREADS": THREADS, "ROWS": 1, **self.sizes.constants}
        parts = (Path(__file__).with_name(f"nru_{name}.cuh").read_text() for name in ("heads", "steps"))
        return kernel_source(STORAGE[self.dtype], direction, constants, *parts)

    def kernel(self, name: str) -> Any:
        if name not in self._kernels:
            source = self.source("forward" if name.startswith("to") else "backward")
            self._kernels[name] = nvrtc.kernel(source, name, self.device, THREADS, self.shared(name))
        return self._kernels[name]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of h and m, the heads' numbers; all but the history of h only if ``keep``."""
        (*lead, rows, _), sizes, (head_weight, bias) = gx.shape, self.sizes, extras
        both, final = torch.cat(tuple(state), -1).to(self.dtype), state[1].clone(memory_format=torch.contiguous_format)
        gh, gz = (gx.new_empty(*lead, walk.batch, columns) for columns in (sizes.hidden, sizes.width))
        out = gx.new_empty(*lead, rows, sizes.hidden)
        memory = bias.new_empty(*lead, rows if keep else 0, sizes.memory)
        heads = bias.new_empty(*lead, rows, sizes.width) if keep else None
        kept = (memory, heads) if keep else (0, 0)
        to_hidden, to_memory, product = self.kernel("to_hidden"), self.kernel("to_memory"), _product(lead)
        right, head_right, models = weight.mT, head_weight.to(self.dtype).mT, prod(lead)
        for t in order(walk):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            now, places = both.narrow(-2, 0, alive), (start, rows, walk.batch, alive)
            product(now, right, out=gh.narrow(-2, 0, alive))
            to_hidden.launch(models * alive, gx, gh, both, out, *places)
            product(now, head_right, out=gz.narrow(-2, 0, alive))
            to_memory.launch(models * alive, gx, gz, bias, final, both, *kept, *places)
        return [both[..., : sizes.hidden].to(state[0].dtype), final], [out, memory], heads

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of weight_hh, of the initial state, and of weight_heads and bias_heads."""
        (*lead, rows, width), hidden, out, models = saved.shape, self.sizes.hidden, history[0], prod(saved.shape[:-2])
        dstate = [entry.float().clone(memory_format=torch.contiguous_format) for entry in dfinal]
        d = weight.new_empty(*lead, rows, hidden + width)
        dh, dheads = d.split((hidden, width), -1)
        pulled, above = weight.new_zeros(*lead, walk.batch, self.sizes.both), 0 if dout is None else dout
        from_memory, from_hidden, product = self.kernel("from_memory"), self.kernel("from_hidden"), _product(lead)
        head_weight = extras[0].to(self.dtype)
        for t in reversed(order(walk)):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            now, places = pulled.narrow(-2, 0, alive), (start, rows, walk.batch, alive)
            from_memory.launch(models * alive, saved, pulled, *dstate, d, *places)
            product(dheads.narrow(-2, start, alive), head_weight, out=now)
            from_hidden.launch(models * alive, out, above, pulled, *dstate, d, *places)
            product(dh.narrow(-2, start, alive), weight, out=now)
        for entry, part in zip(dstate, pulled.split((hidden, self.sizes.memory), -1)):
            entry.add_(part)
        dweight, dextras = weight_gradients(self.sizes, walk, d, state, history)
        return d[..., : self.sizes.columns], dweight, dstate, dextras


def _product(lead: Sequence[int]) -> Any:
    return torch.bmm if lead else torch.mm
