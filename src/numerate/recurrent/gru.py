"""Gated recurrent unit (Cho et al., 2014) with any of the nine gates."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.recurrent.cell import Form, Parts, State, linear
from numerate.recurrent.gated import GatedCell
from numerate.recurrent.gates import Gate, gate
from numerate.recurrent.layer import CellLayer
from numerate.torch_internals import fused_gru


def gru(forget: Tensor, inlet: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    r"""One step from effective gates F, I: :math:`h' = F h + I \tanh(n)`; all (..., H)."""
    return forget * h + inlet * candidate.tanh()


@dataclass(frozen=True, kw_only=True, repr=False)
class GRUCell(GatedCell):
    r"""GRU; state (h,); columns r, z, n as in torch, then the gate's second map and its masters where it has them.

    The update gate z is the forget map of the gate; with -, C and U the input gate is tied, I = 1 - F.

    Args:
        reset_after: :math:`n = W x + r (U h + b)` as torch and cuDNN; else :math:`n = W x + b + U (r h)` as first
            published. The others are those of every :class:`~numerate.recurrent.gated.GatedCell`.
    """

    reset_after: bool = True

    @property
    def order(self) -> tuple[str, ...]:
        return "reset", "forget", "candidate", "partner"

    @cached_property
    def mechanism(self) -> Gate:
        kind = gate(self.gate, tied=self.tied, downsize=self.downsize)
        plain = kind.squash == "sigmoid" and not kind.refined and not kind.master
        return replace(kind, tied=True) if plain and self.tied is None else kind

    @property
    def form(self) -> Form:
        return super().form if self.reset_after else "general"

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def project(self, x: Tensor, p: Parts) -> Tensor:
        second = p.get("bias_hh")
        if second is not None and self.reset_after:  # the candidate's part belongs inside the reset: see extras
            blocks = self.named(second)
            blocks["candidate"] = torch.zeros_like(blocks["candidate"])
            second = torch.cat(list(blocks.values()))
        return linear(x, p["weight_ih"], p.get("bias_ih"), second, self.gate_shift(p))

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        if "bias_hh" not in p or not self.reset_after:
            return ()
        return (self.named(p["bias_hh"])["candidate"],)

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        x, h = self.named(gx), self.named(gh)
        recalled = h["candidate"] + extras[0] if extras else h["candidate"]
        f, i = self.open_gates({name: x[name] + h[name] for name in x if name not in ("reset", "candidate")})
        reset = (x["reset"] + h["reset"]).sigmoid()
        return (gru(f, i, x["candidate"] + reset * recalled, state[0]),)

    @property
    def has_fused(self) -> bool:
        return self.ordinary_gate and self.mechanism.tied and self.reset_after

    def fused(self, x: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        weights, start = self.fused_weights(p), state[0].unsqueeze(0)
        output, final = fused_gru(x, start, weights)
        return output, (final.squeeze(0),)

    def prepare(self, p: Parts) -> Parts:
        if self.reset_after:
            return super().prepare(p)
        rows = dict(zip(self.blocks, p["weight_hh"].split(list(self.blocks.values()))))
        candidate = rows.pop("candidate")
        return {"candidate": candidate, "others": torch.cat(list(rows.values()))}

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        if self.reset_after:
            return super().step(gx, state, p)
        h = state[0]
        columns = self.columns(gx, state, p)
        candidate = columns["candidate"] + F.linear(columns["reset"].sigmoid() * h, p["candidate"])
        new = gru(*self.open_gates(columns), candidate, h)
        return new, (new,)

    def columns(self, gx: Tensor, state: State, p: Parts) -> dict[str, Tensor]:
        if self.reset_after:
            return super().columns(gx, state, p)
        x = self.named(gx)
        names = [name for name in x if name != "candidate"]
        others = F.linear(state[0], p["others"]).split([self.blocks[name] for name in names], -1)
        return x | {name: x[name] + part for name, part in zip(names, others)}

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        columns = self.columns(gx, state, p)
        return {**self.observe_gates(columns), "reset": columns["reset"].sigmoid()}


class GRU(CellLayer):
    """GRU layer with any gate; torch's ``nn.GRU`` weights load into it. See :class:`GRUCell` for its keywords."""

    cell_type = GRUCell
