"""The parameters of a stack as one matrix: a row for each run, so that an optimiser is a few operations in all."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from numerate.units import parameter_bounds

Tensors = dict[str, Tensor]
ROW = 32
"""Rows are multiples of this: they all lie alike in memory, so that sums over them are taken in one order."""


class Layout:
    """Where each trained parameter lies in a row.

    Args:
        model: a network; its values do not matter.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.shapes = {name: p.shape for name, p in trained.items()}
        self.sizes = [p.numel() for p in trained.values()]
        self.filling = -sum(self.sizes) % ROW
        self.fixed = [name for name, p in model.named_parameters() if not p.requires_grad]
        self.fixed += [name for name, _ in model.named_buffers()]
        self.bounds = {name: limits for name, limits in parameter_bounds(model).items() if name in self.shapes}

    @property
    def count(self) -> int:
        """Trained numbers of one run."""
        return sum(self.sizes)

    @property
    def width(self) -> int:
        """Numbers of a row: those trained, and zeros up to a multiple of ROW."""
        return self.count + self.filling

    def views(self, rows: Tensor) -> Tensors:
        """(S, width) -> name -> (S, *shape), views."""
        parts = rows.split([*self.sizes, self.filling], -1)
        return {name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
                for (name, shape), part in zip(self.shapes.items(), parts)}  # fmt: skip

    def rows(self, values: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """The inverse of :meth:`views`, as a copy; None is zero."""
        stack = len(like)
        sizes = zip(values, self.sizes)
        parts = [like.new_zeros(stack, n) if v is None else v.reshape(stack, n) for v, n in sizes]
        return torch.cat([*parts, like.new_zeros(stack, self.filling)], -1)

    def columns(self, values: Mapping[str, int]) -> Tensor:
        """A whole number for each number of a row, that of its parameter; 0 for those without; (width,)"""
        parts = [torch.full((size,), values.get(name, 0)) for name, size in zip(self.shapes, self.sizes)]
        return torch.cat([*parts, torch.zeros(self.filling, dtype=torch.int64)])

    def limits(self, device: str) -> tuple[Tensor, Tensor] | None:
        """Lowest and highest value of every number, (width,) each; None if there is no limit at all."""
        if not self.bounds:
            return None
        low, high = (torch.full((1, self.width), value) for value in (-torch.inf, torch.inf))
        for which, into in ((0, low), (1, high)):
            for name, part in self.views(into).items():
                if name in self.bounds:
                    part.fill_(self.bounds[name][which])
        return low[0].to(device), high[0].to(device)
