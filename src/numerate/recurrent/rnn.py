"""The plain recurrent network (Elman, 1990)."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent import init
from numerate.recurrent.cell import ColumnCell, Form, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer


@dataclass(frozen=True, kw_only=True, repr=False)
class RNNCell(ColumnCell):
    r"""Plain recurrence :math:`h' = f(U x + W h + b)`, f = tanh or ReLU; with ``layer_norm``, f(LN(U x + W h + b)).

    Layer norm starts at gain 1 and shift 0. Where input, state and biases are all 0, as at the dark first pixels of an
    image, layer norm multiplies gradients by 1/√eps at every step, and they overflow: start biases apart from 0 there.

    Args:
        input_size, hidden_size: Features of x and of h.
        bias, recurrent_bias: As in every :class:`ColumnCell`; by default two biases, one with layer norm.
        weight_init: Scheme of the weights; Glorot-normal by default.
        activation: f; by default ReLU for the identity, else tanh.
        recurrent_init: W as the other weights, ``orthogonal`` or the ``identity``; RNN-orth and RNN-id of Chandar et
            al. (2019) also use layer norm.
        bias_init: Biases start at 0 (``zeros``) or from U(±1/√H) (``uniform``), as those of ``nn.RNN``.
        layer_norm: Whether the pre-activation is normalised.
        eps: What layer norm adds to the variance.
    """

    weight_init: init.WeightInit = "xavier_normal"
    activation: Literal["tanh", "relu"] | None = None
    recurrent_init: Literal["default", "orthogonal", "identity"] = "default"
    bias_init: Literal["zeros", "uniform"] = "zeros"
    layer_norm: bool = False
    eps: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("recurrent_init", self.recurrent_init, ("default", "orthogonal", "identity"))
        one_of("bias_init", self.bias_init, ("zeros", "uniform"))
        one_of("activation", self.activation or "tanh", ("tanh", "relu"))
        if self.eps != RNNCell.eps and not self.layer_norm:
            raise ValueError(f"eps={self.eps!r} is part of layer norm: it needs layer_norm=True")

    @property
    def form(self) -> Form:
        return "reducing" if self.layer_norm else "elementwise"

    @property
    def has_recurrent_bias(self) -> bool:
        return self.bias and (not self.layer_norm if self.recurrent_bias is None else self.recurrent_bias)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def layout(self) -> dict[str, int]:
        return {"candidate": self.hidden_size}

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        parts = super().parts(device, dtype)
        if self.layer_norm:
            shape = (self.hidden_size,)
            parts |= empty_parameters({"norm_weight": shape, "norm_bias": shape}, device, dtype)
        return parts

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        super().reset(p, generator)
        if self.recurrent_init == "orthogonal":
            init.orthogonal_(p["weight_hh"], generator=generator)
        elif self.recurrent_init == "identity":
            init.identity_(p["weight_hh"])
        if self.bias_init == "uniform":
            bound = 1 / sqrt(self.hidden_size)
            for name in [name for name in ("bias_ih", "bias_hh") if name in p]:
                nn.init.uniform_(p[name], -bound, bound, generator=generator)
        if self.layer_norm:
            nn.init.ones_(p["norm_weight"])
            nn.init.zeros_(p["norm_bias"])

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        return (p["norm_weight"], p["norm_bias"]) if self.layer_norm else ()

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        z = gx + gh
        if self.layer_norm:
            z = F.layer_norm(z, (self.hidden_size,), *extras, eps=self.eps)
        kind = self.activation or ("relu" if self.recurrent_init == "identity" else "tanh")
        return (z.relu() if kind == "relu" else z.tanh(),)


class RNN(CellLayer):
    """Plain recurrent layer; torch's ``nn.RNN`` weights load into it. See :class:`RNNCell` for its keywords."""

    cell_type = RNNCell
