"""The NAU of Table 6 on sums in plain PyTorch: ``python -m benchmarks.nau_plainly add``.

A few of the authors' 100 runs are solved millions of steps later than all others, and none of ours is. Here, as in
:mod:`benchmarks.gated_plainly`, nothing of numerate takes part and the random numbers are those of the authors'
scripts; the steps are told at which the test errors of 100 seeds are below the threshold. It takes five
minutes on a core.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks.gated_plainly import THRESHOLDS, adding, start, train


class Sums(nn.Module):
    """Two NAU layers, 100 to 2 to 1, for each of the seeds."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [torch.stack(values) for values in zip(*(start(seed, lambda *sizes: [adding(*sizes)]) for seed in seeds))]
        )

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x @ weight.clamp(-1, 1).mT
        return x

    @torch.no_grad()
    def clip(self) -> None:
        for weight in self.weights:
            weight.clamp_(-1, 1)

    def penalty(self, step: int) -> Tensor:
        """How far weights are from -1, 0 and 1; it grows from step 5,000 to 50,000."""
        far = sum(torch.minimum(w.abs(), (1 - w.abs()).abs()).mean((1, 2)).sum() for w in self.weights)
        return torch.as_tensor(0.01 * min(max((step - 5000) / 45_000, 0), 1) * far)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("operation", choices=list(THRESHOLDS))
    parser.add_argument("--steps", type=int, default=25_000)
    asked = parser.parse_args()
    model, seeds = Sums(range(100)), range(100)
    solved, _ = train(model, seeds, asked.operation, asked.steps, model.penalty)
    print(f"{len(solved)} of 100 are solved by step {asked.steps:,}: {dict(sorted(Counter(solved.values()).items()))}")


if __name__ == "__main__":
    main()
