"""What every unit offers beside its equation: constraint, effective weights, penalty, rounding and formula."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.units import symbolic

SATURATED = 1000.0
"""A logit at which a sigmoid is exactly 0 or 1 and a softmax exactly one-hot, in every floating type."""


def snap(weight: Tensor, levels: Sequence[float]) -> Tensor:
    """Round every entry to the nearest of ``levels`` (the first one on a tie); NaN stays NaN; any shape."""
    grid = torch.as_tensor(levels, dtype=weight.dtype, device=weight.device)
    nearest = grid[(weight.clamp(min(levels), max(levels)).unsqueeze(-1) - grid).abs().argmin(-1)]
    return torch.where(weight.isnan(), weight, nearest)


def chosen(logits: Tensor, dim: int) -> Tensor:
    """1 where a logit is the largest along ``dim``, else 0; NaN along the whole of ``dim`` if one is NaN; any shape."""
    one_hot = torch.nn.functional.one_hot(logits.argmax(dim), logits.shape[dim]).movedim(-1, dim).to(logits.dtype)
    return torch.where(logits.isnan().any(dim, keepdim=True), logits.new_tensor(float("nan")), one_hot)


def weight_sparsity_error(weight: Tensor) -> Tensor:
    r"""Distance of the worst weight from {-1, 0, 1}: :math:`\max_{oi} \min(|W_{oi}|, |1 - |W_{oi}||)`."""
    size = weight.abs()
    return torch.minimum(size, (1 - size).abs()).amax()


class Unit(nn.Module):
    """A layer (..., in_features) -> (..., out_features) that can say what it has learnt.

    A subclass gives the equation (``forward``), the data below and ``expressions``; nothing else is inherited further.
    """

    bounds: Mapping[str, tuple[float, float]] = {}
    """Parameter name -> (low, high); the trainer clamps to these after every optimiser step.

    The name of a part's parameter is written with a dot.
    """

    levels: ClassVar[Mapping[str, Sequence[float]]] = {}
    """Weight or coefficient name -> the discrete values at which the unit computes an exact operation."""

    neutral: ClassVar[float] = 0.0
    """What a unit that has chosen no input gives: 0, the empty sum; 1, the empty product, for those that multiply."""

    stepwise: ClassVar[bool] = False
    """Whether, as a recurrent cell, it learns each step from the error of that step's output alone."""

    matrices_together: ClassVar[Literal["max", "mean"]] = "max"
    """How the sparsity errors of several matrices become one, as the published numbers have it."""

    in_features: int
    out_features: int

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = positive("in_features", in_features)
        self.out_features = positive("out_features", out_features)

    def check_input(self, x: Tensor) -> Tensor:
        """Return ``x``; raises ValueError unless its last dimension is ``in_features``."""
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"{type(self).__name__} expects {self.in_features} features in the last dimension, "
                f"got an input of shape {tuple(x.shape)}"
            )
        return x

    def effective_weights(self) -> dict[str, Tensor]:
        """The matrices the papers call W, as the forward pass uses them; none unless a subclass says so."""
        return {}

    def coefficients(self) -> dict[str, Tensor]:
        """Gates, biases and small constants (an epsilon) that the equation uses beside the weights, for the formula."""
        return {}

    def sparse_parts(self) -> dict[str, Tensor]:
        """What the sparsity error counts: the effective weights, not the gates."""
        return self.effective_weights()

    def sparsity_error(self, together: Literal["max", "mean"] | None = None) -> Tensor:
        """Largest distance of a weight from {-1, 0, 1}, in each matrix of :meth:`sparse_parts`.

        ``together``: their mean or their maximum, which is how the Primer's text has it for all units; by default
        ``matrices_together``, which is how its numbers have it. NaN if there are no such matrices.
        """
        together = self.matrices_together if together is None else together
        if not (parts := self.sparse_parts()):
            return next(self.parameters()).new_full((), float("nan"))
        errors = torch.stack([weight_sparsity_error(part) for part in parts.values()])
        return errors.mean() if one_of("together", together, ("max", "mean")) == "mean" else errors.amax()

    def empty(self) -> float | Tensor:
        """What it gives of no input, as it is now: where its state starts as a recurrent cell. ``neutral``, or (O,)."""
        return self.neutral

    def penalty(self) -> Tensor:
        """The unit's own regulariser, without its weight; zero where its paper has none."""
        return next(self.parameters()).new_zeros(())

    def snapped_parameters(self) -> dict[str, Tensor]:
        """Parameter values that put every effective weight on the nearest level; a pure function of the parameters."""
        own = {name: value for name, value in self._parameters.items() if value is not None and name in self.levels}
        return {name: snap(value, self.levels[name]) for name, value in own.items()}

    @torch.no_grad()
    def snap_(self) -> Self:
        """Round the weights to the unit's discrete values, in place."""
        for name, value in self.snapped_parameters().items():
            getattr(self, name).copy_(value)
        return self

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        """One sympy expression per output; ``weights[name]`` is an effective weight or coefficient, rounded.

        It is a sympy matrix (O, I); a vector or a single number is a row.
        """
        raise NotImplementedError(f"{type(self).__name__} has no expressions(), so there is no formula of it")

    def formula(self, names: Sequence[str] | None = None, tolerance: float = 0.01) -> Any:
        """The sympy expression the unit computes (a column matrix if it has several outputs).

        Weights within ``tolerance`` of one of the unit's discrete values are taken as that value; the others stay
        numbers and are marked with ``≈``. It holds where the unit gives a number: at a zero or a negative input some
        give NaN (their docstrings say so), though the expression has a value there.
        """
        return symbolic.formula(self, names, tolerance)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def outer_units(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, Unit]]:
    """(prefix of its parameter names, unit) for every unit of ``model`` that is not part of another unit."""
    if isinstance(model, Unit):
        yield prefix, model
        return
    for name, child in model.named_children():
        yield from outer_units(child, f"{prefix}{name}.")


def snapped_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Values of all parameters of ``model`` that rounding changes, by their full names; a pure function of them."""
    return {
        prefix + name: value for prefix, unit in outer_units(model) for name, value in unit.snapped_parameters().items()
    }
