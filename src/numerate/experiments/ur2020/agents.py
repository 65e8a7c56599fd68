"""Agents that act in a match: a core with any gate, a policy and a value."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from numerate.recurrent import LSTMCell, RMACell, RMAHeads, Step, read_strength_loss
from numerate.recurrent.cell import Cell, State
from numerate.tasks.match import ACTIONS, SIGHT, Match
from numerate.tasks.online import one_hot


class Episode(NamedTuple):
    """What an agent did; each (T, B) but the last.

    Args:
        chosen: log-probability of the action taken.
        values: expected return.
        entropies: of the policy.
        rewards: of the world.
        rest: what the agent adds to its loss; ().
    """

    chosen: Tensor
    values: Tensor
    entropies: Tensor
    rewards: Tensor
    rest: Tensor


class Agent(nn.Module):
    """Acts through whole episodes; uniform random numbers (draws of the world + steps, B, 1) -> :class:`Episode`.

    Args:
        task: the world.
        cell: of the core.
        latents: features of the core's output that the value is read from, the first ones.
        encoder: width of a tanh layer on what is seen; None: the core has its own.
        reconstructs: whether the latents must tell what was seen, as the reconstructive memory agent's.
    """

    def __init__(self, task: Match, cell: Cell, latents: int, encoder: int | None, reconstructs: bool) -> None:
        super().__init__()
        self.task, self.latents = task, latents
        self.encoder = None if encoder is None else nn.Linear(task.inputs, encoder)
        self.core = Step(cell)
        self.heads = RMAHeads(cell.output_size, latents, len(ACTIONS))
        self.decoder = nn.Linear(latents, task.inputs) if reconstructs else None

    def forward(self, uniforms: Tensor) -> Episode:
        task, drawn = self.task, self.task.drawn
        world = task.start(uniforms[:drawn, :, 0])
        cell, p = self.core.cell, self.core.parts()
        prepared = cell.prepare(p)
        state = cell.initial_state(uniforms.shape[1], uniforms, p)
        known = uniforms.new_zeros(uniforms.shape[1], len(ACTIONS) + 1)
        steps: list[tuple[Tensor, ...]] = []
        rest = uniforms.new_zeros(())
        for frame in range(task.steps):
            world = task.enter(world, frame)
            seen = torch.cat((task.sight(world, frame), known), -1)
            x = seen if self.encoder is None else self.encoder(seen).tanh()
            output, new = cell.step(cell.project(x, p), state, prepared)
            logits, value = self.heads(output)
            logs = logits.log_softmax(-1)
            action = self.drawn_action(logs, uniforms[drawn + frame])
            rest = rest + self.reconstruction(output, seen) + self.strength(cell, new, prepared)
            world, reward = task.act(world, action, frame)
            chosen = logs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
            steps.append((chosen, value, -(logs.exp() * logs).sum(-1), reward))
            known, state = torch.cat((one_hot(action, len(ACTIONS)), reward.unsqueeze(-1)), -1), new
        chosen, values, entropies, rewards = (torch.stack(parts) for parts in zip(*steps))
        return Episode(chosen, values, entropies, rewards, rest / task.steps)

    def drawn_action(self, logs: Tensor, uniforms: Tensor) -> Tensor:
        """By the policy; logs (B, actions), uniforms (B, 1) -> (B,)"""
        beyond = logs.detach().exp().cumsum(-1) <= uniforms
        return beyond.sum(-1).clamp(max=len(ACTIONS) - 1)

    def reconstruction(self, output: Tensor, seen: Tensor) -> Tensor:
        """Of the image, 50 / pixels of its squared error; of the last action, its cross entropy; of the last reward."""
        if self.decoder is None:
            return output.new_zeros(())
        told, pixels = self.decoder(output[..., : self.latents]), 3 * SIGHT**2
        image = (told[..., :pixels] - seen[..., :pixels]).square().sum(-1).mean() * 50 / pixels
        action = -(told[..., pixels:-1].log_softmax(-1) * seen[..., pixels:-1]).sum(-1).mean()
        return image + action + 0.5 * (told[..., -1] - seen[..., -1]).square().mean()

    def strength(self, cell: Cell, state: State, prepared: Any) -> Tensor:
        """5e-5 of how strongly the memory is read."""
        if not isinstance(cell, RMACell):
            return state[0].new_zeros(())
        return 5e-5 * read_strength_loss(cell.queries(state[0], prepared)[1].unsqueeze(0))


def agent(
    inputs: int, outputs: int, *, task: Match, core: Literal["LSTM", "RMA"], gate: str, hidden: int, width: int
) -> Agent:
    """An LSTM behind an encoder of ``width``, or RMA with a memory of the episode's length."""
    options: dict[str, Any] = {"gate": gate}
    if gate == "C":
        options["timescale"] = task.steps
    make: dict[str, Callable[[], Agent]] = {
        "LSTM": lambda: Agent(
            task, LSTMCell(width, hidden, recurrent_bias=False, **options), hidden, width, reconstructs=False
        ),
        "RMA": lambda: Agent(
            task,
            RMACell(inputs, hidden, encoder=(2 * width, width), rows=task.steps, top_k=min(50, task.steps), **options),
            width, None, reconstructs=True,
        ),
    }  # fmt: skip
    return make[core]()
