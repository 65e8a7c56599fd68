"""Sizes of the statistical recurrent unit's loops."""

from dataclasses import dataclass

from numerate.loops.timeloops.pointwise import Sizes


@dataclass(frozen=True)
class StatisticalSizes(Sizes):
    """``hidden`` counts all averages and ``columns`` the statistics; there are ``scales`` averages of each.

    The loop's weight is that from the averages to the summary. Its extra tensors are the weight from the summary to
    the statistics, the summary's bias, and the scales. Its outputs are the averages. ``activation``: 0 for relu, 1 for
    tanh, 2 for sigmoid.
    """

    summary: int
    scales: int
    activation: int

    @property
    def saved(self) -> int:
        """Numbers of a row that the backward walk reads: the summary and the statistics."""
        return self.summary + self.columns
