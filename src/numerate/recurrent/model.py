"""A recurrent layer with a readout: what the experiments on sequences train."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.recurrent.cell import State
from numerate.recurrent.layer import Recurrent, rate


class SequenceModel(nn.Module):
    """A recurrent layer whose outputs are read by a linear map, or by one hidden layer of ReLU and a linear map.

    x: (T, B, I) -> prediction (T, B, O), or (B, O) of the last step; with ``carries``, (x, state) -> (prediction,
    state), state as the layer has it.

    Args:
        layer: the recurrent layer, time first.
        outputs: O.
        read: ``all`` steps or the ``last`` one.
        carries: whether the state before the first step is an argument and the last one is returned.
        readout_init: ``xavier``: weights of deviation √(2 / (fan_in + fan_out)), biases 0; ``torch``: as ``nn.Linear``.
        hidden: width of a hidden layer between the two; None: none.
        dropout: rate at which outputs of the layer are dropped in training.
    """

    def __init__(
        self,
        layer: Recurrent,
        outputs: int,
        read: Literal["all", "last"] = "all",
        carries: bool = False,
        readout_init: Literal["xavier", "torch"] = "xavier",
        hidden: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        one_of("read", read, ("all", "last"))
        one_of("readout_init", readout_init, ("xavier", "torch"))
        if layer.batch_first:
            raise ValueError("SequenceModel takes a layer with time first, got one with batch_first=True")
        self.read, self.carries, self.readout_init = read, carries, readout_init
        self.layer = layer
        self.dropout = nn.Dropout(rate("dropout", dropout)) if dropout else None
        width = layer.output_size
        self.hidden = None if hidden is None else nn.Linear(width, positive("hidden", hidden))
        self.readout = nn.Linear(width if hidden is None else hidden, positive("outputs", outputs))
        self._start_readout()

    def _start_readout(self) -> None:
        if self.readout_init == "xavier":
            nn.init.xavier_normal_(self.readout.weight)
            nn.init.zeros_(self.readout.bias)

    def forward(self, x: Tensor, state: State | None = None) -> Any:
        output, state = self.layer(x, state)
        prediction = self.predict(output if self.read == "all" else output[-1])
        return (prediction, state) if self.carries else prediction

    def initial_state(self, x: Tensor) -> State:
        """The state before the first step of x (T, B, I): tensors (layers * directions, B, ...)."""
        layer, directions = self.layer, range(len(self.layer.directions))
        starts = [
            cell.initial_state(x.shape[1], x, layer.parts(index, bool(reverse)))
            for index, cell in enumerate(layer.cells)
            for reverse in directions
        ]
        return tuple(torch.stack(entries) for entries in zip(*starts))

    def predict(self, output: Tensor) -> Tensor:
        """The readout of the layer's outputs; (..., H) -> (..., O)"""
        if self.dropout is not None:
            output = self.dropout(output)
        return self.readout(output if self.hidden is None else self.hidden(output).relu())

    def extra_repr(self) -> str:
        return f"read={self.read!r}" + (", carries=True" if self.carries else "")
