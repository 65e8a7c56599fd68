"""NSR and NAU: functions with two pieces, one continuous, one with a jump."""

from collections.abc import Sequence
from functools import partial

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.deciding import PATHS, Branch, at_least, named, sparsity
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.errors import ERROR, errors
from numerate.report.text import scientific
from numerate.results import Row
from numerate.stats import Estimate, wilson
from numerate.tasks import Piecewise
from numerate.tasks.decisions import PIECES
from numerate.train import Adam, Training
from numerate.units import MLP

STEPS = {"smoke": 500, "quick": 20_000, "paper": 100_000}
SCALE = 10.0
FAR = {"smoke": (100.0,), "quick": (10.0, 100.0, 1000.0), "paper": (10.0, 100.0, 1000.0, 10_000.0)}
"""Sizes of the inputs in the test, in place of 10."""
LEARNT, FAILED = 0.5, 0.1
"""A function is learnt if at least this share of the runs solves it, and not learnt if less than that share does."""
TITLES = {"distance": "|x₁ − x₂|, continuous", "jump": "x₁ + x₂ or x₁ − x₂, with a jump"}


def recipes(steps: int) -> dict[str, Recipe]:
    ours = {named(p): Recipe(partial(Branch, paths=p, scale=SCALE), Adam(1e-2), sparsity(steps)) for p in PATHS}
    return {**ours, "MLP": Recipe(partial(MLP, hidden=(16,), activation="relu"), Adam(1e-2))}


def trainings(options: Options) -> list[Training]:
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=Piecewise(pieces, test_size=far),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 20,
            evaluation_size=1000,
            labels={"unit": name, "function": pieces, "size": far},
        )
        for name, recipe in choose_recipes(options.units, recipes(options.steps or steps)).items()
        for pieces in PIECES
        for far in FAR[options.size]
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    layout = Layout(
        panel="function",
        x="size",
        panels=list(PIECES),
        panel_titles=TITLES,
        order=[*map(named, PATHS), "MLP"],
        x_title="Size of the test inputs (training: 10)",
        joined=True,
    )
    title = "Primer 2022: piecewise functions with NSR and NAU"
    return comparison(rows, title=title, layout=layout, measure=errors, metrics=(SUCCESS, ERROR))


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 7.2: which function extrapolates."""
    solved: dict[tuple[str, str], list[Estimate]] = {}
    for cell in compared.cells:
        if cell.x > 10:
            rate = wilson(cell.measured.solved or 0, cell.measured.n)
            solved.setdefault((cell.panel, cell.series), []).append(rate)
    names = [name for name in map(named, PATHS) if ("jump", name) in solved and ("distance", name) in solved]
    if len(names) < len(PATHS):
        return []

    def best(panel: str) -> Estimate:
        return max((min(solved[panel, name], key=_rate) for name in names), key=_rate)

    def listed(panel: str) -> str:
        cells = [cell for cell in compared.of(panel) if cell.x == 100]
        return ", ".join(
            f"{cell.series} {cell.measured.solved or 0} of {cell.measured.n} solved to 100 (median error "
            f"{scientific(cell.measured.ours[ERROR.name].value or 0.0)})"
            for cell in cells
        )

    continuous, jump = (_learnt(best(panel)) for panel in PIECES)
    return [
        Claim(
            "A simple continuous function (such as the absolute difference between two inputs) can be learnt with "
            "extrapolation capabilities.",
            f"{listed('distance')}.",
            continuous,
        ),
        Claim(
            "A non-continuous function cannot.",
            f"{listed('jump')}.",
            None if jump is None else not jump,
        ),
    ]


def _rate(found: Estimate) -> float:
    return found.value or 0.0


def _learnt(rate: Estimate) -> bool | None:
    """Whether a function is learnt; None where the interval leaves that open."""
    return at_least(rate, LEARNT) or (False if at_least(rate, FAILED) is False else None)


EXPERIMENTS = [
    Experiment(
        id="primer2022/piecewise",
        title="NSR and NAU: |x₁ − x₂|, and a function with a jump",
        trainings=trainings,
        show=comparison_page(compare, claims),
        about=about("primer2022", "piecewise"),
        reasons=reasons("primer2022", "nsr", "piecewise"),
        units=[*map(named, PATHS), "MLP"],
    )
]
