"""Passive and active match in a grid world: agents that learn by advantage actor-critic, with several gates."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import runs
from numerate.experiments.ur2020.agents import agent
from numerate.experiments.ur2020.units import SHORT
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import style
from numerate.report.learning import curves, legend, panels, plot_curves
from numerate.results import Row
from numerate.tasks.match import CHANCE, PRIZE, Match
from numerate.train import Adam, NetworkTraining

KINDS = SHORT
CORES: tuple[Literal["LSTM", "RMA"], ...] = ("LSTM", "RMA")
TASKS = {
    "passive": Match("passive"),
    "active": Match("active", 0.0),
    "active, small apples": Match("active", 1.0, 0.998),
    "active, large apples": Match("active", 5.0),
}
"""Figures 8 to 10 and 13: with and without distracting rewards."""
SMOKE = {"passive": Match("passive", frames=(2, 2, 2), batch_size=2, evaluation_batches=1)}
QUICK = {"passive": Match("passive", 0.0, entropy=0.05, frames=(2, 5, 10), batch_size=32, evaluation_batches=4)}
UPDATES = {"smoke": 2, "quick": 800, "paper": 50_000}
CLEAR = 0.5
"""Points of the prize that tell two agents apart."""


def name_of(core: str, kind: str) -> str:
    return core if kind == "-" else f"{kind}-{core}"


NAMES = tuple(name_of(core, kind) for core in CORES for kind in KINDS)


def trainings(options: Options) -> list[NetworkTraining]:
    hidden, width = {"smoke": (8, 8), "quick": (64, 64), "paper": (256, 200)}[options.size]
    default = {"smoke": ("UR-LSTM", "UR-RMA"), "quick": ("LSTM", "UR-LSTM"), "paper": NAMES}[options.size]
    steps, found = UPDATES[options.size], []
    for title, task in {"smoke": SMOKE, "quick": QUICK, "paper": TASKS}[options.size].items():
        known = {
            name_of(core, kind): Recipe(
                partial(agent, task=task, core=core, gate=kind, hidden=hidden, width=width),
                Adam(5e-4 if options.size == "paper" else 1e-3, clip="norm", limit=1.0),
            )
            for core in CORES
            for kind in KINDS
        }
        for name, recipe in choose_recipes(options.units, known, default=default).items():
            found.append(
                recipe.network_training(
                    task=task,
                    seeds=options.seed_range(smoke=1, quick=1, paper=5),
                    steps=steps,
                    evaluate_every=max(1, steps // (100 if options.size == "paper" else 20)),
                    labels={"unit": name, "task": title},
                )
            )
    return found


def prize(row: Row) -> float:
    """Mean reward of the last room over the last tenth of training, on test."""
    values = np.asarray(row.curves["test_prize"], float)
    return float(np.nanmean(values[-max(1, len(values) // 10) :]))


def draw(rows: Sequence[Row], options: Options) -> Page:
    tasks, colours = runs.by_task(rows), list(dict.fromkeys([*NAMES, *(row.labels["unit"] for row in rows)]))
    with style():
        fig, axes = panels(len(tasks), 4.2, 3.4)
        for ax, (task, members) in zip(axes, tasks.items()):
            plot_curves(
                ax, curves(members, "test_prize"), order=colours, share=runs.BAND, baseline=CHANCE, first="UR-RMA",
                baseline_name=f"a door at random: {CHANCE:.2f}",
            )  # fmt: skip
            ax.set_ylim(0, PRIZE * 1.02)
            ax.set_title(task)
        axes[0].set_ylabel("reward of the last room")
        legend(fig, curves(rows, "test_prize"), colours, first="UR-RMA")
    caption = "Reward for the door: median over seeds and, as a band, the middle 60 % of them. The right door gives 10."
    lines = [
        [task, unit, str(len(some)), str(sum(row.status == "diverged" for row in some)),
         f"{np.median([prize(row) for row in some]):.2f}"]
        for task, members in tasks.items()
        for unit, some in runs.by_unit(members).items()
    ]  # fmt: skip
    table = TextTable("At the end of training", ["task", "agent", "runs", "diverged", "reward for the door"], lines)
    return Page("UR gates: passive and active match", pictures=[Picture("prize", fig, caption)], tables=[table])


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    if options.size != "paper":
        return []
    found = []
    for core in CORES:
        says, holds = [], []
        for task, members in runs.by_task(rows).items():
            values = {
                unit: [prize(row) for row in some]
                for unit, some in runs.by_unit(members).items()
                if unit in [name_of(core, kind) for kind in KINDS]
            }
            first = name_of(core, "UR")
            if first not in values or len(values) < 2:
                continue
            ours, others = np.median(values[first]), max(float(np.median(v)) for u, v in values.items() if u != first)
            says.append(f"{task}: {ours:.2f}, the best other {others:.2f}")
            holds.append(True if ours > others + CLEAR else False if ours < others - CLEAR else None)
        verdict = False if False in holds else None if None in holds or not holds else True
        sentence = f"With the {core} core, UR- gates perform best (our test: medians, by more than {CLEAR:g})."
        found.append(Claim(sentence, "; ".join(says) + "." if says else "not run.", verdict))
    return found


EXPERIMENTS = [
    Experiment(
        id="ur2020/match",
        title="Passive and active match in a grid world, five gates of LSTM and RMA agents",
        trainings=trainings,
        show=picture_page(draw, claims),
        about=about("ur2020", "match"),
        reasons=reasons("ur2020", "match"),
        quick_reasons=reasons("ur2020", "match-quick"),
        units=NAMES,
    )
]
