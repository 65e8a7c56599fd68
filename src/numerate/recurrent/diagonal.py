"""The diagonal form of a cell: no recurrent product, so that each unit of each row walks along time by itself.

A :class:`DiagonalCell` moves its state by ``state' = a * state + b``, where a and b depend on the input alone. It gives

- ``drive(x, p)``: (..., I) -> (..., width), what a step reads of the input: ``columns`` blocks of ``units`` numbers,
  then, if ``shared``, two numbers for each mode;
- ``extras(p)``: a tuple of arrays (modes, units) that depend on the parameters alone;
- ``coefficients(columns, extras)``: pure and elementwise: a and b and, if ``summed``, c. Complex ones come as two.

A unit has one state, or with ``modes`` several of them, and then the output is the sum over them of c * state. If
``shared``, the two numbers of a mode multiply b and c. ``readout(p)`` is a matrix on the states of all units, ``skip``
a path from the input to the output beside the state. A compiled loop is emitted from ``coefficients``
(:mod:`numerate.loops.timeloops.diagonal`).
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.loops.timeloops.cuda_diagonal import CudaDiagonalLoop
from numerate.loops.timeloops.diagonal import CppDiagonalLoop, DiagonalLoop, Lanes
from numerate.recurrent.cell import Cell, Form, Parts, State


def wide(value: Tensor) -> Tensor:
    """At least single precision: a decay near 1 has no place in a shorter type."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def modulus(parts: tuple[Tensor, ...]) -> Tensor:
    """Of a number given by its parts, real or complex."""
    return parts[0].abs() if len(parts) == 1 else torch.hypot(*parts)


@dataclass(frozen=True, repr=False)
class DiagonalCell(Cell):
    """A cell whose state moves by ``a * state + b``; see the module's text.

    Args:
        input_size, hidden_size: Features of x and of the output.
    """

    @property
    def form(self) -> Form:
        return "diagonal"

    @property
    def units(self) -> int:
        """Units that walk by themselves."""
        return self.hidden_size

    @property
    def modes(self) -> int:
        """States of each unit."""
        return 1

    @property
    def complex(self) -> bool:
        """Whether a, b, c and the state are complex."""
        return False

    @property
    def summed(self) -> bool:
        """Whether there is c, and the output is the real part of the sum over the modes of c * state."""
        return False

    @property
    def shared(self) -> bool:
        """Whether two numbers of each mode, shared by all units, multiply b and c."""
        return False

    @property
    @abstractmethod
    def columns(self) -> int:
        """Blocks of ``units`` numbers that a step reads of the input."""

    @abstractmethod
    def drive(self, x: Tensor, p: Parts) -> Tensor:
        """What the steps read of the inputs; (..., I) -> (..., width)."""

    @abstractmethod
    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """a, b and, if ``summed``, c; columns (..., units), extras (..., units), and all must be broadcast."""

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        """Arrays (modes, units) that ``coefficients`` reads, at least in single precision."""
        return ()

    def skip(self, x: Tensor, gx: Tensor, p: Parts) -> Tensor | None:
        """What is added to the output; from x and what ``drive`` made of it, -> (..., H), or None."""
        return None

    def readout(self, p: Parts) -> Tensor | None:
        """The matrix (H, parts * units) from the states to the output, or None."""
        return None

    @property
    def parts_of_state(self) -> int:
        return 2 if self.complex else 1

    @property
    def lanes(self) -> Lanes:
        """The sizes of a step, as the compiled loops want them."""
        extras = self.extras({name: part for name, part in self.parts("meta").items() if isinstance(part, Tensor)})
        sizes = (self.units, self.modes, self.parts_of_state, self.columns, len(extras))
        return Lanes(*sizes, self.summed, self.shared)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        shape = (self.units,) if self.modes == 1 else (self.modes, self.units)
        return (shape,) * self.parts_of_state

    @property
    def output_is_state(self) -> bool:
        return not self.summed and not self.complex

    @property
    def width(self) -> int:
        """Numbers that a step reads of the input."""
        return self.columns * self.units + 2 * self.modes * self.shared

    def project(self, x: Tensor, p: Parts) -> Tensor:
        gx = self.drive(x, p)
        skip = self.skip(x, gx, p)
        return gx if skip is None else torch.cat((gx, skip), -1)

    def prepare(self, p: Parts) -> Parts:
        return {"extras": self.extras(p), "readout": self.readout(p)}

    def step_coefficients(self, gx: Tensor, extras: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """a, b and c, each as its parts, for one step; all can be broadcast to (B, modes, units)."""
        columns = gx[..., : self.columns * self.units].unflatten(-1, (self.columns, 1, self.units)).unbind(-3)
        found, count = self.coefficients(columns, extras), self.parts_of_state
        return [found[k : k + count] for k in range(0, len(found), count)]

    def advance(self, gx: Tensor, state: State, extras: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        """One step without skip and readout: what a compiled loop computes."""
        shape = state[0].shape
        s = [entry.reshape(-1, self.modes, self.units) for entry in state]
        a, b, *c = self.step_coefficients(gx, extras)
        if self.shared:
            into, out_of = (part.unsqueeze(-1) for part in gx[..., self.columns * self.units : self.width].chunk(2, -1))
            b, c = tuple(part * into for part in b), [tuple(part * out_of for part in each) for each in c]
        if self.complex:
            s = [a[0] * s[0] - a[1] * s[1] + b[0], a[0] * s[1] + a[1] * s[0] + b[1]]
        else:
            s = [a[0] * s[0] + b[0]]
        new = tuple(entry.reshape(shape) for entry in s)
        if not self.summed:
            return torch.cat(new, -1) if self.complex else new[0], new
        terms = c[0][0] * s[0] - c[0][1] * s[1] if self.complex else c[0][0] * s[0]
        return terms.sum(-2), new

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        out, new = self.advance(gx[..., : self.width], state, p["extras"])
        return self.read(out, gx[..., self.width :] if gx.shape[-1] > self.width else None, p["readout"]), new

    def read(self, out: Tensor, skip: Tensor | None, readout: Tensor | None) -> Tensor:
        """The output from what :meth:`advance` or a compiled loop gives; (..., parts * units) -> (..., H)."""
        if readout is not None:
            out = F.linear(out.to(readout.dtype), readout)
        return out if skip is None else out + skip

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> DiagonalLoop:
        if device.type == "cuda":
            return CudaDiagonalLoop(self.coefficients, self.lanes, dtype, device)
        return CppDiagonalLoop(self.coefficients, self.lanes, torch.promote_types(dtype, torch.float32))

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        a, *_ = self.step_coefficients(gx[..., : self.width], p["extras"])
        return {"forget": modulus(a).expand(len(gx), self.modes, self.units).reshape(new[0].shape)}
