"""Table 5: the identity function, learnt on [-5, 5] and tested on every integer to ±1000, by fifteen nonlinearities."""

from collections.abc import Sequence

import numpy as np

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nalu2018.models import IDENTITY
from numerate.experiments.pages import comparison_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Comparison, Layout, Measured, Metric, PublishedTest, comparison, text
from numerate.results import Row
from numerate.stats import normal_mean
from numerate.tasks import Identity
from numerate.train import Training

ZERO = 500  # the paper's error of the answer 0, from which its percentages are taken
SMOKE = ("Tanh", "ReLU", "PReLU", "None")
STEPS = {"smoke": 200, "quick": 10_000, "paper": 100_000}
ERROR = Metric(
    "mean_abs_error", "Mean absolute error", "log", floor=1e-4, ceiling=1e6, target=ZERO / 100, tick=text.power,
    show=lambda error: f"{text.number(error)} ({100 * error / ZERO:.1f} %)",
    show_interval=lambda error, low, high: (
        f"{text.number(error)} ({100 * error / ZERO:.1f} %) [{text.number(low)}, {text.number(high)}]"
    ),
    meaning="The mean over all runs, with its normal interval, and as a percentage of 500, the error of the answer 0.",
)  # fmt: skip


def trainings(options: Options) -> list[Training]:
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=Identity(),
            seeds=options.seed_range(smoke=2, quick=100, paper=100),
            steps=steps,
            evaluate_every=steps // 10,
            evaluation_size=1000,
            labels={"unit": "MLP", "task": "identity", "nonlinearity": name},
        )
        for name, recipe in choose_recipes(
            options.units, IDENTITY, default=SMOKE if options.size == "smoke" else None
        ).items()
    ]


def measure(rows: Sequence[Row]) -> Measured:
    errors = np.array([row.scores["best_test"] for row in rows])
    ours = {"mean_abs_error": normal_mean(errors, lowest=0.0), "percent_error": normal_mean(100 / ZERO * errors, 0.0)}
    return Measured(len(rows), ours, diverged=sum(row.status == "diverged" for row in rows))


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        published.cells(paper="nalu2018", table="5"),
        title="NALU 2018, Table 5",
        layout=Layout(
            panel="task",
            x="nonlinearity",
            xs=list(IDENTITY),
            match=lambda cell: ("identity", "MLP", cell.model),
            x_title="Nonlinearity",
            panel_titles={"identity": "The identity function from −1000 to 1000"},
        ),
        test=PublishedTest(None if options.size == "smoke" else "x"),
        measure=measure,
        metrics=[ERROR],
    )


EXPERIMENTS = [
    Experiment(
        id="nalu2018/table5",
        title="Table 5: the identity function, fifteen nonlinearities, beyond the range of training",
        trainings=trainings,
        show=comparison_page(compare),
        about=about("nalu2018", "table5"),
        reasons=reasons("nalu2018", "table5"),
        units=IDENTITY,
    )
]
