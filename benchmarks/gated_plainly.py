"""The gated NAU/NMU of Table 6 in plain PyTorch: ``python -m benchmarks.gated_plainly add``.

None of the authors' 600 runs of two gated layers was solved, and some of ours are. Here nothing of numerate takes part:
the starts, batches and test examples come from NumPy's and torch's streams as in the authors' scripts, the gradient
from ``torch.prod``, the steps from ``torch.optim.Adam``. Of 100 starts those that overflow in 200 steps are counted;
16 of the others go on, and the first thousandth step is told at which the test error of each is below the threshold of
the published table. The penalty, which sets in at step 1,000,000, is left out. 200,000 steps take 20 minutes on a core.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

THRESHOLDS = {"add": 1.47861742158438e-5, "sub": 1.38437045113029e-8}
TEST_SEED = 8689336


class Gated(nn.Module):
    """Two gated layers, 100 to 2 to 1, for each of the seeds."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        starts = zip(*(start(seed, _gated) for seed in seeds))
        self.weights = nn.ParameterList([torch.stack(values) for values in starts])

    def forward(self, x: Tensor) -> Tensor:
        for add, mul, gate in (list(self.weights)[:3], list(self.weights)[3:]):
            g, factors = torch.sigmoid(x @ gate.mT), mul.mT.unsqueeze(1)
            total, product = x @ add.clamp(-1, 1).mT, torch.prod(x.unsqueeze(-1) * factors + 1 - factors, -2)
            x = g * total + (1 - g) * product
        return x

    @torch.no_grad()
    def clip(self) -> None:
        for i, weight in enumerate(self.weights):
            if i % 3 < 2:
                weight.clamp_(-1 if i % 3 == 0 else 0, 1)


def start(seed: int, layer: Callable[[int, int], list[Tensor]]) -> list[Tensor]:
    """Matrices of two layers, 100 to 2 to 1; drawn by the constructors, and again by the script, which counts."""
    torch.manual_seed(seed)
    drawn = [matrix for _ in range(2) for sizes in ((100, 2), (2, 1)) for matrix in layer(*sizes)]
    return drawn[len(drawn) // 2 :]


def adding(inputs: int, outputs: int) -> Tensor:
    reach = min(0.5, math.sqrt(6 / (inputs + outputs)))
    return torch.empty(outputs, inputs).uniform_(-reach, reach)


def _gated(inputs: int, outputs: int) -> list[Tensor]:
    multiplying = torch.empty(outputs, inputs)
    return [
        adding(inputs, outputs),
        multiplying.uniform_(0.25, 0.75),
        nn.init.xavier_uniform_(torch.empty(outputs, inputs)),
    ]


class Data:
    """Sums of 25 neighbours among 100 numbers, twice, 12 in both; where they begin is drawn once for a seed."""

    def __init__(self, seed: int, operation: str) -> None:
        stream = np.random.RandomState(seed)
        self.begin, self.sign = stream.randint(0, 63), 1 if operation == "add" else -1
        self.train = np.random.RandomState(stream.randint(0, 2**32 - 1))

    def target(self, x: np.ndarray) -> np.ndarray:
        first, second = (x[:, at : at + 25].sum(1) for at in (self.begin, self.begin + 13))
        return (first + self.sign * second)[:, None]


def _pair(data: Sequence[Data], inputs: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    targets = [each.target(x) for each, x in zip(data, inputs)]
    return torch.from_numpy(np.stack(inputs)).float(), torch.from_numpy(np.stack(targets)).float()


def train(
    model: Any, seeds: Sequence[int], operation: str, steps: int, penalty: Callable[[int], Tensor] | None = None
) -> tuple[dict[int, int], list[int]]:
    """Seed -> first thousandth step below the threshold; and the seeds whose loss is finite at the end.

    ``penalty``: of all seeds, at a step.
    """
    data = [Data(seed, operation) for seed in seeds]
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    x = np.random.RandomState(TEST_SEED).uniform(2, 6, (10_000, 100))
    solved: dict[int, int] = {}
    losses = torch.empty(0)
    for step in range(steps + 1):
        if step % 1000 == 0 and step:
            with torch.no_grad():
                errors = torch.zeros(len(data))
                for part in np.array_split(x, 10):
                    inputs, targets = _pair(data, [part] * len(data))
                    errors += (model(inputs) - targets).square().mean((1, 2)) / 10
            below = (seed for seed, error in zip(seeds, errors.tolist()) if error < THRESHOLDS[operation])
            solved |= {seed: step for seed in below if seed not in solved}
            if step % 10_000 == 0:
                print(f"step {step:,}: {len(solved)} of {len(seeds)} have been below", flush=True)
        inputs, targets = _pair(data, [each.train.uniform(1, 2, (128, 100)) for each in data])
        losses = (model(inputs) - targets).square().mean((1, 2))
        optimiser.zero_grad()
        (losses.sum() if penalty is None else losses.sum() + penalty(step)).backward()
        optimiser.step()
        model.clip()
    return solved, [seed for seed, loss in zip(seeds, losses.tolist()) if math.isfinite(loss)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("operation", choices=list(THRESHOLDS))
    parser.add_argument("--steps", type=int, default=200_000)
    asked = parser.parse_args()
    left = [seed for seed in range(100) if train(Gated([seed]), [seed], asked.operation, 200)[1]]
    print(f"{100 - len(left)} of 100 overflow within 200 steps")
    solved, _ = train(Gated(left[:16]), left[:16], asked.operation, asked.steps)
    print(f"seeds {left[:16]}: {len(solved)} of 16 have been below the threshold, first at {solved}")


if __name__ == "__main__":
    main()
