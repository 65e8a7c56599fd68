"""Language: the next word of Penn Treebank and of WikiText-2, nine gates of the LSTM."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import runs
from numerate.experiments.ur2020.units import KINDS, SHORT, layer, unit_name, unit_names
from numerate.recurrent import Recurrent, WordModel
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import lay_out, style
from numerate.report.learning import curves, legend, panels, plot_beside, plot_curves
from numerate.results import Row
from numerate.tasks import Words
from numerate.train import Adam, NetworkTraining

EPOCHS = 40
TASKS: dict[str, tuple[tuple[str, Words, int], ...]] = {
    "smoke": (("PTB", Words("ptb", 2, 5, articles=False, evaluated=2), 2),),
    "quick": (("PTB", Words("ptb", 20, 35, articles=False, evaluated=10), 600),),
    "paper": (("PTB", Words("ptb", articles=False), EPOCHS * 56), ("WikiText-2", Words(), EPOCHS * 129)),
}
"""Name, task and updates."""
HIDDEN = {"smoke": 8, "quick": 96, "paper": 3072}


def word_model(
    inputs: int, outputs: int, *, layer: Callable[[int], Recurrent], width: int, dropout: float = 0.3, **options: Any
) -> WordModel:
    """A layer that reads embeddings of ``width``; ``options``: of :class:`~numerate.recurrent.WordModel`."""
    return WordModel(layer(width), outputs, dropout, **options)


def word_recipes(size: str, longest: int) -> dict[str, Recipe]:
    """Adam at 10⁻³, the gradient's norm clipped at 0.1; embeddings as wide as the layer and shared with the readout."""
    hidden = HIDDEN[size]
    downsize = 4 if size == "smoke" else 32
    return {
        unit_name("LSTM", kind): Recipe(
            partial(word_model, layer=layer("LSTM", kind, hidden, longest, downsize), width=hidden),
            Adam(1e-3, clip="norm", limit=0.1),
        )
        for kind in KINDS
    }


def trainings(options: Options) -> list[NetworkTraining]:
    found = []
    for name, task, steps in TASKS[options.size]:
        kinds = {"smoke": ("-", "UR"), "quick": SHORT, "paper": KINDS}[options.size]
        known = word_recipes(options.size, task.length)
        for unit, recipe in choose_recipes(options.units, known, default=unit_names("LSTM", kinds)).items():
            found.append(
                recipe.network_training(
                    task=task,
                    seeds=options.seed_range(smoke=1, quick=1, paper=1),
                    steps=steps,
                    evaluate_every=max(1, steps // (EPOCHS if options.size == "paper" else 6)),
                    labels={"unit": unit, "task": name},
                )
            )
    return found


def perplexities(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Unit -> of each run, on test at the best validation point."""
    return {
        unit: [float(np.exp(row.scores["best_test"])) for row in members]
        for unit, members in runs.by_unit(rows).items()
    }


def beside_picture(rows: Sequence[Row]) -> Picture:
    tasks = runs.by_task(rows)
    with style():
        most = max(len(runs.by_unit(members)) for members in tasks.values())
        fig, axes = panels(len(tasks), 4.4, 1.3 + 0.28 * most)
        for ax, (task, members) in zip(axes, tasks.items()):
            plot_beside(ax, perplexities(members), {}, order=runs.order(rows))
            ax.get_legend().remove()  # type: ignore[union-attr]
            ax.set_title(task)
            ax.set_xlabel("test perplexity")
        lay_out(fig, w_pad=2.2)
    return Picture(
        "perplexity", fig, "Perplexity on test at the best validation point; lower is better. A dot for each run."
    )


def curve_picture(rows: Sequence[Row]) -> Picture:
    tasks, colours = runs.by_task(rows), runs.order(rows)
    with style():
        fig, axes = panels(len(tasks), 4.4, 3.6)
        for ax, (task, members) in zip(axes, tasks.items()):
            series = curves(members, "validation")
            plot_curves(ax, series, order=colours, first="UR-LSTM")
            ax.set_title(task)
            late = [float(group.median[len(group.median) // 5]) for group in series]
            low = min(float(np.nanmin(group.median)) for group in series)
            ax.set_ylim(low - 0.1, max(late) + 0.3)
            marks = np.arange(
                np.ceil(10 * (low - 0.1)) / 10, max(late) + 0.3, max(0.2, round((max(late) - low) / 5, 1))
            )
            ax.set_yticks(marks, [f"{np.exp(mark):,.0f}" for mark in marks])
        axes[0].set_ylabel("validation perplexity")
        legend(fig, curves(rows, "validation"), colours, first="UR-LSTM")
    return Picture("validation", fig, "Perplexity on validation along training, on a logarithmic axis.")


def draw(rows: Sequence[Row], options: Options) -> Page:
    lines = []
    for task, members in runs.by_task(rows).items():
        for unit, some in runs.by_unit(members).items():
            values = perplexities(some)[unit]
            validation = [float(np.exp(row.scores["best_validation"])) for row in some]
            diverged = sum(row.status == "diverged" for row in some)
            lines.append(
                [
                    task, unit, f"{some[0].scores['parameters']:,.0f}", str(len(some)), str(diverged),
                    f"{min(int(row.scores['best_step']) for row in some):,}", f"{np.mean(validation):.1f}",
                    f"{np.mean(values):.1f}",
                ]
            )  # fmt: skip
    header = ["text", "unit", "parameters", "runs", "diverged", "best at update", "validation", "test"]
    return Page(
        "UR gates: the next word",
        pictures=[beside_picture(rows), curve_picture(rows)],
        tables=[TextTable("Perplexity at the best validation point", header, lines)],
    )


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    """What the paper finds on WikiText-103, WikiText-2 cannot tell."""
    if options.size == "smoke":
        return []
    found = {task: _means(members) for task, members in runs.by_task(rows).items()}
    ours = "; ".join(f"{task}: " + ", ".join(f"{u} {v:.1f}" for u, v in means.items()) for task, means in found.items())
    text = "UR- gates improve the LSTM on WikiText-103, perplexity 34.6 (not tested: our texts are 50 times shorter)."
    return [Claim(text, f"{ours}.", None)]


def _means(rows: Sequence[Row]) -> Mapping[str, float]:
    return {unit: float(np.mean(values)) for unit, values in perplexities(rows).items()}


EXPERIMENTS = [
    Experiment(
        id="ur2020/language",
        title="Language: the next word of PTB and WikiText-2, nine gates of the LSTM",
        trainings=trainings,
        show=picture_page(draw, claims),
        about=about("ur2020", "language"),
        reasons=reasons("ur2020", "language"),
        quick_reasons=reasons("ur2020", "language-quick"),
        units=unit_names("LSTM"),
    )
]
