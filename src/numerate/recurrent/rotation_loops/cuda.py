"""The EURNN's loop over time on a GPU: a block walks along a row and waits for nobody."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numerate.loops.timeloops.cuda_timeloop import STORAGE, device_file, kernel_source, steps_and_rows
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.timeloops.tuning import THREADS
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.rotation_loops.sizes import LARGEST, RotationSizes


class CudaRotationLoop:
    """Loop of the EURNN for float32, bfloat16 or float16; operands as those of ``RotationLoop``.

    gx, the bias and the outputs are of ``dtype``; the state, the angles and all sums are float32.
    """

    takes_models = True

    def __init__(self, sizes: RotationSizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        if sizes.hidden > LARGEST:
            raise NotLowered(f"more than {LARGEST} units rotated on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        if self.shared > nvrtc.shared_memory(device):
            raise NotLowered("a hidden state that is too large for a block")
        self._kernels: dict[tuple[str, bool], nvrtc.Kernel] = {}

    def accepts(self, walk: Walk) -> bool:
        return True

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block: h and its gradient, with gaps."""
        return 4 * 2 * (self.sizes.hidden + self.sizes.hidden // 32)

    def source(self, direction: str, packed: bool) -> str:
        """The CUDA source of one direction; ``packed`` if sequences differ in length."""
        hidden, levels = self.sizes.hidden, self.sizes.levels
        together = 3 if hidden > 4 * THREADS else min(2, levels)
        constants = {
            "HIDDEN": hidden, "LEVELS": levels, "MOST": together, "EPS": float(self.sizes.eps), "PACKED": int(packed),
        }  # fmt: skip
        kernel = Path(__file__).with_name("rotation_loop.cuh").read_text()
        return kernel_source(STORAGE[self.dtype], direction, constants, device_file("own_row.cuh"), kernel)

    def kernel(self, direction: str, packed: bool) -> Any:
        if (direction, packed) not in self._kernels:
            source = self.source(direction, packed)
            self._kernels[direction, packed] = nvrtc.kernel(source, direction, self.device, THREADS, self.shared)
        return self._kernels[direction, packed]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of h, and if ``keep`` the rotated state of the step before."""
        lead, final = gx.shape[:-2], state[0].clone(memory_format=torch.contiguous_format)
        out, saved = torch.empty_like(gx), torch.empty_like(gx, dtype=torch.float32) if keep else None
        arrays = gx, weight, extras[0], final, out, 0 if saved is None else saved
        self._launch("forward", walk, prod(lead), *arrays)
        return [final], [out], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the bias, of the initial state and of the angles."""
        (out,), (angle,), (*lead, _, hidden) = history, extras, history[0].shape
        dstate = dfinal[0].float().clone(memory_format=torch.contiguous_format)
        dgx, dbias = torch.empty_like(out), dstate.new_empty(*lead, walk.batch, hidden)
        dangle = dstate.new_empty(*lead, walk.batch, *angle.shape[-2:])
        above = 0 if dout is None else dout
        self._launch("backward", walk, prod(lead), angle, out, saved, above, dstate, dgx, dbias, dangle)
        return dgx, dbias.sum(-2).to(weight.dtype), [dstate], [dangle.sum(-3)]

    def _launch(self, direction: str, walk: Walk, models: int, *arrays: Tensor | int) -> None:
        starts, steps, batch, _, reverse = steps_and_rows(walk, 1, self.device)
        self.kernel(direction, walk.packed).launch(models * batch, *arrays, starts, steps, batch, reverse)
