"""Sizes of the EURNN's loops, and the angles as the loops read them."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from numerate.loops.timeloops.pointwise import Sizes

LARGEST = 2048
"""Units whose angles fit into the registers of a GPU's block."""


@dataclass(frozen=True)
class RotationSizes(Sizes):
    """``hidden`` units, a power of two; ``eps`` of modReLU."""

    eps: float

    @property
    def levels(self) -> int:
        return self.hidden.bit_length() - 1

    def angle_gradient(self, sums: Tensor) -> Tensor:
        """From sums over rows and steps, (..., levels, H): that of each pair's second unit less that of its first."""
        first, second = (places.to(sums.device).expand(*sums.shape[:-1], -1) for places in _units(self.hidden))
        return sums.gather(-1, second) - sums.gather(-1, first)


def turns(hidden: int, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine for each unit of each level, (..., levels, H); the sine of a pair's first unit is negative."""
    pair, sign = _pairs(hidden)
    pair = pair.to(angle.device).expand(*angle.shape[:-1], -1)
    return angle.cos().gather(-1, pair), angle.sin().gather(-1, pair) * sign.to(angle)


@cache
def _units(hidden: int) -> tuple[Tensor, Tensor]:
    """The first and the second unit of each pair, (levels, H / 2), pairs in the order of the angles; on the host."""
    unit, levels = torch.arange(hidden, device="cpu"), hidden.bit_length() - 1
    apart = [hidden >> (level + 1) for level in range(levels)]
    first = torch.stack([unit[(unit & distance) == 0] for distance in apart])
    return first, first + torch.tensor(apart, device="cpu").unsqueeze(-1)


@cache
def _pairs(hidden: int) -> tuple[Tensor, Tensor]:
    """For each unit of each level: the number of its pair, and -1 or 1 for a first or a second unit; (levels, H)."""
    units, levels = _units(hidden), hidden.bit_length() - 1
    number, sign = (torch.empty(levels, hidden, dtype=dtype, device="cpu") for dtype in (torch.int64, torch.int8))
    for places, of in zip(units, (-1, 1)):
        number.scatter_(-1, places, torch.arange(hidden // 2, device="cpu").expand(levels, -1))
        sign.scatter_(-1, places, of)
    return number, sign
