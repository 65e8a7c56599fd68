"""Reading images of digits: a convolutional network, and sequences of what it reads."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.tasks.digits import DigitSequences, in_sequences
from numerate.train.specification import Factory

SIDE = 28
"""Pixels of a side of an image."""
AT_ONCE = 1000
"""Images that are read together where many are."""


class Reader(nn.Module):
    """LeNet: two convolutions of 5 × 5 with pooling, a hidden layer, a linear one; (N, images · 784) -> (N, outputs).

    Channels are last in memory, and ReLU follows the maximum, with which it commutes: faster on a CPU.

    Args:
        outputs: numbers for each image.
        channels: of the two convolutions.
        hidden: values of the hidden layer.
        images: that are read as one, as channels of the first convolution.
    """

    def __init__(
        self, outputs: int = 1, channels: tuple[int, int] = (20, 50), hidden: int = 500, images: int = 1
    ) -> None:
        super().__init__()
        self.images = images
        self.first, self.second = nn.Conv2d(images, channels[0], 5), nn.Conv2d(*channels, 5)
        self.hidden, self.output = nn.Linear(16 * channels[1], hidden), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.images > 1:
            x = x.view(-1, self.images, SIDE * SIDE).transpose(1, 2).contiguous()
        x = x.view(-1, SIDE, SIDE, self.images).permute(0, 3, 1, 2)
        x = F.max_pool2d(self.first(x), 2).relu()
        x = F.max_pool2d(self.second(x), 2).relu()
        return self.output(self.hidden(x.flatten(1)).relu())


def with_lengths(model: Any, task: DigitSequences) -> Factory:
    """A network that makes series of images itself, of the lengths of a task."""
    return partial(model, lengths=task.lengths)


def read_all(reader: nn.Module, images: Tensor) -> Tensor:
    """(N, 784) -> (N, outputs), some images at a time."""
    return torch.cat([reader(part) for part in images.split(AT_ONCE)])


def over_lengths(
    gather: Callable[[Tensor], Tensor], values: Tensor, lengths: Sequence[int], last: bool = False
) -> Tensor:
    """What ``gather``, (L, B, I) -> (L, B, O), makes of sequences of each length; (N, I) -> (M, O), length by length.

    All go through it together, the shorter ones filled up with zeros at the end. ``last``: the last step alone.
    """
    parts = in_sequences(values, lengths)
    filled = [F.pad(part, (0, 0, 0, 0, 0, max(lengths) - len(part))) for part in parts]
    found = gather(torch.cat(filled, 1)).split([part.shape[1] for part in parts], 1)
    if last:
        return torch.cat([part[length - 1] for part, length in zip(found, lengths)])
    return torch.cat([part[:length].flatten(0, 1) for part, length in zip(found, lengths)])
