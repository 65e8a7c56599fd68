"""Clipping and Adam on a matrix with a row for each run."""

from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.train.specification import Adam

GUARD = 1e-6
"""Added to a norm before a limit is divided by it, as in torch."""


@dataclass
class State:
    """All that an update changes; S runs of ``count`` numbers each.

    Args:
        parameters, first, second: (S, count): values, and the two moments of Adam.
        ended: (S,), the update at which a number stopped being finite; -1 if none did.
        frozen: (S,), whether a run takes no more updates, for whatever reason.
    """

    parameters: Tensor
    first: Tensor
    second: Tensor
    ended: Tensor
    frozen: Tensor

    @classmethod
    def start(cls, parameters: Tensor) -> "State":
        count, device = len(parameters), parameters.device
        moments = torch.zeros_like(parameters), torch.zeros_like(parameters)
        ended = torch.full((count,), -1, dtype=torch.int64, device=device)
        return cls(parameters, *moments, ended, torch.zeros(count, dtype=torch.bool, device=device))


def clipped(gradient: Tensor, kind: str | None, limit: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of each run, clipped by itself, and its norm before that; (S, n), (S, 1) -> (S, n), (S,)."""
    norm = torch.linalg.vector_norm(gradient, dim=-1)
    if kind == "norm":
        gradient = gradient * (limit / (norm.unsqueeze(-1) + GUARD)).clamp(max=1.0)
    elif kind == "value":
        gradient = gradient.clamp(-limit, limit)
    return gradient, norm


def update_(
    state: State,
    gradient: Tensor,
    step: Tensor,
    rate: Tensor,
    corrections: Tensor,
    adam: Adam,
    limits: tuple[Tensor, Tensor] | None,
    betas: Tensor | None = None,
) -> None:
    """One update: parameters and moments are replaced.

    A run whose new numbers are not all finite keeps the old ones, moments too, and is frozen.

    Args:
        state: what is changed.
        gradient: (S, n), clipped.
        step: number of the update.
        rate: (S, 1), or (S, n) where parameters have settings of their own.
        corrections: (2,): 1 - beta^t of both moments, t = step + 1; or (2, n).
        adam: the other settings.
        limits: lowest and highest values, (n,) each, or None.
        betas: (2, n) where parameters have settings of their own; None: those of ``adam``.
    """
    correction1, correction2 = corrections.unbind()
    if betas is None:
        beta1, beta2 = adam.betas
        first = state.first.lerp(gradient, 1 - beta1)
        second = (state.second * beta2).addcmul_(gradient, gradient, value=1 - beta2)
    else:
        first = state.first.lerp(gradient, 1 - betas[0])
        second = state.second * betas[1] + (1 - betas[1]) * gradient * gradient
    spread = (second / correction2).sqrt_().add_(adam.eps)
    change = torch.div(first, spread, out=spread).mul_(rate / correction1)
    parameters = torch.sub(state.parameters, change, out=change)
    if limits is not None:
        parameters.clamp_(*limits)
    extremes = torch.stack((parameters.amax(-1), parameters.amin(-1), second.amax(-1)))  # NaN if there is one
    keep_finite_(state, (parameters, first, second), extremes.isfinite().all(0), step)


def keep_finite_(state: State, fresh: tuple[Tensor, Tensor, Tensor], finite: Tensor, step: Tensor) -> None:
    """Take new parameters and moments, but for runs that are frozen or not ``finite``, (S,); the latter are frozen."""
    kept = state.frozen | ~finite
    if kept.any():
        old = state.parameters, state.first, state.second
        fresh = tuple(torch.where(kept.unsqueeze(-1), a, b) for a, b in zip(old, fresh))  # type: ignore[assignment]
        state.ended.copy_(torch.where(~state.frozen & ~finite, step, state.ended))
        state.frozen.copy_(kept)
    state.parameters, state.first, state.second = fresh
