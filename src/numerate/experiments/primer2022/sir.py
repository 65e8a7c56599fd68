"""Heim et al.'s equation discovery: powers and sums fit the slopes of an epidemic; the page prints what was found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import two_layers
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Page, Picture, TextTable
from numerate.report.figures import COLOURS, style
from numerate.report.text import number
from numerate.results import Row
from numerate.results.outcome import below_threshold
from numerate.tasks.sir import FractionalSIR
from numerate.train import Adam, Penalty, Training
from numerate.units import NAU, Constant, NaiveRealNPU, RealNPU, l1

NAMES = ("S", "I", "R")
STEPS = {"smoke": 20_000, "quick": 20_000, "paper": 100_000}
RECIPES = {
    "Naive Real NPU": Recipe(
        partial(two_layers, first=NaiveRealNPU, second=NAU, hidden=4), Adam(5e-3), (Penalty(l1, Constant(1e-3)),)
    ),
    "Real NPU": Recipe(
        partial(two_layers, first=RealNPU, second=NAU, hidden=4), Adam(5e-3), (Penalty(l1, Constant(1e-4)),)
    ),
}


def before_sums(recipe: Recipe) -> Recipe:
    """A unit of the user's own where ours have their powers: four values of it, then sums."""
    return replace(recipe, model=partial(two_layers, first=recipe.model, second=NAU, hidden=4))


def trainings(options: Options) -> list[Training]:
    default = ("Naive Real NPU",) if options.size == "smoke" else None
    return [
        recipe.training(
            task=FractionalSIR(),
            seeds=options.seed_range(smoke=4, quick=16, paper=100),
            steps=STEPS[options.size],
            evaluation_size=2000,
            labels={"unit": name, "operation": "SIR"},
        )
        for name, recipe in choose_recipes(options.units, RECIPES, default=default, placed=before_sums).items()
    ]


def slopes(states: np.ndarray, powers: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Sums of products of powers: states (n, 3), powers (terms, 3), factors (3, terms) -> (n, 3)."""
    return np.exp(np.log(states + 1e-9) @ powers.T) @ factors.T


def polish(weights: Mapping[str, Any], task: FractionalSIR) -> tuple[np.ndarray, np.ndarray]:
    """Powers and factors of a trained model of ours, freed of what is almost zero and fitted once more.

    A gate g that is open in part acts on large inputs as the factor g, which the product keeps as g^w.
    """
    powers = np.asarray(weights["0.weight"], float)
    gate = np.clip(np.asarray(weights.get("0.gate", np.ones(3)), float), 1e-3, 1)
    factors = np.asarray(weights["1.weight"], float) * (gate**powers).prod(-1)
    states, wanted = task.seen("train")
    for least_power, least_share in ((0.1, 0.02), (0.05, 0.003), (0.02, 0.001)):
        size = np.exp(np.log(states + 1e-9) @ powers.T).mean(0) * np.abs(factors)
        kept = np.abs(powers) > least_power, size > least_share * np.abs(wanted).mean()
        powers, factors = _fit(states, wanted, powers, factors, kept)
    used = (factors != 0).any(0)
    return powers[used], factors[:, used]


def _fit(
    states: np.ndarray, wanted: np.ndarray, powers: np.ndarray, factors: np.ndarray, kept: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares over the entries that are kept; the others are zero."""
    from scipy.optimize import least_squares

    def filled(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        split = np.split(free, [kept[0].sum()])
        places = [np.zeros(mask.shape) for mask in kept]
        for place, mask, values in zip(places, kept, split):
            place[mask] = values
        return places[0], places[1]

    start = np.concatenate([powers[kept[0]], factors[kept[1]]])
    if not len(start):
        return np.zeros_like(powers), np.zeros_like(factors)
    return filled(least_squares(lambda free: (slopes(states, *filled(free)) - wanted).ravel(), start, max_nfev=200).x)


def equations(powers: np.ndarray, factors: np.ndarray) -> list[str]:
    """dS = −0.06 S^0.5 I^0.5 + 0.01 R, and so on; numbers to two digits."""
    products = [
        " ".join(name if round(p, 2) == 1 else f"{name}^{p:.2f}" for name, p in zip(NAMES, row) if round(p, 2) != 0)
        for row in powers
    ]
    lines = []
    for name, row in zip(NAMES, factors):
        terms = [f"{'−' if c < 0 else '+'} {abs(c):.2g} {term}".rstrip() for c, term in zip(row, products) if c != 0]
        lines.append(f"d{name} = " + (" ".join(terms).removeprefix("+ ") or "0"))
    return lines


def error(powers: np.ndarray, factors: np.ndarray, task: FractionalSIR) -> float:
    """Mean squared error on the epidemics that were not seen."""
    states, wanted = task.seen("test")
    return float(((slopes(states, powers, factors) - wanted) ** 2).mean())


def draw(rows: Sequence[Row], options: Options) -> Page:
    task = FractionalSIR()
    lines, best = [], {}
    for unit in dict.fromkeys(row.labels["unit"] for row in rows):
        runs = sorted((r for r in rows if r.labels["unit"] == unit), key=lambda r: r.scores["best_validation"])
        raw = number(min(run.scores["best_test"] for run in runs))
        if unit not in RECIPES:
            lines.append([unit, f"{len(runs)}", raw, "–", "–", "–"])
            continue
        polished = [polish(run.stored_weights("best"), task) for run in runs[:8]]  # the eight that fit best
        errors = [error(*weights, task) for weights in polished]
        right = int(below_threshold(errors, task.threshold()).sum())
        best[unit] = polished[int(np.argmin(errors))]
        counts = [f"{len(runs)}", raw, f"{right} of {len(polished)}", number(min(errors))]
        lines.append([unit, *counts, "; ".join(equations(*best[unit]))])
    factors = np.array([[-0.06, 0, 0.01], [0.06, -0.05, 0], [0, 0.05, -0.01]])
    true = "; ".join(equations(np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]), factors))
    header = ["unit", "runs", "best test error", "right after pruning", "best test error then", "equation of the best"]
    table = TextTable("What was found", header, [*lines, ["the epidemic itself", "", "", "", "0", true]])
    headline = next(
        (f"{line[0]} finds {line[-1]}." for line in lines if line[0] in best),
        "Test errors alone: the equation of a unit of your own cannot be read off.",
    )
    return Page("Primer 2022: equation discovery (SIR)", headline, [_picture(task, best)], [table])


def _picture(task: FractionalSIR, best: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Picture:
    states, wanted = task.seen("test")
    days = np.arange(0, task.days, task.every)
    with style():
        fig = Figure(figsize=(10.8, 3.2 * len(task.test_starts)), layout="constrained")
        axes = fig.subplots(len(task.test_starts), 2, squeeze=False, sharex=True)
        for line, (left, right) in enumerate(axes):
            shown = slice(line * len(days), (line + 1) * len(days))
            for i, name in enumerate(NAMES):
                left.plot(days, states[shown, i], color=COLOURS[i], lw=1.6, label=name)
                right.plot(days, wanted[shown, i], "o", ms=3, color=COLOURS[i], label=f"d{name}, seen")
                for (unit, weights), dashes in zip(best.items(), ("-", "--", ":")):
                    fitted = slopes(states[shown], *weights)[:, i]
                    right.plot(days, fitted, dashes, color=COLOURS[i], lw=1.1, label=unit if i == 0 else None)
            left.set(ylabel="people", title="Epidemics that training did not see" if line == 0 else "")
            right.set(ylabel="change per day", title="Slopes: seen, and by the equations found" if line == 0 else "")
            if line == 0:
                left.legend(ncols=3)
                right.legend(ncols=2)
        for ax in axes[-1]:
            ax.set_xlabel("day")
    return Picture("slopes", fig, "Two epidemics from other starts than those trained on, and their slopes.")


EXPERIMENTS = [
    Experiment(
        id="primer2022/npu-sir",
        title="Heim et al.: the equation of an epidemic (SIR with fractional powers) from its slopes",
        trainings=trainings,
        show=picture_page(draw),
        about=about("primer2022", "npu-sir"),
        reasons=reasons("primer2022", "npu-sir"),
        units=RECIPES,
        own="the first of two layers, with four hidden values, before an NAU, as the Real NPU is",
    )
]
