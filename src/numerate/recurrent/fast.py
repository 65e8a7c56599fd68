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
from numerate.loops.timeloop import Loop, Walk
from numerate.loops.trace import NotLowered
from numerate.recurrent.cell import Cell, Parts, State

Mode = Literal["auto", "plain", "native"]
Plain = Callable[[Tensor, Parts, State], tuple[Tensor, State]]

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
    cell: Cell, p: Parts, x: Tensor, state: State, sizes: Sequence[int] | None, reverse: bool, plain: Plain
) -> tuple[Tensor, State] | None:
    """As :func:`numerate.recurrent.unroll.unroll` without its options, or None where the plain steps must do it.

    ``plain(gx, prepared, state)`` walks plainly from projected inputs; it serves second derivatives.
    """
    if torch.compiler.is_compiling():
        return None
    mode, steps = chosen_mode(), x.shape[0] if sizes is None else len(sizes)
    if mode == "plain" or steps < (1 if mode == "native" else SHORTEST) or x.device.type != "cpu":
        return None
    if x.numel() == 0 or not ordinary((x, *state)):
        return None
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    loop = _native_loop(cell.with_input_size(1), x.device, dtype)
    if loop is None:
        return None
    weight, extras = cell.loop_operands(p)
    operands = (weight, *state, *extras)
    if not ordinary(operands) or any(tensor.dtype != x.dtype for tensor in operands):
        return None
    walk = Walk(tuple(sizes) if sizes is not None else (x.shape[1],) * steps, reverse)

    def again(gx: Tensor, weight: Tensor, state: State, extras: State) -> tuple[Tensor, State]:
        gx = gx if sizes is not None else gx.unflatten(0, (steps, -1))
        outputs, final = plain(gx, cell.prepared_with(p, weight, extras), state)
        return outputs if sizes is not None else outputs.flatten(0, 1), final

    gx = cell.project(x, _by_columns(p))
    gx = (gx if sizes is not None else gx.flatten(0, 1)).to(dtype)
    state, extras = (tuple(tensor.to(dtype) for tensor in group) for group in (state, extras))
    outputs, final = timeloop.run(loop, walk, gx, weight.to(dtype), state, extras, again)
    outputs = outputs if sizes is not None else outputs.unflatten(0, (steps, -1))
    return outputs.to(x.dtype), tuple(entry.to(x.dtype) for entry in final)


def _by_columns(p: Parts) -> Parts:
    """The same parameters, the input weight laid out so that its gradient is the faster one of two equal products."""
    weight = p.get("weight_ih")
    return p if weight is None else {**p, "weight_ih": weight.mT.contiguous().mT}


@cache
def _native_loop(cell: Cell, device: torch.device, dtype: torch.dtype) -> Loop | None:
    """The compiled loop of a cell, made once."""
    try:
        return cell.native_loop(device, dtype)
    except (NotLowered, native.NoCompiler, native.CompileError) as reason:
        notice(f"no native time loop for {type(cell).__name__} ({reason}); its steps run one by one, which is slower")
        return None
