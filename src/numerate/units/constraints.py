"""Bounds applied after an optimiser step, as a function and as an optimiser hook."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from numerate.units.base import Unit


def parameter_bounds(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Every bounded parameter of ``model`` by its full name -> (low, high).

    A module's ``bounds`` name its own parameters, or those of a part as ``part.weight``; there they come before the
    part's own. What is a buffer, a parameter the module does without, or one that is computed from others (pruned,
    parametrised) is left alone; so is another library's ``bounds`` that is neither a mapping nor text.
    """
    found: dict[str, tuple[float, float]] = {}
    for prefix, module in model.named_modules():
        own = "bounds" in vars(module) or hasattr(type(module), "bounds")  # not one that a wrapper passes on
        bounds = module.bounds if own else None
        if isinstance(bounds, Mapping | str) or (isinstance(module, Unit) and bounds is not None):
            named = _own_bounds(module, bounds)
            found = {f"{prefix}.{name}" if prefix else name: limits for name, limits in named.items()} | found
    return found


def _own_bounds(module: nn.Module, bounds: Any) -> dict[str, tuple[float, float]]:
    name = type(module).__name__
    if not isinstance(bounds, Mapping):
        raise ValueError(f"the bounds of {name} must be a mapping of parameter name -> (low, high), got {bounds!r}")
    known = dict(module.named_parameters(remove_duplicate=False))
    for parameter, limits in bounds.items():
        if parameter not in known and not _left_out(module, parameter):
            names = ", ".join(known) or "none"
            raise ValueError(f"the bounds of {name} name {parameter!r}, but its parameters are {names}")
        if not _is_pair(limits):
            raise ValueError(f"the bounds of {parameter!r} in {name} must be (low, high), got {limits!r}")
    return {parameter: _numbers(limits) for parameter, limits in bounds.items() if parameter in known}


def _is_pair(limits: Any) -> bool:
    """(low, high); None is no limit."""
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        return False
    ends = [end for end in limits if end is not None]
    return all(isinstance(end, Real) for end in ends) and ends == sorted(ends)


def _numbers(limits: Any) -> Any:
    return tuple(None if end is None else float(end) for end in limits)


def _left_out(module: nn.Module, name: str) -> bool:
    """Whether ``name`` is a buffer, a tensor that is computed, or a parameter that this module does without."""
    owner, _, last = name.rpartition(".")
    if owner not in dict(module.named_modules()):
        return False
    part = module.get_submodule(owner)
    return last in part._parameters or isinstance(getattr(part, last, None), Tensor)


@torch.no_grad()
def apply_bounds_(model: nn.Module) -> None:
    """Clamp every parameter of ``model`` to its unit's bounds; call it after ``optimizer.step()``."""
    for name, (low, high) in parameter_bounds(model).items():
        model.get_parameter(name).clamp_(low, high)


def bound_after_step(optimizer: torch.optim.Optimizer, model: nn.Module) -> RemovableHandle:
    """Have ``optimizer`` apply the bounds by itself after each of its steps; ``handle.remove()`` undoes it."""
    hook: Callable[[Any, Any, Any], None] = lambda *_: apply_bounds_(model)  # noqa: E731
    return optimizer.register_step_post_hook(hook)
