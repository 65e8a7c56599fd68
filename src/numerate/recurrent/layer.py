"""The module around the loop: layers, directions, dropout, packed sequences, called like ``torch.nn.LSTM``."""

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from numerate.checks import one_of, positive
from numerate.recurrent.cell import Cell, Parts, State, autocast_enabled
from numerate.recurrent.dispatch.plain import Observer
from numerate.recurrent.dispatch.unroll import unroll
from numerate.recurrent.gates import timescale


@dataclass(frozen=True)
class Inspection:
    """What a run let one see: ``activations[k][name]`` for direction k of layer k // directions.

    Activations are laid out as the output is: (T, B, ...), (B, T, ...) with ``batch_first``, (T, ...) without a batch.
    """

    output: Tensor
    state: State
    activations: list[dict[str, Tensor]]

    def timescales(self, k: int = -1) -> Tensor:
        """1 / (1 - forget activation), (T, B, H) as the output, for layer (and direction) ``k``; default the last."""
        if "forget" not in self.activations[k]:
            raise ValueError(f"this cell has no forget gate; it shows {sorted(self.activations[k]) or 'nothing'}")
        return timescale(self.activations[k]["forget"])

    def distances(self, k: int = -1) -> tuple[Tensor, Tensor]:
        """How high in the order each step forgets and writes, from 0 to 1, each (T, B) as the output.

        The mean over chunks of 1 - master forget gate, and of the master input gate; ON-LSTM reads trees from them
        (Shen et al., 2019).
        """
        seen = self.activations[k]
        if "master_forget" not in seen:
            raise ValueError(f"this cell has no master gates; it shows {sorted(seen) or 'nothing'}")
        return (1 - seen["master_forget"]).mean(-1), seen["master_input"].mean(-1)


def rate(name: str, value: float) -> float:
    """``value`` if it is a probability below 1, else one clear sentence."""
    if not isinstance(value, Real) or not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
    return float(value)


def check_type(module: nn.Module, name: str, what: str, x: Tensor) -> None:
    """One clear sentence if ``x`` is not of the parameters' type, which autocast allows."""
    dtype = next((p.dtype for p in module.parameters()), x.dtype)
    if x.dtype != dtype and not autocast_enabled(x.device):
        raise ValueError(f"{name} has parameters of {dtype}, got {what} of {x.dtype}: convert one of them")


def checked_state(
    module: nn.Module, name: str, state: State | Tensor, shapes: Sequence[tuple[int, ...]], lead: tuple[int, ...]
) -> State:
    """The entries of a state, a bare tensor being one entry; one clear sentence unless each is (*lead, *its shape)."""
    entries = (state,) if isinstance(state, Tensor) else tuple(state)
    if len(entries) != len(shapes):
        raise ValueError(f"{name} expects a state of {len(shapes)} tensors, got {len(entries)}")
    for index, (entry, shape) in enumerate(zip(entries, shapes)):
        if not isinstance(entry, Tensor):
            raise ValueError(f"{name} expects a tensor as entry {index} of the state, got {entry!r}")
        if tuple(entry.shape) != (*lead, *shape):
            wanted, got = (*lead, *shape), tuple(entry.shape)
            raise ValueError(f"{name} expects entry {index} of the state in shape {wanted}, got {got}")
        check_type(module, name, f"entry {index} of the state", entry)
    return entries


class Recurrent(nn.Module):
    """Unroll any cell along time: x (T, B, I) -> output (T, B, O), state.

    ``state``, in and out, is always a tuple with one tensor (layers * directions, B, ...) for each entry of the cell's
    state: (h, c) for an LSTM, (h,) for a GRU. x may be (T, I), with a state without B; (B, T, I) with ``batch_first``;
    or a PackedSequence, and then the output is one too. Parameters have torch's names: ``weight_ih_l0``,
    ``weight_hh_l1_reverse``.

    Args:
        cell: What computes one step.
        num_layers: Layers, each on the outputs of the one below.
        batch_first: Whether x and the output are (B, T, ...).
        bidirectional: Whether each layer also walks from the last step to the first; outputs are concatenated.
        dropout: Rate at which the inputs of all layers but the first are dropped in training.
        zoneout: Rate at which entries of the state stay as they were, one for each entry of the state or one for all.
        weight_dropout: Rate at which recurrent weights are dropped in training, one mask per call (DropConnect).
        weight_dropout_rescales: When weights are rescaled for it: in ``training``, by 1 / (1 - rate), or in
            ``evaluation``, by 1 - rate, as the code of ON-LSTM does.
        device, dtype: Of the parameters.
    """

    def __init__(
        self,
        cell: Cell,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        bidirectional: bool = False,
        dropout: float = 0.0,
        zoneout: float | Sequence[float] = 0.0,
        weight_dropout: float = 0.0,
        weight_dropout_rescales: Literal["training", "evaluation"] = "training",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_layers = positive("num_layers", num_layers)
        self.batch_first, self.bidirectional = batch_first, bidirectional
        self.dropout = rate("dropout", dropout)
        if self.dropout and self.num_layers == 1:
            warnings.warn("dropout acts between layers: with num_layers=1 it does nothing", stacklevel=3)
        self.weight_dropout = rate("weight_dropout", weight_dropout)
        one_of("weight_dropout_rescales", weight_dropout_rescales, ("training", "evaluation"))
        self.weight_dropout_rescales = weight_dropout_rescales
        self.directions = ("", "_reverse") if bidirectional else ("",)
        cells = [cell]
        for _ in range(self.num_layers - 1):
            cells.append(cell.with_input_size(cells[-1].output_size * len(self.directions)))
        self.cells = tuple(cells)
        entries = len(cell.state_shapes)
        several = isinstance(zoneout, Iterable) and not isinstance(zoneout, str)
        rates: Any = zoneout if several else [zoneout] * entries
        self.zoneout = tuple(rate("zoneout", value) for value in rates)
        if len(self.zoneout) != entries:
            raise ValueError(f"zoneout must be one rate or {entries}, one for each state entry, got {zoneout!r}")
        if any(self.zoneout) and not cell.output_is_state:
            raise ValueError(f"zoneout is not defined for {type(cell).__name__}: its output is not part of its state")
        if weight_dropout and "weight_hh" not in cell.parts("meta"):
            raise ValueError(f"weight_dropout is not defined for {type(cell).__name__}: it has no weight_hh")
        self.part_names: list[tuple[str, ...]] = []
        for layer, layer_cell in enumerate(self.cells):
            for suffix in self.directions:
                parts = layer_cell.parts(device, dtype)
                self.part_names.append(tuple(parts))
                for name, part in parts.items():
                    setattr(self, f"{name}_l{layer}{suffix}", part)
        self.reset_parameters()

    @property
    def cell(self) -> Cell:
        """The cell of the first layer."""
        return self.cells[0]

    @property
    def input_size(self) -> int:
        return self.cell.input_size

    @property
    def hidden_size(self) -> int:
        return self.cell.hidden_size

    @property
    def output_size(self) -> int:
        """Features of the output: those of the last layer's cell, twice that with two directions."""
        return self.cells[-1].output_size * len(self.directions)

    def parts(self, layer: int = 0, reverse: bool = False) -> Parts:
        """The parameters of one layer and direction, by the names the cell gave them."""
        suffix = self.directions[int(reverse)]
        names = self.part_names[layer * len(self.directions) + int(reverse)]
        return {name: getattr(self, f"{name}_l{layer}{suffix}") for name in names}

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Redraw all parameters, as the cell's docstring says."""
        for layer, cell in enumerate(self.cells):
            for reverse in range(len(self.directions)):
                cell.reset(self.parts(layer, bool(reverse)), generator)

    def __prepare_scriptable__(self) -> "Recurrent":
        """Called by ``torch.jit.script``, which cannot compile a loop that is chosen in Python."""
        raise NotImplementedError(
            f"torch.jit.script cannot compile {type(self).__name__}: "
            "use torch.export, or torch.jit.trace for sequences of one length"
        )

    def flatten_parameters(self) -> None:
        """Nothing: here for code that was written for ``torch.nn.LSTM``."""

    def forward(self, x: Any, hx: State | Tensor | None = None) -> tuple[Any, State]:
        """x: (T, B, I), (T, I), (B, T, I) or packed; hx: state or None for the cell's own -> output, state."""
        return self._run(x, hx, None)

    def inspect(self, x: Any, hx: State | Tensor | None = None) -> Inspection:
        """As a call, but also gather what each step lets one see: gate activations, memories (not for packed x)."""
        if isinstance(x, PackedSequence):
            raise ValueError("inspect takes a tensor, not a PackedSequence: run the sequences one by one")
        seen: list[list[dict[str, Tensor]]] = [[] for _ in self.part_names]
        output, state = self._run(x, hx, seen)
        single, time = x.dim() == 2, int(x.dim() == 3 and self.batch_first)
        if x.shape[time] == 0:  # what one step would show, without that step
            one = self.inspect(x.new_zeros([*x.shape[:time], 1, *x.shape[time + 1 :]]), hx).activations
            return Inspection(output, state, [{n: v.narrow(time, 0, 0) for n, v in run.items()} for run in one])
        for k in range(1, len(seen), len(self.directions)) if self.bidirectional else ():
            seen[k].reverse()
        runs = [{n: torch.stack([s[n] for s in run], time) for n in run[0]} for run in seen]
        return Inspection(output, state, [{n: v.squeeze(1) if single else v for n, v in run.items()} for run in runs])

    def _run(self, x: Any, hx: State | Tensor | None, seen: list[list[dict[str, Tensor]]] | None) -> tuple[Any, State]:
        packed = x if isinstance(x, PackedSequence) else None
        data: Tensor = x.data if isinstance(x, PackedSequence) else x
        self._check_input(data, packed is not None)
        single = packed is None and data.dim() == 2
        if single:
            data = data.unsqueeze(1)
        elif packed is None and self.batch_first:
            data = data.transpose(0, 1)
        batch_sizes = None if packed is None else packed.batch_sizes.tolist()
        batch = data.shape[1] if batch_sizes is None else batch_sizes[0]
        start = self._initial_state(data, batch, hx, single, None if packed is None else packed.sorted_indices)
        final: list[State] = []
        for layer, cell in enumerate(self.cells):
            if layer and self.dropout:
                data = F.dropout(data, self.dropout, self.training)
            outputs = []
            for reverse in range(len(self.directions)):
                k = len(final)
                observer: Observer | None = None if seen is None else seen[k].append
                output, state = unroll(
                    cell,
                    self._dropped(self.parts(layer, bool(reverse))),
                    data,
                    start[k],
                    batch_sizes=batch_sizes,
                    reverse=bool(reverse),
                    zoneout=self.zoneout,
                    training=self.training,
                    observer=observer,
                )
                outputs.append(output)
                final.append(state)
            data = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
        state = tuple(torch.stack(entries) for entries in zip(*final))
        if single:
            return data.squeeze(1), tuple(entry.squeeze(1) for entry in state)
        if packed is None:
            return (data.transpose(0, 1) if self.batch_first else data), state
        if packed.unsorted_indices is not None:
            state = tuple(entry.index_select(1, packed.unsorted_indices) for entry in state)
        return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), state

    def _dropped(self, p: Parts) -> Parts:
        """The parameters with recurrent weights dropped, or as they are on average."""
        if not self.weight_dropout:
            return p
        weight, kept = p["weight_hh"], 1 - self.weight_dropout
        if self.weight_dropout_rescales == "training":
            return {**p, "weight_hh": F.dropout(weight, self.weight_dropout)} if self.training else p
        return {**p, "weight_hh": F.dropout(weight, self.weight_dropout, self.training) * kept}

    def _check_input(self, x: Tensor, packed: bool) -> None:
        name, size = type(self).__name__, self.input_size
        wanted = f"(B, T, {size})" if self.batch_first else f"(T, B, {size})"
        if not packed and x.dim() not in (2, 3):
            raise ValueError(f"{name} expects an input of shape {wanted} or (T, {size}), got {tuple(x.shape)}")
        if x.shape[-1] != size:
            raise ValueError(
                f"{name} expects {size} features in the last dimension, got an input of shape {tuple(x.shape)}"
            )
        check_type(self, name, "an input", x)

    def _initial_state(
        self, like: Tensor, batch: int, hx: State | Tensor | None, single: bool, order: Tensor | None
    ) -> list[State]:
        """The state before the first step, for each layer and direction."""
        if hx is None:
            runs = [
                (layer, bool(reverse)) for layer in range(self.num_layers) for reverse in range(len(self.directions))
            ]
            return [self.cells[layer].initial_state(batch, like, self.parts(layer, reverse)) for layer, reverse in runs]
        lead = (len(self.part_names),) if single else (len(self.part_names), batch)
        entries = checked_state(self, type(self).__name__, hx, self.cell.state_shapes, lead)
        if single:
            entries = tuple(entry.unsqueeze(1) for entry in entries)
        if order is not None:
            entries = tuple(entry.index_select(1, order) for entry in entries)
        return list(zip(*(entry.unbind(0) for entry in entries)))

    def extra_repr(self) -> str:
        values: dict[str, Any] = {"num_layers": self.num_layers if self.num_layers > 1 else None}
        values |= {name: getattr(self, name) for name in ("batch_first", "bidirectional", "dropout", "weight_dropout")}
        values["zoneout"] = self.zoneout if any(self.zoneout) else None
        return ", ".join([repr(self.cell), *(f"{name}={value}" for name, value in values.items() if value)])


class CellLayer(Recurrent):
    """A :class:`Recurrent` that makes its cell itself; keywords are those of the cell and those of Recurrent."""

    cell_type: ClassVar[type[Cell]]
    preset: ClassVar[Mapping[str, Any]] = {}
    """Keywords, of the cell or of Recurrent, that this layer sets unless told otherwise."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Any) -> None:
        names, known = {field.name for field in fields(self.cell_type)}, inspect.signature(type(self)).parameters
        for name in options.keys() - known.keys():
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if name == "proj_size":
                hint = ": there is no projection of the hidden state"
            raise TypeError(f"{type(self).__name__} has no keyword {name!r}{hint}")
        options = dict(self.preset) | options
        own = {name: options.pop(name) for name in list(options) if name in names}
        super().__init__(self.cell_type(input_size, hidden_size, **own), num_layers, **options)

    def __init_subclass__(cls) -> None:
        """Let ``help`` and editors show the keywords that really exist."""
        sizes = list(inspect.signature(CellLayer.__init__).parameters.values())[1:4]
        of_layer = list(inspect.signature(Recurrent.__init__).parameters.values())[3:]
        of_cell = list(inspect.signature(cls.cell_type).parameters.values())[2:]
        keywords = {k.name: k.replace(kind=inspect.Parameter.KEYWORD_ONLY) for k in (*of_cell, *of_layer)}
        for name, value in cls.preset.items():
            keywords[name] = keywords[name].replace(default=value)
        cls.__signature__ = inspect.Signature([*sizes, *keywords.values()])  # pyright: ignore[reportAttributeAccessIssue]


class Step(nn.Module):
    """One step of any cell: ``output, state = step(x, state)``; x (B, I) or (I,).

    ``state`` is None or a tuple with one tensor (B, ...), or (...) without B, for each entry of the cell's state; a
    bare tensor is a state of one entry. Under autocast too, the output has the type of x and
    the state keeps its types.
    """

    def __init__(self, cell: Cell, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.cell = cell
        parts = cell.parts(device, dtype)
        self.part_names = tuple(parts)
        for name, part in parts.items():
            setattr(self, name, part)
        self.reset_parameters()

    def parts(self) -> Parts:
        """The parameters by the names the cell gave them."""
        return {name: getattr(self, name) for name in self.part_names}

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Redraw all parameters, as the cell's docstring says."""
        self.cell.reset(self.parts(), generator)

    def forward(self, x: Tensor, state: State | Tensor | None = None) -> tuple[Tensor, State]:
        cell, p, name, size = self.cell, self.parts(), type(self.cell).__name__, self.cell.input_size
        if x.dim() not in (1, 2) or x.shape[-1] != size:
            raise ValueError(f"{name} expects an input of shape (B, {size}) or ({size},), got {tuple(x.shape)}")
        check_type(self, name, "an input", x)
        if state is not None:
            state = checked_state(self, name, state, cell.state_shapes, tuple(x.shape[:-1]))
        if x.dim() == 1:
            output, new = self(x.unsqueeze(0), state and tuple(entry.unsqueeze(0) for entry in state))
            return output.squeeze(0), tuple(entry.squeeze(0) for entry in new)
        if state is None:
            state = cell.initial_state(x.shape[0], x, p)
        output, new = cell.step(cell.project(x, p), state, cell.prepare(p))
        return output.to(x.dtype), tuple(entry.to(given.dtype) for entry, given in zip(new, state))

    def extra_repr(self) -> str:
        return repr(self.cell)
