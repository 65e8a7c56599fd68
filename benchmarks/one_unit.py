"""What NATU solves: ``python -m benchmarks.one_unit --device cuda --seeds 50``; the table is markdown.

Each row is one group of tasks. Runs are stored under ``--out`` and are not trained again; ``--only`` chooses rows by a
part of their name. Steps to solve: median over the solved runs, evaluated every 25 steps.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from numerate.experiments.one_unit import behind, natu_recipe
from numerate.results import Row, Store
from numerate.results.outcome import judge
from numerate.stats import wilson
from numerate.tasks import (
    COMPOSED,
    PRIMER_RANGES,
    AnyRange,
    Arithmetic,
    Composed,
    LabelNoise,
    SingleModule,
    random_ranges,
)
from numerate.tasks.task import Task
from numerate.train import Adam, Settings, Training, train
from numerate.train.specification import Factory
from numerate.units import NATU, NAU

OPERATIONS = ("add", "sub", "mul", "div")
RANGES = 200


@dataclass(frozen=True)
class Group:
    """A row of the table.

    Args:
        name: what it is of.
        goal: success rate in percent that was aimed at.
        tasks: what is trained.
        training: task, seeds -> configuration.
        share: seeds of this row for each of the command's.
    """

    name: str
    goal: int
    tasks: Callable[[], Iterable[Task]]
    training: Callable[[Task, tuple[int, ...]], Training]
    share: float = 1.0


def alone(task: Task, seeds: tuple[int, ...], model: Factory = NATU, steps: int = 2000) -> Training:
    """NATU as the whole model, or as a part of it."""
    return natu_recipe(model).training(task=task, seeds=seeds, steps=steps)


behind_sums = partial(alone, model=partial(behind, first=NAU), steps=100_000)
"""NATU behind an NAU of two hidden values, as the zoo has it."""
twice = partial(alone, model=partial(behind, first=NATU), steps=60_000)
"""Two layers of NATU, two hidden values."""


def told_otherwise(inputs: int, outputs: int, *, first: Factory) -> nn.Sequential:
    """As :func:`behind`, but what is sent below is what the other kind of layer learns from."""
    hidden, top = behind(inputs, outputs, first=first)
    assert isinstance(top, NATU)
    top.below = "changes" if top.below == "targets" else "targets"
    return nn.Sequential(hidden, top)


def given(inputs: int, outputs: int, *, formula: str) -> nn.Sequential:
    """Two layers of NATU whose gates, and the weights of the second, are those of the formula."""
    hidden, top = COMPOSED[formula]
    model = nn.Sequential(NATU(inputs, 2), NATU(2, outputs))
    second = torch.tensor([[1.0, -1.0 if top in ("sub", "div") else 1.0]])
    with torch.no_grad():
        for name in ("sum_weight", "power_weight"):
            model[0].get_parameter(name).uniform_(-0.5, 0.5)
            model[1].get_parameter(name).copy_(second)
        model[0].get_parameter("gate").fill_(float(hidden != "product"))
        model[1].get_parameter("gate").fill_(float(top in ("add", "sub")))
    return model


def hidden_alone(task: Task, seeds: tuple[int, ...], steps: int = 4000) -> Training:
    """Only the hidden weights are learnt."""
    assert isinstance(task, Composed)
    still = Settings(rate=1e-9)
    optimiser = Adam(1e-2, parameters={"1.*": still, "0.gate": still})
    model = partial(given, formula=task.formula)
    return Training(model, task, seeds, optimiser, steps=steps, evaluate_every=100, evaluation_size=2000)


def primer(inputs: int) -> list[Task]:
    return [SingleModule(name, *spans, inputs) for name in OPERATIONS for spans in PRIMER_RANGES.items()]


def composed() -> list[Task]:
    return [Composed(formula) for formula in COMPOSED]


def anywhere(inputs: int) -> list[Task]:
    return [AnyRange(name, *spans, inputs) for name in OPERATIONS for spans in random_ranges(RANGES)]


def noisy(inputs: int) -> list[Task]:
    return [LabelNoise(task) for task in anywhere(inputs)]


GROUPS = (
    *(Group(f"Primer's 36 cells, {inputs} inputs", 100, partial(primer, inputs), alone) for inputs in (2, 10, 100)),
    *(Group(f"random ranges, {inputs} inputs", 99, partial(anywhere, inputs), alone) for inputs in (2, 10)),
    *(Group(f"label noise of 1 %, {inputs} inputs", 99, partial(noisy, inputs), alone, 0.2) for inputs in (2, 10)),
    *(
        Group(
            f"zoo, alone, {inputs} inputs", 100, lambda n=inputs: [SingleModule(o, inputs=n) for o in OPERATIONS], alone
        )
        for inputs in (2, 10, 100)
    ),
    Group("zoo, behind an NAU, 10 inputs", 100, lambda: [Arithmetic(o, inputs=10) for o in OPERATIONS], behind_sums),
    Group("hidden layer of NATU, the rest given", 95, composed, hidden_alone),
    Group("two layers of NATU", 95, composed, twice),
    Group(
        "NAU told targets",
        100,
        lambda: [Arithmetic(o, inputs=10) for o in OPERATIONS],
        partial(behind_sums, model=partial(told_otherwise, first=NAU)),
        0.16,
    ),
    Group("hidden NATU told changes", 95, composed, partial(twice, model=partial(told_otherwise, first=NATU)), 0.16),
)


def line(group: Group, rows: Sequence[Row]) -> str:
    found = [judge(row) for row in rows]
    solved = wilson(sum(one.solved for one in found), len(found))
    rounded = sum(bool(one.snapped) for one in found) / len(found)
    at = [one.solved_at for one in found if one.solved and one.solved_at is not None]
    median = f"{int(np.median(at)):,}" if at else "–"
    interval = f"{100 * (solved.value or 0):.1f} [{100 * (solved.low or 0):.1f}, {100 * (solved.high or 0):.1f}]"
    return f"| {group.name} | {len(found):,} | {interval} | {100 * rounded:.1f} | {median} | {group.goal} |"


def by_operation(rows: Sequence[Row]) -> str:
    """Solved runs of each operation or formula, where not all are solved."""
    parts: dict[str, list[bool]] = {}
    for row in rows:
        parts.setdefault(str(row.labels["operation"]), []).append(judge(row).solved)
    return "; ".join(f"{name}: {sum(solved)} of {len(solved)}" for name, solved in parts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", default="results")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    print("| tasks | runs | solved, % [95 %] | rounded, % | steps to solve | goal |\n|---|---|---|---|---|---|")
    left: list[str] = []
    with Store(folder / "one_unit.sqlite") as store:
        for group in (group for group in GROUPS if options.only in group.name):
            seeds = tuple(range(max(1, round(options.seeds * group.share))))
            work = [named(group.training(task, seeds)) for task in group.tasks()]
            train(work, store, experiment="one_unit", device=options.device, threads=options.threads)
            keys = {key for training in work for key in training.run_keys()}
            rows = [row for row in store.rows() if row.key in keys]
            print(line(group, rows), flush=True)
            if not all(judge(row).solved for row in rows):
                left.append(f"{group.name}: {by_operation(rows)}")
    print("\n" + "\n".join(left))


def named(training: Training) -> Training:
    """With the operation or formula as a label."""
    task = getattr(training.task, "task", training.task)  # without its noise
    return replace(training, labels={"operation": getattr(task, "operation", None) or getattr(task, "formula", "")})


if __name__ == "__main__":
    main()
