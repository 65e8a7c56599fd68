"""Networks that read a sequence of images: a convolutional network for each image, a unit that gathers its numbers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.experiments.digit_reader import SIDE, Reader, over_lengths, read_all
from numerate.train.networks.grouping import checked_layer
from numerate.units import r_z_product, r_z_sum


class DigitNetwork(nn.Module):
    """A number for each image, and a cell that goes through them; (L, B, 784) -> (L, B, 1).

    Of images in one row, (N, 784), it makes sequences of each of ``lengths`` and gives its outputs length by length,
    (M, 1); every image is read once.

    A unit that is ``stepwise``, such as NATU, learns from all steps at once, each a row of one batch: its states come
    without a gradient.

    After a call in training, ``inputs`` are the means of the cell's inputs, [x_t, h_{t-1}], over all steps and
    sequences of the batch: R_z wants them.

    Args:
        cell: a unit of (2, 1), on [x_t, h_{t-1}]; None: torch's LSTM with one hidden value; ``"sum"`` or ``"product"``:
            exact.
        initial: h before the first step; None: what the unit gives of no input.
        logarithms: whether R_z sees the logarithms of the inputs, as the released code has it for NAC•,NMU.
        lengths: of sequences that are made of images in one row.
    """

    def __init__(
        self,
        cell: Callable[[int, int], nn.Module] | Literal["sum", "product"] | None,
        initial: float | None = 0.0,
        logarithms: bool = False,
        lengths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.reader = Reader()
        self.exact = cell if isinstance(cell, str) else None
        self.cell: Any = None if isinstance(cell, str) else _LSTMStep() if cell is None else checked_layer(cell, 2, 1)
        self.initial, self.logarithms, self.lengths = initial, logarithms, tuple(lengths)
        self.inputs: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:
            return self.gather(self.reader(x.reshape(-1, SIDE * SIDE)).view(*x.shape[:2], 1))
        return over_lengths(self.gather, read_all(self.reader, x), self.lengths)

    def gather(self, numbers: Tensor) -> Tensor:
        """The cell along sequences of numbers; (L, B, 1) -> (L, B, 1)."""
        if self.exact is not None:
            return numbers.cumsum(0) if self.exact == "sum" else numbers.cumprod(0)
        if isinstance(self.cell, _LSTMStep):
            return self.cell(numbers)
        outputs, seen = self._along(numbers)
        self.inputs = self._means(seen)
        if self.training and getattr(self.cell, "stepwise", False):
            return self.cell(torch.cat((numbers, seen[..., 1:].detach()), -1))
        return outputs

    def _along(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The cell's outputs (L, B, 1), and what it is given, [x_t, h_{t-1}], (L, B, 2)."""
        start = self.cell.empty() if self.initial is None else self.initial
        h, outputs, seen = torch.zeros_like(numbers[0]) + start, [], []
        for number in numbers.unbind(0):
            given = torch.cat((number, h), -1)
            h = self.cell(given)
            outputs.append(h)
            seen.append(given)
        return torch.stack(outputs), torch.stack(seen)

    def _means(self, seen: Tensor) -> Tensor:
        """(L, B, 2) -> (2,)"""
        return ((seen.abs() + 1e-7).log() if self.logarithms else seen).mean((0, 1))


class _LSTMStep(nn.Module):
    """An LSTM of one hidden value along time; (L, B, 1) -> (L, B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        from numerate.recurrent import LSTM

        self.layer = LSTM(1, 1, recurrent_bias=True)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.layer(numbers)[0]


def digit_network(inputs: int, outputs: int, **options: Any) -> DigitNetwork:
    """A network for images of 784 pixels; ``options``: those of :class:`DigitNetwork`."""
    if (inputs, outputs) != (SIDE * SIDE, 1):
        raise ValueError(f"a digit network reads {SIDE * SIDE} pixels and gives 1 number, not {inputs} and {outputs}")
    return DigitNetwork(**options)


def r_z_of_product(model: nn.Module) -> Tensor:
    """R_z of the cell, towards inputs of 1 where they do not count."""
    return _r_z(model, r_z_product)


def r_z_of_sum(model: nn.Module) -> Tensor:
    """R_z of the cell, towards inputs of 0 where they do not count."""
    return _r_z(model, r_z_sum)


def _r_z(model: Any, penalty: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    (weight,) = model.cell.effective_weights().values()
    return penalty(weight, model.inputs)
