"""Which loop walks along time: native code where it exists and pays, else the plain steps, with equal results.

That is the cell's compiled loop; on a GPU, where a size or type of number is not for it, torch's fused operation
(cuDNN) if it computes the same, else a compiled kernel for each step. Function transforms, tracing, second derivatives,
forward-mode derivatives and batches of gradients get plain steps. Under autocast a GPU's loop stores numbers of that
type and a CPU's loop keeps single precision; as with plain steps, the results have the types that came in.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from numerate.locks import ForkSafeLock
from numerate.loops.timeloops import timeloop
from numerate.loops.timeloops.timeloop import SequenceLoop, Walk
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.cell import Cell, Parts, State
from numerate.torch_internals import under_transform

Mode = Literal["auto", "plain", "native"]
Plain = Callable[[Tensor, Parts, State], tuple[Tensor, State]]

SHORTEST = 16
"""With ``auto``, sequences of fewer steps are walked plainly: compiling would take longer than they do."""

_mode: ContextVar[Mode | None] = ContextVar("numerate_loop", default=None)
_told: set[str] = set()
_building = ForkSafeLock()


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


def ordinary(tensors: Sequence[Any]) -> bool:
    """Whether these are tensors with numbers in them, and neither traced nor part of a function transform."""
    if torch.jit.is_tracing() or under_transform():
        return False
    return all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)


def fast_unroll(
    cell: Cell, p: Parts, x: Tensor, state: State, sizes: Sequence[int] | None, reverse: bool, plain: Plain
) -> tuple[Tensor, State] | None:
    """As :func:`numerate.recurrent.unroll.unroll` without its options, or None where the plain steps must do it.

    ``plain(gx, prepared, state)`` walks plainly from projected inputs, for second derivatives and batches of gradients.
    """
    if torch.compiler.is_compiling() or x.device.type not in ("cpu", "cuda"):
        return None
    mode, steps = chosen_mode(), x.shape[0] if sizes is None else len(sizes)
    if mode == "plain" or steps < (1 if mode == "native" else SHORTEST) or x.numel() == 0:
        return None
    if not ordinary((x, *state, *p.values())):
        return None
    if torch.is_autocast_enabled(x.device.type):
        return _cast_unroll(cell, p, x, state, sizes, reverse, plain)
    if any(tensor.dtype != x.dtype for tensor in (*state, *p.values())):
        return None
    return _unroll(cell, p, x, state, sizes, reverse, plain)


def _cast_unroll(
    cell: Cell, p: Parts, x: Tensor, state: State, sizes: Sequence[int] | None, reverse: bool, plain: Plain
) -> tuple[Tensor, State] | None:
    """As ``_unroll`` with x and parameters of one type, as autocast does for products."""
    kind, dtypes = x.device.type, {tensor.dtype for tensor in (x, *state, *p.values())}
    wide = torch.float64 if torch.float64 in dtypes else torch.float32
    dtype = torch.get_autocast_dtype(kind) if kind == "cuda" and wide == torch.float32 else wide
    with torch.autocast(kind, enabled=False):
        p = {name: value.to(dtype) for name, value in p.items()}
        found = _unroll(cell, p, x.to(dtype), state, sizes, reverse, plain)
    if found is None:
        return None
    outputs, final = found
    return outputs.to(x.dtype), final


def _unroll(
    cell: Cell, p: Parts, x: Tensor, state: State, sizes: Sequence[int] | None, reverse: bool, plain: Plain
) -> tuple[Tensor, State] | None:
    steps = x.shape[0] if sizes is None else len(sizes)
    loop = _native_loop(_with_one_input(cell), x.device, x.dtype)
    walk = Walk(tuple(sizes) if sizes is not None else (x.shape[1],) * steps, reverse)
    if loop is None or not loop.accepts(walk):
        if x.device.type == "cuda" and sizes is None and cell.has_fused:
            return _fused(cell, p, x, state, reverse, plain)
        loop = None if loop is None else _native_loop(_with_one_input(cell), x.device, x.dtype, stepping=True)
    if loop is None:
        return None
    number = torch.promote_types(loop.dtype, torch.float32)

    def again(gx: Tensor, weight: Tensor, state: State, extras: State) -> tuple[Tensor, State]:
        gx = (gx if sizes is not None else gx.unflatten(0, (steps, -1))).to(number)
        outputs, final = plain(gx, cell.prepared_with(p, weight.to(number), extras), state)
        return (outputs if sizes is not None else outputs.flatten(0, 1)).to(loop.dtype), final

    weight, extras = cell.loop_operands(p)
    gx = cell.project(x, _by_columns(p) if x.device.type == "cpu" else p)
    gx = (gx if sizes is not None else gx.flatten(0, 1)).to(loop.dtype)
    start, extras = (tuple(tensor.to(number) for tensor in group) for group in (state, extras))
    outputs, final = timeloop.run(loop, walk, gx, weight.to(loop.dtype), start, extras, again)
    outputs = outputs if sizes is not None else outputs.unflatten(0, (steps, -1))
    return outputs.to(x.dtype), tuple(entry.to(given.dtype) for entry, given in zip(final, state))


def _by_columns(p: Parts) -> Parts:
    """The same parameters, the input weight laid out so that its gradient is the faster one of two equal products."""
    weight = p.get("weight_ih")
    return p if weight is None else {**p, "weight_ih": weight.mT.contiguous().mT}


@cache
def _with_one_input(cell: Cell) -> Cell:
    """The cell that stands for all numbers of inputs."""
    return cell.with_input_size(1)


def _native_loop(cell: Cell, device: torch.device, dtype: torch.dtype, stepping: bool = False) -> SequenceLoop | None:
    """The compiled loop of a cell, made once, whichever threads ask for it."""
    with _building:
        return _built(cell, device, dtype, stepping)


@cache
def _built(cell: Cell, device: torch.device, dtype: torch.dtype, stepping: bool) -> SequenceLoop | None:
    try:
        return cell.stepping_loop(device, dtype) if stepping else cell.native_loop(device, dtype)
    except (NotLowered, native.NoCompiler, native.CompileError) as reason:
        if device.type == "cuda" and cell.has_fused:
            return None
        what = f" for {type(cell).__name__}" if isinstance(reason, NotLowered) else ""
        why = str(reason).partition("\n")[0]
        notice(f"no native time loop{what} ({why}); steps run one by one, which is slower")
        return None


# ---------------------------------------------------------------- torch's fused operations


def _fused(cell: Cell, p: Parts, x: Tensor, state: State, reverse: bool, plain: Plain) -> tuple[Tensor, State]:
    """torch's operation for the whole sequence; second derivatives and batches of gradients by plain steps."""
    names, count, dtypes = list(p), len(state), [entry.dtype for entry in state]
    state = tuple(entry.to(x.dtype) for entry in state)

    def operation(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        outputs, final = cell.fused(x.flip(0) if reverse else x, rest[:count], dict(zip(names, rest[count:])))
        return outputs.flip(0) if reverse else outputs, *final

    def again(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        q = dict(zip(names, rest[count:]))
        outputs, final = plain(cell.project(x, q), cell.prepare(q), rest[:count])
        return outputs, *final

    outputs, *final = _Fused.apply(operation, again, x, *state, *p.values())
    return outputs, tuple(entry.to(dtype) for entry, dtype in zip(final, dtypes))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operation: Any, again: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        copies = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            results = operation(*copies)
        ctx.again, ctx.copies, ctx.results = again, copies, results
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(result.detach() for result in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        plain = timeloop.by_plain_steps(gradients)
        inputs = ctx.saved_tensors if plain else ctx.copies
        with torch.autocast(inputs[0].device.type, enabled=False):
            with torch.enable_grad():
                results = ctx.again(*inputs) if plain else ctx.results
            found = timeloop.gradients(results, gradients, inputs, ctx.needs_input_grad[2:])
        return None, None, *found
