"""Figures 18 to 20: the units that solve + or − on every range, given 8 or 98 inputs more than they need."""

from collections.abc import Sequence
from dataclasses import replace

from numerate.experiments.experiment import Experiment, Options, Recipe, choose_recipes
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.recipes import INALU_RECIPE
from numerate.report import SUCCESS, Claim, Comparison, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Penalty, Training
from numerate.units import NAU, After, Ramp, penalty

STEPS = {"smoke": 1000, "quick": 100_000, "paper": 100_000}
SEEDS = {"smoke": 2, "quick": 10, "paper": 25}
NARROW = ((-1.2, -1.1), (1.1, 1.2))
SMALL = ((-0.2, -0.1), *NARROW, (0.1, 0.2))
FIGURES = {"18": ("iNALU", "add", 10), "19": ("NAU", "add", 10), "20": ("NAU", "sub", 100)}
"""Figure -> unit, operation, inputs."""


def recipe(unit: str, steps: int) -> Recipe:
    """NAU's penalty from half to three quarters of the run (50,000 to 75,000 of 100,000); iNALU's after a tenth."""
    if unit == "NAU":
        return Recipe(NAU, penalties=(Penalty(penalty, Ramp(0.01, steps // 2, steps * 3 // 4)),))
    return replace(INALU_RECIPE, penalties=(Penalty(penalty, After(0.05, steps // 10), below=1.0),))


def trainings(figure: str, options: Options) -> list[Training]:
    unit, operation, inputs = FIGURES[figure]
    steps = STEPS[options.size]
    ranges = options.training_ranges(PRIMER_RANGES, smoke=((1.0, 2.0),))
    return [
        each.training(
            task=SingleModule(operation, span, PRIMER_RANGES[span], inputs=inputs),  # type: ignore[index]
            seeds=options.seed_range(**SEEDS),
            steps=steps,
            labels={"unit": name, "operation": operation, "range": span},
        )
        for name, each in choose_recipes(options.units, {unit: recipe(unit, steps)}).items()
        for span in ranges
    ]


def compare(figure: str, rows: Sequence[Row], options: Options) -> Comparison:
    unit, _, inputs = FIGURES[figure]
    title = f"Primer 2022, Figure {figure}: {unit} with {inputs} inputs"
    return comparison(rows, title=title, xs=list(PRIMER_RANGES))


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
        about=f"Does {unit} still find its two inputs among {inputs}? (Mistry et al. 2022, 6.5.)",
        reasons=(
            "The figure is known to us as text (6.5) alone; there are no published points to overlay.",
            "The released scripts hold NAU's runs for 100 inputs with + and 10 with −, the paper shows 10 with + and "
            "100 with −; settings are those of the scripts: 100,000 steps, penalty from 50,000 to 75,000.",
            "Seen with 10 seeds: NAU loses 1 of 10 runs with 10 inputs and 2 to 3 of 10 with 100, on these two ranges "
            "alone, and rounding brings it to 100 % everywhere; iNALU succeeds on ±[10, 20) alone.",
            "The two inputs are neighbours at a place drawn once per run.",
            "NAU near ±[1.1, 1.2): the weights are right to about 1e-4, but Adam at a constant rate and the linear "
            "penalty jitter around zero, above the threshold; the column 'snapped' shows what rounding makes of them.",
        ),
        takes=("units", "ranges"),
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
