"""Relational memory core (Santoro et al., 2018) with any of the nine gates."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent import init
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters, linear
from numerate.recurrent.gates import Gate, Timescale, check_start, gate
from numerate.recurrent.layer import CellLayer


def attend(qkv: Tensor, heads: int) -> Tensor:
    """Multi-head dot-product attention among rows; qkv: (..., rows, 3 S) by head -> (..., rows, S)."""
    q, k, v = qkv.unflatten(-1, (heads, -1)).transpose(-3, -2).chunk(3, -1)
    weights = (q * q.shape[-1] ** -0.5 @ k.mT).softmax(-1)
    return (weights @ v).transpose(-3, -2).flatten(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class RMCCell(Cell):
    r"""Memory rows that attend to each other and to the input, then move by a gate; state (M,), output M flattened.

    hidden_size is the width S of a slot. :math:`e = W x`; A = [M; e]; ``blocks`` times: attention among the rows of A,
    :math:`A = LN(A + attended)`, :math:`A = LN(A + MLP(A))`; then :math:`M' = F M + I \tanh(A)` without the row e, F
    and I from :math:`W_x e + W_m \tanh(M)`. LN is over the features of a row. The MLP is shared by the blocks.
    M starts as rows of the identity.

    Args:
        input_size: Features of x.
        hidden_size: S, the width of a slot.
        slots: Rows of M.
        heads: Heads of the attention; they divide S.
        blocks: Rounds of attention and MLP.
        mlp_layers: Layers of the MLP, each of width S, ReLU between them.
        gate_style: ``unit``, a gate for each element, or ``memory``, one for each slot.
        gate: As in the LSTM; cumax runs along the features of a slot, and a gate's own vector has one entry per feature
            (per slot: one).
        forget_bias: Where the forget map's bias starts, 1 by default for gates - and R; O and OR take none, as no
            constant changes a softmax.
        input_bias: Where the input gate's bias starts, if it has a map of its own and no ``timescale``; not for O.
        timescale: Chrono start, as in the LSTM.
        downsize: Features per entry of a master gate, for gates that have one.
        weight_init: Scheme of the weights.
    """

    slots: int = 4
    heads: int = 4
    blocks: int = 1
    mlp_layers: int = 2
    gate_style: Literal["unit", "memory"] = "unit"
    gate: str | Gate = "-"
    forget_bias: float | None = None
    input_bias: float = 0.0
    timescale: Timescale = None
    downsize: int | None = None
    weight_init: init.WeightInit = "truncated_normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("slots", "heads", "blocks", "mlp_layers")
        one_of("gate_style", self.gate_style, ("unit", "memory"))
        if self.hidden_size % self.heads:
            raise ValueError(f"heads={self.heads} must divide the width of a slot, hidden_size={self.hidden_size}")
        if self.gate_style == "memory" and not self.mechanism.elementwise:
            raise ValueError(f"gate {self.mechanism.name!r} orders the features of a slot: it needs gate_style='unit'")
        self.mechanism.check(self.gate_size, self.timescale, self.forget_bias)
        ordinary = None if self.mechanism.bias else self.timescale
        check_start(True, self.forget_bias, ordinary)
        reason = None
        if self.mechanism.tied:
            reason = "the gate is tied"
        elif ordinary is not None and not self.mechanism.refined:
            reason = "timescale says where the input gate's bias starts"
        elif self.mechanism.squash == "cumax" and not self.mechanism.refined:
            reason = "a constant does not change the gate's softmax"
        if self.input_bias and reason:
            raise ValueError(f"input_bias={self.input_bias!r} has no place here: {reason}")

    @cached_property
    def mechanism(self) -> Gate:
        """The gate with this cell's choices filled in."""
        return gate(self.gate, downsize=self.downsize)

    @property
    def gate_size(self) -> int:
        return self.hidden_size if self.gate_style == "unit" else 1

    @property
    def gate_blocks(self) -> dict[str, int]:
        """Name -> width of each gate map: partner, unless tied, forget, and the masters where the gate has them."""
        mechanism, size = self.mechanism, self.gate_size
        blocks = {name: size for name in ("partner", "forget") if name != "partner" or mechanism.has_partner}
        if mechanism.master:
            blocks |= {"master_forget": mechanism.master_size(size), "master_input": mechanism.master_size(size)}
        return blocks

    @property
    def output_is_state(self) -> bool:
        return False

    @property
    def output_size(self) -> int:
        return self.slots * self.hidden_size

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.slots, self.hidden_size),)

    def initial_state(self, batch: int, like: Tensor, p: Parts) -> State:
        rows = torch.eye(self.slots, self.hidden_size, dtype=like.dtype, device=like.device)
        return (rows.expand(batch, -1, -1),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, columns, n = self.hidden_size, sum(self.gate_blocks.values()), self.blocks
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (size, self.input_size),
            "bias_ih": (size,),
            "weight_qkv": (n, 3 * size, size),
            "bias_qkv": (n, 3 * size),
            "weight_mlp": (self.mlp_layers, size, size),
            "bias_mlp": (self.mlp_layers, size),
            "weight_gate_x": (columns, size),
            "bias_gate_x": (columns,),
            "weight_gate_m": (columns, size),
            "bias_gate_m": (columns,),
        }
        for name, width in (("qkv", 3 * size), ("attended", size), ("mlp", size)):
            shapes |= {f"gain_{name}": (n, width), f"shift_{name}": (n, width)}
        if self.mechanism.bias:
            shapes["gate_bias"] = (self.mechanism.bias_size(self.gate_size),)
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        mechanism = self.mechanism
        for name, value in p.items():
            if name.startswith("weight"):
                init.weight_(value, self.weight_init, generator=generator)
            elif name != "gate_bias":
                nn.init.constant_(value, float(name.startswith("gain")))
        bias = self.named(p["bias_gate_x"])
        forget = bias["forget"].fill_(mechanism.forget_bias if self.forget_bias is None else self.forget_bias)
        if mechanism.has_partner:
            bias["partner"].fill_(self.input_bias)
        if mechanism.bias:
            mechanism.reset_bias_(p["gate_bias"], self.timescale, self.hidden_size, generator)
        elif self.timescale is not None:
            init.chrono_(forget, self.timescale, generator=generator)
            if mechanism.has_partner and not mechanism.refined:
                bias["partner"].copy_(-forget)

    def gate_shift(self, p: Parts) -> Tensor | None:
        """The gate's own vector as a bias of all gate maps, if it has one."""
        return self.mechanism.shift(p["gate_bias"], self.gate_blocks) if self.mechanism.bias else None

    def project(self, x: Tensor, p: Parts) -> Tensor:
        e = F.linear(x, p["weight_ih"], p["bias_ih"])
        gates = linear(e, p["weight_gate_x"], p["bias_gate_x"], p["bias_gate_m"], self.gate_shift(p))
        return torch.cat((e, gates), -1)

    def prepare(self, p: Parts) -> Parts:
        stacked = [name for name in p if name.endswith(("_qkv", "_attended", "_mlp"))]
        return {**p, **{name: p[name].unbind(0) for name in stacked}}

    def named(self, columns: Tensor) -> dict[str, Tensor]:
        """The gate maps of (..., columns) by name, as views."""
        return dict(zip(self.gate_blocks, columns.split(list(self.gate_blocks.values()), -1)))

    def gate_maps(self, gx: Tensor, memory: Tensor, p: Parts) -> dict[str, Tensor]:
        """The gate maps by name; (B, columns), (B, slots, S) -> each (B, slots, its width)."""
        return self.named(gx.unsqueeze(-2) + F.linear(memory.tanh(), p["weight_gate_m"]))

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        (memory,) = state
        size = self.hidden_size
        e, gx = gx[..., :size], gx[..., size:]
        rows = torch.cat((memory, e.unsqueeze(-2)), -2)
        for block in range(self.blocks):
            qkv = F.linear(rows, p["weight_qkv"][block], p["bias_qkv"][block])
            qkv = F.layer_norm(qkv, (3 * size,), p["gain_qkv"][block], p["shift_qkv"][block])
            rows = rows + attend(qkv, self.heads)
            rows = F.layer_norm(rows, (size,), p["gain_attended"][block], p["shift_attended"][block])
            rows = F.layer_norm(rows + self.mlp(rows, p), (size,), p["gain_mlp"][block], p["shift_mlp"][block])
        f, i = self.mechanism(**self.gate_maps(gx, memory, p))
        memory = f * memory + i * rows[..., :-1, :].tanh()
        return memory.flatten(-2), (memory,)

    def mlp(self, rows: Tensor, p: Parts) -> Tensor:
        for layer in range(self.mlp_layers):
            rows = F.linear(rows.relu() if layer else rows, p["weight_mlp"][layer], p["bias_mlp"][layer])
        return rows

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        maps = self.gate_maps(gx[..., self.hidden_size :], state[0], p)
        return {**self.mechanism.observe(**maps), "memory": new[0]}


class RMC(CellLayer):
    """RMC layer; see :class:`RMCCell`."""

    cell_type = RMCCell
