"""Units as recurrent cells: ``python -m benchmarks.one_unit_recurrent --seeds 20``; the table is markdown.

h_t = unit([x_t, h_{t-1}]) must learn h_{t-1} + x_t, - x_t, · x_t or / x_t, from h_0 = 0 or 1. Sequences have 5 steps in
training and 100 in the test. Targets are given at every step, or at the last alone. Success: the last value of the
test is off by less than 1e-5 of its size for each step, in the root mean square. Each unit is trained as in the zoo;
NATU for 2,000 steps, the others for 5,000. Runs are stored under ``--out`` and are not trained again.
"""

import argparse
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from numerate.experiments.zoo import recipes
from numerate.recurrent import Step, UnitCell
from numerate.results import Row, Store
from numerate.results.outcome import judge
from numerate.streams import Domain, uniform
from numerate.tasks.task import TEST_SEED, Interval, Split, range_constants, spread
from numerate.train import Training, train

SUMS, POWERS = ((2.0, 3.0), (-2.0, 7.0), (50.0, 60.0)), ((0.8, 1.25), (-1.4, -0.9), (0.6, 1.4))
"""Ranges; of products and quotients such that 100 of them neither vanish nor overflow."""
RANGES = {"add": SUMS, "sub": SUMS, "mul": POWERS, "div": POWERS}
UNITS = ("NATU", "NAC+", "NAU", "NALU (shared)", "NMU", "NMRU")
EPSILON = 1e-5


@dataclass(frozen=True)
class Running:
    """y_t = y_{t-1} ∘ x_t along time, from 0 or 1; x: (n, steps), y: (n, steps), or (n, 1) where the last counts."""

    operation: str
    span: Interval
    read: Literal["all", "last"] = "all"
    length: int = 5
    test_length: int = 100

    @property
    def inputs(self) -> int:
        return self.length

    @property
    def outputs(self) -> int:
        return self.length if self.read == "all" else 1

    @property
    def draws(self) -> int:
        return self.length

    @property
    def form(self) -> Hashable:
        return type(self), self.read, self.length, self.test_length

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return range_constants(self.span) | {"operation": torch.tensor(float(list(RANGES).index(self.operation)))}

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, number = spread(uniforms, constants, union=False), constants["operation"]
        total, power, found = torch.zeros_like(x[:, :1]), torch.ones_like(x[:, :1]), []
        for value in x.split(1, -1):
            total = total + torch.where(number == 1, -value, value)
            power = power * torch.where(number == 3, 1 / value, value)
            found.append(torch.where(number < 2, total, power))
        return x, torch.cat(found, -1) if self.read == "all" else found[-1]

    def held_out(self, split: Split, size: int) -> Tensor | None:
        """Test: numbers for the longer sequences."""
        if split != "test":
            return None
        return uniform(torch.tensor(TEST_SEED), Domain.TEST, 0, size * self.test_length).view(size, self.test_length)

    def error(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Squared error of the last value, whichever steps have targets."""
        return (prediction[:, -1] - target[:, -1]) ** 2

    def threshold(self) -> float:
        return _threshold(self)


@cache
def _threshold(task: Running) -> float:
    numbers = task.held_out("test", 2000)
    assert numbers is not None
    last = task.examples(numbers, task.constants(0, "test"))[1][:, -1].double()
    return float(((EPSILON * task.test_length * last) ** 2).mean())


class Along(nn.Module):
    """A unit as the cell along a sequence of numbers; (n, steps) -> (n, steps), or the last step, (n, 1)."""

    def __init__(self, inputs: int, outputs: int, unit: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cell, self.every = Step(UnitCell(1, 1, unit=unit)), outputs > 1

    def forward(self, x: Tensor) -> Tensor:
        found, state = [], None
        for value in x.split(1, -1):
            output, state = self.cell(value, state)
            found.append(output)
        if not self.every:
            return found[-1]
        outputs = torch.cat(found, -1)
        # gradients of a sum over time in place of those of a mean: NATU reads the target of each step off them
        return outputs + (len(found) - 1) * (outputs - outputs.detach())


def training(unit: str, task: Running, seeds: tuple[int, ...]) -> Training:
    steps = 2000 if unit == "NATU" else 5000
    recipe = recipes(steps)[unit]
    every = {} if unit == "NATU" else {"evaluate_every": 250}
    return replace(recipe, model=partial(Along, unit=recipe.model), evaluation_size=500).training(
        task=task, seeds=seeds, steps=steps, labels={"operation": task.operation}, **every
    )


def line(unit: str, rows: Sequence[Row]) -> str:
    """Solved runs of each operation, with rounded weights in brackets where that differs; steps to solve."""
    cells, at = [], []
    for operation in RANGES:
        found = [judge(row) for row in rows if row.labels["operation"] == operation]
        at += [one.solved_at for one in found if one.solved and one.solved_at is not None]
        solved, rounded = sum(one.solved for one in found), sum(bool(one.snapped) for one in found)
        cells.append(f"{solved}" + (f" ({rounded})" if rounded != solved else ""))
    median = f"{sorted(at)[len(at) // 2]:,}" if at else "–"
    return f"| {unit} | {' | '.join(cells)} | {median} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--units", nargs="*", default=UNITS)
    parser.add_argument("--read", nargs="*", default=("all", "last"))
    parser.add_argument("--out", default="results")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    with Store(Path(options.out) / "one_unit_recurrent.sqlite") as store:
        for read in options.read:
            runs = options.seeds * len(SUMS)
            print(
                f"\n| targets: {read}; solved of {runs} | + | − | × | ÷ | steps to solve |\n|---|---|---|---|---|---|"
            )
            for unit in options.units:
                tasks = [Running(operation, span, read) for operation, spans in RANGES.items() for span in spans]
                work = [training(unit, task, tuple(range(options.seeds))) for task in tasks]
                train(work, store, experiment="one_unit_recurrent", threads=options.threads)
                keys = {key for one in work for key in one.run_keys()}
                print(line(unit, [row for row in store.rows() if row.key in keys]), flush=True)


if __name__ == "__main__":
    main()
