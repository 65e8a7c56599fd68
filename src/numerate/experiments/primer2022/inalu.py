"""Schlör et al.'s three experiments: input distributions, magnitude of the inputs, and 8 redundant inputs."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, comparison
from numerate.report.errors import ERROR, ERRORS, errors
from numerate.report.text import percent
from numerate.results import Row
from numerate.tasks.distributions import DistributedArithmetic, Distribution
from numerate.train import Adam, Penalty, Restart, Training
from numerate.units import INALU, NALU, After, penalty

OPERATIONS = ("add", "sub", "mul", "div")
UNITS = ("NALU", "iNALU")
UNIFORM, NORMAL, EXPONENTIAL = (
    Distribution("uniform", -10, -5), Distribution("normal", 8, 10), Distribution("exponential", 0, 0.5),
)  # fmt: skip
DISTRIBUTIONS = {
    Distribution("uniform", -5, 5): UNIFORM,
    Distribution("uniform", -1, 1): UNIFORM,
    Distribution("normal", -3, 3): NORMAL,
    Distribution("normal", -2, 4): NORMAL,
    Distribution("normal", -4, 2): NORMAL,
    Distribution("exponential", 0, 0.2): EXPONENTIAL,
    Distribution("exponential", 0, 0.8): EXPONENTIAL,
}
"""Training -> test: those the authors show."""
MAGNITUDES = {Distribution("uniform", -m, m): Distribution("uniform", -2 * m, -m) for m in (0.1, 1.0, 10.0, 100.0)}
STEPS = {"smoke": 1000, "quick": 30_000, "paper": 100_000}
EXPERIMENT = {
    "minimal": ("Minimal arithmetic: a single layer, seven input distributions", DISTRIBUTIONS, 2),
    "magnitude": ("Input magnitude: inputs from 0.1 to 100", MAGNITUDES, 2),
    "simple": ("Simple arithmetic: 2 of 10 inputs matter, seven input distributions", DISTRIBUTIONS, 10),
}
"""Name -> title, distributions, inputs."""


def recipes(steps: int) -> dict[str, Recipe]:
    """iNALU with the means of Schlör et al.; its penalty begins after a tenth of the run, as theirs."""
    late = (Penalty(penalty, After(0.05, steps // 10), below=1.0),)
    inalu = Recipe(partial(INALU, init="schloer"), Adam(clip="value", limit=0.1), late, Restart())
    return {"NALU": Recipe(NALU), "iNALU": inalu}


def trainings(name: str, options: Options) -> list[Training]:
    _, distributions, inputs = EXPERIMENT[name]
    smoke = options.size == "smoke"
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=DistributedArithmetic(operation, train, test, inputs),
            seeds=options.seed_range(smoke=2, quick=5, paper=10),
            steps=steps,
            batch=64,
            labels={"unit": unit, "operation": operation, "inputs": train.name},
        )
        for unit, recipe in choose_recipes(options.units, recipes(options.steps or steps)).items()
        for train, test in (list(distributions.items())[-1:] if smoke else distributions.items())
        for operation in (("add", "mul") if smoke else OPERATIONS)
    ]


def compare(name: str, rows: Sequence[Row], options: Options) -> Comparison:
    title, distributions, _ = EXPERIMENT[name]
    layout = Layout(
        x="inputs",
        xs=[distribution.name for distribution in distributions],
        panels=list(OPERATIONS),
        order=UNITS,
        x_title="Distribution of the training inputs",
        joined=name == "magnitude",
    )
    return comparison(rows, title=title, layout=layout, measure=errors, metrics=ERRORS)


def claims(name: str, compared: Comparison) -> list[Claim]:
    """Sentences of 6.3."""
    solved = {(c.panel, c.series, c.x): (c.measured.solved or 0) / c.measured.n for c in compared.cells}
    error = {(c.panel, c.series, c.x): c.measured.ours[ERROR.name].value or 0.0 for c in compared.cells}
    exponential = "mul", "iNALU", "E(0.2)"
    if name == "simple" and exponential in solved:
        return [
            Claim(
                "With redundant inputs iNALU succeeds on previously failed training ranges of multiplication, such as "
                "an exponential distribution (0.2).",
                f"{percent(solved[exponential])} of the runs on E(0.2) succeed; without redundancy: inalu-minimal.",
                solved[exponential] >= 0.5,
            )
        ]
    needed = {(o, unit, d.name) for o in OPERATIONS for unit in UNITS for d in MAGNITUDES}
    if name != "magnitude" or not needed <= solved.keys():
        return []
    above = compared.xs[2:]

    def listed(unit: str, operations: Sequence[str]) -> str:
        lines = [f"{o} {', '.join(f'{error[o, unit, x]:.0e}' for x in compared.xs)}" for o in operations]
        return f"median errors from small to large inputs: {'; '.join(lines)}."

    sums = [solved[o, "iNALU", x] for o in ("add", "sub") for x in compared.xs]
    return [
        Claim(
            "NALU fails on magnitudes greater than 1.",
            listed("NALU", OPERATIONS),
            max(solved[o, "NALU", x] for o in OPERATIONS for x in above) < 0.5,
        ),
        Claim(
            "iNALU remains unaffected for addition and subtraction.", listed("iNALU", ("add", "sub")), min(sums) >= 0.8
        ),
        Claim(
            "Multiplication performance is coupled to magnitude where extrapolation error increases with magnitude.",
            listed("iNALU", ("mul",)),
            all(error["mul", "iNALU", a] < error["mul", "iNALU", b] for a, b in pairwise(compared.xs[1:])),
        ),
    ]


def experiment(name: str) -> Experiment:
    return Experiment(
        id=f"primer2022/inalu-{name}",
        title=f"Schlör et al.: {EXPERIMENT[name][0][0].lower()}{EXPERIMENT[name][0][1:]}",
        trainings=lambda options: trainings(name, options),
        show=comparison_page(
            lambda rows, options: compare(name, rows, options), lambda compared: claims(name, compared)
        ),
        about=about("primer2022", "inalu"),
        reasons=reasons("primer2022", "inalu"),
        units=UNITS,
    )


EXPERIMENTS = [experiment(name) for name in EXPERIMENT]
