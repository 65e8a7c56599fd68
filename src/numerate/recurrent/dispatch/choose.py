"""Which loop walks along time: :func:`choose`, the only place that decides.

A cell's compiled loop is taken where it exists and pays. On a GPU, where a size or type of number is not for it,
torch's fused operation (cuDNN) is taken if it computes the same, else a compiled kernel for each step. Under one level
of ``vmap``, with gradients taken outside of it, a compiled loop runs all models together. Other function transforms,
tracing, zoneout and inspection get plain steps, as do second derivatives, forward-mode derivatives and batches of
gradients. All give equal results.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from numerate.locks import ForkSafeLock
from numerate.loops.timeloops.diagonal import DiagonalLoop
from numerate.loops.timeloops.timeloop import SequenceLoop, Walk
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.cell import Cell, Parts, State, autocast_enabled
from numerate.recurrent.dispatch.mode import SHORTEST, chosen_mode
from numerate.torch_internals import is_mapped, under_transform, under_vmap

Loop = SequenceLoop | DiagonalLoop | None

_told: set[str] = set()
_building = ForkSafeLock()


class Choice(NamedTuple):
    """A kind of loop; for plain steps the ``reason``, for native and fused ones the type of number they compute in."""

    kind: Literal["plain", "native", "fused", "scan", "outside_graph"]
    reason: str = ""
    loop: Loop = None
    dtype: torch.dtype | None = None


def choose(
    cell: Cell, p: Parts, x: Tensor, state: State, batch_sizes: Sequence[int] | None, reverse: bool, stepwise: bool
) -> Choice:
    """The loop for one sequence, by the first rule that applies.

    Args:
        cell, p, x, state, batch_sizes, reverse: As in :func:`numerate.recurrent.dispatch.unroll.unroll`.
        stepwise: Whether something happens between the steps (zoneout, inspection).
    """
    steps = x.shape[0] if batch_sizes is None else len(batch_sizes)
    if torch.compiler.is_exporting():
        return Choice("scan") if isinstance(steps, torch.SymInt) else Choice("plain", "the steps are exported")
    if torch.compiler.is_compiling():
        if steps >= SHORTEST:  # a graph of hundreds of steps would compile for many minutes
            return Choice("outside_graph")
        return Choice("plain", "the steps are part of a compiled graph")
    if stepwise:
        return Choice("plain", "zoneout or inspection acts between steps")
    device, mode = x.device, chosen_mode()
    if mode == "plain":
        return Choice("plain", "plain steps were asked for")
    if device.type not in ("cpu", "cuda"):
        return Choice("plain", f"no native loop runs on {device.type}")
    if steps < (1 if mode == "native" else SHORTEST) or x.numel() == 0:
        return Choice("plain", "the sequence is short")
    tensors = (x, *state, *p.values())
    mapped = mapped_over(tensors)
    if not mapped and not ordinary(tensors):
        return Choice("plain", "tensors are traced or transformed")
    dtype = loop_dtype(x, (*state, *p.values()))
    if dtype is None:
        return Choice("plain", "types of number differ")
    walk = Walk(tuple(batch_sizes) if batch_sizes is not None else (x.shape[1],) * steps, reverse)
    loop = compiled_loop(for_any_input(cell), device, dtype)
    if mapped and not getattr(loop, "takes_models", loop is None):
        return Choice("plain", "the cell's native loop takes one model at a time")
    if loop is not None and loop.accepts(walk):
        return Choice("native", loop=loop, dtype=dtype)
    if device.type == "cuda" and batch_sizes is None and cell.has_fused and not mapped:
        return Choice("fused", dtype=dtype)
    if loop is not None:
        loop = compiled_loop(for_any_input(cell), device, dtype, stepping=True)
    return Choice("plain", "the cell has no native loop") if loop is None else Choice("native", loop=loop, dtype=dtype)


def ordinary(tensors: Sequence[Any]) -> bool:
    """Whether these are tensors with numbers in them, and neither traced nor part of a function transform."""
    return not under_transform() and _are_tensors(tensors)


def mapped_over(tensors: Sequence[Any]) -> bool:
    """Whether one level of ``vmap``, and no other transform, maps over some of these tensors."""
    return under_vmap() and _are_tensors(tensors) and any(map(is_mapped, tensors))


def _are_tensors(values: Sequence[Any]) -> bool:
    return not torch.jit.is_tracing() and all(type(value) in (Tensor, torch.nn.Parameter) for value in values)


def loop_dtype(x: Tensor, others: Sequence[Tensor]) -> torch.dtype | None:
    """The type of number of a loop: that of all tensors, or what autocast makes of them; None if they differ.

    Under autocast a GPU's loop stores numbers of that type and a CPU's loop keeps single precision; as with plain
    steps, the results have the types that came in.
    """
    dtypes = {tensor.dtype for tensor in (x, *others)}
    if not autocast_enabled(x.device):
        return x.dtype if len(dtypes) == 1 else None
    wide = torch.float64 if torch.float64 in dtypes else torch.float32
    on_gpu = x.device.type == "cuda" and wide == torch.float32
    return torch.get_autocast_dtype(x.device.type) if on_gpu else wide


# ---------------------------------------------------------------- compiled loops, made once


@cache
def for_any_input(cell: Cell) -> Cell:
    """The cell that stands for all numbers of inputs."""
    return cell.with_input_size(1)


def compiled_loop(cell: Cell, device: torch.device, dtype: torch.dtype, stepping: bool = False) -> Loop:
    """The compiled loop of a cell, made once, whichever threads ask for it; None where there is none."""
    with _building:
        return _compiled(cell, device, dtype, stepping)


@cache
def _compiled(cell: Cell, device: torch.device, dtype: torch.dtype, stepping: bool) -> Loop:
    try:
        return cell.stepping_loop(device, dtype) if stepping else cell.native_loop(device, dtype)
    except (NotLowered, native.NoCompiler, native.CompileError) as reason:
        if device.type == "cuda" and cell.has_fused:
            return None
        what = f" for {type(cell).__name__}" if isinstance(reason, NotLowered) else ""
        why = str(reason).partition("\n")[0]
        notice(f"no native time loop{what} ({why}); steps run one by one, which is slower")
        return None


def notice(text: str) -> None:
    """Log a warning, once per process."""
    if text not in _told:
        _told.add(text)
        logging.getLogger("numerate").warning(text)
