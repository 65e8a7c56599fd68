"""The grid world of a match: walls stop, apples come back, and the door of the colour pays."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from numerate.experiments.ur2020.agents import Agent, agent
from numerate.streams import Domain, uniform
from numerate.tasks import Match
from numerate.tasks.match import CELLS, COLOURS, PRIZE, WIDTH, World, places

NORTH, SOUTH, WEST, EAST = range(4)


def worlds(task: Match, count: int = 300) -> World:
    return task.start(uniform(0, Domain.TRAIN, 0, task.drawn * count).view(task.drawn, count))


def moved(task: Match, world: World, action: int, frame: int) -> tuple[World, Tensor]:
    return task.act(world, torch.full_like(world.at, action), frame)


def test_worlds_have_ten_apples_and_every_colour_and_place():
    task = Match("active")
    world = worlds(task)
    assert ((world.apples == 0).sum(-1) == 10).all()
    assert set(world.colour.tolist()) == {0, 1, 2}
    assert set(world.target.tolist()) == set(places("active", "p"))
    assert set(world.at.tolist()) == set(places("active", "+"))


def test_walls_stop_and_the_passive_agent_stays():
    task, frame = Match("active"), 0
    world = worlds(task)
    for _ in range(10):
        world, _ = moved(task, world, WEST, frame)
    assert set((world.at % WIDTH).tolist()) == {3}
    passive = worlds(Match("passive"))
    assert torch.equal(moved(Match("passive"), passive, NORTH, 0)[0].at, passive.at)


def test_the_colour_is_in_sight_of_the_passive_agent():
    task = Match("passive")
    world = worlds(task)
    pixels = task.sight(world, 0).view(-1, 5, 5, 3)
    torch.testing.assert_close(pixels[:, 0, 2], torch.tensor(COLOURS)[world.colour])
    torch.testing.assert_close(pixels[:, 2, 2], torch.tensor((0.898, 0.584, 0.43)).expand(300, 3))


def test_an_apple_pays_once_and_is_back_after_twenty_frames():
    task, frame = Match("passive", apple_reward=5.0), 20
    world = worlds(task, 1)
    cell = places("apples", "a")[0]
    apples = torch.full((1, CELLS), task.steps + 1)
    apples[0, cell] = 0
    world = world._replace(apples=apples, at=torch.tensor([cell + 1]))
    world, reward = moved(task, world, WEST, frame)
    assert reward.item() == 5
    rewards = []
    for _ in range(21):  # the wall is west of it: the agent stays
        world, reward = moved(task, world, WEST, frame)
        rewards.append(reward.item())
    assert rewards == [0.0] * 21
    assert moved(task, world, WEST, frame)[1].item() == 5


def test_the_door_of_the_colour_pays_and_all_doors_close():
    task = Match("passive")
    frame = task.steps - 1
    world = task.enter(worlds(task), task.steps - 15)
    assert set(world.at.tolist()) == set(places("doors", "+"))
    door = world.doors[0]
    world = world._replace(at=(door + WIDTH).expand_as(world.at))
    world, reward = moved(task, world, NORTH, frame)
    assert torch.equal(reward, PRIZE * (world.colour == 0).float())
    assert not world.open.any()
    away, _ = moved(task, world, SOUTH, frame)
    assert not moved(task, away, NORTH, frame)[1].any()


def test_returns_are_those_of_the_recursion_written_out():
    task = Match(discount=0.5)
    rewards, values = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[8.0], [16.0], [32.0]])
    last = 4.0
    middle = 2 + 0.5 * (0.5 * 32 + 0.5 * last)
    first = 1 + 0.5 * (0.5 * 16 + 0.5 * middle)
    torch.testing.assert_close(task.returns(rewards, values), torch.tensor([[first], [middle], [last]]))


@pytest.mark.parametrize("core", ["LSTM", "RMA"])
def test_agents_learn_from_episodes_and_stack(core):
    task = Match("active", frames=(2, 2, 3), batch_size=3)
    agents = [agent(task.inputs, 4, task=task, core=core, gate="UR", hidden=4, width=4) for _ in range(2)]
    batches = [task.batch(torch.tensor(seed), torch.tensor(0), {}) for seed in range(2)]
    values, _ = stack_module_state(agents)  # type: ignore[arg-type]
    base: Agent = agents[0]

    def loss(values: dict[str, Tensor], seed: Tensor) -> Tensor:
        batch = task.batch(seed, torch.zeros((), dtype=torch.int64), {})
        return task.loss(functional_call(base, values, (batch.x,)), batch)

    stacked = vmap(loss)(values, torch.arange(2))
    single = torch.stack([task.loss(model(batch.x), batch) for model, batch in zip(agents, batches)])
    torch.testing.assert_close(stacked, single)
    single.sum().backward()
    assert all(parameter.grad is not None for model in agents for parameter in model.parameters())
