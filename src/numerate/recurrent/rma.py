"""The recurrent core of the reconstructive memory agent (RMA; Hung et al., 2019) with any of the nine gates."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.recurrent import init
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.dnc import cosines
from numerate.recurrent.gates import Gate, Timescale
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.lstm import LSTMCell


def read_top(memory: Tensor, keys: Tensor, strengths: Tensor, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Each head's ``top_k`` rows of the largest cosine, averaged by :math:`\mathrm{softmax}(\beta \cos)` among them.

    memory (B, N, W), keys (B, R, W), strengths β (B, R) -> reads (B, R, W), weights and row numbers (B, R, top_k).
    """
    rows = cosines(memory.detach(), keys.detach()).topk(top_k, -1).indices
    picked = rows.unsqueeze(-1).expand(*rows.shape, memory.shape[-1])
    chosen = memory.unsqueeze(-3).expand(*keys.shape[:-1], *memory.shape[-2:]).gather(-2, picked)
    similarity = cosines(chosen, keys.unsqueeze(-2)).squeeze(-2)
    weights = (strengths.unsqueeze(-1) * similarity).softmax(-1)
    return (weights.unsqueeze(-2) @ chosen).squeeze(-2), weights, rows


def write_row(memory: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """``value``, without its gradient, in the row that ``row`` marks; (B, N, W), (B, N), (B, W) -> (B, N, W)."""
    return torch.where(row.unsqueeze(-1) > 0.5, value.detach().unsqueeze(-2), memory)


@dataclass(frozen=True, kw_only=True, repr=False)
class RMACell(Cell):
    r"""A latent code of what is seen and recalled, a controller on it, and a memory of all codes, read by content.

    .. math::
        z &= \mathrm{MLP}([x;\ o_{t-1};\ m_{t-1}]) && \text{widths } \texttt{encoder},\ Z \text{ the last} \\
        o &= [h^1; h^2], \quad h^1 = \mathrm{LSTM}(z), \quad h^2 = \mathrm{LSTM}([z; h^1]) && \text{each hidden\_size}\\
        (k_1, \dots, k_R, \hat\beta) &= W_r o + b_r, \quad \beta = \mathrm{softplus}(\hat\beta) \\
        m &= [m_1; \dots; m_R], \quad
        m_r = \sum_{j \in \mathrm{top}_K} \mathrm{softmax}_j(\beta_r \cos(k_r, M_j))\, M_j \\
        M'_j &= z \text{ without its gradient for } j = t \bmod N, \text{ else } M_j; \qquad y = [z; o; m]

    Reading sees the memory before z is written. State (h, c, m, M, row): h and c (``depth``, hidden_size), m (R Z,), M
    (N, Z), zero at first, and the row to write next, marked by a 1 among N, which is exact in every floating type.
    Biases start at 0, those of the controller's forget gates as in the LSTM. The cosine has the two ε = 1e-6 of the
    DNC; the released code instead keeps what is under its roots above 1e-12.

    Args:
        input_size: Features of x.
        hidden_size: Features of h of each layer of the controller; the paper's is 256.
        encoder: Widths of the MLP; Z is the last.
        activation: Between the layers of the MLP; none after the last.
        depth: Layers of the controller, each on z and the layer below.
        heads: R.
        rows: N.
        top_k: K, or None for all rows.
        gate, timescale, downsize: The controller's gates, as in the LSTM.
        weight_init: Scheme of the weights, by default truncated normal of deviation 1/√fan_in.
    """

    encoder: Sequence[int] = (400, 200)
    activation: Literal["tanh", "relu"] = "tanh"
    depth: int = 2
    heads: int = 3
    rows: int = 1000
    top_k: int | None = 50
    gate: str | Gate = "-"
    timescale: Timescale = None
    downsize: int | None = None
    weight_init: init.WeightInit = "truncated_normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = tuple(positive("encoder", width) for width in self.encoder)
        object.__setattr__(self, "encoder", widths)  # so that the cell can be hashed
        self.check_sizes("depth", "heads", "rows")
        if self.top_k is not None:
            self.check_sizes("top_k")
        if not self.encoder:
            raise ValueError("encoder must be the widths of at least one layer, such as (400, 200), got none")
        if self.read_rows > self.rows:
            raise ValueError(f"top_k={self.top_k} must not be above the number of rows, {self.rows}")
        one_of("activation", self.activation, ("tanh", "relu"))
        _ = self.controllers  # computed now: a compiler cannot look into an empty cached property

    @property
    def read_rows(self) -> int:
        return self.rows if self.top_k is None else self.top_k

    @property
    def latent_size(self) -> int:
        """Features of z, the first ones of the output, and the width of the memory."""
        return self.encoder[-1]

    @cached_property
    def controllers(self) -> tuple[LSTMCell, ...]:
        """The controller's layers, each on z and, from the second, the output of the one below."""
        options: dict[str, Any] = {"gate": self.gate, "timescale": self.timescale, "downsize": self.downsize}
        options |= {"recurrent_bias": False, "weight_init": self.weight_init}
        sizes = [self.latent_size + (self.hidden_size if layer else 0) for layer in range(self.depth)]
        return tuple(LSTMCell(size, self.hidden_size, **options) for size in sizes)

    @property
    def output_is_state(self) -> bool:
        return False

    @property
    def output_size(self) -> int:
        return self.latent_size + self.depth * self.hidden_size + self.heads * self.latent_size

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        layers = (self.depth, self.hidden_size)
        return layers, layers, (self.heads * self.latent_size,), (self.rows, self.latent_size), (self.rows,)

    def initial_state(self, batch: int, like: Tensor, p: Parts) -> State:
        h, c, reads, memory, row = super().initial_state(batch, like, p)
        return h, c, reads, memory, torch.cat((torch.ones_like(row[:, :1]), row[:, 1:]), -1)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        controlled, shapes = self.depth * self.hidden_size, dict[str, tuple[int, ...]]()
        below = self.input_size + controlled + self.heads * self.latent_size
        for layer, width in enumerate(self.encoder):
            shapes |= {f"weight_encoder{layer}": (width, below), f"bias_encoder{layer}": (width,)}
            below = width
        reader = self.heads * (self.latent_size + 1)
        shapes |= {"weight_reader": (reader, controlled), "bias_reader": (reader,)}
        parts = empty_parameters(shapes, device, dtype)
        for layer, cell in enumerate(self.controllers):
            parts |= {f"{name}_controller{layer}": part for name, part in cell.parts(device, dtype).items()}
        return parts

    def controller_parts(self, p: Parts) -> list[dict[str, Any]]:
        """The parameters of each layer of the controller, by the names that it gave them."""
        ends = [f"_controller{layer}" for layer in range(self.depth)]
        return [{name.removesuffix(end): part for name, part in p.items() if name.endswith(end)} for end in ends]

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name in (*(f"encoder{layer}" for layer in range(len(self.encoder))), "reader"):
            init.weight_(p[f"weight_{name}"], self.weight_init, generator=generator)
            nn.init.zeros_(p[f"bias_{name}"])
        for cell, own in zip(self.controllers, self.controller_parts(p)):
            cell.reset(own, generator)

    def prepare(self, p: Parts) -> Parts:
        own = [{**part, **cell.prepare(part)} for cell, part in zip(self.controllers, self.controller_parts(p))]
        return {**p, "weight_recall": p["weight_encoder0"][:, self.input_size :], "controllers": own}

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return F.linear(x, p["weight_encoder0"][:, : self.input_size], p["bias_encoder0"])

    def latent(self, gx: Tensor, state: State, p: Parts) -> Tensor:
        """z from the projected input and what the state recalls; (B, first width) -> (B, Z)."""
        z = gx + F.linear(torch.cat((state[0].flatten(-2), state[2]), -1), p["weight_recall"])
        for layer in range(1, len(self.encoder)):
            z = z.tanh() if self.activation == "tanh" else z.relu()
            z = F.linear(z, p[f"weight_encoder{layer}"], p[f"bias_encoder{layer}"])
        return z

    def queries(self, h: Tensor, p: Parts) -> tuple[Tensor, Tensor]:
        """Keys and strengths of the heads from the controller's output; (B, depth, H) -> (B, R, Z), (B, R)."""
        flat = F.linear(h.flatten(-2), p["weight_reader"], p["bias_reader"])
        keys, strengths = flat.split((self.heads * self.latent_size, self.heads), -1)
        return keys.unflatten(-1, (self.heads, self.latent_size)), F.softplus(strengths)

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        z, memory, row = self.latent(gx, state, p), state[3], state[4]
        hs: list[Tensor] = []
        cs: list[Tensor] = []
        for cell, own, h, c in zip(self.controllers, p["controllers"], state[0].unbind(-2), state[1].unbind(-2)):
            _, (h, c) = cell.step(cell.project(torch.cat((z, *hs[-1:]), -1), own), (h, c), own)
            hs.append(h)
            cs.append(c)
        h = torch.stack(hs, -2)
        reads = read_top(memory, *self.queries(h, p), self.read_rows)[0].flatten(-2)
        new = h, torch.stack(cs, -2), reads, write_row(memory, row, z), row.roll(1, -1)
        return torch.cat((z, h.flatten(-2), reads), -1), new

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        z, hs, gates = self.latent(gx, state, p), new[0].unbind(-2), []
        for layer, (cell, own) in enumerate(zip(self.controllers, p["controllers"])):
            below = torch.cat((z, *hs[:layer][-1:]), -1)
            gates.append(cell.observe(cell.project(below, own), (state[0][..., layer, :],), (), own))
        keys, strengths = self.queries(new[0], p)
        _, weights, rows = read_top(state[3], keys, strengths, self.read_rows)
        dense = weights.new_zeros(*rows.shape[:-1], self.rows).scatter(-1, rows, weights)
        stacked = {name: torch.stack([seen[name] for seen in gates], -2) for name in gates[0]}
        return {**stacked, "strength": strengths, "read": dense}


class RMA(CellLayer):
    """RMA's core as a layer; see :class:`RMACell`; :class:`numerate.recurrent.RMAHeads` act on its output."""

    cell_type = RMACell
