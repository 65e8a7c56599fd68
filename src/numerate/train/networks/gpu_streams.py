"""The streams on which networks are trained and recorded, made together.

torch hands out 32 streams in turn: two that are asked for at different times may be one and the same. No group may
train on the stream on which another's update is being recorded. And torch keeps the workspace of matrix products by
stream: graphs that are recorded on one stream share it, so each group's are recorded on a stream of its own.
"""

from functools import cache
from typing import NamedTuple

import torch

MOST = 4
"""Groups at once on a GPU: with more, each waits for the others."""


class Lane(NamedTuple):
    """Where a group is trained, and where its graphs are recorded."""

    training: torch.cuda.Stream
    recording: torch.cuda.Stream


@cache
def lanes(device: str) -> tuple[Lane, ...]:
    """Those of groups side by side, and a last one for what is trained on another stream; all streams differ."""
    return tuple(Lane(torch.cuda.Stream(device), torch.cuda.Stream(device)) for _ in range(MOST + 1))


def recording_stream(device: str) -> torch.cuda.Stream:
    """The one beside the current stream."""
    *sides, other = lanes(device)
    current = torch.cuda.current_stream(device).cuda_stream
    return next((lane.recording for lane in sides if lane.training.cuda_stream == current), other.recording)
