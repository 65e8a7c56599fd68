"""What each part of NATU is for: ``python -m benchmarks.one_unit_ablation``; the table is markdown.

One part at a time is replaced, in a process with a cache of its own, and the unit trained on random ranges (those of
the seed for development). ``--picture FILE`` draws the table.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numerate.experiments.one_unit import natu_recipe
from numerate.results import Store
from numerate.results.outcome import judge
from numerate.tasks import AnyRange, LabelNoise, random_ranges
from numerate.tasks.any_range import DEVELOPMENT
from numerate.tasks.task import Task
from numerate.train import Training, train
from numerate.units import NATU

parts = importlib.import_module("numerate.units.natu")  # the package has a function of that name
OPERATIONS = {"add": "+", "sub": "−", "mul": "×", "div": "÷"}
INPUTS = (2, 10)
NOISY = "all, 10 inputs, noise"
HARD = {
    "× 2 inputs, [-2.2, -1.9)": AnyRange("mul", (-2.2, -1.9), (-6.6, -2.2)),
    "× 10 inputs, [-2e-5, 2e-4)": AnyRange("mul", (-2e-5, 2e-4), ((-6e-4, -2e-4), (2e-4, 6e-4)), 10),
}
"""Where a + b is nearly -a b; and where products are lost beside a 1."""
CELLS = [*(f"{sign} {inputs} inputs" for inputs in INPUTS for sign in OPERATIONS.values()), NOISY, *HARD]


def plain_slopes(error: Tensor, x: Tensor, share: Tensor) -> Tensor:
    """A gradient divided by the mean square of its input: no offset is taken out."""
    share = (share / (share.sum(0) + 1e-6)).transpose(0, 1)
    return (share * error.transpose(0, 1)) @ x / (share @ (x * x) + parts.SMALLEST)


def relative_slopes(x: Tensor, weight: Tensor, answer: Tensor, target: Tensor, known: Tensor, large: Tensor) -> Tensor:
    """Of the power's relative error, 1 - target / power, in place of the difference of logarithms."""
    _, power = parts.paths(x, torch.zeros_like(weight), weight)
    return parts.slopes(1 - target / parts.guarded(power), parts.logarithm(x), known)


def difference_of(errors: Tensor, others: Tensor) -> Tensor:
    return errors.mean(0) - others.mean(0)


def ordinary_training(unit: NATU, x: Tensor) -> Tensor:
    return parts.natu(x, unit.sum_weight, unit.power_weight, unit.gate)


def change(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(parts, name, value)


VARIANTS: Mapping[str, Callable[[], None]] = {
    "NATU": lambda: None,
    "ordinary gradient, no targets": lambda: setattr(NATU, "forward", ordinary_training),
    "slopes without an offset": change("slopes", plain_slopes),
    "relative error for the logarithm's": change("power_slopes", relative_slopes),
    "weights not caught by whole numbers": change("caught", lambda weight: weight),
    "gate by the difference of errors": change("comparison_of", difference_of),
    "lost targets taken as they are": change("UNRESOLVED", 0.0),
}


def drawn(ranges: int) -> list[AnyRange]:
    return [
        AnyRange(operation, *spans, inputs)
        for inputs in INPUTS
        for operation in OPERATIONS
        for spans in random_ranges(ranges, DEVELOPMENT)
    ]


def training(task: Task, cell: str, seeds: int) -> Training:
    return natu_recipe().training(task=task, seeds=tuple(range(seeds)), steps=2000, labels={"cell": cell})


def rates(variant: str, ranges: int, seeds: int) -> dict[str, list[int]]:
    """Operation and number of inputs -> solved runs, and all of them."""
    VARIANTS[variant]()
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
        work = [training(task, f"{OPERATIONS[task.operation]} {task.inputs} inputs", seeds) for task in drawn(ranges)]
        work += [training(LabelNoise(task), NOISY, seeds) for task in drawn(ranges) if task.inputs == INPUTS[-1]]
        work += [training(task, name, 16) for name, task in HARD.items()]
        train(work, store, threads=torch.get_num_threads())
        for row in store.rows():
            counts = found.setdefault(str(row.labels["cell"]), [0, 0])
            counts[0] += judge(row).solved
            counts[1] += 1
    return found


def measured(variant: str, ranges: int, seeds: int) -> dict[str, list[int]]:
    """:func:`rates` in a process of its own, which has compiled nothing yet."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.one_unit_ablation", "--variant", variant]
        command += ["--ranges", str(ranges), "--seeds", str(seeds)]
        done = subprocess.run(
            command, env={**os.environ, "NUMERATE_CACHE": cache}, check=True, capture_output=True, text=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def draw(table: Mapping[str, Mapping[str, list[int]]], file: Path) -> None:
    """Success rates as a map: variants down, cells across."""
    from matplotlib.figure import Figure

    from numerate.report.figures import RATES, style

    shares = [[found[cell][0] / found[cell][1] for cell in CELLS] for found in table.values()]
    with style():
        fig = Figure(figsize=(9.4, 0.6 + 0.36 * len(table)), layout="constrained")
        ax = fig.subplots()
        ax.imshow(shares, cmap=RATES, vmin=0, vmax=1, aspect="auto")
        for line, row in enumerate(shares):
            for column, share in enumerate(row):
                colour = "white" if share > 0.6 else "black"
                ax.text(column, line, f"{100 * share:.0f}", ha="center", va="center", fontsize=8, color=colour)
        ax.set_xticks(
            range(len(CELLS)), [cell.replace(", ", "\n").replace(" inputs", "\ninputs") for cell in CELLS], fontsize=7.5
        )
        ax.set_yticks(range(len(table)), list(table))
        ax.grid(False)
        ax.spines[:].set_visible(False)
        fig.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranges", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variant", choices=VARIANTS, help="this one alone, as JSON")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(rates(options.variant, options.ranges, options.seeds)))
        return
    print(f"| success, % | {' | '.join(CELLS)} |\n|{'---|' * (len(CELLS) + 1)}")
    table: dict[str, dict[str, list[int]]] = {}
    for variant in VARIANTS:
        table[variant] = found = measured(variant, options.ranges, options.seeds)
        print(f"| {variant} | {' | '.join(f'{100 * found[c][0] / found[c][1]:.0f}' for c in CELLS)} |", flush=True)
    if options.picture:
        draw(table, options.picture)


if __name__ == "__main__":
    main()
