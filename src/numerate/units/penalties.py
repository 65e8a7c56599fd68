r"""Penalties as pure functions of a weight, their weights over time, and their sum over a model.

Every penalty of a weight reduces it to a scalar; a layer's penalty is a mean over its weights, a network's the **sum**
over its layers (Madsen & Johansen 2020, as run). The loss is MSE + :math:`\sum_k \lambda_k(t) R_k`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from numerate.checks import number, positive
from numerate.units.base import outer_units, weight_sparsity_error


def sparsity(weight: Tensor) -> Tensor:
    r""":math:`\operatorname{mean} \min(|W|, |1 - |W||)`: zero when every weight is in {-1, 0, 1} (NAU)."""
    size = weight.abs()
    return torch.minimum(size, (1 - size).abs()).mean()


def sparsity_nmu(weight: Tensor) -> Tensor:
    r""":math:`\operatorname{mean} \min(|W|, |1 - W|)`: zero when every weight is in {0, 1}."""
    return torch.minimum(weight.abs(), (1 - weight).abs()).mean()


def sparsity_squared(weight: Tensor) -> Tensor:
    r""":math:`\operatorname{mean} W^2 (1 - |W|)^2`, the squared shape that no published number used."""
    return (weight**2 * (1 - weight.abs()) ** 2).mean()


def sparsity_nmu_squared(weight: Tensor) -> Tensor:
    r""":math:`\operatorname{mean} W^2 (1 - W)^2`, the squared shape for {0, 1} that no published number used."""
    return (weight**2 * (1 - weight) ** 2).mean()


def signs(weight: Tensor) -> Tensor:
    r""":math:`\operatorname{mean} |1 - |W||`: zero when every weight is in {-1, 1} (modified RealNPU)."""
    return (1 - weight.abs()).abs().mean()


def saturation(parameter: Tensor, limit: float = 20.0) -> Tensor:
    r""":math:`\operatorname{mean} \max(\min(\theta, -\theta) + limit, 0)`: zero when all lie beyond it (iNALU)."""
    return torch.relu(limit - parameter.abs()).mean()


def out_of_bounds(weight: Tensor, low: float, high: float) -> Tensor:
    r""":math:`\operatorname{mean} \operatorname{relu}(|W - c| - r)` for the interval [low, high] = [c - r, c + r]."""
    centre, radius = (low + high) / 2, (high - low) / 2
    return torch.relu((weight - centre).abs() - radius).mean()


def r_z_product(weight: Tensor, mean_input: Tensor) -> Tensor:
    r"""R_z of NMU: :math:`\operatorname{mean}_{oi} (1 - W_{oi})(1 - \bar z_i)^2`; weight (O, I), mean_input (I,)."""
    return ((1 - weight) * (1 - mean_input) ** 2).mean()


def r_z_sum(weight: Tensor, mean_input: Tensor) -> Tensor:
    r"""R_z of NAU, NAC+: :math:`\operatorname{mean}_{oi} (1 - |W_{oi}|) \bar z_i^2`; weight (O, I), mean_input (I,)."""
    return ((1 - weight.abs()) * mean_input**2).mean()


def l1(model: nn.Module) -> Tensor:
    """Sum of absolute values over all parameters of ``model`` (the NPU's penalty)."""
    return torch.stack([p.abs().sum() for p in model.parameters()] or [torch.zeros(())]).sum()


def penalty(model: nn.Module) -> Tensor:
    """Sum of the units' own penalties over all layers of ``model``."""
    terms = [unit.penalty() for _, unit in outer_units(model)]
    return torch.stack(terms).sum() if terms else next(model.parameters(), torch.zeros(())).new_zeros(())


def sparsity_error(model: nn.Module) -> Tensor:
    """Largest sparsity error over all units and linear layers of ``model``, as the papers report it; NaN if none."""
    linear = [weight_sparsity_error(m.weight) for m in model.modules() if isinstance(m, nn.Linear)]
    return _largest([*_errors_of_units(model), *linear], model)


def units_sparsity_error(model: nn.Module) -> Tensor:
    """Largest sparsity error over the units of ``model`` alone, whatever surrounds them; NaN if none."""
    return _largest(_errors_of_units(model), model)


def _errors_of_units(model: nn.Module) -> list[Tensor]:
    return [unit.sparsity_error() for _, unit in outer_units(model) if unit.sparse_parts()]


def _largest(errors: list[Tensor], model: nn.Module) -> Tensor:
    if not errors:
        return next(model.parameters(), torch.zeros(())).new_full((), float("nan"))
    return torch.stack(errors).amax()


def _as_numbers(step: Tensor | float) -> Tensor:
    """A step or several as floating numbers, whatever it came as."""
    step = torch.as_tensor(step)
    return step if step.is_floating_point() else step.to(torch.get_default_dtype())


@dataclass(frozen=True)
class Ramp:
    r"""Warm-up :math:`\lambda(t) = \hat\lambda \cdot \operatorname{clip}((t - start)/(end - start), 0, 1)`.

    With ``start == end`` it is a jump: zero before that step, ``scale`` from it on.
    """

    scale: float
    start: int
    end: int

    def __post_init__(self) -> None:
        if not self.start <= self.end:
            raise ValueError(f"a Ramp must not end before it starts, got start={self.start!r}, end={self.end!r}")

    def __call__(self, step: Tensor | float) -> Tensor:
        step = _as_numbers(step)
        if self.start == self.end:
            return self.scale * (step >= self.start).to(step.dtype)
        return self.scale * ((step - self.start) / (self.end - self.start)).clamp(0, 1)


@dataclass(frozen=True)
class Saturating:
    r"""Slow start :math:`\lambda(t) = \hat\lambda\,(1 - e^{-rate \cdot t})`.

    In the code of Madsen & Johansen (2020), with a scale of 0.1 and this rate, for the recurrent arithmetic task; no
    published number used it.
    """

    scale: float
    rate: float = 1e-5

    def __post_init__(self) -> None:
        number("rate", self.rate, 0, above=True)

    def __call__(self, step: Tensor | float) -> Tensor:
        step = _as_numbers(step)
        return -self.scale * torch.expm1(-self.rate * step)


@dataclass(frozen=True)
class Growth:
    """Starts at ``start``, multiplied by ``factor`` after every ``every`` steps until it reaches ``end`` (NPU).

    Args:
        start: the first value.
        end: the largest value.
        every: steps between two multiplications.
        factor: what the value is multiplied by.
    """

    start: float
    end: float
    every: int = 10_000
    factor: float = 10.0

    def __post_init__(self) -> None:
        positive("every", self.every)

    def __call__(self, step: Tensor | float) -> Tensor:
        step = _as_numbers(step)
        grown = self.start * self.factor ** torch.div(step, self.every, rounding_mode="floor")
        return grown.clamp(max=self.end)


@dataclass(frozen=True)
class Constant:
    """The same weight at every step."""

    scale: float

    def __call__(self, step: Tensor | float) -> Tensor:
        step = _as_numbers(step)
        return torch.full_like(step, self.scale)


@dataclass(frozen=True)
class After:
    """``scale`` at every step later than ``step``, zero before."""

    scale: float
    step: int

    def __call__(self, step: Tensor | float) -> Tensor:
        step = _as_numbers(step)
        return self.scale * (step > self.step).to(step.dtype)
