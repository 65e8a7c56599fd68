"""Passive and active match in a grid world (Hung et al., 2019): which colour was seen before the apples?

An episode has three rooms. In the first the agent sees a colour, or must look for it; in the second it collects apples,
which distract it; in the third it chooses among three doors. The world is plain torch on the agent's device: a network
acts in it, so that an episode is one forward pass (:mod:`numerate.experiments.ur2020.agents`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.tasks.batches import Batch
from numerate.tasks.online import Online, integers, one_hot, sum_and_count

ROOMS = {
    "active": (
        "  ppppppp  ",
        "  p     p  ",
        "  p     p  ",
        "  pp   pp  ",
        "  p+++++p  ",
        "  p+++++p  ",
        "  ppppppp  ",
    ),
    "passive": (
        "           ",
        "   ##p##   ",
        "   #   #   ",
        "   # + #   ",
        "   #   #   ",
        "   #####   ",
        "           ",
    ),
    "apples": (
        "###########",
        "#a a a a a#",
        "# a a a a #",
        "#a a a a a#",
        "# a a a a #",
        "#a a + a a#",
        "###########",
    ),
    "doors": (
        "###########",
        "# b  c  e #",
        "#         #",
        "#         #",
        "####   ####",
        "   # + #   ",
        "   #####   ",
    ),
}
"""``p``: where the colour may be, else a wall; ``+``: where the agent may start; ``a``: apples; b, c, e: doors."""
HEIGHT, WIDTH, SIGHT, PAD = 7, 11, 5, 2
CELLS = HEIGHT * WIDTH
PLAYER, BORDER, BACKGROUND, APPLE = (0.898, 0.584, 0.43), (0.1, 0.1, 0.1), (0.8, 0.8, 0.8), (0.55, 0.7, 0.0)
COLOURS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
"""Of the doors, in order; the same in every episode."""
ACTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""North, south, west, east."""
APPLES, RESPAWN, PRIZE = 10, 20, 10.0
CHANCE = PRIZE / 3


def places(room: str, symbols: str) -> list[int]:
    """Cells of a room that hold one of the symbols, row by row."""
    return [i for i, symbol in enumerate("".join(ROOMS[room])) if symbol in symbols]


class World(NamedTuple):
    """Where everything is; B episodes.

    Args:
        at: cell of the agent, (B,).
        colour: 0, 1 or 2, (B,).
        target: cell of the colour in the first room, (B,).
        apples: (B, cells), frames until an apple is there, 0 if it is; beyond all frames where there is none.
        open: whether no door has been chosen, (B,).
        walls: room -> where walls are, (cells,).
        moves: by how many cells each action moves, (actions,).
        doors: their cells, (3,).
        rgb: name -> a colour, (3,); ``doors``: theirs, (3, 3).
        centre: of what is seen, (25, 1).
    """

    at: Tensor
    colour: Tensor
    target: Tensor
    apples: Tensor
    open: Tensor
    walls: dict[str, Tensor]
    moves: Tensor
    doors: Tensor
    rgb: dict[str, Tensor]
    centre: Tensor


@dataclass(frozen=True)
class Match(Online):
    """Episodes of a match; x: uniform random numbers (draws of the world + steps, B, 1), y: the colours (B,).

    ``loss`` takes what an agent gives: see :class:`~numerate.experiments.ur2020.agents.Episode`.

    Args:
        kind: ``passive``, the colour is in sight; ``active``, it must be looked for.
        apple_reward: 0 for none, 1 for small and 5 for large distracting rewards.
        discount: γ, which is also λ of the returns.
        entropy: weight of the policy's entropy.
        frames: of the three rooms.
        batch_size: episodes of a batch.
        evaluation_batches: of validation, and of test.
    """

    kind: Literal["passive", "active"] = "passive"
    apple_reward: float = 5.0
    discount: float = 0.96
    entropy: float = 0.01
    frames: tuple[int, int, int] = (15, 90, 15)
    batch_size: int = 16
    evaluation_batches: int = 10
    judged: Literal["test", "train"] = "test"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, ("passive", "active"))
        for name in ("batch_size", "evaluation_batches"):
            positive(name, getattr(self, name))
        for frames in self.frames:
            positive("frames", frames)

    @property
    def inputs(self) -> int:
        """What an agent sees at a step: 5 × 5 pixels, its last action and its last reward."""
        return 3 * SIGHT**2 + len(ACTIONS) + 1

    @property
    def outputs(self) -> int:
        return len(ACTIONS)

    @property
    def steps(self) -> int:
        return sum(self.frames)

    @property
    def drawn(self) -> int:
        """Random numbers of a world: colour, its place, the agent's, and a key for each place of an apple."""
        return 3 + len(places("apples", "a"))

    @property
    def draws(self) -> int:
        return (self.drawn + self.steps) * self.batch_size

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        x = uniforms.view(self.drawn + self.steps, self.batch_size, 1)
        return Batch(x, integers(x[0, :, 0], 3))

    def baseline(self) -> float:
        return 1 - CHANCE / PRIZE

    def threshold(self) -> float:
        """Nine of ten doors are right."""
        return 0.1

    # ------------------------------------------------------------ the world

    def room(self, frame: int) -> str:
        """The room of a frame."""
        first, second, _ = self.frames
        return self.kind if frame < first else "apples" if frame < first + second else "doors"

    def start(self, uniforms: Tensor) -> World:
        """A world from its random numbers (drawn, B)."""
        colour = integers(uniforms[0], 3)
        target = _table(places(self.kind, "p"), uniforms)[integers(uniforms[1], len(places(self.kind, "p")))]
        begins = _table(places(self.kind, "+"), uniforms)
        rank = uniforms[3:].argsort(dim=0, stable=True).argsort(dim=0, stable=True)  # the ten lowest keys have an apple
        never = self.steps + 1
        there = torch.where(rank < APPLES, 0, never).T
        cells = one_hot(_table(places("apples", "a"), uniforms), CELLS).long()
        apples = (there.unsqueeze(-1) * cells).sum(-2) + never * (1 - cells.sum(0))
        at = begins[integers(uniforms[2], len(begins))]
        return World(
            at,
            colour,
            target,
            apples,
            colour >= 0,
            {room: _mask(places(room, "#p"), CELLS, uniforms) for room in (self.kind, "apples", "doors")},
            _table([dy * WIDTH + dx for dy, dx in ACTIONS], uniforms),
            _table(places("doors", "bce"), uniforms),
            {
                "player": _table(PLAYER, uniforms),
                "border": _table(BORDER, uniforms),
                "background": _table(BACKGROUND, uniforms),
                "apple": _table(APPLE, uniforms),
                "doors": torch.stack([_table(rgb, uniforms) for rgb in COLOURS]),
            },
            _mask([SIGHT**2 // 2], SIGHT**2, uniforms).unsqueeze(-1),
        )

    def enter(self, world: World, frame: int) -> World:
        """The agent at the start of a room, if the frame is its first."""
        if frame == 0 or self.room(frame) == self.room(frame - 1):
            return world
        return world._replace(at=torch.full_like(world.at, places(self.room(frame), "+")[0]))

    def sight(self, world: World, frame: int) -> Tensor:
        """The 5 × 5 cells around the agent; (B, 75)"""
        room, rows = self.room(frame), torch.arange(-PAD, PAD + 1, device=world.at.device)
        y, x = (world.at // WIDTH).unsqueeze(-1) + rows, (world.at % WIDTH).unsqueeze(-1) + rows
        inside = ((y >= 0) & (y < HEIGHT)).unsqueeze(-1) & ((x >= 0) & (x < WIDTH)).unsqueeze(-2)
        cells = (y.clamp(0, HEIGHT - 1) * WIDTH).unsqueeze(-1) + x.clamp(0, WIDTH - 1).unsqueeze(-2)
        cells, inside = cells.flatten(1), inside.flatten(1)
        rgb = world.rgb
        seen = torch.where((world.walls[room][cells] & inside).unsqueeze(-1), rgb["border"], rgb["background"])
        if room == "apples":
            there = (world.apples.gather(1, cells) == 0) & inside
            seen = torch.where(there.unsqueeze(-1), rgb["apple"], seen)
        elif room == "doors":
            for door in range(3):
                here = (cells == world.doors[door]) & inside & world.open.unsqueeze(-1)
                seen = torch.where(here.unsqueeze(-1), rgb["doors"][door], seen)
        else:
            shown = rgb["doors"][world.colour].unsqueeze(1)
            seen = torch.where(((cells == world.target.unsqueeze(-1)) & inside).unsqueeze(-1), shown, seen)
        return torch.where(world.centre, rgb["player"], seen).flatten(1)

    def act(self, world: World, action: Tensor, frame: int) -> tuple[World, Tensor]:
        """The world after an action (B,), and the reward (B,)."""
        room = self.room(frame)
        to = (world.at + world.moves[action]).clamp(0, CELLS - 1)
        at = torch.where(world.walls[room][to], world.at, to) if room != "passive" else world.at
        world, reward = world._replace(at=at), torch.zeros(at.shape, device=at.device)
        if room == "apples":
            here = one_hot(at, CELLS).bool()
            eaten = here & (world.apples == 0)
            waiting = torch.where(world.apples > self.steps, world.apples, (world.apples - 1).clamp(min=0))
            reward = self.apple_reward * eaten.any(-1).float()
            world = world._replace(apples=torch.where(eaten, RESPAWN + 1, waiting))
        elif room == "doors":
            chosen = (at.unsqueeze(-1) == world.doors) & world.open.unsqueeze(-1)
            right = (chosen & (world.colour.unsqueeze(-1) == torch.arange(3, device=at.device))).any(-1)
            reward, world = PRIZE * right.float(), world._replace(open=world.open & ~chosen.any(-1))
        return world, reward

    # ------------------------------------------------------------ what is learnt

    def returns(self, rewards: Tensor, values: Tensor) -> Tensor:
        """λ-returns with λ = γ; the episode ends after the last step; each (T, B)"""
        found, total, following = [], torch.zeros_like(rewards[0]), torch.zeros_like(rewards[0])
        for reward, value in zip(rewards.flip(0).unbind(0), values.flip(0).unbind(0)):
            total = reward + self.discount * ((1 - self.discount) * following + self.discount * total)
            following = value
            found.append(total)
        return torch.stack(found[::-1])

    def loss(self, prediction: "Tensor | tuple[Tensor, ...]", batch: Batch) -> Tensor:
        """Advantage actor-critic: −log π A − entropy + 0.4 of half the squared error of values, mean over steps."""
        chosen, values, entropies, rewards, rest = prediction
        returns = self.returns(rewards, values.detach())
        advantages = returns - values.detach()
        policy = -(chosen * advantages).mean() - self.entropy * entropies.mean()
        return policy + 0.4 * 0.5 * (returns - values).square().mean() + rest

    def measures(self, prediction: "Tensor | tuple[Tensor, ...]", batch: Batch) -> dict[str, Tensor]:
        """``error``: share of episodes without the prize; ``prize``: reward of the last room; ``reward``: of all."""
        rewards = prediction[3]
        last = rewards[-self.frames[2] :].sum(0)
        return {
            "error": sum_and_count((last < PRIZE).float()),
            "prize": sum_and_count(last),
            "reward": sum_and_count(rewards.sum(0)),
        }


def _table(values: Sequence[float], like: Tensor) -> Tensor:
    """Numbers on a device, written there by itself, which a CUDA graph can record."""
    return torch.stack([torch.full((), value, device=like.device) for value in values])


def _mask(cells: Sequence[int], count: int, like: Tensor) -> Tensor:
    """(count,), true at ``cells``"""
    every = torch.arange(count, device=like.device)
    return torch.stack([every == cell for cell in cells]).any(0)
