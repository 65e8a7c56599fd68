"""Gated orthogonal recurrent unit, FFT or tunable style (Jing et al., 2019)."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.recurrent import init, rotation
from numerate.recurrent.cell import ColumnCell, Form, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer


def goru(update: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    r"""One step from the update gate and the candidate: :math:`h' = g h + (1 - g) c`; all (..., H)."""
    return update * h + (1 - update) * candidate


@dataclass(frozen=True, kw_only=True, repr=False)
class GORUCell(ColumnCell):
    r"""Gates around an orthogonal transition F; state (h,); columns r, g, c.

    :math:`r = \sigma(U_r x + W_r h + b_r)`, :math:`g = \sigma(U_g x + W_g h + b_g)`,
    :math:`c = \mathrm{modReLU}(U_c x + r (F h), b_c)`, :math:`h' = g h + (1 - g) c`. Weights start at U(-0.01, 0.01),
    b_r at 2, b_g at 0, b_c at 0.01, angles at U(-π, π).

    Args:
        input_size, hidden_size: Features of x and of h; in FFT style the latter is a power of two.
        capacity: Levels of rotations of neighbouring units, for the tunable style and any hidden_size.
        dense: Multiply F out once per sequence; else each step rotates level by level.
        eps: Added to \|v\| in modReLU (the authors' code: 0.001).
        bias: Whether there are b_r and b_g.
    """

    capacity: int | None = None
    dense: bool = True
    eps: float = 0.0
    recurrent_bias: bool | None = field(default=None, init=False)
    weight_init: init.WeightInit = field(default="uniform", init=False)  # no option: the start is the paper's

    def __post_init__(self) -> None:
        super().__post_init__()
        rotation.check(self.hidden_size, self.capacity)
        if self.capacity is not None:
            self.check_sizes("capacity")

    @property
    def form(self) -> Form:
        return "elementwise" if self.dense else "general"

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def layout(self) -> dict[str, int]:
        return dict.fromkeys(("reset", "forget", "candidate"), self.hidden_size)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (3 * size, self.input_size),
            "weight_hh": (2 * size, size),
            **rotation.angle_shapes("angle", size, self.capacity),
            "modrelu_bias": (size,),
        }
        if self.bias:
            shapes["bias_ih"] = (2 * size,)
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name in ("weight_ih", "weight_hh"):
            nn.init.uniform_(p[name], -0.01, 0.01, generator=generator)
        for name in ("angle", "angle_odd"):
            if name in p:
                rotation.reset_angle_(p[name], generator)
        p["modrelu_bias"].fill_(0.01)
        if self.bias:
            reset, update = p["bias_ih"].chunk(2)
            reset.fill_(2.0)
            update.zero_()

    def project(self, x: Tensor, p: Parts) -> Tensor:
        bias = p.get("bias_ih")
        if bias is not None:
            bias = torch.cat((bias, bias.new_zeros(self.hidden_size)))
        return F.linear(x, p["weight_ih"], bias)

    def recurrent_weight(self, p: Parts) -> Tensor:
        return torch.cat((p["weight_hh"], self.transition(p)))

    def transition(self, p: Parts) -> Tensor:
        """The matrix F, (H, H)."""
        return rotation.rotation_matrix(p["angle"], p.get("angle_odd"), self.hidden_size)

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        return (p["modrelu_bias"],)

    def prepare(self, p: Parts) -> Parts:
        return super().prepare(p) if self.dense else {**p, "extras": self.extras(p)}

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        x, h = self.named(gx), self.named(gh)
        reset, update = (x["reset"] + h["reset"]).sigmoid(), (x["forget"] + h["forget"]).sigmoid()
        candidate = rotation.mod_relu(x["candidate"] + reset * h["candidate"], *extras, eps=self.eps)
        return (goru(update, candidate, state[0]),)

    def recalled(self, state: State, p: Parts) -> Tensor:
        """All that the step takes from the hidden state, (B, 3 H)."""
        if self.dense:
            return F.linear(state[0], p["recurrent_weight"])
        turned = rotation.rotate_either(state[0], p["angle"], p.get("angle_odd"))
        return torch.cat((F.linear(state[0], p["weight_hh"]), turned), -1)

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        new = self.activate(gx, self.recalled(state, p), state, p["extras"])
        return new[0], new

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        columns = self.named(gx + self.recalled(state, p))
        f = columns["forget"].sigmoid()
        return {"forget": f, "input": 1 - f, "reset": columns["reset"].sigmoid()}


class GORU(CellLayer):
    """GORU layer; see :class:`GORUCell`."""

    cell_type = GORUCell
