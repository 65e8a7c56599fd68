"""Tables 6, 7 and 12: sums over two sections of a vector and six functions of them; every nonlinearity, NAC, NALU."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nalu2018.models import COMPLEX, STATIC, stacked
from numerate.experiments.nalu2018.scores import FUNCTIONS, RATES, RAW, RELATIVE, best_scores, claim, compare
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Metric
from numerate.tasks import OPERATIONS, StaticArithmetic
from numerate.train import Adam, Training

REFERENCE = "None"  # the untrained linear model is the Random of the tables
BOUNDED = ("Tanh", "Sigmoid", "ReLU6", "Softsign")
STEPS = {"smoke": 200, "quick": 20_000, "paper": 200_000}


def trainings(recipes: Mapping[str, Recipe], options: Options) -> list[Training]:
    chosen = choose_recipes(options.units, recipes, placed=lambda own: replace(own, model=stacked(own.model)))
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


def claims(compared: Comparison) -> list[Claim]:
    bounded = best_scores(compared, "extrapolation", BOUNDED)
    sums = best_scores(compared, "extrapolation", ["NAC"], ["add", "sub"])
    expressible = sums | best_scores(compared, "extrapolation", ["NALU"])
    return [
        claim(
            "Common non-linearities with a very small output range catastrophically fail to extrapolate in any case",
            bounded, lambda score: score > 1, 24, f"best runs of {', '.join(BOUNDED)} are above 1 % of random",
        ),
        claim(
            "It is the systematic numerical representations present in NAC and NALU that create the desirable learning "
            "bias leading to accurate extrapolation",
            expressible, lambda score: score < 1, 8, "functions that NAC or NALU can express are below 1 % of random",
        ),
    ]  # fmt: skip


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
                other_setting=options.size == "smoke",
            ),
            claims,
        ),
        about=about("nalu2018", "static"),
        reasons=reasons("nalu2018", "static"),
        units=recipes,
        own="each of two layers, as NAC is",
    )


EXPERIMENTS = [
    experiment("6", "static arithmetic, squared errors", STATIC, RAW),
    experiment("7", "static arithmetic, errors relative to an untrained model", STATIC, RELATIVE),
    experiment("12", "static arithmetic with the complex NALU, squared errors", COMPLEX, RAW),
]
