"""Legendre memory unit (Voelker et al., 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number
from numerate.loops.timeloops.cuda_rowloop import CudaRowLoop
from numerate.loops.timeloops.cuda_timeloop import CudaTimeLoop
from numerate.loops.timeloops.pointwise import Sizes
from numerate.loops.timeloops.timeloop import SequenceLoop, TimeLoop, Walk
from numerate.recurrent import init
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer


def legendre_memory(size: int, theta: float) -> tuple[Tensor, Tensor]:
    r"""Ā (size, size) and B̄ (size,), which keep the last θ steps of a number as Legendre coefficients.

    :math:`A_{ij} = \frac{2i + 1}{\theta} (-1 \text{ if } i < j \text{ else } (-1)^{i - j + 1})`,
    :math:`B_i = \frac{2i + 1}{\theta} (-1)^i`, discretised by a zero-order hold of one step; in double precision.
    """
    i = torch.arange(size, dtype=torch.float64)
    rate, distance = (2 * i + 1) / theta, i[:, None] - i
    sign = torch.where(distance < 0, -1.0, 1 - 2 * ((distance + 1) % 2))
    both = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    both[:size, :size], both[:size, size] = rate[:, None] * sign, rate * (1 - 2 * (i % 2))
    held = torch.linalg.matrix_exp(both)
    return held[:size, :size], held[:size, size]


@dataclass(frozen=True, kw_only=True, repr=False)
class LMUCell(Cell):
    r"""LMU; state (h, m): a linear memory m of the last θ steps of one number u, and a hidden state that reads it.

    :math:`u = e_x x + e_h h + e_m m`, :math:`m' = \bar A m + \bar B u`,
    :math:`h' = \tanh(W_x x + W_h h + W_m m')`. Ā and B̄ are fixed (:func:`legendre_memory`). The encoders e_x and e_h
    start LeCun-uniformly, e_m at 0, the kernels W Glorot-normally, as in the authors' first release. ``weight_ex``,
    ``weight_eh`` and ``weight_em`` are e, ``weight_ih``, ``weight_hh`` and ``weight_mh`` W.

    One product computes a step: h' and m' are linear in (x, h, m) but for the tanh.

    Args:
        input_size, hidden_size: Features of x and of h.
        memory_size: Numbers of m, the order of the memory.
        theta: θ, the window in steps.
    """

    memory_size: int = 256
    theta: float = 784.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("memory_size")
        object.__setattr__(self, "theta", number("theta", self.theta, 1))
        _ = self.memory  # computed now: a compiler cannot look into a cached property that is still empty

    @cached_property
    def memory(self) -> tuple[Tensor, Tensor]:
        """Ā and B̄."""
        return legendre_memory(self.memory_size, self.theta)

    def memory_like(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Ā and B̄ where a weight is and of its type; a GPU gets them once, as a CUDA graph must not copy them."""
        if weight.device.type != "cuda" or torch.compiler.is_compiling():
            a, b = (part.to(weight) for part in self.memory)
            return a, b
        return _memory_on(weight.device, weight.dtype, self.memory_size, self.theta)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.hidden_size,), (self.memory_size,)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        inputs, size, memory = self.input_size, self.hidden_size, self.memory_size
        shapes: dict[str, tuple[int, ...]] = {f"weight_e{c}": (1, n) for c, n in zip("xhm", (inputs, size, memory))}
        shapes |= {"weight_ih": (size, inputs), "weight_hh": (size, size), "weight_mh": (size, memory)}
        return empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name, fan_in in (("weight_ex", self.input_size), ("weight_eh", self.hidden_size)):
            nn.init.uniform_(p[name], -sqrt(3 / fan_in), sqrt(3 / fan_in), generator=generator)
        nn.init.zeros_(p["weight_em"])
        for name in ("weight_ih", "weight_hh", "weight_mh"):
            init.weight_(p[name], "xavier_normal", generator=generator)

    def project(self, x: Tensor, p: Parts) -> Tensor:
        """What x adds to (h, m) before the tanh; (..., I) -> (..., H + M)."""
        by_memory = self.memory_like(p["weight_ex"])[1][:, None] * p["weight_ex"]  # (M, I)
        return F.linear(x, torch.cat((p["weight_ih"] + p["weight_mh"] @ by_memory, by_memory)))

    def recurrent_weight(self, p: Parts) -> Tensor:
        """What (h, m) adds to it; (H + M, H + M)."""
        a, b = self.memory_like(p["weight_eh"])
        by_memory = torch.cat((b[:, None] * p["weight_eh"], a + b[:, None] * p["weight_em"]), 1)
        to_hidden = F.pad(p["weight_hh"], (0, self.memory_size)) + p["weight_mh"] @ by_memory
        return torch.cat((to_hidden, by_memory))

    def prepare(self, p: Parts) -> Parts:
        return {"recurrent_weight": self.recurrent_weight(p)}

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        h, m = (gx + F.linear(torch.cat(state, -1), p["recurrent_weight"])).split(self.widths, -1)
        h = h.tanh()
        return h, (h, m)

    @property
    def widths(self) -> tuple[int, int]:
        return self.hidden_size, self.memory_size

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {"memory": new[1]}

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        """The step on (h, m) as one vector, of which the extra vector marks h with 1; for compiled loops."""
        new = gx + gh
        return (torch.where(extras[0] > 0, new.tanh(), new),)

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop:
        sizes = Sizes(sum(self.widths), sum(self.widths), 1, 1)
        if device.type == "cuda":
            return JoinedLoop(CudaTimeLoop(self.activate, sizes, dtype, device), self.widths)
        number = torch.promote_types(dtype, torch.float32)
        return JoinedLoop(TimeLoop(self.activate, sizes, number), self.widths)

    def stepping_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        if device.type != "cuda":
            return None
        sizes = Sizes(sum(self.widths), sum(self.widths), 1, 1)
        return JoinedLoop(CudaRowLoop(self.activate, sizes, dtype, device), self.widths)

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        weight = self.recurrent_weight(p)
        ones = weight.new_ones(self.hidden_size)
        return weight, (F.pad(ones, (0, self.memory_size)),)

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        return {"recurrent_weight": weight}


@cache
def _memory_on(device: torch.device, dtype: torch.dtype, order: int, theta: float) -> tuple[Tensor, Tensor]:
    a, b = (part.to(device, dtype) for part in legendre_memory(order, theta))
    return a, b


class JoinedLoop:
    """A compiled loop whose one state is made of two that lie side by side; the output is the first of them."""

    def __init__(self, loop: SequenceLoop, widths: tuple[int, int]) -> None:
        self.loop, self.widths, self.dtype = loop, widths, loop.dtype
        self.sizes = Sizes(loop.sizes.hidden, loop.sizes.columns, 2, loop.sizes.extras)
        self.takes_models = getattr(loop, "takes_models", False)

    def accepts(self, walk: Walk) -> bool:
        return self.loop.accepts(walk)

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Any], Tensor | None]:
        final, history, saved = self.loop.forward(walk, gx, weight, [torch.cat(tuple(state), -1)], extras, keep)
        out = history[0][..., : self.widths[0]].contiguous()
        return list(final[0].split(self.widths, -1)), [out, *history], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        above = None if dout is None else F.pad(dout, (0, self.widths[1])).contiguous()
        start, end = (torch.cat(tuple(group), -1) for group in (state, dfinal))
        dgx, dweight, dstate, dextra = self.loop.backward(
            walk, weight, [start], extras, history[1:], saved, above, [end]
        )
        return dgx, dweight, list(dstate[0].split(self.widths, -1)), dextra


class LMU(CellLayer):
    """LMU layer; see :class:`LMUCell`."""

    cell_type = LMUCell
