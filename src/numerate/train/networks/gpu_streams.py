"""The streams on which networks are trained and recorded, made together.

torch hands out 32 streams in turn: two that are asked for at different times may be one and the same. No group may
train on the stream on which another's update is being recorded.
"""

from functools import cache
from typing import NamedTuple

import torch

MOST = 4
"""Groups at once on a GPU: with more, each waits for the others."""


class Streams(NamedTuple):
    recording: torch.cuda.Stream
    groups: tuple[torch.cuda.Stream, ...]


@cache
def streams(device: str) -> Streams:
    """Those of a device; all differ."""
    recording, *groups = (torch.cuda.Stream(device) for _ in range(1 + MOST))
    return Streams(recording, tuple(groups))
