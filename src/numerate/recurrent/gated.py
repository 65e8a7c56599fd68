"""What the LSTM and the GRU share: blocks of columns for a gate mechanism, its bias vector and its initial values."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent import init
from numerate.recurrent.cell import ColumnCell, Form, Parts, empty_parameters, linear
from numerate.recurrent.gates import Gate, Timescale, check_start, gate


@dataclass(frozen=True, kw_only=True, repr=False)
class GatedCell(ColumnCell):
    """A cell whose state moves by ``F * state + I * candidate``, F and I from any :class:`Gate`.

    ``gate_bias`` is the trainable vector of gates C, U, UR and UM.

    Args:
        input_size, hidden_size: Features of x and of h.
        bias: Whether the input map has a bias.
        recurrent_bias: Whether there is torch's second bias vector; by default with the standard gate only.
        weight_init: Scheme of the weights, see :func:`numerate.recurrent.init.weight_`.
        gate: A name of :data:`GATES` or a Gate.
        forget_bias: Where the forget map's bias starts. Default: the gate's own, 1 for - and R. O and OR take none, as
            no constant changes their softmax.
        timescale: Chrono start of the gate's own vector (gate C) or, in place of ``forget_bias``, of the ordinary
            biases (gates - and R). Other gates take none.
        tied: I = 1 - f.
        downsize: Units per entry of a master gate, for gates that have one.
        start: ``"gate"``: weights by ``weight_init``, biases 0 but the forget map's. ``"linear"``: all weights and
            biases as those of ``nn.Linear``, U(±1/√fan_in), as the code of ON-LSTM has them; a gate's own vector starts
            as ever.
    """

    gate: str | Gate = "-"
    forget_bias: float | None = None
    timescale: Timescale = None
    tied: bool | None = None
    downsize: int | None = None
    start: Literal["gate", "linear"] = "gate"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("start", self.start, ("gate", "linear"))
        if self.start == "linear":
            given = {"forget_bias": self.forget_bias, "timescale": None if self.mechanism.bias else self.timescale}
            given["weight_init"] = None if self.weight_init == "uniform" else self.weight_init
            for name, value in given.items():
                if value is not None:
                    raise ValueError(f"start='linear' draws every map as nn.Linear does: leave out {name}={value!r}")
        self.mechanism.check(self.hidden_size, self.timescale, self.forget_bias)
        check_start(self.bias, self.forget_bias, None if self.mechanism.bias else self.timescale)

    @property
    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """Blocks of H columns in order; ``partner`` is left out where the gate has none."""

    @cached_property
    def mechanism(self) -> Gate:
        """The gate with this cell's choices filled in."""
        return gate(self.gate, tied=self.tied, downsize=self.downsize)

    def layout(self) -> dict[str, int]:
        mechanism, size = self.mechanism, self.hidden_size
        blocks = {name: size for name in self.order if name != "partner" or mechanism.has_partner}
        if mechanism.master:
            blocks |= {"master_forget": mechanism.master_size(size), "master_input": mechanism.master_size(size)}
        return blocks

    @property
    def form(self) -> Form:
        return "elementwise" if self.mechanism.elementwise else "reducing"

    @property
    def has_recurrent_bias(self) -> bool:
        wanted = self.mechanism.name == "-" if self.recurrent_bias is None else self.recurrent_bias
        return self.bias and wanted

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        parts = super().parts(device, dtype)
        if self.mechanism.bias:
            parts |= empty_parameters({"gate_bias": (self.mechanism.bias_size(self.hidden_size),)}, device, dtype)
        return parts

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        mechanism = self.mechanism
        if self.start == "linear":
            for name, fan_in in (("ih", self.input_size), ("hh", self.hidden_size)):
                for part in (f"weight_{name}", f"bias_{name}"):
                    if part in p:
                        nn.init.uniform_(p[part], -1 / sqrt(fan_in), 1 / sqrt(fan_in), generator=generator)
        else:
            super().reset(p, generator)
        if mechanism.bias:
            mechanism.reset_bias_(p["gate_bias"], self.timescale, self.hidden_size, generator)
        if not self.bias or self.start == "linear":
            return
        bias = self.named(p["bias_ih"])
        forget = bias["forget"]
        forget.fill_(mechanism.forget_bias if self.forget_bias is None else self.forget_bias)
        if self.timescale is not None and not mechanism.bias:
            init.chrono_(forget, self.timescale, generator=generator)
            if mechanism.has_partner and not mechanism.refined:
                bias["partner"].copy_(-forget)

    def gate_shift(self, p: Parts) -> Tensor | None:
        """The gate's own vector as a bias of all columns, if it has one."""
        return self.mechanism.shift(p["gate_bias"], self.blocks) if self.mechanism.bias else None

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"), p.get("bias_hh"), self.gate_shift(p))

    def open_gates(self, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Effective forget and input gate from the pre-activations by block."""
        return self.mechanism(
            columns["forget"], columns.get("partner"), columns.get("master_forget"), columns.get("master_input")
        )

    def observe_gates(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gates by name from the pre-activations by block; see :meth:`Gate.observe`."""
        return self.mechanism.observe(
            columns["forget"], columns.get("partner"), columns.get("master_forget"), columns.get("master_input")
        )

    @property
    def ordinary_gate(self) -> bool:
        """Whether F and I are each the sigmoid of one map, shifted by nothing but a bias."""
        return self.mechanism.elementwise and not self.mechanism.refined

    def fused_weights(self, p: Parts) -> list[Tensor]:
        """The parameters as torch's fused operations want them; the gate's own vector becomes part of the bias.

        They lie one after the other in memory, so that cuDNN need not copy them.
        """
        zeros = p["weight_ih"].new_zeros(len(p["weight_ih"]))
        bias = sum([b for b in (p.get("bias_ih"), self.gate_shift(p)) if b is not None], zeros)
        tensors = [p["weight_ih"], p["weight_hh"], bias, p.get("bias_hh", zeros)]
        pieces = torch.cat([tensor.flatten() for tensor in tensors]).split([tensor.numel() for tensor in tensors])
        return [piece.view_as(tensor) for piece, tensor in zip(pieces, tensors)]
