"""The first thing to look at: a formula found from numbers in [1, 2), and how it fares a thousand times further out."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import two_layers
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.report.extrapolation import extrapolation_figure
from numerate.report.page import Page, Picture, TextTable
from numerate.results import Row
from numerate.tasks import ten_parameter_function
from numerate.train import Adam, Penalty, Training
from numerate.units import MLP, NAU, NMU, Ramp, formula, penalty

TITLE = "A formula found from numbers in [1, 2), tested up to a thousand times further out"
MODELS = {
    "NAU → NMU": Recipe(
        partial(two_layers, first=NAU, second=NMU), Adam(1e-2), (Penalty(penalty, Ramp(1.0, 5_000, 15_000)),)
    ),
    "MLP, 64 hidden values": Recipe(partial(MLP, hidden=(64,), activation="relu"), Adam(1e-3)),
}
DISTANCES = tuple(float(2**k) for k in range(11))
"""Tested on [d, 2d) for each of these d; trained on [1, 2)."""


def trainings(options: Options) -> list[Training]:
    seeds = options.seed_range(smoke=2, quick=8, paper=25)
    return [
        recipe.training(
            task=ten_parameter_function(),
            seeds=seeds,
            steps=1000 if options.size == "smoke" else 20_000,
            labels={"unit": name, "operation": "mul"},
        )
        for name, recipe in MODELS.items()
    ]


def relative_error(model: nn.Module, distance: float) -> float:
    """Mean of |error| / target on [distance, 2 distance)."""
    task = ten_parameter_function(train_range=(distance, 2 * distance))
    uniforms = torch.rand(1000, 4, generator=torch.Generator().manual_seed(0))
    x, y = task.examples(uniforms, task.constants(0, "train"))
    with torch.no_grad():
        return ((model(x) - y) / y).abs().mean().item()


def trained(row: Row) -> nn.Module:
    model = MODELS[row.labels["unit"]].model(4, 1)
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in row.weights["best"].items()})
    return model


def draw(rows: Sequence[Row], options: Options) -> Page:
    models = [(row.labels["unit"], trained(row)) for row in rows]
    names = list(dict.fromkeys(name for name, _ in models))
    curves = {
        name: np.array([[relative_error(m, d) for d in DISTANCES] for n, m in models if n == name]) for name in names
    }
    lines = [(str(row.seed), str(formula(m, "a b c d"))) for row, (n, m) in zip(rows, models) if n == "NAU → NMU"]
    near, far = ({name: float(np.median(errors[:, i])) for name, errors in curves.items()} for i in (0, -1))
    headline = "; ".join(f"{name}: {near[name]:.1e} on [1, 2), {far[name]:.1e} on [1024, 2048)" for name in names)
    return Page(
        TITLE,
        f"Median relative error of the {headline}.",
        [Picture("extrapolation", extrapolation_figure(np.array(DISTANCES), curves), "Thick: median over seeds.")],
        [TextTable("Formulas found", ("seed", "formula"), lines)],
        [f"seed {seed}: {text}" for seed, text in lines],
    )


EXPERIMENTS = [
    Experiment(
        "discover",
        TITLE,
        trainings,
        picture_page(draw),
        "Both models learn (a + b)(a + b + c + d) from inputs in [1, 2) and are tested far outside.",
    )
]
