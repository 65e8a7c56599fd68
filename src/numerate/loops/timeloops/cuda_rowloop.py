"""The loop over time on a GPU for steps that look along the units, or are too large for a persistent kernel.

Each step is a matrix product and one emitted kernel (``rowloop.cuh``), in which a block computes a row. That costs two
launches a step, so that :mod:`numerate.loops.timeloops.cuda_timeloop` is preferred where it can do the step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from numerate.loops.kernel.form import ScanUnits
from numerate.loops.kernel.values import Role, RowArray
from numerate.loops.printers.rows import CudaRowPrinter
from numerate.loops.timeloops.cuda_timeloop import (
    STORAGE,
    THREADS,
    device_file,
    kernel_source,
    products_as_cudnn,
    stacked,
)
from numerate.loops.timeloops.pointwise import Activate, Pointwise, Sizes, pointwise
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered

PLACES: dict[Role, dict[str, str]] = {
    "state": {"forward": "state + ({k} * batch + r) * HIDDEN", "backward": "old + {k} * HIDDEN"},
    "new": {"forward": "fresh + {k} * HIDDEN", "backward": "fresh + {k} * HIDDEN"},
    "extra": {"forward": "extra + {k} * HIDDEN", "backward": "extra + {k} * HIDDEN"},
    "grad": {"backward": "above + {k} * HIDDEN"},
    "dstate": {"backward": "grad + ({k} * batch + r) * HIDDEN"},
    "dextra": {"backward": "dextra + ({k} * batch + r) * HIDDEN"},
}
"""Where the arrays with a number at the end lie."""


def emit(program: Pointwise, storage: str, direction: str) -> tuple[str, int]:
    """The CUDA source of one direction, and the bytes of shared memory that a block needs."""
    row = schedule_row(program, program.forward if direction == "forward" else program.backward)
    for node in row.body:
        if isinstance(node, ScanUnits) and (node.reduction != "sum" or node.exclusive or len(node.axes) != 1):
            before = " of what comes before" if node.exclusive else ""
            raise NotLowered(f"a running {node.reduction}{before} over {len(node.axes)} axes on a GPU")
    sizes = program.sizes
    constants = {
        "HIDDEN": sizes.hidden, "COLUMNS": sizes.columns, "STATES": sizes.states, "SAVED": program.saved,
        "OWN": program.own, "SCRATCH": row.scratch,
    }  # fmt: skip
    lines = [_pointer(array, direction) for array in row.numbered()]
    lines += [line for statement in row.body for line in CudaRowPrinter(sizes.hidden).statement(statement)]
    kernel = device_file("rowloop.cuh").replace("  BODY\n", "".join(f"  {line}\n" for line in lines))
    states = sizes.states * (1 if direction == "forward" else 3)
    return kernel_source(storage, direction, constants, kernel), 4 * (row.scratch + THREADS + states * sizes.hidden)


def _pointer(array: RowArray, direction: str) -> str:
    """Declare ``state1`` and its like."""
    kind = "const float" if array.role in ("state", "extra", "grad") else "float"
    return f"{kind} *const {array.name} = {PLACES[array.role][direction].format(k=array.number)};"


class CudaRowLoop:
    """The loop of one step function on a GPU; as :class:`numerate.loops.timeloops.timeloop.TimeLoop`.

    gx, weight and outputs are of ``dtype``; the state is float32. Products are as exact as torch's are set to be.
    """

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self.program = pointwise(activate, sizes)
        most = nvrtc.shared_memory(device)
        if max(emit(self.program, STORAGE[dtype], direction)[1] for direction in ("forward", "backward")) > most:
            raise NotLowered("a row that is too long for a block")
        self._kernels: dict[str, nvrtc.Kernel] = {}

    def accepts(self, walk: Walk) -> bool:
        return True

    def kernel(self, direction: str) -> Any:
        if direction not in self._kernels:
            source, shared = emit(self.program, STORAGE[self.dtype], direction)
            self._kernels[direction] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[direction]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of each entry of the state, what is saved; the last two in full if ``keep``."""
        rows, hidden, batch = len(gx), self.sizes.hidden, walk.batch
        final = torch.stack(tuple(state))
        recurrent, gh = state[0].to(self.dtype).clone(), gx.new_empty(batch, self.sizes.columns)
        out = gx.new_empty(rows, hidden)
        history = final.new_empty(self.sizes.states - 1 if keep else 0, rows, hidden)
        saved = final.new_empty(rows if keep else batch, max(self.program.saved, 1))
        extra, kernel, right = stacked(extras, final), self.kernel("forward"), weight.mT
        past = history if keep and self.sizes.states > 1 else 0
        for t in order(walk):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            torch.mm(recurrent[:alive], right, out=gh[:alive])
            kept = start if keep else 0
            kernel.launch(alive, gx, gh, extra, final, recurrent, out, past, saved, start, kept, rows, batch)
        return list(final.unbind(0)), [out, history], saved if keep else None

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra vectors."""
        (out, rest), hidden, batch = history, self.sizes.hidden, walk.batch
        initial, dstate = torch.stack(tuple(state)), torch.stack(tuple(dfinal)).float()
        dgx = weight.new_empty(len(out), self.sizes.columns)
        dgh = weight.new_empty(len(out), self.program.own)
        pulled = weight.new_zeros(batch, hidden)
        dextra = initial.new_zeros(len(extras), batch, hidden)
        columns = [(dgx if s.array == "dgx" else dgh).narrow(1, s.start, s.width) for s in self.program.segments]
        parts = list(zip(columns, weight.split([segment.width for segment in self.program.segments])))
        extra, kernel, above = stacked(extras, initial), self.kernel("backward"), 0 if dout is None else dout
        steps = order(walk)
        for t, earlier in zip(reversed(steps), [*reversed(steps[:-1]), None]):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            before, known = (0, 0) if earlier is None else (walk.starts[earlier], walk.batch_sizes[earlier])
            kernel.launch(
                alive, extra, initial, out, rest, saved, above, pulled, dstate, dgx, dgh, dextra,
                start, before, known, len(out), batch,
            )  # fmt: skip
            for k, (part, rows) in enumerate(parts):
                part = part[start : start + alive]
                pulled[:alive].addmm_(part, rows, beta=float(k > 0))
        dstate[0] += pulled
        first = state[0].to(out.dtype)
        with products_as_cudnn():
            dweight = torch.cat([walk.weight_gradient(part, first, out) for part in columns])
        return dgx, dweight, list(dstate.unbind(0)), list(dextra.sum(1).unbind(0))


def order(walk: Walk) -> list[int]:
    """The steps as they are walked."""
    steps = range(len(walk.batch_sizes))
    return list(reversed(steps) if walk.reverse else steps)
