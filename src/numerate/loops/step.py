"""One optimiser step of one small model as pure functions, and the loop around it as a protocol.

Every loop that runs many steps for many members has the same two methods, whether it is a plain Python loop
(:mod:`~numerate.loops.plain.eager`), one stacked computation (:mod:`~numerate.loops.plain.stacked`) or an emitted
native loop (:mod:`~numerate.loops.cpp.loop`, :mod:`~numerate.loops.cuda.loop`). Names: S members,
P parameters, n examples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from numerate.streams import Domain, uniform

Tensors = dict[str, Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's moments, as torch names them."""


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of each example; (n, O), (n, O) -> (n,)"""
    return ((prediction - target) ** 2).mean(-1)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with betas and a learning rate of their own, as in the parameter groups of ``torch.optim``."""

    names: tuple[str, ...]
    betas: tuple[float, float]


@dataclass(frozen=True)
class Step:
    """What one member does in one step; every function sees one member and is free of side effects.

    Loss = mean over the batch of ``loss(model(parameters, x, noise), y)``
    + sum over k of scale_k(t) * penalty_k(parameters); then Adam, then the bounds.

    What changes from step to step lies in a table, a column for each member: the scales of the penalties, then the
    factor of the learning rate if the step is ``scheduled``, then Adam's corrections if members have ``own_clocks``.
    """

    parameters: Mapping[str, torch.Size]
    """Name -> shape of each parameter."""
    constants: Mapping[str, torch.Size]
    """Name -> shape of the task's data for one member (ranges, subsets)."""
    draws: int
    """Uniform numbers that one example needs."""
    examples: Callable[[Tensor, Tensors], tuple[Tensor, Tensor]]
    """(uniforms (n, draws), constants) -> x (n, I), y (n, O)."""
    model: Callable[[Tensors, Tensor, Tensor | None], Tensor]
    """Training mode: (parameters, x (n, I), noise (n, noise) or None) -> prediction (n, O)."""
    predict: Callable[[Tensors, Tensor], Tensor]
    """Evaluation mode: (parameters, x (n, I)) -> prediction (n, O)."""
    penalties: tuple[Callable[[Tensors], Tensor], ...] = ()
    """Each parameters -> scalar, without its scale."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noise: int = 0
    """Uniform numbers that the model itself draws for one example in training."""
    batch: int = 128
    loss: Callable[[Tensor, Tensor], Tensor] = squared_error
    """(prediction, target) -> (n,), what training minimises."""
    error: Callable[[Tensor, Tensor], Tensor] = squared_error
    """(prediction, target) -> (n,), what evaluation reports."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    groups: tuple[ParameterGroup, ...] = ()
    """Parameters in none of them have ``betas`` and the first of a member's rates."""
    clip: str | None = None
    """None, "value" (each entry of the gradient) or "norm" (over all parameters together)."""
    scheduled: bool = False
    """Whether the learning rate is multiplied by a factor of the step."""
    own_clocks: bool = False
    """Whether each member counts Adam's steps from its own start."""
    name: str | None = None
    """Identifies what the step computes, if only code of this package takes part; emitted text is cached under it."""

    @property
    def rows(self) -> int:
        """Rows of the table: numbers of one member that are different in each step."""
        return len(self.penalties) + self.scheduled + self.own_clocks * 2 * (1 + len(self.groups))


@dataclass
class Members:
    """What differs between the members of one stack."""

    seeds: Tensor
    """(S,) int64."""
    constants: Tensors
    """Name -> (S, ...)."""
    rate: Tensor
    """Learning rate, (S,) float32; with groups of parameters (S, 1 + groups)."""
    clip: Tensor | None = None
    """Limit of the gradient clipping, (S,) float32."""

    def __len__(self) -> int:
        return len(self.seeds)

    def to(self, device: torch.device | str) -> "Members":
        """The same on another device."""
        clip = None if self.clip is None else self.clip.to(device)
        constants = {k: v.to(device) for k, v in self.constants.items()}
        return Members(self.seeds.to(device), constants, self.rate.to(device), clip)

    def take(self, index: Tensor) -> "Members":
        """The members at ``index``, in that order."""
        clip = None if self.clip is None else self.clip[index]
        return Members(self.seeds[index], {k: v[index] for k, v in self.constants.items()}, self.rate[index], clip)


def fixed(step: Step, members: Members) -> list[Tensor]:
    """What emitted loops only read of each member: constants, learning rate and, if ``step`` clips, the limit."""
    numbers = [*(members.constants[name] for name in step.constants), members.rate]
    if step.clip is not None:
        unlimited = torch.full((len(members),), math.inf, device=members.rate.device)
        numbers.append(unlimited if members.clip is None else members.clip)
    return numbers


@dataclass
class State:
    """Everything that changes while a stack is trained; all that a checkpoint needs."""

    parameters: Tensors
    """Name -> (S, ...) float32."""
    exp_avg: Tensors
    """Adam's first moment, shaped as the parameters."""
    exp_avg_sq: Tensors
    """Adam's second moment."""
    diverged: Tensor
    """(S,) int64: the step whose update first gave a parameter that is not finite, or -1."""
    step: int = 0

    @classmethod
    def start(cls, parameters: Tensors) -> "State":
        """Fresh moments for stacked ``parameters``."""
        count = len(next(iter(parameters.values())))
        zeros = {k: torch.zeros_like(v) for k, v in parameters.items()}
        device = next(iter(parameters.values())).device
        return cls(
            {k: v.clone() for k, v in parameters.items()},
            zeros,
            {k: torch.zeros_like(v) for k, v in parameters.items()},
            torch.full((count,), -1, dtype=torch.int64, device=device),
        )

    def take(self, index: Tensor) -> "State":
        """The members at ``index``, in that order (copies)."""

        def chosen(group: Tensors) -> Tensors:
            return {k: v[index] for k, v in group.items()}

        groups = chosen(self.parameters), chosen(self.exp_avg), chosen(self.exp_avg_sq)
        return State(*groups, self.diverged[index], self.step)


class Loop(Protocol):
    """Runs a :class:`Step` many times for many members. The result for a member depends on that member alone."""

    def train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        """Advance ``state`` in place by ``steps``; ``table``: (the step's rows, steps, S) float32."""
        ...

    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        """Mean error of each member on the examples made from ``uniforms`` (n, draws) -> (S,) float32."""
        ...


def check_shapes(step: Step, parameters: Tensors, constants: Tensors) -> None:
    """Raise ValueError unless all tensors have the step's shapes; native code would read whatever it is given."""
    for kind, shapes, given in (("parameter", step.parameters, parameters), ("constant", step.constants, constants)):
        for name, shape in shapes.items():
            if name not in given or given[name].shape[1:] != shape:
                actual = f"of shape {tuple(given[name].shape[1:])}" if name in given else "missing"
                raise ValueError(f"{kind} {name} is {actual}, but this loop was made for shape {tuple(shape)}")


def total_loss(
    step: Step, parameters: Tensors, x: Tensor, y: Tensor, noise: Tensor | None, penalty_scales: Tensor
) -> Tensor:
    """Loss of one member on one batch; ``penalty_scales``: one per penalty."""
    value = step.loss(step.model(parameters, x, noise), y).mean()
    for penalty, scale in zip(step.penalties, penalty_scales.unbind()):
        value = value + scale * penalty(parameters)
    return value


def at_step(step: Step, row: Tensor, rate: Tensor, correction: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scales of the penalties, learning rate and corrections of one member at one step.

    Args:
        step: what is computed.
        row: the member's numbers in the table, (rows,).
        rate: the member's rate or rates, without schedule.
        correction: that of all members, if they have no clocks of their own.
    """
    count = len(step.penalties)
    if step.scheduled:
        rate = rate * row[count]
    if step.own_clocks:
        correction = row[count + step.scheduled :]
    assert correction is not None
    return row[:count], rate, correction


def clipped(step: Step, gradients: Tensors, limit: Tensor | None) -> Tensors:
    """Gradients of one member after clipping by value or by total norm (as ``torch.nn.utils`` does)."""
    if step.clip is None or limit is None:
        return gradients
    if step.clip == "value":
        return {k: torch.minimum(torch.maximum(g, -limit), limit) for k, g in gradients.items()}
    norm = torch.stack([(g * g).sum() for g in gradients.values()]).sum().sqrt()
    scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
    return {k: g * scale for k, g in gradients.items()}


def adam(
    step: Step,
    parameters: Tensors,
    exp_avg: Tensors,
    exp_avg_sq: Tensors,
    gradients: Tensors,
    rate: Tensor,
    correction: Tensor,
) -> tuple[Tensors, Tensors, Tensors]:
    """Adam and the bounds, for one member.

    ``rate``: (), with groups of parameters (1 + groups,); ``correction``: (1 - beta1**(t + 1), sqrt(1 - beta2**(t +
    1))), the same of each group behind it.
    """
    places = {name: place for place, group in enumerate(step.groups, 1) for name in group.names}
    new_parameters, new_exp_avg, new_exp_avg_sq = {}, {}, {}
    for name, gradient in gradients.items():
        place = places.get(name, 0)
        beta1, beta2 = step.groups[place - 1].betas if place else step.betas
        own = rate[place] if step.groups else rate
        m = beta1 * exp_avg[name] + (1 - beta1) * gradient
        v = beta2 * exp_avg_sq[name] + (1 - beta2) * gradient * gradient
        size = v.sqrt() / correction[2 * place + 1] + step.eps
        value = parameters[name] - (own / correction[2 * place]) * m / size
        if name in step.bounds:
            value = value.clamp(*step.bounds[name])
        new_parameters[name], new_exp_avg[name], new_exp_avg_sq[name] = value, m, v
    return new_parameters, new_exp_avg, new_exp_avg_sq


def corrections(step: Step, start: int, steps: int, device: torch.device | str = "cpu") -> Tensor:
    """Adam's two bias corrections for the steps start, ..., start + steps - 1; (steps, 2) float32.

    Those of groups of parameters are behind them, (steps, 2 + 2 groups).
    """
    t = torch.arange(start + 1, start + steps + 1, dtype=torch.float64, device=device)
    pairs = [step.betas, *(group.betas for group in step.groups)]
    columns = [column for beta1, beta2 in pairs for column in (1 - beta1**t, (1 - beta2**t).sqrt())]
    return torch.stack(columns, -1).float()


def batch_uniforms(step: Step, seeds: Tensor, t: int) -> tuple[Tensor, Tensor | None]:
    """The numbers of training step ``t``: examples (..., batch, draws) and the model's noise (..., batch, noise)."""
    data = uniform(seeds, Domain.TRAIN, t, step.batch * step.draws).unflatten(-1, (step.batch, step.draws))
    if not step.noise:
        return data, None
    return data, uniform(seeds, Domain.NOISE, t, step.batch * step.noise).unflatten(-1, (step.batch, step.noise))
