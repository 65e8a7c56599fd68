"""Figure 9: which operation the gate of each run of Table 5 has chosen."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from numerate.experiments.experiment import Work
from numerate.experiments.nau2020.recipes import gated_recipes
from numerate.report import Picture
from numerate.report.figures import style
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.train import Training, stack

SIDES = {"mul": ("×", 0), "add": ("+", 1)}
"""Operation -> its sign, and the gate's value that chooses it."""


def gate(training: Training, row: Row) -> float:
    """Mean gate of a run's best weights over its test examples."""
    model = training.build(0)
    assert isinstance(model, nn.Sequential)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in row.stored_weights("best").items()})
    constants = training.task.constants(row.seed, "test")
    x, _ = training.task.examples(stack.evaluation_uniforms(training, "test")[:1000], constants)
    with torch.no_grad():
        return torch.sigmoid(nn.functional.linear(model[0](x), model[1].get_parameter("gate"))).mean().item()


def pictures(work: Work, rows: Sequence[Row]) -> list[Picture]:
    """Histograms of the gate, a line for each operation, a column for each model; units of one's own have none."""
    trainings = work.arithmetic
    gated = [row for row in rows if row.labels["unit"] in gated_recipes()]
    units = list(dict.fromkeys(row.labels["unit"] for row in gated))
    if not units:
        return []
    gates: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for row in gated:
        place = row.labels["operation"], row.labels["unit"]
        gates.setdefault(place, []).append((gate(trainings[row.key], row), judge(row).solved))
    with style():
        fig = Figure(figsize=(2.6 * len(units) + 0.8, 4.2))
        axes = fig.subplots(len(SIDES), len(units), sharex=True, sharey=True, squeeze=False)
        for line, (operation, (sign, _)) in zip(axes, SIDES.items()):
            for ax, unit in zip(line, units):
                values = gates.get((operation, unit), [])
                parts = [[g for g, solved in values if solved is wanted] for wanted in (True, False)]
                ax.hist(
                    parts, np.linspace(0, 1, 21), stacked=True, label=["solved", "not solved"], color=["C0", "0.75"]
                )
                ax.set_xticks([0, 0.5, 1], ["×", "0.5", "+"])
            line[0].set_ylabel(f"runs on {sign}")
        for ax, unit in zip(axes[0], units):
            ax.set_title(unit)
        for ax in axes[-1]:
            ax.set_xlabel("gate")
        axes[0][-1].legend(frameon=False)
    right = [
        f"{unit} on {sign} {sum(abs(g - side) < 0.5 for g, _ in values)} of {len(values)}"
        for operation, (sign, side) in SIDES.items()
        for unit in units
        if (values := gates.get((operation, unit)))
    ]
    caption = (
        "The gate of every run, its mean over the test examples at the best validation point (Figure 9). Nearer to the "
        f"right operation than to the wrong one: {', '.join(right)}."
    )
    return [Picture("gates", fig, caption)]
