"""What a data set of labelled images is."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Images(NamedTuple):
    """Bytes as published: images (N, height, width) or (N, channels, height, width), labels (N,) int64."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def tensor(values: np.ndarray) -> Tensor:
    """A tensor of its own memory, so that it may be written to."""
    return torch.from_numpy(np.array(values))


def labels(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))
