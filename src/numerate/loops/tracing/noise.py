"""Give a module that draws its own random numbers a stream of its member's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

_SOURCES = (torch.rand, torch.rand_like)
_REFUSED = (
    torch.randn, torch.randn_like, torch.normal, torch.bernoulli, torch.randint, torch.randperm, torch.multinomial,
    torch.dropout, torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.bernoulli_,
)  # fmt: skip


class UnsupportedRandomness(RuntimeError):
    """A module draws random numbers in a way that cannot be keyed by seed and step."""


class _FromStream(TorchFunctionMode):
    """Answer ``torch.rand``, ``torch.rand_like`` and dropout with columns of ``noise`` (n, count), call by call."""

    def __init__(self, noise: Tensor | None, rows: int) -> None:
        super().__init__()
        self.noise, self.rows, self.used = noise, rows, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _REFUSED:
            raise UnsupportedRandomness(
                f"{func.__name__} inside a module cannot be keyed by seed and step; "
                "draw with torch.rand or torch.rand_like"
            )
        if func is nn.functional.dropout:
            return self.dropout(*args, **kwargs)
        if func not in _SOURCES:
            return func(*args, **kwargs)
        shape = args[0].shape if func is torch.rand_like else torch.Size(_size(args, kwargs))
        return self.drawn(shape, lambda: func(*args, **kwargs))

    def drawn(self, shape: torch.Size, otherwise: Callable[[], Tensor]) -> Tensor:
        """The next numbers; ``otherwise`` where they are only counted."""
        if not shape or shape[0] != self.rows:
            raise UnsupportedRandomness(
                "random numbers inside a module must be drawn per example, with the batch as first dimension; "
                f"got {tuple(shape)}"
            )
        count = shape[1:].numel()
        self.used += count
        if self.noise is None:
            return otherwise()
        return self.noise[..., self.used - count : self.used].reshape(shape)

    def dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        kept = self.drawn(x.shape, lambda: torch.zeros_like(x)) >= p
        found = x * kept / (1 - p) if p < 1 else x * 0.0
        return x.copy_(found) if inplace else found


def _size(args: Any, kwargs: Any) -> tuple[int, ...]:
    size = kwargs.get("size", args)
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)


def functional(module: nn.Module, *, training: bool) -> Callable[..., Tensor]:
    """``module`` as a pure function (parameters, x, noise=None) -> prediction."""
    module.train(training)

    def call(parameters: dict[str, Tensor], x: Tensor, noise: Tensor | None = None) -> Tensor:
        module.train(training)
        settings = torch.is_grad_enabled(), torch.get_default_dtype()
        try:
            if noise is None:
                return functional_call(module, parameters, (x,))
            with _FromStream(noise, x.shape[-2]):
                return functional_call(module, parameters, (x,))
        finally:
            _restore(*settings)

    return call


def _restore(gradients: bool, dtype: torch.dtype) -> None:
    """Undo what a module did to torch's settings, which are those of its neighbours, too."""
    if torch.is_grad_enabled() != gradients:
        torch.set_grad_enabled(gradients)
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)


def noise_per_example(module: nn.Module, inputs: int) -> int:
    """How many uniform numbers ``module`` draws per example in training; the global generator stays as it was."""
    training = module.training
    module.train(True)
    counter = _FromStream(None, 3)
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), counter:
        module(torch.ones(3, inputs))
    _restore(torch.is_grad_enabled(), dtype)
    module.train(training)
    return counter.used
