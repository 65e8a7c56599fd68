"""Differentiable neural computer (Graves et al., 2016)."""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.recurrent import init
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.gates import Gate, Timescale
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.lstm import LSTMCell

EPS = 1e-6


def product(x: Tensor) -> Tensor:
    """Product over the heads, a handful; (..., heads, N) -> (..., N)."""
    return reduce(torch.mul, x.unbind(-2))


def cosines(memory: Tensor, keys: Tensor) -> Tensor:
    """Cosine of each key and slot, 0 at an empty slot; memory (..., N, W), keys (..., K, W) -> (..., K, N).

    As released, 1e-6 is added under both roots and to the product of the norms.
    """
    norms = (keys.square().sum(-1) + EPS).sqrt().unsqueeze(-1) * (memory.square().sum(-1) + EPS).sqrt().unsqueeze(-2)
    return (keys @ memory.mT) / (norms + EPS)


def content_weights(memory: Tensor, keys: Tensor, strengths: Tensor) -> Tensor:
    """Softmax over slots of strength times cosine; memory (B, N, W), keys (B, K, W), strengths (B, K) -> (B, K, N)."""
    return (strengths.unsqueeze(-1) * cosines(memory, keys)).softmax(-1)


def usage(before: Tensor, write: Tensor, free: Tensor, read: Tensor) -> Tensor:
    """How much each slot is in use: written ones more, freely read ones less; no gradient reaches ``write``.

    before (B, N), write (B, K, N), free (B, R), read (B, R, N) -> (B, N), the weights being those of the last step.
    """
    written = 1 - product(1 - write.detach())
    return (before + (1 - before) * written) * product(1 - free.unsqueeze(-1) * read)


def allocation(used: Tensor) -> Tensor:
    """Weights on the least used slots: (1 - u) times the product of all smaller usages; (B, N) -> (B, N)."""
    ascending, order = (EPS + (1 - EPS) * used).sort(dim=-1, stable=True)  # equally used slots: the first one
    before = torch.cat((torch.ones_like(ascending[..., :1]), ascending[..., :-1].cumprod(-1)), -1)
    return ((1 - ascending) * before).gather(-1, order.argsort(-1))


def write_weights(used: Tensor, content: Tensor, allocate: Tensor, write: Tensor) -> Tensor:
    """Where each write head writes: g_w (g_a a + (1 - g_a) c); (B, N), (B, K, N), (B, K), (B, K) -> (B, K, N).

    Each head sees as used what the heads before it take.
    """
    weights = []
    for c, g_a, g_w in zip(content.unbind(-2), allocate.unbind(-1), write.unbind(-1)):
        g_a, g_w = g_a.unsqueeze(-1), g_w.unsqueeze(-1)
        a = allocation(used)
        weights.append(g_w * (g_a * a + (1 - g_a) * c))
        used = used + (1 - used) * g_a * g_w * a
    return torch.stack(weights, -2)


def link(before: Tensor, precedence: Tensor, write: Tensor) -> Tensor:
    """L_ij = (1 - w_i - w_j) L_ij + w_i p_j, zero diagonal; (B, K, N, N), (B, K, N), (B, K, N) -> (B, K, N, N)."""
    row, column = write.unsqueeze(-1), write.unsqueeze(-2)
    new = (1 - row - column) * before + row * precedence.unsqueeze(-2)
    return new * (1 - torch.eye(write.shape[-1], dtype=new.dtype, device=new.device))


def read_weights(before: Tensor, links: Tensor, content: Tensor, modes: Tensor) -> Tensor:
    """Where each read head reads: a mixture of stepping backward, forward, and content.

    before (B, R, N), links (B, K, N, N), content (B, R, N), modes (B, R, 2 K + 1) -> (B, R, N).
    """
    backward = torch.einsum("bkij,bri->brkj", links, before)
    forward = torch.einsum("bkij,brj->brki", links, before)
    return (modes.unsqueeze(-1) * torch.cat((backward, forward, content.unsqueeze(-2)), -2)).sum(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class DNCCell(Cell):
    """LSTM controller with an external memory that it writes, links and reads; all by weights over the slots.

    State: (controller h, c, reads, memory, usage, links, precedence, read weights, write weights). The output is
    Linear([h; reads]). Biases start at 0.

    Args:
        input_size: Features of x.
        hidden_size: Features of the controller's h.
        slots, width: Rows and columns of the memory.
        read_heads, write_heads: Heads that read, and that write.
        outputs: Features of the output, hidden_size by default.
        clip: Bound of the controller's state and of the output, or None.
        strength: ``softplus`` as the released code, or 1 + softplus, ``oneplus``, as printed.
        gate, timescale, downsize: The controller's gates, as in the LSTM.
        weight_init: Scheme of the weights, by default truncated normal of deviation 1/√fan_in.
    """

    slots: int = 16
    width: int = 16
    read_heads: int = 4
    write_heads: int = 1
    outputs: int | None = None
    clip: float | None = None
    strength: Literal["softplus", "oneplus"] = "softplus"
    gate: str | Gate = "-"
    timescale: Timescale = None
    downsize: int | None = None
    weight_init: init.WeightInit = "truncated_normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("slots", "width", "read_heads", "write_heads")
        if self.outputs is not None:
            self.check_sizes("outputs")
        if self.clip is not None:
            number("clip", self.clip, 0, above=True)
        one_of("strength", self.strength, ("softplus", "oneplus"))
        _ = self.controller, self.interface  # computed now: a compiler cannot look into an empty cached property

    @cached_property
    def controller(self) -> LSTMCell:
        """The controller, an LSTM cell on [x; reads]."""
        return LSTMCell(
            self.input_size + self.read_heads * self.width,
            self.hidden_size,
            recurrent_bias=False,
            gate=self.gate,
            timescale=self.timescale,
            downsize=self.downsize,
            weight_init=self.weight_init,
        )

    @property
    def output_is_state(self) -> bool:
        return False

    @property
    def output_size(self) -> int:
        return self.hidden_size if self.outputs is None else self.outputs

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        n, w, r, k = self.slots, self.width, self.read_heads, self.write_heads
        return (self.hidden_size,), (self.hidden_size,), (r * w,), (n, w), (n,), (k, n, n), (k, n), (r, n), (k, n)

    @cached_property
    def interface(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of what the controller tells the memory, in the order of the interface map's rows."""
        w, r, k = self.width, self.read_heads, self.write_heads
        return {
            "write_vector": (k, w),
            "erase": (k, w),
            "free": (r,),
            "allocate": (k,),
            "write": (k,),
            "mode": (r, 2 * k + 1),
            "write_key": (k, w),
            "write_strength": (k,),
            "read_key": (r, w),
            "read_strength": (r,),
        }

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        rows = sum(torch.Size(shape).numel() for shape in self.interface.values())
        shapes: dict[str, tuple[int, ...]] = {
            "weight_interface": (rows, self.hidden_size),
            "bias_interface": (rows,),
            "weight_output": (self.output_size, self.hidden_size + self.read_heads * self.width),
            "bias_output": (self.output_size,),
        }
        return self.controller.parts(device, dtype) | empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        self.controller.reset(p, generator)
        for name in ("interface", "output"):
            init.weight_(p[f"weight_{name}"], self.weight_init, generator=generator)
            nn.init.zeros_(p[f"bias_{name}"])

    def prepare(self, p: Parts) -> Parts:
        return {**p, **self.controller.prepare(p), "weight_reads": p["weight_ih"][:, self.input_size :]}

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return self.controller.project(x, {**p, "weight_ih": p["weight_ih"][:, : self.input_size]})

    def clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def commands(self, h: Tensor, p: Parts) -> dict[str, Tensor]:
        """The interface, each part in its range; (B, H) -> name: (B, *shape)."""
        flat = F.linear(h, p["weight_interface"], p["bias_interface"])
        sizes = [torch.Size(shape).numel() for shape in self.interface.values()]
        commands = {}
        for (name, shape), part in zip(self.interface.items(), flat.split(sizes, -1)):
            part = part.unflatten(-1, shape) if len(shape) > 1 else part
            if name in ("erase", "free", "allocate", "write"):
                part = part.sigmoid()
            elif name == "mode":
                part = part.softmax(-1)
            elif name.endswith("strength"):
                part = F.softplus(part) + float(self.strength == "oneplus")
            commands[name] = part
        return commands

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        h, c, reads, memory, used, links, precedence, reading, writing = state
        _, (h, c) = self.controller.step(gx + F.linear(reads, p["weight_reads"]), (h, c), p)
        h, c = self.clipped(h), self.clipped(c)
        order = self.commands(h, p)
        used = usage(used, writing, order["free"], reading)
        content = content_weights(memory, order["write_key"], order["write_strength"])
        writing = write_weights(used, content, order["allocate"], order["write"])
        keep = product((1 - writing.unsqueeze(-1) * order["erase"].unsqueeze(-2)).flatten(-2))
        memory = memory * keep.unflatten(-1, memory.shape[-2:]) + writing.mT @ order["write_vector"]
        links = link(links, precedence, writing)
        precedence = (1 - writing.sum(-1, keepdim=True)) * precedence + writing
        content = content_weights(memory, order["read_key"], order["read_strength"])
        reading = read_weights(reading, links, content, order["mode"])
        reads = (reading @ memory).flatten(-2)
        output = F.linear(torch.cat((h, reads), -1), p["weight_output"], p["bias_output"])
        return self.clipped(output), (h, c, reads, memory, used, links, precedence, reading, writing)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        seen = self.controller.observe(gx + F.linear(state[2], p["weight_reads"]), state[:2], new[:2], p)
        return {**seen, "memory": new[3], "usage": new[4], "read": new[7], "write": new[8]}


class DNC(CellLayer):
    """DNC layer; see :class:`DNCCell`."""

    cell_type = DNCCell
