"""Non-saturating recurrent unit (Chandar et al., 2019)."""

from dataclasses import dataclass
from math import isqrt, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.loops.timeloops.timeloop import SequenceLoop
from numerate.recurrent.cell import Cell, Parts, State, autocast_enabled, empty_parameters
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.nru_loops.cpu import NRULoop
from numerate.recurrent.nru_loops.cuda import CudaNRULoop
from numerate.recurrent.nru_loops.cuda_steps import CudaNRUSteps
from numerate.recurrent.nru_loops.sizes import NRUSizes

EPS = 1e-12
HIGHEST_ORDER = 8
"""Of the norm: not far beyond, powers of products of numbers about 0.01 vanish in single precision."""


def in_range(norm: Tensor, order: float) -> Tensor:
    """Where the sum of powers whose root is ``norm`` does not overflow its number type; any shape, Boolean."""
    return norm.detach() < torch.finfo(norm.dtype).max ** (1 / order)


def head_update(strength: Tensor, v: Tensor, order: float, relu: bool) -> Tensor:
    r"""Sum of normalised directions :math:`\sum_i \alpha_i v_i / \lVert v_i \rVert_5`, as printed.

    strength: (..., k), v: (..., k, M) -> (..., M). ``relu`` rectifies strengths and directions first. A direction whose
    norm overflows is 0, and so is its gradient.
    """
    if relu:
        strength, v = strength.relu(), v.relu()
    v = v.where(in_range(torch.linalg.vector_norm(v.detach(), order, -1, keepdim=True), order), 0)
    unit = v / torch.linalg.vector_norm(v, order, -1, keepdim=True).clamp_min(EPS)
    return (strength.unsqueeze(-1) * unit).sum(-2)


def factored_update(strength: Tensor, p: Tensor, q: Tensor, order: float, relu: bool) -> Tensor:
    r"""The same for :math:`v_i = \mathrm{vec}(p_i q_i^\top)`, without making any v.

    strength: (..., k), p: (..., k, s), q: (..., 1 or k, t) -> (..., s t). The norm of an outer product is the product
    of the norms, so with one q for all heads the whole update has rank one; rectified,
    :math:`(p q^\top)_+ = p_+ q_+^\top + p_- q_-^\top`, rank two. Overflow is that of the outer product: p and q are
    set to 0, with zero gradient, where :math:`\sum |p|^5 \sum |q|^5` overflows.
    """
    fits = in_range(_outer_norm(p.detach(), q.detach(), order, relu), order)
    p = p.where(fits.unsqueeze(-1), 0)
    q = q.where((fits if q.shape[-2] > 1 else fits.any(-1, keepdim=True)).unsqueeze(-1), 0)
    norm = _outer_norm(p, q, order, relu).clamp_min(EPS)
    if not relu:
        return _outer(strength / norm, p, q)
    positive, negative = (_outer(strength.relu() / norm, *pair) for pair in _signed(p, q))
    return positive + negative


def _signed(p: Tensor, q: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The two pairs whose outer products make up the rectified one."""
    return (p.relu(), q.relu()), ((-p).relu(), (-q).relu())


def _outer_norm(p: Tensor, q: Tensor, order: float, relu: bool) -> Tensor:
    """Norm of each (rectified) outer product; (..., k, s), (..., 1 or k, t) -> (..., k). NaN where 0 meets infinity."""
    if not relu:
        return torch.linalg.vector_norm(p, order, -1) * torch.linalg.vector_norm(q, order, -1)
    first, second = (a.pow(order).sum(-1) * b.pow(order).sum(-1) for a, b in _signed(p, q))
    power = first + second
    return torch.where(power == 0, 0, torch.where(power == 0, 1, power).pow(1 / order))


def _outer(scale: Tensor, p: Tensor, q: Tensor) -> Tensor:
    p = scale.unsqueeze(-1) * p
    if q.shape[-2] == 1:
        p = p.sum(-2, keepdim=True)
    return (p.mT @ q).flatten(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class NRUCell(Cell):
    r"""A ReLU network beside a memory that is only added to; state (h, m).

    :math:`h' = \mathrm{relu}(W_h h + W_i x + W_c m + b)`; from (h', m) come strengths α, β and directions v, w in
    R^M, and :math:`m' = m + \frac1k \sum_i^k \alpha_i v_i - \frac1l \sum_i^l \beta_i w_i`, each direction divided by
    its 5-norm. Directions are cut out of an outer product: one p and one q in R^√(kM) for all heads of a kind.
    All maps start at U(±1/√fan_in), weights and biases. ``weight_heads`` has rows α, β, p (write, erase), q (write,
    erase), or α, β, v, w.

    A direction is 0, and so are its gradients, where the sum of fifth powers in its norm overflows the number type in
    which it is computed: 3.4e38 in single precision and below, so that a norm stays under 5.1e7, and 1.8e308 in double.
    That is what the released code does, in single precision, and it is part of the unit: at the start of a long
    sequence the recurrence may explode, and only overflow stops it (psMNIST: the memory stays at 1e5 in single
    precision and passes 1e11 in double, where the limit is never met). All forms and loops share the rule. Below single
    precision, directions and norms are computed in it.

    Defaults are the released code; the printed equations are ``head_reduce="sum"``, ``head_inputs="xhm"`` and
    ``directions="linear"`` (eq. 13-14) or ``shared_q=False`` (eq. 15-17).

    Args:
        input_size, hidden_size: Features of x and of h.
        memory_size: M.
        heads: k, heads that write.
        erase_heads: l, heads that erase; by default as many.
        head_reduce: ``"mean"`` over the heads of a kind, or their ``"sum"``, without 1/k and 1/l.
        head_inputs: What the heads see: ``"hm"``, or x too, ``"xhm"``.
        directions: ``"outer"``: from p and q. ``"linear"``: v and w themselves are linear in the heads' inputs.
        shared_q: Whether the heads of a kind share p and q, from which their directions are cut; else each head has
            p and q in R^√M.
        relu_heads: Rectify strengths and directions.
        layer_norm: Normalise the pre-activation of h.
        norm_order: Order of the norm, from 1 to 8.
        factored: Never make the directions themselves. By default wherever it is exact, that is if √(kM) is a multiple
            of k, and for l likewise, or q is not shared.
    """

    memory_size: int = 64
    heads: int = 4
    erase_heads: int | None = None
    head_reduce: Literal["mean", "sum"] = "mean"
    head_inputs: Literal["hm", "xhm"] = "hm"
    directions: Literal["outer", "linear"] = "outer"
    shared_q: bool = True
    relu_heads: bool = False
    layer_norm: bool = False
    norm_order: float = 5.0
    factored: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("memory_size", "heads", *(("erase_heads",) if self.erase_heads is not None else ()))
        if number("norm_order", self.norm_order, 1) > HIGHEST_ORDER:
            raise ValueError(f"norm_order must be at most {HIGHEST_ORDER}, got {self.norm_order!r}")
        object.__setattr__(self, "norm_order", float(self.norm_order))
        one_of("head_reduce", self.head_reduce, ("mean", "sum"))
        one_of("head_inputs", self.head_inputs, ("hm", "xhm"))
        one_of("directions", self.directions, ("outer", "linear"))
        if self.directions == "linear":
            for name, value, default in (("shared_q", self.shared_q, True), ("factored", bool(self.factored), False)):
                if value != default:
                    raise ValueError(f"directions='linear' are no outer products: leave out {name}={value!r}")
        else:
            self._check_outer_products()

    def _check_outer_products(self) -> None:
        """Raise ValueError unless the directions of each kind can be cut out of a square."""
        memory = self.memory_size
        for name, heads in zip(("heads", "erase_heads"), self.head_counts):
            cells = memory * heads if self.shared_q else memory
            if isqrt(cells) ** 2 != cells:
                what = f"{name} * memory_size = {heads} * {memory}" if self.shared_q else f"memory_size = {memory}"
                raise ValueError(
                    f"NRU cuts its directions out of a square outer product: {what} must be a perfect square"
                )
            if self.factored and not self.can_factor:
                raise ValueError(
                    f"the factored form needs {name}={heads} to divide √({name} * memory_size) = {isqrt(cells)}"
                )

    @property
    def head_counts(self) -> tuple[int, int]:
        """Heads that write and heads that erase."""
        return self.heads, self.heads if self.erase_heads is None else self.erase_heads

    @property
    def can_factor(self) -> bool:
        """Whether no head's direction crosses a row of the outer product."""
        if self.directions == "linear":
            return False
        return not self.shared_q or all(isqrt(heads * self.memory_size) % heads == 0 for heads in self.head_counts)

    @property
    def factor_sizes(self) -> tuple[int, int]:
        """Numbers in all p of each kind (write, erase), and as many in all q."""
        if self.shared_q:
            return isqrt(self.heads * self.memory_size), isqrt(self.head_counts[1] * self.memory_size)
        return self.heads * isqrt(self.memory_size), self.head_counts[1] * isqrt(self.memory_size)

    @property
    def factor_size(self) -> int:
        """Numbers in all p of the heads that write."""
        return self.factor_sizes[0]

    @property
    def head_blocks(self) -> tuple[int, ...]:
        """Widths of the heads' numbers, each for writing and erasing: strengths, p and q, or strengths and v."""
        write, erase = self.head_counts
        if self.directions == "linear":
            return write, erase, write * self.memory_size, erase * self.memory_size
        return (write, erase, *self.factor_sizes, *self.factor_sizes)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.hidden_size,), (self.memory_size,)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, both = self.hidden_size, self.hidden_size + self.memory_size
        rows = sum(self.head_blocks)
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

    def loop_sizes(self) -> NRUSizes | None:
        """What compiled loops are made for; None if there is none."""
        factored = self.shared_q and self.can_factor and self.factored is not False
        alike = self.head_counts == (self.heads, self.heads)
        if not factored or not alike or self.norm_order != 5 or self.layer_norm:
            return None
        scale = 1 / self.heads if self.head_reduce == "mean" else 1.0
        columns = self.hidden_size + (sum(self.head_blocks) if self.head_inputs == "xhm" else 0)
        return NRUSizes(self.hidden_size, columns, 2, 2, self.memory_size, self.heads, scale, self.relu_heads)

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        sizes = self.loop_sizes()
        if sizes is None:
            return None
        if device.type == "cuda":
            return CudaNRULoop(sizes, dtype, device)
        return NRULoop(sizes, torch.float64 if dtype == torch.float64 else torch.float32)

    def stepping_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        sizes = self.loop_sizes()
        return CudaNRUSteps(sizes, dtype, device) if sizes is not None and device.type == "cuda" else None

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        return p["weight_hh"], (p["weight_heads"], p["bias_heads"])

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        return {**p, "weight_hh": weight, "weight_heads": extras[0], "bias_heads": extras[1]}

    def change(self, heads: Tensor) -> Tensor:
        """m' - m from the heads' numbers; (B, sum of ``head_blocks``) -> (B, M)."""
        if autocast_enabled(heads.device):
            with torch.autocast(heads.device.type, enabled=False):
                return self.change(heads)
        wide = heads.to(torch.promote_types(heads.dtype, torch.float32))  # fifth powers vanish in half precision
        write, erase = self.head_counts
        if write == erase:  # both kinds in one tensor
            blocks = [2 * width for width in self.head_blocks[::2]]
            both = self.update(write, *(part.unflatten(-1, (2, -1)) for part in wide.split(blocks, -1)))
            added, erased = both.unbind(-2)
        else:
            parts = wide.split(self.head_blocks, -1)
            added, erased = self.update(write, *parts[::2]), self.update(erase, *parts[1::2])
        added, erased = added.to(heads.dtype), erased.to(heads.dtype)
        if self.head_reduce == "sum":
            return added - erased
        return (added - erased) / write if write == erase else added / write - erased / erase

    def update(self, heads: int, strength: Tensor, *numbers: Tensor) -> Tensor:
        """Sum over the heads of one kind; (..., heads), then p and q, (..., r) each, or v -> (..., M)."""
        if self.directions == "linear":
            (v,) = numbers
            return head_update(strength, v.unflatten(-1, (heads, -1)), self.norm_order, self.relu_heads)
        p, q = numbers
        if self.factored is False or not self.can_factor:
            return head_update(strength, self.outer_directions(heads, p, q), self.norm_order, self.relu_heads)
        p, q = p.unflatten(-1, (heads, -1)), q.unflatten(-1, (1 if self.shared_q else heads, -1))
        return factored_update(strength, p, q, self.norm_order, self.relu_heads)

    def outer_directions(self, heads: int, p: Tensor, q: Tensor) -> Tensor:
        """All directions before rectification and normalisation; (..., r), (..., r) -> (..., heads, M)."""
        if not self.shared_q:
            p, q = p.unflatten(-1, (heads, -1)), q.unflatten(-1, (heads, -1))
        outer = (p.unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2)
        return outer.unflatten(-1, (heads, -1)) if self.shared_q else outer

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {"memory": new[1], "change": new[1] - state[1]}


class NRU(CellLayer):
    """NRU layer; see :class:`NRUCell`."""

    cell_type = NRUCell
