"""Units for workers that die; the driver, which looks at a model too, survives them."""

import os
import signal
import sys

import torch
from torch import nn

from numerate.streams import Domain, derived_seed

DEADLY_SEED = 11
"""Beyond 7: a model of a user's own is made for the seeds 0 to 7 whichever are trained."""


def in_worker() -> bool:
    """Whether this is a worker of Ray, or of the engine of processes."""
    return sys.argv[0].endswith("default_worker.py") or sys.argv[0] == "-c"


class Deadly(nn.Module):
    """A scaled product whose run of seed 11 kills the worker that trains it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        if in_worker() and torch.initial_seed() == derived_seed(DEADLY_SEED, Domain.INIT, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        self.scale = nn.Parameter(torch.rand(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.prod(-1, keepdim=True) * self.scale
