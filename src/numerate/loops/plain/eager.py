"""The reference loop: one member after another, plain autograd, step by step."""

import torch
from torch import Tensor

from numerate.loops.step import (
    Members,
    State,
    Step,
    Tensors,
    adam,
    at_step,
    batch_uniforms,
    clipped,
    corrections,
    total_loss,
)


class Eager:
    """Plain Python loop over members and steps; every faster loop is compared with it."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def train(self, state: State, members: Members, table: Tensor, steps: int) -> None:
        correction = corrections(self.step, state.step, steps)
        for s in range(len(members)):
            clip = None if members.clip is None else members.clip[s]
            constants = {k: v[s] for k, v in members.constants.items()}
            parameters, exp_avg, exp_avg_sq = (
                {k: v[s] for k, v in group.items()} for group in (state.parameters, state.exp_avg, state.exp_avg_sq)
            )
            for i in range(steps):
                uniforms, noise = batch_uniforms(self.step, members.seeds[s], state.step + i)
                x, y = self.step.examples(uniforms, constants)
                leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
                scales, rate, corrected = at_step(self.step, table[:, i, s], members.rate[s], correction[i])
                loss = total_loss(self.step, leaves, x, y, noise, scales)
                grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
                gradients = clipped(self.step, dict(zip(leaves, grads)), clip)
                parameters, exp_avg, exp_avg_sq = adam(
                    self.step, parameters, exp_avg, exp_avg_sq, gradients, rate, corrected
                )
                if state.diverged[s] < 0 and not all(v.isfinite().all() for v in parameters.values()):
                    state.diverged[s] = state.step + i
            for group, values in (
                (state.parameters, parameters),
                (state.exp_avg, exp_avg),
                (state.exp_avg_sq, exp_avg_sq),
            ):
                for k, v in values.items():
                    group[k][s] = v
        state.step += steps

    @torch.no_grad()
    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        def one(s: int) -> Tensor:
            x, y = self.step.examples(uniforms, {k: v[s] for k, v in constants.items()})
            return self.step.error(self.step.predict({k: v[s] for k, v in parameters.items()}, x), y).mean()

        return torch.stack([one(s) for s in range(len(next(iter(parameters.values()))))])
