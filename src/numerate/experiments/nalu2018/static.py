"""Tables 6, 7 and 12: sums over two sections of a vector and six functions of them; every nonlinearity, NAC, NALU."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from numerate.experiments.experiment import Experiment, Options, Recipe, choose_recipes
from numerate.experiments.nalu2018.models import COMPLEX, STATIC
from numerate.experiments.nalu2018.scores import FUNCTIONS, RATES, RAW, RELATIVE, compare
from numerate.experiments.pages import comparison_page
from numerate.report import Metric
from numerate.tasks import OPERATIONS, StaticArithmetic
from numerate.train import Adam, Training

REFERENCE = "None"  # the untrained linear model is the Random of the tables
STEPS = {"smoke": 200, "quick": 20_000, "paper": 200_000}
ABOUT = (
    "a and b are sums over two sections of 100 numbers; a model with two hidden units learns one function of them. "
    "Interpolation: examples like those of training; extrapolation: larger ones (Trask et al. 2018, appendix B)."
)
REASONS = (
    "The paper gives no distribution, section length, optimiser, number of steps or number of seeds. Ours: x = s·u "
    "with u uniform on [0, 1) and one scale s per example, uniform on [0.1, 1) for training and interpolation and on "
    "[1, 2) for extrapolation; two sections of 10 that do not overlap, placed anew in every run; Adam, rate 0.001; "
    "fresh batches of 128. The one scale per example is inferred: without it a linear model could not be as wrong on "
    "a·b and a² as printed. Therefore relative scores and the order of the models are compared, not decimals.",
    "Random is the untrained linear model, the median over the seeds; the paper has one untrained model per function.",
    "Table 7 misprints: √a, interpolation, Tanh 31.6 and Sigmoid 24.2 contradict Table 6 (0.0124 and 0.0026 of 1.476: "
    "0.8 and 0.2). Table 12 has .6866 for √a, extrapolation, None, where Table 6 has .8356 for the same model.",
)


def trainings(recipes: Mapping[str, Recipe], options: Options) -> list[Training]:
    chosen = choose_recipes(options.units, dict(recipes))
    steps = STEPS[options.size]
    return [
        replace(recipe, optimiser=Adam(rate)).training(
            task=StaticArithmetic(operation),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 20,
            evaluation_size=200 if options.size == "smoke" else 2000,
            labels={"unit": name, "function": FUNCTIONS[operation], "rate": rate},
        )
        for name, recipe in ({REFERENCE: recipes[REFERENCE]} | chosen).items()
        for operation in OPERATIONS
        for rate in RATES
    ]


def experiment(table: str, title: str, recipes: Mapping[str, Recipe], metrics: Sequence[Metric]) -> Experiment:
    return Experiment(
        id=f"nalu2018/table{table}",
        title=f"Table {table}: {title}",
        trainings=lambda options: trainings(recipes, options),
        show=comparison_page(
            lambda rows, options: compare(
                rows,
                table=table,
                reference=REFERENCE,
                order=list(recipes),
                metrics=metrics,
                title=f"NALU 2018, Table {table}",
            )
        ),
        about=ABOUT,
        reasons=REASONS,
    )


EXPERIMENTS = [
    experiment("6", "static arithmetic, squared errors", STATIC, RAW),
    experiment("7", "static arithmetic, errors relative to an untrained model", STATIC, RELATIVE),
    experiment("12", "static arithmetic with the complex NALU, squared errors", COMPLEX, RAW),
]
