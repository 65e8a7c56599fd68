"""The parameters of a stack as one matrix: a row for each run, so that an optimiser is a few operations in all."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from numerate.units import parameter_bounds

Tensors = dict[str, Tensor]


class Layout:
    """Where each trained parameter lies in a row.

    Args:
        model: a network; its values do not matter.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.shapes = {name: p.shape for name, p in trained.items()}
        self.sizes = [p.numel() for p in trained.values()]
        self.fixed = [name for name, p in model.named_parameters() if not p.requires_grad]
        self.fixed += [name for name, _ in model.named_buffers()]
        self.bounds = {name: limits for name, limits in parameter_bounds(model).items() if name in self.shapes}

    @property
    def count(self) -> int:
        """Trained numbers of one run."""
        return sum(self.sizes)

    def views(self, rows: Tensor) -> Tensors:
        """(S, count) -> name -> (S, *shape), views."""
        parts = rows.split(self.sizes, -1)
        return {name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
                for (name, shape), part in zip(self.shapes.items(), parts)}  # fmt: skip

    def rows(self, values: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """The inverse of :meth:`views`, as a copy; None is zero."""
        stack = len(like)
        sizes = zip(values, self.sizes)
        return torch.cat([like.new_zeros(stack, n) if v is None else v.reshape(stack, n) for v, n in sizes], -1)

    def limits(self, device: str) -> tuple[Tensor, Tensor] | None:
        """Lowest and highest value of every number, (count,) each; None if there is no limit at all."""
        if not self.bounds:
            return None
        low, high = (torch.full((1, self.count), value) for value in (-torch.inf, torch.inf))
        for which, into in ((0, low), (1, high)):
            for name, part in self.views(into).items():
                if name in self.bounds:
                    part.fill_(self.bounds[name][which])
        return low[0].to(device), high[0].to(device)
