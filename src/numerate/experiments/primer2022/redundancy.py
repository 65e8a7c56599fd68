"""Figures 18 to 20: the units that solve + or − on every range, given 8 or 98 inputs more than they need."""

from collections.abc import Sequence
from dataclasses import replace

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.recipes import INALU_RECIPE
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Penalty, Training
from numerate.units import NAU, After, Ramp, penalty

STEPS = {"iNALU": 50_000, "NAU": 100_000}
SMOKE_STEPS = 1000
SEEDS = {"smoke": 2, "quick": 10, "paper": 25}
NARROW = ((-1.2, -1.1), (1.1, 1.2))
SMALL = ((-0.2, -0.1), *NARROW, (0.1, 0.2))
FIGURES = {"18": ("iNALU", "add", 10), "19": ("NAU", "add", 10), "20": ("NAU", "sub", 100)}
"""Figure -> unit, operation, inputs."""


def recipe_for(unit: str, steps: int) -> Recipe:
    """NAU's penalty from step 50,000 to 75,000, iNALU's after 10,000, as released; in proportion at smoke size."""
    if unit == "NAU":
        return Recipe(NAU, penalties=(Penalty(penalty, Ramp(0.01, steps // 2, steps * 3 // 4)),))
    return replace(INALU_RECIPE, penalties=(Penalty(penalty, After(0.05, steps // 5), below=1.0),))


def trainings(figure: str, options: Options) -> list[Training]:
    unit, operation, inputs = FIGURES[figure]
    steps = SMOKE_STEPS if options.size == "smoke" else STEPS[unit]
    ranges = options.training_ranges(PRIMER_RANGES, smoke=((1.0, 2.0),))
    return [
        recipe.training(
            task=SingleModule(operation, span, PRIMER_RANGES[span], inputs=inputs),  # type: ignore[index]
            seeds=options.seed_range(**SEEDS),
            steps=steps,
            labels={"unit": name, "operation": operation, "range": span},
        )
        for name, recipe in choose_recipes(options.units, {unit: recipe_for(unit, steps)}).items()
        for span in ranges
    ]


def compare(figure: str, rows: Sequence[Row], options: Options) -> Comparison:
    unit, _, inputs = FIGURES[figure]
    title = f"Primer 2022, Figure {figure}: {unit} with {inputs} inputs"
    return comparison(rows, title=title, layout=Layout(xs=list(PRIMER_RANGES)))


def claims(figure: str, compared: Comparison) -> list[Claim]:
    unit, _, inputs = FIGURES[figure]
    cells = {c.x: c.measured for c in compared.cells if c.series == unit}
    if set(cells) != set(PRIMER_RANGES):
        return []
    rate = {x: measured.ours[SUCCESS.name].value or 0.0 for x, measured in cells.items()}
    inside = ", ".join(f"{x[0]:g} to {x[1]:g}: {percent(value)}" for x, value in rate.items())
    if unit == "iNALU":
        large = sum(rate[x] for x in rate if x not in SMALL) / (len(rate) - len(SMALL))
        small = sum(rate[x] for x in SMALL) / len(SMALL)
        text = (
            "iNALU shows multiple failure ranges at 10 inputs, achieving reasonable success only on the larger ranges."
        )
        return [Claim(text, inside + ".", large > small and sum(value < 0.5 for value in rate.values()) >= 2)]
    text = f"The NAU fails at {inputs} inputs on the ranges [−1.2, −1.1) and [1.1, 1.2)."
    snapped = sum(m.snapped or 0 for m in cells.values()) / sum(m.n for m in cells.values())
    others = min(rate[x] for x in rate if x not in NARROW)
    return [
        Claim(text, inside + ".", max(rate[x] for x in NARROW) < others),
        Claim(
            "(Ours) These failures are jitter around weights that are right: rounding cures them.",
            f"with rounded weights {percent(snapped)} of all runs succeed.",
            snapped > 0.99,
        ),
    ]


def experiment(figure: str) -> Experiment:
    unit, operation, inputs = FIGURES[figure]
    name = {"add": "addition", "sub": "subtraction"}[operation]
    return Experiment(
        id=f"primer2022/figure{figure}",
        title=f"Figure {figure}: {unit}, {name} with {inputs} inputs, {inputs - 2} of them redundant",
        trainings=lambda options: trainings(figure, options),
        show=comparison_page(
            lambda rows, options: compare(figure, rows, options), lambda compared: claims(figure, compared)
        ),
        about=about("primer2022", "redundancy").format(unit=unit, inputs=inputs),
        reasons=reasons("primer2022", "redundancy", f"redundancy-{unit}"),
        units=(unit,),
        ranges=tuple(PRIMER_RANGES),
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
