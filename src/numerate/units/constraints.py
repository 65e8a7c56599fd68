"""Bounds applied after an optimiser step, as a function and as an optimiser hook."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


def parameter_bounds(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Every bounded parameter of ``model`` by its full name -> (low, high)."""
    found = {}
    for prefix, module in model.named_modules():
        bounds = getattr(module, "bounds", None)
        if isinstance(bounds, Mapping):
            own = dict(module.named_parameters(recurse=False))
            found |= {f"{prefix}.{name}" if prefix else name: limits for name, limits in bounds.items() if name in own}
    return found


@torch.no_grad()
def apply_bounds_(model: nn.Module) -> None:
    """Clamp every parameter of ``model`` to its unit's bounds; call it after ``optimizer.step()``."""
    for name, (low, high) in parameter_bounds(model).items():
        model.get_parameter(name).clamp_(low, high)


def bound_after_step(optimizer: torch.optim.Optimizer, model: nn.Module) -> RemovableHandle:
    """Have ``optimizer`` apply the bounds by itself after each of its steps; ``handle.remove()`` undoes it."""
    hook: Callable[[Any, Any, Any], None] = lambda *_: apply_bounds_(model)  # noqa: E731
    return optimizer.register_step_post_hook(hook)
