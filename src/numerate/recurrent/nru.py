"""Non-saturating recurrent unit (Chandar et al., 2019)."""

from dataclasses import dataclass
from math import isqrt, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.loops.timeloops.timeloop import SequenceLoop
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.nru_cuda import CudaNRULoop
from numerate.recurrent.nru_loop import NRULoop

EPS = 1e-12
HIGHEST_ORDER = 8
"""Of the norm: not far beyond, powers of products of numbers about 0.01 vanish in single precision."""


def head_update(strength: Tensor, v: Tensor, order: float, relu: bool) -> Tensor:
    r"""Sum of normalised directions :math:`\sum_i \alpha_i v_i / \lVert v_i \rVert_5`, as printed.

    strength: (..., k), v: (..., k, M) -> (..., M). ``relu`` rectifies strengths and directions first.
    """
    if relu:
        strength, v = strength.relu(), v.relu()
    unit = v / torch.linalg.vector_norm(v, order, -1, keepdim=True).clamp_min(EPS)
    return (strength.unsqueeze(-1) * unit).sum(-2)


def factored_update(strength: Tensor, p: Tensor, q: Tensor, order: float, relu: bool) -> Tensor:
    r"""The same for :math:`v_i = \mathrm{vec}(p_i q_i^\top)`, without making any v.

    strength: (..., k), p: (..., k, s), q: (..., 1 or k, t) -> (..., s t). The norm of an outer product is the product
    of the norms, so with one q for all heads the whole update has rank one; rectified,
    :math:`(p q^\top)_+ = p_+ q_+^\top + p_- q_-^\top`, rank two.
    """
    if not relu:
        norm = torch.linalg.vector_norm(p, order, -1) * torch.linalg.vector_norm(q, order, -1)
        return _outer(strength / norm.clamp_min(EPS), p, q)
    signed = [(p.relu(), q.relu()), ((-p).relu(), (-q).relu())]
    power = sum((a.pow(order).sum(-1) * b.pow(order).sum(-1) for a, b in signed), torch.zeros_like(strength))
    norm = torch.where(power > 0, torch.where(power > 0, power, 1).pow(1 / order), 0).clamp_min(EPS)
    scale = strength.relu() / norm
    return sum((_outer(scale, a, b) for a, b in signed[1:]), _outer(scale, *signed[0]))


def _outer(scale: Tensor, p: Tensor, q: Tensor) -> Tensor:
    p = scale.unsqueeze(-1) * p
    if q.shape[-2] == 1:
        p = p.sum(-2, keepdim=True)
    return (p.mT @ q).flatten(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class NRUCell(Cell):
    r"""A ReLU network beside a memory that is only added to; state (h, m).

    :math:`h' = \mathrm{relu}(W_h h + W_i x + W_c m + b)`; from (h', m) come k strengths α, β and directions v, w in
    R^M, and :math:`m' = m + \frac1k (\sum_i \alpha_i v_i - \sum_i \beta_i w_i)`, each direction divided by its 5-norm.
    Directions are cut out of an outer product: one p and one q in R^√(kM) for all heads of a kind.

    Defaults are the released code. The printed equations: ``head_reduce="sum"`` (no 1/k), ``head_inputs="xhm"`` (the
    heads see x too), ``shared_q=False`` (p and q in R^√M for each head). ``relu_heads`` rectifies strengths and
    directions; ``layer_norm`` normalises the pre-activation of h; ``norm_order``, from 1 to 8, is that of the norm.
    ``factored``: never make the directions themselves; by default wherever it is exact, that is if √(kM) is a multiple
    of k or q is not shared. Below single precision, directions and norms are computed in it.
    All maps start at U(±1/√fan_in), weights and biases. ``weight_heads`` has rows α, β, p (write, erase), q (both).
    """

    memory_size: int = 64
    heads: int = 4
    head_reduce: Literal["mean", "sum"] = "mean"
    head_inputs: Literal["hm", "xhm"] = "hm"
    shared_q: bool = True
    relu_heads: bool = False
    layer_norm: bool = False
    norm_order: float = 5.0
    factored: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("memory_size", "heads")
        memory, heads, order = self.memory_size, self.heads, self.norm_order
        if number("norm_order", order, 1) > HIGHEST_ORDER:
            raise ValueError(f"norm_order must be at most {HIGHEST_ORDER}, got {order!r}")
        object.__setattr__(self, "norm_order", float(order))
        one_of("head_reduce", self.head_reduce, ("mean", "sum"))
        one_of("head_inputs", self.head_inputs, ("hm", "xhm"))
        cells = memory * heads if self.shared_q else memory
        if isqrt(cells) ** 2 != cells:
            what = f"heads * memory_size = {heads} * {memory}" if self.shared_q else f"memory_size = {memory}"
            raise ValueError(f"NRU cuts its directions out of a square outer product: {what} must be a perfect square")
        if self.factored and not self.can_factor:
            raise ValueError(f"the factored form needs heads={heads} to divide √(heads * memory_size) = {isqrt(cells)}")

    @property
    def can_factor(self) -> bool:
        """Whether no head's direction crosses a row of the outer product."""
        return not self.shared_q or isqrt(self.heads * self.memory_size) % self.heads == 0

    @property
    def factor_size(self) -> int:
        """Numbers in all p of one kind (write or erase), and as many in all q."""
        return isqrt(self.heads * self.memory_size) if self.shared_q else self.heads * isqrt(self.memory_size)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.hidden_size,), (self.memory_size,)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, both = self.hidden_size, self.hidden_size + self.memory_size
        rows = 2 * self.heads + 4 * self.factor_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (size, self.input_size),
            "weight_hh": (size, both),
            "bias_ih": (size,),
            "weight_heads": (rows, both),
            "bias_heads": (rows,),
        }
        if self.head_inputs == "xhm":
            shapes["weight_heads_x"] = (rows, self.input_size)
        if self.layer_norm:
            shapes |= {"norm_weight": (size,), "norm_bias": (size,)}
        return empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        both = self.hidden_size + self.memory_size
        head_fan = both + (self.input_size if self.head_inputs == "xhm" else 0)
        fans = {"heads": head_fan, "heads_x": head_fan, "ih": both + self.input_size, "hh": both + self.input_size}
        for name, value in p.items():
            kind, _, which = name.partition("_")
            if kind == "norm":
                nn.init.constant_(value, float(which == "weight"))
            else:
                bound = 1 / sqrt(fans[which])
                nn.init.uniform_(value, -bound, bound, generator=generator)

    def project(self, x: Tensor, p: Parts) -> Tensor:
        gx = F.linear(x, p["weight_ih"], p["bias_ih"])
        return torch.cat((gx, F.linear(x, p["weight_heads_x"])), -1) if self.head_inputs == "xhm" else gx

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        h, m = state
        heads_x = None
        if self.head_inputs == "xhm":
            gx, heads_x = gx.split((self.hidden_size, gx.shape[-1] - self.hidden_size), -1)
        z = gx + F.linear(torch.cat((h, m), -1), p["weight_hh"])
        if self.layer_norm:
            z = F.layer_norm(z, (self.hidden_size,), p["norm_weight"], p["norm_bias"])
        h = z.relu()
        heads = F.linear(torch.cat((h, m), -1), p["weight_heads"], p["bias_heads"])
        if heads_x is not None:
            heads = heads + heads_x
        return h, (h, m + self.change(heads))

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        rank_one = self.shared_q and self.can_factor and self.factored is not False and not self.relu_heads
        if not rank_one or self.norm_order != 5 or self.layer_norm:
            return None
        scale = 1 / self.heads if self.head_reduce == "mean" else 1.0
        rows = 2 * self.heads + 4 * self.factor_size
        columns = self.hidden_size + (rows if self.head_inputs == "xhm" else 0)
        sizes = (self.hidden_size, columns, self.memory_size, self.heads)
        if device.type == "cuda":
            return CudaNRULoop(*sizes, scale, dtype, device)
        number = torch.float64 if dtype == torch.float64 else torch.float32
        return NRULoop(*sizes, scale, number)

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        return p["weight_hh"], (p["weight_heads"], p["bias_heads"])

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        return {**p, "weight_hh": weight, "weight_heads": extras[0], "bias_heads": extras[1]}

    def change(self, heads: Tensor) -> Tensor:
        """m' - m from the heads' numbers; (B, 2 k + 4 r) -> (B, M)."""
        if torch.is_autocast_enabled(heads.device.type):
            with torch.autocast(heads.device.type, enabled=False):
                return self.change(heads)
        k, r = self.heads, self.factor_size
        wide = heads.to(torch.promote_types(heads.dtype, torch.float32))  # fifth powers vanish in half precision
        strengths, p, q = wide.split((2 * k, 2 * r, 2 * r), -1)
        strength = strengths.unflatten(-1, (2, k))
        p, q = p.unflatten(-1, (2, r)), q.unflatten(-1, (2, r))
        if self.factored is False or not self.can_factor:
            update = head_update(strength, self.directions(p, q), self.norm_order, self.relu_heads)
        else:
            p, q = p.unflatten(-1, (k, r // k)), q.unflatten(-1, (1, r) if self.shared_q else (k, r // k))
            update = factored_update(strength, p, q, self.norm_order, self.relu_heads)
        write, erase = update.to(heads.dtype).unbind(-2)
        return (write - erase) / k if self.head_reduce == "mean" else write - erase

    def directions(self, p: Tensor, q: Tensor) -> Tensor:
        """All directions before rectification and normalisation; (..., r), (..., r) -> (..., k, M)."""
        if not self.shared_q:
            p, q = p.unflatten(-1, (self.heads, -1)), q.unflatten(-1, (self.heads, -1))
        outer = p.unsqueeze(-1) * q.unsqueeze(-2)
        return outer.flatten(-2).unflatten(-1, (self.heads, -1)) if self.shared_q else outer.flatten(-2)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {"memory": new[1], "change": new[1] - state[1]}


class NRU(CellLayer):
    """NRU layer; see :class:`NRUCell`."""

    cell_type = NRUCell
