"""``numerate run memory/deep``: four blocks of each diagonal layer on psMNIST, beside published accuracies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import pi

import numpy as np
import torch
from torch import Tensor

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.memory.units import own_layer
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.recurrent import LRU, S4D, S5, S6, DeepModel, MinGRU, Recurrent
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import style
from numerate.report.learning import curves, grouped, legend, panels, plot_curves
from numerate.results import Row
from numerate.stats import normal_mean
from numerate.tasks import PermutedPixels
from numerate.train import Adam, NetworkTraining

LAYERS: Mapping[str, Callable[..., Recurrent]] = {
    "S5": S5,
    "LRU": partial(LRU, r_min=0.9, r_max=0.999),
    "S4D": S4D,
    "S6": S6,
    "minGRU": MinGRU,
}
PUBLISHED = {
    "S5": (98.67, "Smith et al., 2023"),
    "S4D": (98.70, "S4, of which S4D is the diagonal form; Gu et al., 2022"),
}
"""Accuracy on psMNIST in percent, and where it is printed."""
NEAR = 1.0
"""A published accuracy counts as reached with at most so many points less."""
BLOCKS = 4
BATCH = 100


@dataclass(frozen=True)
class WarmCosine:
    """The rate rises over ``warm`` updates and then falls along a cosine to 0 at ``steps``."""

    warm: int
    steps: int

    def __call__(self, t: Tensor) -> Tensor:
        rising = (t + 1) / self.warm
        falling = 0.5 * (1 + torch.cos(pi * ((t - self.warm) / (self.steps - self.warm)).clamp(0, 1)))
        return torch.minimum(rising, falling)


@dataclass(frozen=True)
class Extent:
    """What a size has."""

    hidden: int
    updates: int
    task: PermutedPixels
    seeds: int = 1


EXTENTS = {
    "smoke": Extent(8, 4, PermutedPixels(batch_size=4, pool=4, held_out=20)),
    "quick": Extent(32, 1_000, PermutedPixels(batch_size=50, pool=2, held_out=1_000)),
    "paper": Extent(128, 10_000, PermutedPixels(batch_size=BATCH)),
}


def deep_model(
    inputs: int, outputs: int, *, layer: Callable[[int, int], Recurrent], hidden: int, dropout: float = 0.1
) -> DeepModel:
    """Four blocks, read by the mean over all steps."""
    return DeepModel(layer, inputs, hidden, outputs, blocks=BLOCKS, read="mean", dropout=dropout)


def any_layer(inputs: int, outputs: int, *, unit: Callable[[int, int], object]) -> Recurrent:
    """A user's own layer or cell, for a block."""
    return own_layer(inputs, unit=unit, hidden_size=outputs)


def trainings(options: Options) -> list[NetworkTraining]:
    extent = EXTENTS[options.size]

    def model(layer: Callable[..., Recurrent]) -> partial[DeepModel]:
        return partial(deep_model, layer=layer, hidden=extent.hidden)

    known = {name: Recipe(model(layer)) for name, layer in LAYERS.items()}
    chosen = choose_recipes(
        options.units, known, placed=lambda own: replace(own, model=model(partial(any_layer, unit=own.model)))
    )
    updates = options.steps or extent.updates
    return [
        recipe.network_training(
            task=extent.task,
            seeds=options.seed_range(smoke=1, quick=1, paper=extent.seeds),
            optimiser=Adam(2e-3, clip="norm", limit=1.0),
            schedule=WarmCosine(max(1, updates // 20), updates),
            steps=extent.updates,
            evaluate_every=max(1, extent.updates // 10),
            labels={"unit": name},
        )
        for name, recipe in chosen.items()
    ]


def draw(rows: Sequence[Row], options: Options) -> Page:
    groups, order = grouped(rows, "unit"), list(dict.fromkeys(row.labels["unit"] for row in rows))
    lines = []
    for unit, some in groups.items():
        accuracy = normal_mean([100 * (1 - row.scores["best_test"]) for row in some if row.status != "diverged"])
        value, source = PUBLISHED.get(unit, (None, "–"))
        lines.append(
            [
                unit, f"{int(some[0].scores['parameters']):,}", f"{int(some[0].config['steps']):,}", str(len(some)),
                *("–" if percent is None else f"{percent:.2f}" for percent in (accuracy.value, value)), source,
            ]
        )  # fmt: skip
    series = curves(rows, "test_accuracy", scale=100.0)
    with style():
        fig, axes = panels(1, 6.0, 3.6)
        plot_curves(axes[0], series, order=order, baseline=98.67, baseline_name="S5 as published: 98.67")
        lowest = np.nanmin([np.nanmin(group.values[:, 1:]) for group in series if group.values.shape[1] > 1] or [0.0])
        axes[0].set_ylim(max(0.0, lowest - 2), 100)
        axes[0].set_ylabel("test accuracy in percent")
        legend(fig, series, order)
    header = ["layer", "parameters", "updates", "seeds", "accuracy, %", "published, %", "where"]
    best = max(lines, key=lambda line: float(line[4]) if line[4] != "–" else 0.0)
    return Page(
        "Deep stacks of diagonal recurrences on psMNIST",
        f"The best of ours is {best[0]} with {best[4]} %.",
        [Picture("curves", fig, "Accuracy on test along training; each run, or the median of three or more.")],
        [TextTable("Four blocks with norm and gated linear units", header, lines)],
        [f"{line[0]}: {line[4]} % (published: {line[5]})" for line in lines],
    )


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    """The published accuracies, at full length alone: reached if ours are near, whatever the settings in print."""
    if options.size != "paper":
        return []
    found = []
    for unit, (printed, source) in PUBLISHED.items():
        accuracies = [100 * (1 - row.scores["best_test"]) for row in rows if row.labels["unit"] == unit]
        ours = float(np.mean(accuracies)) if accuracies else float("nan")
        text = f"{unit}: {printed:.2f} % on psMNIST ({source}; our test: at most {NEAR:g} point less)."
        shown = "not run." if not accuracies else f"{ours:.2f} %, with fewer blocks or epochs."
        found.append(Claim(text, shown, printed - ours <= NEAR if accuracies else None))
    return found


EXPERIMENTS = [
    Experiment(
        id="memory/deep",
        title="Four blocks of each diagonal layer on psMNIST, beside published accuracies",
        trainings=trainings,
        show=picture_page(draw, claims),
        about=about("memory", "deep"),
        reasons=reasons("memory", "deep"),
        units=tuple(LAYERS),
        own="a cell, or a layer of numerate.recurrent, of (inputs, hidden size)",
    )
]
