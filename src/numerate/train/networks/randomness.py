"""Random numbers inside a network, from the stream (seed, noise, update) of its run."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from numerate.loops.tracing.noise import UnsupportedRandomness
from numerate.streams import Domain, uniform

_REFUSED = (
    torch.randn, torch.randn_like, torch.normal, torch.bernoulli, torch.randint, torch.randperm, torch.multinomial,
    torch.dropout, torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.bernoulli_,
)  # fmt: skip


class Keyed(TorchFunctionMode):
    """Answers ``torch.rand``, ``torch.rand_like`` and dropout, call after call, from one stream.

    Args:
        seed: of the run, a whole number on the device.
        step: number of the update, likewise.
    """

    def __init__(self, seed: Tensor, step: Tensor) -> None:
        super().__init__()
        self.seed, self.step, self.used = seed, step, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _REFUSED:
            raise UnsupportedRandomness(
                f"{func.__name__} inside a network cannot be keyed by seed and update; "
                "draw with torch.rand, torch.rand_like or dropout"
            )
        if func is nn.functional.dropout:
            return self.dropout(*args, **kwargs)
        if func is torch.rand_like:
            return self.drawn(args[0].shape)
        if func is torch.rand:
            size = kwargs.get("size", args)
            return self.drawn(torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size))
        return func(*args, **kwargs)

    def drawn(self, shape: torch.Size) -> Tensor:
        """The next numbers of the stream."""
        count, first = shape.numel(), self.used
        self.used += -(-count // 4) * 4
        return uniform(self.seed, Domain.NOISE, self.step, count, first).view(shape)

    def dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        found = x * (self.drawn(x.shape) >= p) / (1 - p) if p < 1 else x * 0.0
        return x.copy_(found) if inplace else found
