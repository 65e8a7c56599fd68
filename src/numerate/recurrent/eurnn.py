"""Efficient unitary recurrent network, FFT or tunable style (Jing et al., 2017)."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.loops.timeloops.timeloop import SequenceLoop
from numerate.recurrent import init, rotation
from numerate.recurrent.cell import ColumnCell, Form, Parts, State, empty_parameters, linear
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.rotation_loops.cpu import RotationLoop
from numerate.recurrent.rotation_loops.cuda import CudaRotationLoop
from numerate.recurrent.rotation_loops.sizes import LARGEST, RotationSizes


@dataclass(frozen=True, kw_only=True, repr=False)
class EURNNCell(ColumnCell):
    r"""Recurrence whose transition is orthogonal by construction: :math:`h' = \mathrm{modReLU}(F h + U x, b)`.

    F is the product of log2 H levels of H/2 plane rotations; H is a power of two. State (h,), or (re, im), where the
    output is the real part. Angles start at U(-π, π), input weights at U(-0.01, 0.01), the bias of modReLU at 0.

    Args:
        input_size, hidden_size: Features of x and of h.
        complex: Whether F is unitary and h complex.
        capacity: L, for the tunable style: F is L levels of rotations of neighbouring units, for any H; L = H reaches
            all rotations.
        dense: Multiply F out once per sequence; else each step rotates level by level, O(H log H) or O(H L). By default
            compiled loops of the real FFT style rotate up to 2,048 units; all others, and plain steps, multiply F out.
        eps: Added to \|v\| in modReLU, and with ``complex`` to the modulus it divides by (the authors' code: 0.01).
        bias: Whether the input map has a bias; the authors' has none.
    """

    complex: bool = False
    capacity: int | None = None
    dense: bool | None = None
    eps: float = 0.0
    bias: bool = False
    recurrent_bias: bool | None = field(default=None, init=False)
    weight_init: init.WeightInit = field(default="uniform", init=False)  # no option: the start is the paper's

    def __post_init__(self) -> None:
        super().__post_init__()
        rotation.check(self.hidden_size, self.capacity)
        if self.capacity is not None:
            self.check_sizes("capacity")

    @property
    def form(self) -> Form:
        return "elementwise" if self.multiplied_out and not self.complex else "general"

    @property
    def multiplied_out(self) -> bool:
        """Whether plain steps have F as a matrix."""
        return self.dense is None or bool(self.dense)

    @property
    def rotation_sizes(self) -> RotationSizes | None:
        """What the compiled loops that rotate level by level are made for; None if F is multiplied out in them."""
        if self.complex or self.dense or self.capacity is not None:
            return None
        if self.dense is None and self.hidden_size > LARGEST:
            return None
        return RotationSizes(self.hidden_size, self.hidden_size, 1, 1, self.eps)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        shape = (self.hidden_size,)
        return (shape, shape) if self.complex else (shape,)

    def layout(self) -> dict[str, int]:
        return {"real": self.hidden_size} | ({"imaginary": self.hidden_size} if self.complex else {})

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, columns, capacity = self.hidden_size, sum(self.blocks.values()), self.capacity
        angles = rotation.angle_shapes("angle", size, capacity)
        shapes = {"weight_ih": (columns, self.input_size), **angles, "modrelu_bias": (size,)}
        if self.bias:
            shapes["bias_ih"] = (columns,)
        if self.complex:
            shapes |= {**rotation.angle_shapes("phase", size, capacity), "diagonal": (size,)}
        return empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        nn.init.uniform_(p["weight_ih"], -0.01, 0.01, generator=generator)
        nn.init.zeros_(p["modrelu_bias"])
        if self.bias:
            nn.init.zeros_(p["bias_ih"])
        for name in ("angle", "angle_odd", "phase", "phase_odd", "diagonal"):
            if name in p:
                rotation.reset_angle_(p[name], generator)

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"))

    def recurrent_weight(self, p: Parts) -> Tensor:
        size = self.hidden_size * len(self.state_shapes)
        eye = torch.eye(size, dtype=p["angle"].dtype, device=p["angle"].device)
        return self.rotated(eye.split(self.hidden_size, -1), p).mT

    def rotated(self, state: State, p: Parts) -> Tensor:
        """F times the state, (..., H), or (..., 2 H) for real and imaginary parts."""
        if self.complex:
            re, im = state
            if self.capacity is None:
                return torch.cat(rotation.rotate_complex(re, im, p["angle"], p["phase"], p["diagonal"]), -1)
            angles, phases = (p["angle"], p["angle_odd"]), (p["phase"], p["phase_odd"])
            return torch.cat(rotation.rotate_neighbours_complex(re, im, angles, phases, p["diagonal"]), -1)
        return rotation.rotate_either(state[0], p["angle"], p.get("angle_odd"))

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        return (p["modrelu_bias"],)

    def prepare(self, p: Parts) -> Parts:
        return super().prepare(p) if self.multiplied_out else {**p, "extras": self.extras(p)}

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        sizes = self.rotation_sizes
        if sizes is None:
            return super().native_loop(device, dtype)
        if device.type == "cuda":
            return CudaRotationLoop(sizes, dtype, device)
        return RotationLoop(sizes, torch.float64 if dtype == torch.float64 else torch.float32)

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        return super().loop_operands(p) if self.rotation_sizes is None else (p["modrelu_bias"], (p["angle"],))

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        if self.rotation_sizes is None:
            return super().prepared_with(p, weight, extras)
        return self.prepare({**p, "modrelu_bias": weight, "angle": extras[0]})

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        v = gx + gh
        if not self.complex:
            return (rotation.mod_relu(v, *extras, eps=self.eps),)
        return rotation.mod_relu_complex(*v.chunk(2, -1), *extras, eps=self.eps)

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        gh = F.linear(torch.cat(state, -1), p["recurrent_weight"]) if self.multiplied_out else self.rotated(state, p)
        new = self.activate(gx, gh, state, p["extras"])
        return new[0], new


class EURNN(CellLayer):
    """EURNN layer; see :class:`EURNNCell`."""

    cell_type = EURNNCell
