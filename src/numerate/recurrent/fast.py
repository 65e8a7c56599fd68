"""Which loop walks along time: native code where it exists and pays, else the plain steps, with equal results."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from numerate.loops import native, timeloop
from numerate.loops.pointwise import Sizes
from numerate.loops.timeloop import TimeLoop, Walk
from numerate.loops.trace import NotLowered
from numerate.recurrent.cell import Cell, ColumnCell, Parts, State

Mode = Literal["auto", "plain", "native"]

SHORTEST = 16
"""With ``auto``, sequences of fewer steps are walked plainly: compiling would take longer than they do."""

_mode: ContextVar[Mode | None] = ContextVar("numerate_loop", default=None)
_told: set[str] = set()


@contextmanager
def use_loop(mode: Mode) -> Iterator[None]:
    """Choose the loop for the calls inside: ``plain`` steps, ``native`` wherever it exists, or ``auto``.

    The environment variable ``NUMERATE_LOOP`` does the same for a whole process.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def chosen_mode() -> Mode:
    """What :func:`use_loop` or the environment says."""
    mode = _mode.get() or os.environ.get("NUMERATE_LOOP", "auto")
    if mode not in get_args(Mode):
        raise ValueError(f"NUMERATE_LOOP must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    return cast(Mode, mode)


def notice(text: str) -> None:
    """Say something once per process."""
    if text not in _told:
        _told.add(text)
        logging.getLogger("numerate").warning(text)


def ordinary(tensors: Sequence[Tensor]) -> bool:
    """Whether these are tensors with numbers in them, not stand-ins of a tracer or of a function transform."""
    if torch.jit.is_tracing() or torch.is_autocast_enabled(tensors[0].device.type):
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return False
    return all(type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta for tensor in tensors)


def fast_unroll(
    cell: Cell, p: Parts, x: Tensor, state: State, sizes: Sequence[int] | None, reverse: bool, plain: Callable[..., tuple[Tensor, State]]
) -> tuple[Tensor, State] | None:
    """As :func:`numerate.recurrent.unroll.unroll` without its options, or None where the plain steps must do it.

    ``plain(gx, prepared, state)`` walks plainly from projected inputs; it serves second derivatives.
    """
    if torch.compiler.is_compiling() or not isinstance(cell, ColumnCell) or cell.form == "general":
        return None
    mode, steps = chosen_mode(), x.shape[0] if sizes is None else len(sizes)
    if mode == "plain" or steps < (1 if mode == "native" else SHORTEST) or x.device.type != "cpu":
        return None
    weight, extras = cell.recurrent_weight(p), cell.extras(p)
    tensors = (x, weight, *state, *extras)
    if not ordinary(tensors) or x.numel() == 0 or len({tensor.dtype for tensor in tensors}) > 1:
        return None
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    try:
        loop = _column_loop(cell.with_input_size(1), len(extras), dtype)
    except (NotLowered, native.NoCompiler, native.CompileError) as reason:
        notice(f"no native time loop for {type(cell).__name__} ({reason}); its steps run one by one, which is slower")
        return None
    walk = Walk(tuple(sizes) if sizes is not None else (x.shape[1],) * steps, reverse)
    gx = cell.project(x, p)

    def again(gx: Tensor, weight: Tensor, state: State, extras: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        gx = gx if sizes is not None else gx.unflatten(0, (steps, -1))
        outputs, final = plain(gx, {"recurrent_weight": weight, "extras": extras}, state)
        return outputs if sizes is not None else outputs.flatten(0, 1), final

    flat = (gx if sizes is not None else gx.flatten(0, 1)).to(dtype)
    state, extras = (tuple(tensor.to(dtype) for tensor in group) for group in (state, extras))
    outputs, final = timeloop.run(loop, walk, flat, weight.to(dtype), state, extras, again)
    outputs = outputs.to(x.dtype)
    return outputs if sizes is not None else outputs.unflatten(0, (steps, -1)), tuple(s.to(x.dtype) for s in final)


@cache
def _column_loop(cell: ColumnCell, extras: int, dtype: torch.dtype) -> TimeLoop:
    sizes = Sizes(cell.hidden_size, sum(cell.blocks.values()), len(cell.state_shapes), extras)
    return TimeLoop(cell.activate, sizes, dtype)
