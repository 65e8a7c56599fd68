"""Figures 4 and 5: copying and adding, and forget gates before and after."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import forget, runs
from numerate.experiments.ur2020.units import KINDS, SHORT, recipes, unit_names
from numerate.report import Claim, Page, TextTable
from numerate.results import Row
from numerate.tasks import Adding, CopyLast
from numerate.train import NetworkTraining

MemoryTask = CopyLast | Adding
SEEDS = {"smoke": 1, "quick": 2, "paper": 3}
COPYING = {"smoke": CopyLast(24, 2, 1), "quick": CopyLast(120), "paper": CopyLast(500)}
ADDING = {"smoke": Adding(12, 2, 1), "quick": Adding(200), "paper": Adding(2000)}
HIDDEN = {"smoke": 16, "quick": 64, "paper": 256}
UPDATES: dict[type[MemoryTask], dict[str, int]] = {
    CopyLast: {"smoke": 4, "quick": 2_000, "paper": 10_000},
    Adding: {"smoke": 4, "quick": 2_000, "paper": 100_000},
}
NAMES = {CopyLast: "copying", Adding: "adding"}
LSTMS = unit_names("LSTM", KINDS)
EXTREME = 0.1
"""A timescale beyond this share of the lag is extremal."""


def memory_trainings(tasks: Sequence[dict[str, Any]], options: Options) -> list[NetworkTraining]:
    """One configuration for each gate and task."""
    size, found = options.size, []
    for task in (sizes[size] for sizes in tasks):
        reading = {"read": "last"} if isinstance(task, Adding) else {}
        default = unit_names("LSTM", {"smoke": ("-", "UR"), "quick": SHORT, "paper": KINDS}[size])
        known = recipes("LSTM", HIDDEN[size], task.length, **reading)
        for name, recipe in choose_recipes(options.units, known, default=default).items():
            labels = {"unit": name, "task": NAMES[type(task)]}
            found.append(training(recipe, task, UPDATES[type(task)][size], labels, options, **SEEDS))
    return found


def training(
    recipe: Recipe, task: MemoryTask, steps: int, labels: dict[str, str], options: Options, **seeds: int
) -> NetworkTraining:
    return recipe.network_training(
        task=task,
        seeds=options.seed_range(**seeds),
        steps=steps,
        evaluate_every=max(1, steps // (100 if options.size == "paper" else 40)),
        labels=labels,
    )


# ---------------------------------------------------------------- Figure 4


def draw_figure4(rows: Sequence[Row], options: Options) -> Page:
    pictures = [runs.overview_picture(rows), runs.loss_picture(rows)]
    if np.isfinite(runs.times(rows)).any():
        pictures.append(runs.solved_picture(rows))
    return Page("UR gates, Figure 4: copying and adding", pictures=pictures, tables=[runs.table(rows)])


def figure4_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    """A quick run may show that a gate helps, and cannot show that it does not."""
    claims = [
        *runs.gate_claims(rows, settled=options.size != "smoke"),
        *runs.stays_at_guessing(rows, "LSTM", options.as_published),
    ]
    if options.size == "quick":
        claims = [replace(claim, holds=claim.holds or None) for claim in claims]
    return claims


# ---------------------------------------------------------------- Figure 5


@dataclass(frozen=True)
class Gates:
    """The runs, the forget gates of each unit's first run, and whether that run is solved."""

    rows: Sequence[Row]
    found: dict[str, forget.Forgetting]
    solved: dict[str, bool]
    extreme: float
    """Steps beyond which a timescale is extremal."""

    @classmethod
    def of(cls, work: Work, rows: Sequence[Row]) -> "Gates":
        first = {unit: members[:1] for unit, members in runs.by_unit(rows).items()}
        solved = {unit: bool(np.isfinite(runs.times(run)).all()) for unit, run in first.items()}
        lag = COPYING[work.options.size].length - 20
        return cls(rows, forget.found_in(work, rows), solved, EXTREME * lag)

    @property
    def beyond(self) -> dict[str, float]:
        """Share of a layer's units whose timescale is extremal."""
        return {unit: float((of.timescales > self.extreme).mean()) for unit, of in self.found.items()}


def draw_figure5(gates: Gates, options: Options) -> Page:
    lines = [
        [
            unit, "yes" if gates.solved[unit] else "no", f"{(1 / (1 - of.before)).max():,.0f}",
            f"{of.timescales[-1]:,.0f}", f"{gates.beyond[unit]:.0%}",
        ]
        for unit, of in gates.found.items()
    ]  # fmt: skip
    header = ["gate", "solved", "longest timescale before", "after", f"units beyond {gates.extreme:.0f} steps after"]
    return Page(
        "UR gates, Figure 5: forget gates before and after copying",
        pictures=[forget.picture(gates.found, gates.rows)],
        tables=[TextTable("Timescales, from mean forget activations", header, lines)],
    )


def figure5_claims(gates: Gates, options: Options) -> list[Claim]:
    found, solved, beyond = gates.found, gates.solved, gates.beyond
    have = [beyond[unit] > 0 for unit in found if solved[unit]]
    numbers = ", ".join(f"{unit} {'' if solved[unit] else 'not '}solved, {beyond[unit]:.0%}" for unit in found)
    chrono = {unit: float(np.median(of.before)) for unit, of in found.items()}
    paper = options.as_published
    return [
        Claim(
            "Extremal gate activations are necessary to solve the task (our test: every solved run has units whose "
            f"timescale exceeds a tenth of the lag, {gates.extreme:.0f} steps).",
            f"units beyond it: {numbers}.",
            all(have) if have and paper else None,
        ),
        Claim(
            "Initialising the activations near 1 is helpful (our test: the gate that starts highest is solved).",
            ", ".join(f"{unit} {value:.2f}" for unit, value in chrono.items()) + " at the start, median of units.",
            solved[max(chrono, key=lambda unit: chrono[unit])] if paper and any(solved.values()) else None,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="ur2020/figure4",
        title="Figure 4: copying 500 and adding 2000, nine gates of the LSTM",
        trainings=lambda options: memory_trainings([COPYING, ADDING], options),
        show=picture_page(draw_figure4, figure4_claims),
        about=about("ur2020", "figure4"),
        reasons=reasons("ur2020", "synthetic", "adding"),
        quick_reasons=reasons("ur2020", "synthetic-quick"),
        units=LSTMS,
    ),
    Experiment(
        id="ur2020/figure5",
        title="Figure 5: forget gates before and after copying",
        trainings=lambda options: memory_trainings([COPYING], options),
        show=picture_page(draw_figure5, figure5_claims, prepare=Gates.of),
        about=about("ur2020", "figure5"),
        reasons=reasons("ur2020", "synthetic"),
        quick_reasons=reasons("ur2020", "synthetic-quick"),
        units=LSTMS,
    ),
]
