"""What a recurrent cell is: sizes and options as data, one step as a pure function of tensors.

A :class:`Cell` is a frozen dataclass. It holds no tensor, so it can be hashed, compared, traced once and cached. The
module that owns the parameters (:class:`numerate.recurrent.Recurrent` for sequences, :class:`numerate.recurrent.Step`
for one step) hands them in by name, as ``p``. One sequence is::

    q = cell.prepare(p)                       # once: what depends on the parameters alone
    gx = cell.project(x, p)                   # once: (T, B, I) -> (T, B, columns), one matrix product
    state = cell.initial_state(batch, like, p)  # a tuple of tensors (B, *shape), one per entry of cell.state_shapes
    for g in gx.unbind(0):
        output, state = cell.step(g, state, q)

Most cells are more than that, a :class:`ColumnCell`: one recurrent product, then mathematics on the columns. They give

- ``recurrent_weight(p)``: (columns, H), so that ``gh = state[0] @ weight.T``; biases are all folded into ``gx``;
- ``extras(p)``: a tuple of vectors (H,) that the step reads beside the columns, most often empty;
- ``activate(gx, gh, state, extras) -> state``: pure, on plain tensors (B, columns) and (B, H); the output is
  ``state[0]``; ``state`` keeps its shapes.

``cell.form`` says what a compiled time loop may rely on:

- ``"elementwise"``: ``activate`` works on each (row, unit) by itself; column j of each block of H belongs to unit j;
- ``"reducing"``: as before, but ``activate`` also reduces along the units (cumax, layer norm); rows are independent;
- ``"diagonal"``: there is no recurrent product; see :mod:`numerate.recurrent.diagonal`;
- ``"general"``: only ``step`` is given.

A compiled loop therefore needs ``gx``, ``recurrent_weight(p)``, ``extras(p)``, the initial state and a trace of
``activate``. A cell gives it as ``native_loop``, and it is chosen in :mod:`numerate.recurrent.dispatch`, the only
place that walks along time.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import positive
from numerate.loops.timeloops.cuda_reducing import CudaReducingLoop
from numerate.loops.timeloops.cuda_rowloop import CudaRowLoop
from numerate.loops.timeloops.cuda_timeloop import CudaTimeLoop
from numerate.loops.timeloops.diagonal import DiagonalLoop
from numerate.loops.timeloops.pointwise import Sizes
from numerate.loops.timeloops.timeloop import SequenceLoop, TimeLoop
from numerate.recurrent import init

State = tuple[Tensor, ...]
Parts = Mapping[str, Any]
"""Name -> tensor (or sub-module, where a cell wraps one); what ``Cell.parts`` made, as the owner holds it now."""

Form = Literal["elementwise", "reducing", "diagonal", "general"]


def linear(x: Tensor, weight: Tensor, *biases: Tensor | None) -> Tensor:
    """``x @ weight.T`` plus those of the biases that exist; (..., I), (O, I), (O,) -> (..., O)."""
    present = [bias for bias in biases if bias is not None]
    return F.linear(x, weight, sum(present[1:], present[0]) if present else None)


def autocast_enabled(device: torch.device) -> bool:
    """Whether autocast is on for a device; devices without autocast (``meta``) have it off."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def empty_parameters(
    shapes: Mapping[str, tuple[int, ...]], device: Any = None, dtype: Any = None
) -> dict[str, nn.Parameter | nn.Module]:
    """A parameter without values for each shape."""
    return {name: nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) for name, shape in shapes.items()}


@dataclass(frozen=True, repr=False)
class Cell(ABC):
    """One step of a recurrent unit, as data and pure functions; see the module's text for the whole protocol."""

    input_size: int
    hidden_size: int

    def __post_init__(self) -> None:
        self.check_sizes("input_size", "hidden_size")

    def check_sizes(self, *names: str) -> None:
        """One clear sentence unless these fields are positive whole numbers; NumPy's become Python's."""
        for name in names:
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    def __repr__(self) -> str:
        sizes = f"{self.input_size}, {self.hidden_size}"
        changed = [f"{f.name}={v!r}" for f in fields(self)[2:] if (v := getattr(self, f.name)) != f.default]
        return f"{type(self).__name__}({', '.join([sizes, *changed])})"

    @property
    def form(self) -> Form:
        """What a compiled time loop may rely on."""
        return "general"

    @property
    def output_size(self) -> int:
        """Features of the output."""
        return self.hidden_size

    @property
    def output_is_state(self) -> bool:
        """Whether the output is the first entry of the state (then zoneout can act on the state alone)."""
        return True

    @property
    @abstractmethod
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each entry of the state, without the batch."""

    @abstractmethod
    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        """New parameters by name, values not yet drawn."""

    @abstractmethod
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        """Draw the values of the parameters, in place."""

    @abstractmethod
    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        """One time step; gx: (B, columns) -> output (B, output_size), new state. ``p`` is what ``prepare`` returned."""

    def prepare(self, p: Parts) -> Parts:
        """What depends on the parameters alone; called once per sequence."""
        return p

    def project(self, x: Tensor, p: Parts) -> Tensor:
        """The part of the step that sees the input alone, for all time steps at once; (..., I) -> (..., columns)."""
        return x

    def initial_state(self, batch: int, like: Tensor, p: Parts) -> State:
        """The state before the first step; device and dtype as ``like``. A cell may learn it as one of its parts."""
        return tuple(like.new_zeros(batch, *shape) for shape in self.state_shapes)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        """Activations worth looking at in the step from ``state`` to ``new``; called by ``inspect`` only."""
        return {}

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | DiagonalLoop | None:
        """The compiled loop over time on a CPU or GPU, whatever the number of inputs; None if there is none."""
        return None

    def stepping_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        """A slower one that accepts every walk, for those that ``native_loop`` does not accept."""
        return None

    @property
    def has_fused(self) -> bool:
        """Whether an operation of torch computes the same for a whole sequence."""
        return False

    def fused(self, x: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        """That operation; x: (T, B, I) -> outputs (T, B, H), final state."""
        raise NotImplementedError(f"{type(self).__name__} has no fused operation")

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The recurrent weight and the other tensors that the compiled loop reads."""
        raise NotImplementedError(f"{type(self).__name__} has no compiled loop")

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        """What ``prepare`` would return for these operands."""
        raise NotImplementedError(f"{type(self).__name__} has no compiled loop")

    @property
    def walked(self) -> "Cell":
        """What the compiled loop walks: this cell, or one without a map to the output, which ``loop_output`` makes."""
        return self

    def loop_input(self, gx: Tensor) -> Tensor:
        """The columns of ``project`` that the compiled loop reads."""
        return gx

    def loop_output(self, outputs: Tensor, gx: Tensor, p: Parts) -> Tensor:
        """The output from that of the compiled loop, for all time steps at once."""
        return outputs

    def with_input_size(self, input_size: int) -> Self:
        """The same cell for another number of inputs, as a second layer needs it."""
        return replace(self, input_size=input_size)


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnCell(Cell):
    """A cell of one recurrent product followed by mathematics on its columns; see the module's text.

    Its columns are cut into named ``blocks``. Parameters: ``weight_ih`` (columns, I), ``weight_hh`` (columns, H),
    ``bias_ih`` and ``bias_hh`` (columns,).

    Args:
        input_size, hidden_size: Features of x and of h.
        bias: Whether there is ``bias_ih``.
        recurrent_bias: Whether there is torch's second vector, ``bias_hh``.
        weight_init: Scheme of the weights, see :func:`numerate.recurrent.init.weight_`.
    """

    bias: bool = True
    recurrent_bias: bool | None = None
    weight_init: init.WeightInit = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent_bias and not self.bias:
            raise ValueError("recurrent_bias=True is a second bias beside the first: it needs bias=True")
        _ = self.blocks  # computed now: a compiler cannot look into a cached property that is still empty

    @property
    def form(self) -> Form:
        return "elementwise"

    @abstractmethod
    def layout(self) -> dict[str, int]:
        """Name -> width of each block of columns, in order."""

    @abstractmethod
    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        """The new state from the projected input and the projected hidden state."""

    @property
    def has_recurrent_bias(self) -> bool:
        """Whether there is a ``bias_hh``; by default there is not."""
        return self.bias and bool(self.recurrent_bias)

    @cached_property
    def blocks(self) -> dict[str, int]:
        """The layout, computed once."""
        return self.layout()

    def named(self, columns: Tensor) -> dict[str, Tensor]:
        """The blocks of (..., columns) by name, as views."""
        return dict(zip(self.blocks, columns.split(list(self.blocks.values()), -1)))

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        columns = sum(self.blocks.values())
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (columns, self.input_size),
            "weight_hh": (columns, self.hidden_size),
        }
        if self.bias:
            shapes["bias_ih"] = (columns,)
        if self.has_recurrent_bias:
            shapes["bias_hh"] = (columns,)
        return empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name in ("weight_ih", "weight_hh"):
            init.weight_(p[name], self.weight_init, self.hidden_size, generator)
        for name in ("bias_ih", "bias_hh"):
            if name in p:
                nn.init.zeros_(p[name])

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"), p.get("bias_hh"))

    def recurrent_weight(self, p: Parts) -> Tensor:
        """(columns, H): what multiplies ``state[0]``."""
        return p["weight_hh"]

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        """Vectors (H,) that ``activate`` reads."""
        return ()

    def prepare(self, p: Parts) -> Parts:
        return {"recurrent_weight": self.recurrent_weight(p), "extras": self.extras(p)}

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        if self.form == "general":
            return None
        if device.type == "cuda":
            kind = CudaReducingLoop if self.form == "reducing" else CudaTimeLoop
            return kind(self.activate, self.loop_sizes(), dtype, device)
        return TimeLoop(self.activate, self.loop_sizes(), torch.float64 if dtype == torch.float64 else torch.float32)

    def stepping_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        if self.form == "general" or device.type != "cuda":
            return None
        return CudaRowLoop(self.activate, self.loop_sizes(), dtype, device)

    def loop_sizes(self) -> Sizes:
        """The widths of the step."""
        parts = self.parts("meta")
        extras = self.extras({name: part for name, part in parts.items() if isinstance(part, Tensor)})
        return Sizes(self.hidden_size, sum(self.blocks.values()), len(self.state_shapes), len(extras))

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.recurrent_weight(p), self.extras(p)

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        return {"recurrent_weight": weight, "extras": extras}

    def columns(self, gx: Tensor, state: State, p: Parts) -> dict[str, Tensor]:
        """The pre-activations of one step by block, where input and recurrent part are simply added."""
        return self.named(gx + F.linear(state[0], p["recurrent_weight"]))

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        gh = F.linear(state[0], p["recurrent_weight"])
        new = self.activate(gx, gh, state, p["extras"])
        return new[0], new
