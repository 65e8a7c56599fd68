"""Copying memory (Chandar et al., 2019, Figure 1): remember ten symbols across a hundred blank steps.

    python examples/copying_memory.py                  # minutes: T = 100, four units of about 23,500 weights
    python examples/copying_memory.py --size smoke     # seconds: T = 5, a few updates

A unit without memory stays on the baseline 10 ln 8 / (T + 20), what guessing the symbols costs.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from numerate.recurrent import JANET, LSTM, NRU

SYMBOLS, COUNT, BATCH = 8, 10, 10
BLANK, MARKER = 8, 9


@dataclass(frozen=True)
class Size:
    lag: int
    updates: int
    width: float = 1.0  # of the published units


SIZES = {"smoke": Size(5, 3, 0.2), "quick": Size(100, 6500), "paper": Size(100, 20_000)}


def copying(lag: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One batch: inputs (lag + 20, batch, 10) one-hot, targets (lag + 20, batch)."""
    symbols = torch.randint(SYMBOLS, (COUNT, BATCH), generator=generator)
    x = torch.full((lag + 2 * COUNT, BATCH), BLANK)
    x[:COUNT], x[lag + COUNT - 1] = symbols, MARKER
    y = torch.full((lag + 2 * COUNT, BATCH), BLANK)
    y[-COUNT:] = symbols
    return F.one_hot(x, SYMBOLS + 2).float(), y


def units(size: Size) -> dict[str, Callable[[], nn.Module]]:
    """The four units at the size of the paper, about 23,500 weights each."""
    inputs, longest = SYMBOLS + 2, size.lag + 2 * COUNT

    def wide(units: int) -> int:
        return max(4, int(size.width * units))

    return {
        "NRU": lambda: NRU(inputs, wide(80), memory_size=64, heads=4),
        "JANET, chrono": lambda: JANET(inputs, wide(101), timescale=longest),
        "LSTM, chrono": lambda: LSTM(inputs, wide(70), timescale=longest),
        "LSTM": lambda: LSTM(inputs, wide(70)),
    }


class Copier(nn.Module):
    """A recurrent layer and a linear readout at every step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.readout = nn.Linear(layer.output_size, SYMBOLS + 1)  # pyright: ignore[reportArgumentType]
        nn.init.xavier_normal_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.layer(x)[0])


def train(make: Callable[[], nn.Module], size: Size, seed: int = 0) -> list[float]:
    """Cross entropy per update, mean over all steps; every unit sees the same batches."""
    torch.manual_seed(seed)
    model, data = Copier(make()), torch.Generator().manual_seed(seed + 1)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    for _ in range(size.updates):
        x, y = copying(size.lag, data)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
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


def draw(curves: dict[str, list[float]], baseline: float, path: Path) -> None:
    """Loss against updates, the baseline dashed."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.add_subplot()
    for name, losses in curves.items():
        means = smooth(losses)
        updates = range(0, len(means), max(1, len(means) // 400))
        ax.plot(updates, [means[update] for update in updates], label=name, linewidth=1.4)
    ax.axhline(baseline, color="0.4", linestyle="--", linewidth=0.8, label="without memory")
    ax.set(xlabel="update", ylabel="cross entropy", yscale="log", title="Copying memory")
    ax.legend(frameon=False)
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Train the four units, print where each ends, save the picture."""
    parser = argparse.ArgumentParser(description="Copying memory with four recurrent units.")
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--out", type=Path, default=Path("copying_memory.svg"))
    options = parser.parse_args(arguments)
    size = SIZES[options.size]
    baseline = COUNT * log(SYMBOLS) / (size.lag + 2 * COUNT)
    print(f"T = {size.lag}, {size.updates} updates; without memory the loss is {baseline:.4f}")
    curves = {}
    for name, make in units(size).items():
        start = perf_counter()
        curves[name] = train(make, size)
        print(f"{name:14} {smooth(curves[name])[-1]:.4f}   {perf_counter() - start:.0f} s", flush=True)
    draw(curves, baseline, options.out)
    return curves


if __name__ == "__main__":
    main()
