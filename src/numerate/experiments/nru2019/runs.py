"""What is trained on copying and denoising, and how its pages look; Figures 1 to 4, 6 and 7 share these runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from numerate.experiments.experiment import Options
from numerate.experiments.guessing import guessing
from numerate.experiments.nru2019.units import OTHER_NRU, UNITS, copying_layers, recipes
from numerate.experiments.recipe import Recipe
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Picture, TextTable
from numerate.report.figures import lay_out, style
from numerate.report.learning import (
    Progress,
    curves,
    final_values,
    grouped,
    headroom,
    legend,
    panels,
    plot_curves,
    plot_progress,
    plot_solved,
    progress,
    progress_legend,
)
from numerate.report.text import thousands
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.tasks import Copying, Denoising, VariableCopying
from numerate.train import NetworkTraining

RecallTask = Copying | VariableCopying | Denoising
NAMES = {Copying: "copying", VariableCopying: "variable copying", Denoising: "denoising"}
TASKS: tuple[RecallTask, ...] = (
    Copying(100), Copying(200), VariableCopying(100), VariableCopying(200), Denoising(100),
)  # fmt: skip

QUICK = UNITS[:6]
"""Units of quick runs: the paper's own contenders, and EURNN."""
UPDATES = {"smoke": 4, "quick": 5_000, "paper": 50_000}
FEWER = {
    "quick": {"EURNN": 200},
    "paper": {"EURNN": 5_000, "GORU": 25_000, "RNN-orth": 25_000, "RNN-id": 25_000, "SRU": 25_000},
}
"""Updates of units that have solved a task by then (EURNN), or that the paper has at or near the loss of guessing."""
SEEDS = {"smoke": 1, "quick": 2, "paper": 16}


def title(task: RecallTask) -> str:
    """As a label: ``copying, T = 100``."""
    return f"{NAMES[type(task)]}, T = {task.length}"


def sized(tasks: Sequence[RecallTask], options: Options) -> list[RecallTask]:
    """Those of the size: all, those of T = 100, or short ones."""
    if options.size == "paper":
        return list(tasks)
    kept = [task for task in tasks if task.length == 100]
    return (
        kept if options.size == "quick" else [replace(t, length=12, batch_size=2, evaluation_batches=1) for t in kept]
    )


def chosen(options: Options, task: RecallTask, units: Sequence[str] = UNITS) -> dict[str, Recipe]:
    """The recipes of the units asked for; T_max is the length of the sequence."""
    layers, offered = copying_layers(task.length + 20), (*units, *OTHER_NRU)
    known = {name: recipe for name, recipe in recipes(layers).items() if name in offered}
    default = {"smoke": ("NRU", "LSTM"), "quick": QUICK, "paper": units}[options.size]
    return choose_recipes(options.units, known, default=[name for name in default if name in known])


def updates(unit: str, size: str) -> int:
    return FEWER.get(size, {}).get(unit, UPDATES[size])


def trainings(tasks: Sequence[RecallTask], units: Sequence[str] = UNITS) -> Callable[[Options], list[NetworkTraining]]:
    """Options -> one configuration for each unit and task."""

    def make(options: Options) -> list[NetworkTraining]:
        return [
            training(recipe, task, options, {"unit": name, "task": title(task)}, updates(name, options.size))
            for task in sized(tasks, options)
            for name, recipe in chosen(options, task, units).items()
        ]

    return make


def training(
    recipe: Recipe, task: RecallTask, options: Options, labels: Mapping[str, object], steps: int
) -> NetworkTraining:
    return recipe.network_training(
        task=task,
        seeds=options.seed_range(**SEEDS),
        steps=steps,
        evaluate_every=max(1, steps // (100 if options.size == "paper" else 40)),
        labels=labels,
    )


# ---------------------------------------------------------------- what is read off


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return grouped(rows, "task")


def by_unit(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """In the order of the paper, others after them."""
    groups = grouped(rows, "unit")
    return {name: groups[name] for name in order(rows) if name in groups}


def order(rows: Sequence[Row]) -> list[str]:
    """Names that have a colour each, the paper's units the same in every picture."""
    names = list(dict.fromkeys(row.labels["unit"] for row in rows))
    return list(dict.fromkeys([*UNITS, *names])) if any(name in UNITS for name in names) else names


def baseline(rows: Sequence[Row]) -> float:
    """The loss of guessing on the sequences that curves are drawn of, those of the validation."""
    return guessing(rows[0], "validation")


def length(rows: Sequence[Row]) -> int:
    """T of the task that rows of one task are of."""
    return int(rows[0].config["task"]["length"])


def last_update(rows: Sequence[Row]) -> int:
    return max(int(row.config["steps"]) for row in rows)


def times(rows: Sequence[Row]) -> list[float]:
    """The update at which each run is solved; infinite if it is not."""
    return [float("inf") if (at := judge(row).solved_at) is None else float(at) for row in rows]


def middle(values: Sequence[float]) -> float:
    """The median; infinite if it lies between a number and an infinite one."""
    ordered = sorted(values)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return upper if np.isinf(upper) else (lower + upper) / 2


def left(rows: Sequence[Row]) -> list[float]:
    """The last validation loss of each run as a share of that of guessing; infinite if it diverged."""
    return final_values(rows, "validation", 1 / baseline(rows))


# ---------------------------------------------------------------- pictures and tables


def curve_picture(rows: Sequence[Row], name: str = "curves") -> Picture:
    """The loss along the updates, a panel for each task."""
    tasks, colours = by_task(rows), order(rows)
    with style():
        fig, axes = panels(len(tasks), 6.0 if len(tasks) == 1 else 4.2, 3.5)
        for ax, (task, members) in zip(axes, tasks.items()):
            guess = baseline(members)
            series = curves(members, "validation")
            named = f"guessing: {guess:.3f}"
            plot_curves(ax, series, order=colours, baseline=guess, baseline_name=named, first="NRU")
            ax.set_ylim(0, headroom(series, guess, 1.3))
            ax.set_title(task)
        axes[0].set_ylabel("cross entropy in nats a step")
        legend(fig, curves(rows, "validation"), colours, first="NRU")
    return Picture(
        name,
        fig,
        "Loss on sequences that were not trained on: median over seeds and, as a band, the middle half of them; with "
        "fewer than three seeds, each run. The dashed line is the best loss without memory. A run that diverged counts "
        "as worse than all others.",
    )


def solved_pictures(rows: Sequence[Row], name: str = "solved") -> list[Picture]:
    """Time to solve, a panel for each task; nothing if no run is solved."""
    if not np.isfinite(times(rows)).any():
        return []
    tasks, colours = by_task(rows), order(rows)
    lines = max(len(by_unit(members)) for members in tasks.values())
    with style():
        fig, axes = panels(len(tasks), 6.0 if len(tasks) == 1 else 4.6, 1.1 + 0.27 * lines)
        for ax, (task, members) in zip(axes, tasks.items()):
            plot_solved(ax, by_unit(members), order=colours, last=last_update(members))
            ax.set_title(task)
        lay_out(fig, rect=(0, 0, 1 - 0.6 / fig.get_figwidth(), 1), w_pad=3.0)
    caption = (
        "Updates until the mean training loss of 50 updates falls below a tenth of that of guessing: a dot for each "
        "run, a bar at the median of all, at the right how many runs are solved."
    )
    return [Picture(name, fig, caption)]


def cells(rows: Sequence[Row]) -> dict[tuple[str, str], Progress]:
    """(unit, task) -> how far it came."""
    found: dict[tuple[str, str], Progress] = {}
    for task, members in by_task(rows).items():
        found |= {(unit, task): progress(some, baseline(members)) for unit, some in by_unit(members).items()}
    return found


def overview_picture(rows: Sequence[Row]) -> Picture:
    """Units × tasks, solved or not, and how fast."""
    found, tasks = cells(rows), list(by_task(rows))
    units = [unit for unit in order(rows) if any(unit == name for name, _ in found)]
    with style():
        fig = Figure(figsize=(max(7.2, 1.6 + 1.25 * len(tasks)), 1.2 + 0.36 * len(units)))
        plot_progress(fig.subplots(), found, units, tasks)
        lay_out(fig, rect=(0, 0.32 / fig.get_figheight(), 1, 1))
        progress_legend(fig)
    return Picture(
        "overview",
        fig,
        "Bold: the update at which the median run is solved, darker if sooner. Otherwise the share of the loss of "
        "guessing that is left at the end of training. A dash: not run.",
    )


def table(rows: Sequence[Row]) -> TextTable:
    """A line for each unit and task."""
    header = ["task", "unit", "updates", "runs", "diverged", "solved", "solved at, median", "loss left, median"]
    lines = []
    for task, members in by_task(rows).items():
        for unit, some in by_unit(members).items():
            cell, diverged = progress(some, baseline(members)), sum(row.status == "diverged" for row in some)
            lines.append(
                [
                    task, unit, f"{last_update(some):,}", str(len(some)), str(diverged),
                    str(cell.solved), "–" if cell.time is None else thousands(cell.time),
                    "–" if np.isinf(cell.left) else f"{cell.left:.1%}",
                ]
            )  # fmt: skip
    return TextTable("Every unit and task", header, lines)
