"""Sizes of the NRU's loops."""

from dataclasses import dataclass
from math import isqrt

from numerate.loops.timeloops.pointwise import Sizes


@dataclass(frozen=True)
class NRUSizes(Sizes):
    """Of an NRU that has loops: factored, one q for all heads of a kind, as many heads that erase as write, 5-norms.

    ``columns`` of gx: H, or H and one for each of the heads' numbers. The heads' sum is multiplied with ``scale``;
    ``relu`` rectifies strengths and directions.
    """

    memory: int
    heads: int
    scale: float
    relu: bool

    @property
    def both(self) -> int:
        """Numbers of (h, m)."""
        return self.hidden + self.memory

    @property
    def rank(self) -> int:
        """Numbers in p, and in q, of a kind."""
        return isqrt(self.heads * self.memory)

    @property
    def span(self) -> int:
        """Numbers in the p of one head."""
        return self.rank // self.heads

    @property
    def width(self) -> int:
        """The heads' numbers."""
        return 2 * self.heads + 4 * self.rank

    @property
    def signs(self) -> int:
        """Outer products in a direction: a rectified one has that of the positive and that of the negative parts."""
        return 2 if self.relu else 1

    @property
    def head_room(self) -> tuple[int, int]:
        """Numbers of a row that a GPU's block computes on the way forwards and backwards: HeadRoom in nru_heads.cuh."""
        weights = 2 * self.signs * self.span
        forward = 2 * self.signs * (1 + self.heads) + 4 * self.heads + weights
        return forward, forward + weights + 2 * self.heads * self.signs

    @property
    def constants(self) -> dict[str, int | float]:
        """Of the GPU's sources."""
        return {
            "HIDDEN": self.hidden, "COLUMNS": self.columns, "MEMORY": self.memory, "HEADS": self.heads,
            "RANK": self.rank, "SPAN": self.span, "WIDTH": self.width, "SIGNS": self.signs, "SCALE": self.scale,
        }  # fmt: skip
