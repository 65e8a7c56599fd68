"""Recurrent layers in blocks, one on another: the form in which state space models are trained."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.recurrent.layer import Recurrent, rate


class Block(nn.Module):
    r"""Layer norm, a recurrent layer, GELU, a gated linear unit, and the input added: (T, B, H) -> (T, B, H).

    :math:`x + \mathrm{GLU}(W\, \mathrm{GELU}(\mathrm{layer}(\mathrm{norm}(x))) + b)` with
    :math:`\mathrm{GLU}(a, g) = a\, \sigma(g)`, as in the code of S4D; dropout before and behind the gated unit.

    Args:
        layer: time first, from H to any number of features.
        dropout: rate of both.
    """

    def __init__(self, layer: Recurrent, dropout: float = 0.0) -> None:
        super().__init__()
        if layer.batch_first:
            raise ValueError("Block takes a layer with time first, got one with batch_first=True")
        size = layer.input_size
        self.norm, self.layer = nn.LayerNorm(size), layer
        self.mix = nn.Linear(layer.output_size, 2 * size)
        self.dropout = nn.Dropout(rate("dropout", dropout)) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layer(self.norm(x))
        return x + self.dropout(F.glu(self.mix(self.dropout(F.gelu(y))), -1))


class DeepModel(nn.Module):
    """A linear map to H features, blocks, and a linear readout: x (T, B, I) -> (T, B, O), or (B, O).

    Args:
        layer: (H, H) -> recurrent layer, one for each block.
        inputs, hidden, outputs: I, H and O.
        blocks: How many.
        read: ``all`` steps, the ``last`` one, or the ``mean`` of the blocks' outputs over all steps.
        dropout: rate in the blocks.
    """

    def __init__(
        self,
        layer: Callable[[int, int], Recurrent],
        inputs: int,
        hidden: int,
        outputs: int,
        blocks: int = 4,
        read: Literal["all", "last", "mean"] = "all",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        one_of("read", read, ("all", "last", "mean"))
        self.read = read
        self.encoder = nn.Linear(positive("inputs", inputs), positive("hidden", hidden))
        made = (layer(hidden, hidden) for _ in range(positive("blocks", blocks)))
        self.blocks = nn.Sequential(*(Block(one, dropout) for one in made))
        self.readout = nn.Linear(hidden, positive("outputs", outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.encoder(x))
        return self.readout(y if self.read == "all" else y[-1] if self.read == "last" else y.mean(0))

    def extra_repr(self) -> str:
        return f"read={self.read!r}"
