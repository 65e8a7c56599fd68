"""The loop over time on a GPU for steps that look along the units, or are too large for a persistent kernel.

Each step is a matrix product and one emitted kernel (``rowloop.cuh``), in which a block computes a row. That costs two
launches a step, so that :mod:`numerate.loops.timeloops.cuda_timeloop` is preferred where it can do the step.
"""

from collections.abc import Sequence
from math import prod
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
from numerate.loops.timeloops.rows import Row, schedule_row
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
    row, sizes = scheduled(program, direction), program.sizes
    constants = {
        "HIDDEN": sizes.hidden, "COLUMNS": sizes.columns, "STATES": sizes.states, "SAVED": program.saved,
        "EXTRAS": sizes.extras, "OWN": program.own, "SCRATCH": row.scratch, "THREADS": THREADS,
    }  # fmt: skip
    lines = [_pointer(array, direction) for array in row.numbered()]
    lines += [line for statement in row.body for line in CudaRowPrinter(sizes.hidden).statement(statement)]
    kernel = device_file("rowloop.cuh").replace("  BODY\n", "".join(f"  {line}\n" for line in lines))
    states = sizes.states * (1 if direction == "forward" else 3)
    source = kernel_source(storage, direction, constants, device_file("rowunits.cuh"), kernel)
    return source, 4 * (row.scratch + THREADS + states * sizes.hidden)


def scheduled(program: Pointwise, direction: str) -> Row:
    """The statements of a row in one direction; raises :class:`NotLowered` if a block cannot run them."""
    row = schedule_row(program, program.forward if direction == "forward" else program.backward)
    for node in row.body:
        if isinstance(node, ScanUnits) and (node.reduction != "sum" or node.exclusive or len(node.axes) != 1):
            before = " of what comes before" if node.exclusive else ""
            raise NotLowered(f"a running {node.reduction}{before} over {len(node.axes)} axes on a GPU")
    return row


def _pointer(array: RowArray, direction: str) -> str:
    """Declare ``state1`` and its like."""
    kind = "const float" if array.role in ("state", "extra", "grad") else "float"
    return f"{kind} *const {array.name} = {PLACES[array.role][direction].format(k=array.number)};"


class CudaRowLoop:
    """The loop of one step function on a GPU; as :class:`numerate.loops.timeloops.timeloop.TimeLoop`.

    gx, weight and outputs are of ``dtype``; the state is float32. Products are as exact as torch's are set to be.
    """

    takes_models = True

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
        (*lead, rows, _), hidden, batch, models = gx.shape, self.sizes.hidden, walk.batch, prod(gx.shape[:-2])
        final = torch.stack(tuple(state), -3)
        recurrent, gh = state[0].to(self.dtype).clone(), gx.new_empty(*lead, batch, self.sizes.columns)
        out = gx.new_empty(*lead, rows, hidden)
        history = final.new_empty(*lead, self.sizes.states - 1 if keep else 0, rows, hidden)
        saved = final.new_empty(*lead, rows if keep else batch, max(self.program.saved, 1))
        extra, kernel, right = stacked(extras, final), self.kernel("forward"), weight.mT
        past = history if keep and self.sizes.states > 1 else 0
        product = torch.bmm if lead else torch.mm
        for t in order(walk):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            product(recurrent.narrow(-2, 0, alive), right, out=gh.narrow(-2, 0, alive))
            places = start, int(keep), rows, batch, alive
            kernel.launch(models * alive, gx, gh, extra, final, recurrent, out, past, saved, *places)
        return list(final.unbind(-3)), [out, history], saved if keep else None

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra vectors."""
        (out, rest), batch = history, walk.batch
        (*lead, total, hidden), models = out.shape, prod(out.shape[:-2])
        initial, dstate = torch.stack(tuple(state), -3), torch.stack(tuple(dfinal), -3).float()
        dgx = weight.new_empty(*lead, total, self.sizes.columns)
        dgh = weight.new_empty(*lead, total, self.program.own)
        pulled = weight.new_zeros(*lead, batch, hidden)
        dextra = initial.new_zeros(*lead, len(extras), batch, hidden)
        columns = [(dgx if s.array == "dgx" else dgh).narrow(-1, s.start, s.width) for s in self.program.segments]
        parts = list(zip(columns, weight.split([segment.width for segment in self.program.segments], -2)))
        extra, kernel, above = stacked(extras, initial), self.kernel("backward"), 0 if dout is None else dout
        steps = order(walk)
        for t, earlier in zip(reversed(steps), [*reversed(steps[:-1]), None]):
            alive, start = walk.batch_sizes[t], walk.starts[t]
            before, known = (0, 0) if earlier is None else (walk.starts[earlier], walk.batch_sizes[earlier])
            kernel.launch(
                models * alive, extra, initial, out, rest, saved, above, pulled, dstate, dgx, dgh, dextra,
                start, before, known, total, batch, alive,
            )  # fmt: skip
            now = pulled.narrow(-2, 0, alive)
            for k, (part, rows) in enumerate(parts):
                add = now.baddbmm_ if lead else now.addmm_
                add(part.narrow(-2, start, alive), rows, beta=float(k > 0))
        dstate.select(-3, 0).add_(pulled)
        first = state[0].to(out.dtype)
        with products_as_cudnn():
            dweight = torch.cat([walk.weight_gradient(part, first, out) for part in columns], -2)
        return dgx, dweight, list(dstate.unbind(-3)), list(dextra.sum(-2).unbind(-2))


def order(walk: Walk) -> list[int]:
    """The steps as they are walked."""
    steps = range(len(walk.batch_sizes))
    return list(reversed(steps) if walk.reverse else steps)
