"""Ten seeds of the LeNet of figure 4 against a plain PyTorch loop over seeds: ``python -m benchmarks.lenet``.

    python -m benchmarks.lenet
    python -m benchmarks.lenet --device cuda

Sequences of two digits, 64 to a batch, so 128 images in every update of every seed; mean squared error, Adam. *Plain*
is eager torch as one would write it: for each seed its batch, forward, backward and ``torch.optim.Adam``. *Trainer* is
what ``numerate run nau2020/figure4`` does, data and log included: on a CPU each seed by itself, threads over seeds; on
a GPU all seeds stacked in one CUDA graph. There it stands twice: with convolutions as matrix products, and as the
grouped ones that ``vmap`` makes of them. Rounds of all take turns, so that a busy machine is busy for all; the ratio is
the median over rounds. Before that the losses of the first updates are compared. Images are random: speed does not
depend on them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments.nau2020.digit_models import DigitNetwork, digit_network
from numerate.tasks import DigitSequences
from numerate.tasks.digits import DEVIATION, MEAN
from numerate.train import NetworkTraining
from numerate.train.networks.group import NetworkGroup, exact_products
from numerate.train.networks.specification import NetworkRun
from numerate.train.sink import InMemory
from numerate.units import NMU

Round = Callable[[int], Tensor]
"""So many updates of all seeds; the losses of the last one, (seeds,)."""


def made_up(data: Any = None) -> Images:
    """Random images in place of MNIST, of digits 1 to 9."""
    draw = torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    for count in (60_000, 10_000):
        parts.append(torch.randint(256, (count, 28, 28), generator=draw, dtype=torch.uint8))
        parts.append(torch.arange(count) % 9 + 1)
    return Images(*parts)


class PlainReader(nn.Module):
    """LeNet as one would write it, with the parameters of our reader."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.hidden, self.output = nn.Linear(800, 500), nn.Linear(500, 1)
        self.load_state_dict(reader.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.first(x.view(-1, 1, 28, 28)).relu(), 2)
        x = F.max_pool2d(self.second(x).relu(), 2)
        return self.output(self.hidden(x.flatten(1)).relu())


class Plain:
    """A loop over seeds, each a module with its own optimiser."""

    def __init__(self, training: NetworkTraining, device: str) -> None:
        self.task: Any = training.task
        self.data = {name: value.to(device) for name, value in self.task.data().items()}
        self.orders = [self.task.order(seed, 0)["order"].to(device) for seed in training.seeds]
        self.models = []
        for seed in training.seeds:
            model: Any = training.build(seed)
            model.reader = PlainReader(model.reader)
            self.models.append(model.to(device))
        self.optimisers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in self.models]
        self.done = 0

    def __call__(self, count: int) -> Tensor:
        losses = []
        for _ in range(count):
            losses = [self.update(*each) for each in zip(self.models, self.optimisers, self.orders)]
            self.done = (self.done + 1) % self.task.epoch
        return torch.stack(losses)

    def update(self, model: DigitNetwork, optimiser: torch.optim.Adam, order: Tensor) -> Tensor:
        chosen = order[self.done * 64 : self.done * 64 + 64].T
        digits = self.data["train_labels"][chosen].float().unsqueeze(-1)
        x = (self.data["train"][chosen].float() / 255 - MEAN) / DEVIATION
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), digits.cumprod(0))
        loss.backward()
        optimiser.step()
        return loss.detach()


class Trainer:
    """The same by the trainer of numerate; ``grouped``: with convolutions as ``vmap`` makes them."""

    def __init__(self, training: NetworkTraining, device: str, threads: int, grouped: bool = False) -> None:
        runs = {key: NetworkRun(training, seed) for key, seed in zip(training.run_keys(), training.seeds)}
        self.group = NetworkGroup(runs, InMemory(), "benchmark", device, threads)
        self.group.prepare()
        self.errors, self.epoch, self.done = torch.zeros(len(runs), device=device), training.task.epoch or 0, 0
        if grouped:
            for stack in self.group.stacks:
                stack.convolutions = nullcontext

    def __call__(self, count: int) -> Tensor:
        if self.done % self.epoch + count > self.epoch:
            self.done = (self.done // self.epoch + 1) * self.epoch
        stacks = self.group.stacks
        found = self.group._over_stacks(lambda k, part: stacks[k].train(self.done, count, self.errors[part])[0][-1])
        self.done += count
        return torch.cat(found)[torch.from_numpy(self.group.places)]


def seconds(work: Round, count: int, device: str) -> float:
    start = time.perf_counter()
    work(count)
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def check(first: Round, others: dict[str, Round]) -> None:
    """Raises ValueError unless all compute the same losses, up to rounding, in the first updates."""
    expected = [first(1).cpu() for _ in range(3)]
    for name, work in others.items():
        found = [work(1).cpu() for _ in range(3)]
        if not torch.allclose(torch.stack(found), torch.stack(expected), rtol=1e-3):
            raise ValueError(f"{name} computes other losses than the plain loop: {found} and {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int, help="of every seed in a round (default: 6 on a CPU, 100 on a GPU)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    mnist.load = made_up
    task = DigitSequences("product", held_out=100, test_lengths=(2,))
    model = partial(digit_network, cell=NMU, initial=1.0)
    training = NetworkTraining(model, task, tuple(range(asked.seeds)))
    updates = asked.updates or (6 if asked.device == "cpu" else 100)
    images = asked.seeds * updates * task.batch_size * task.length
    with exact_products():
        rivals: dict[str, Round] = {"trainer": Trainer(training, asked.device, asked.threads)}
        if asked.device != "cpu":
            rivals["trainer, grouped convolutions"] = Trainer(training, asked.device, asked.threads, grouped=True)
        plain = Plain(training, asked.device)
        check(plain, rivals)
        times = {name: [] for name in ("plain", *rivals)}
        for _ in range(asked.rounds):
            for name, work in {"plain": plain, **rivals}.items():
                times[name].append(seconds(work, updates, asked.device))
    print(f"| {asked.seeds} seeds, {asked.device}, {asked.threads} threads | images/s | ms an update of all | ratio |")
    print("|---|---|---|---|")
    for name, found in times.items():
        middle = statistics.median(found)
        ratio = statistics.median(a / b for a, b in zip(times["plain"], found))
        print(f"| {name} | {images / middle:,.0f} | {1000 * middle / updates:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
