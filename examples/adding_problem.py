"""Adding problem (Hochreiter & Schmidhuber, 1997; Gu et al., 2020): sum the two marked numbers of a long sequence.

    python examples/adding_problem.py                  # minutes: UR-LSTM beside LSTM
    python examples/adding_problem.py --size smoke     # seconds

A unit that always answers 1 has the squared error 1/6.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from numerate.recurrent import LSTM, URLSTM

BASELINE = 1 / 6


@dataclass(frozen=True)
class Size:
    length: int
    updates: int
    units: int
    batch: int = 32


SIZES = {"smoke": Size(8, 3, 4), "quick": Size(200, 2500, 64), "paper": Size(2000, 100_000, 256)}


def adding(size: Size, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One batch: numbers in U[0, 1] beside marks, one in each half; (length, batch, 2) -> sums (batch,)."""
    length, batch, half = size.length, size.batch, size.length // 2
    numbers = torch.rand(length, batch, generator=generator)
    first = torch.randint(half, (batch,), generator=generator)
    second = torch.randint(half, length, (batch,), generator=generator)
    marks = F.one_hot(first, length) + F.one_hot(second, length)
    x = torch.stack((numbers, marks.T.float()), -1)
    return x, x.prod(-1).sum(0)


class Adder(nn.Module):
    """A recurrent layer and a linear readout at the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.readout = nn.Linear(layer.output_size, 1)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.layer(x)[0][-1]).squeeze(-1)


def train(make: Callable[[int, int], nn.Module], size: Size, seed: int = 0) -> list[float]:
    """Squared error per update; both units see the same batches."""
    torch.manual_seed(seed)
    model, data = Adder(make(2, size.units)), torch.Generator().manual_seed(seed + 1)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    for _ in range(size.updates):
        x, y = adding(size, data)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def smooth(losses: list[float], window: int = 50) -> list[float]:
    """Running mean."""
    values = torch.tensor(losses)
    window = min(window, len(losses))
    return values.unfold(0, window, 1).mean(-1).tolist()


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """Loss against updates, the baseline dashed."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.add_subplot()
    for name, losses in curves.items():
        means = smooth(losses)
        updates = range(0, len(means), max(1, len(means) // 400))
        ax.plot(updates, [means[update] for update in updates], label=name, linewidth=1.4)
    ax.axhline(BASELINE, color="0.4", linestyle="--", linewidth=0.8, label="always 1")
    ax.set(xlabel="update", ylabel="squared error", yscale="log", title="Adding problem")
    ax.legend(frameon=False)
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Train both units, print where each ends, save the picture."""
    parser = argparse.ArgumentParser(description="The adding problem with UR-LSTM beside LSTM.")
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--out", type=Path, default=Path("adding_problem.svg"))
    options = parser.parse_args(arguments)
    size = SIZES[options.size]
    print(f"length {size.length}, {size.updates} updates; always answering 1 has the error {BASELINE:.4f}")
    curves = {}
    for name, make in {"UR-LSTM": URLSTM, "LSTM": LSTM}.items():
        start = perf_counter()
        curves[name] = train(make, size)
        print(f"{name:8} {smooth(curves[name])[-1]:.4f}   {perf_counter() - start:.0f} s", flush=True)
    draw(curves, options.out)
    return curves


if __name__ == "__main__":
    main()
