"""Table 2: characters of Penn Treebank."""

from collections.abc import Sequence

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019 import beside
from numerate.experiments.nru2019.runs import order
from numerate.experiments.nru2019.units import recipes, small_text_layers, text_layers
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Page, Picture
from numerate.report.figures import style
from numerate.report.learning import curves, legend, panels, plot_curves
from numerate.results import Row
from numerate.tasks import Characters
from numerate.train import NetworkTraining

EPOCHS = 20
UNITS = tuple(text_layers())
BITS = beside.Column("bits a character", "best_test", "2", "bpc", "test", scale=1.0, digits=3, near=0.03)
ACCURACY = beside.Column("accuracy in %", "best_test_accuracy", "2", "accuracy", "test")
TASKS = {
    "smoke": Characters(4, 11, evaluated=2),
    "quick": Characters(32, 50, evaluated=20),
    "paper": Characters(),
}

UPDATES = {"smoke": 3, "quick": 1_000, "paper": EPOCHS * TASKS["paper"].epoch}
EVALUATIONS = {"smoke": 1, "quick": 10, "paper": EPOCHS}


def trainings(options: Options) -> list[NetworkTraining]:
    task = TASKS[options.size]
    layers = text_layers() if options.size == "paper" else small_text_layers()
    default = ("GRU", "NRU") if options.size == "smoke" else UNITS
    chosen = choose_recipes(options.units, recipes(layers, carries=True), default=default)
    return [
        recipe.network_training(
            task=task,
            seeds=options.seed_range(smoke=1, quick=1, paper=1),
            steps=UPDATES[options.size],
            evaluate_every=UPDATES[options.size] // EVALUATIONS[options.size],
            labels={"unit": name, "task": "PTB characters"},
        )
        for name, recipe in chosen.items()
    ]


def draw(rows: Sequence[Row], options: Options) -> Page:
    comparable = beside.is_published_size(options)
    return Page(
        "NRU, Table 2: characters of Penn Treebank",
        pictures=[beside.picture(BITS, rows, comparable), curve_picture(rows)],
        tables=[beside.table("Test at the best validation point", [BITS, ACCURACY], rows, comparable)],
    )


def curve_picture(rows: Sequence[Row]) -> Picture:
    series, colours = curves(rows, "validation"), order(rows)
    with style():
        fig, (ax,) = panels(1, 6.4, 3.7)
        plot_curves(ax, series, order=colours, first="NRU")
        known = [float(value) for group in series for value in group.values.flat if 0 < value < np.inf]
        lowest = min(known, default=1.0)
        ax.set_ylim(0.95 * lowest, max(2.2, 1.8 * lowest))
        ax.set_ylabel("bits a character, validation")
        legend(fig, series, colours, first="NRU")
    return Picture("validation", fig, "Bits a character on validation along training.")


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    if not beside.is_published_size(options):
        return []
    sentence = "GRU is the best performing model, followed closely by NRU."
    return [beside.first_claim(BITS, rows, ["GRU", "NRU"], sentence, "low"), *beside.value_claims(BITS, rows, "bits")]


EXPERIMENTS = [
    Experiment(
        id="nru2019/table2",
        title="Table 2: characters of Penn Treebank, seven units",
        trainings=trainings,
        show=picture_page(draw, claims),
        about=about("nru2019", "table2"),
        reasons=reasons("nru2019", "text"),
        quick_reasons=reasons("nru2019", "text-quick"),
        units=UNITS,
    )
]
