"""Figures 10, 11 and 12: the strength of the sparsity penalty, for NAU on + and −, for NMU on ×."""

from collections.abc import Sequence

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nau2020.recipes import SHORTER, early, late, layers, setting
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.tasks import Arithmetic
from numerate.train import Training
from numerate.units import NAU, NMU

STRENGTHS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)
FIGURES = {"10": ("add", "NAU", 0.01), "11": ("sub", "NAU", 0.01), "12": ("mul", "NMU", 10.0)}
"""Figure -> operation, second layer, and the strength that Table 4 settles on."""


def size(figure: str, options: Options) -> tuple[int, int]:
    """Inputs, and by how much the run is shortened: a quick product has 30 inputs, to show what a penalty does."""
    operation, unit, _ = FIGURES[figure]
    return (30, SHORTER["quick"]) if options.size == "quick" and unit == "NMU" else setting(operation, options.size)


def recipe(unit: str, strength: float, shorter: int) -> Recipe:
    if unit == "NMU":
        return layers(NAU, NMU, penalties=late(shorter, strength))
    return layers(NAU, NAU, penalties=early(shorter, strength))


def trainings(figure: str, options: Options) -> list[Training]:
    operation, unit, settled = FIGURES[figure]
    inputs, shorter = size(figure, options)
    return [
        recipe(unit, strength, shorter).training(
            task=Arithmetic(operation, inputs=inputs),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=5_000_000 // shorter,
            labels={"unit": unit, "operation": operation, "strength": strength},
        )
        for strength in (STRENGTHS if options.size != "smoke" else (0.0, settled))
    ]


def compare(figure: str, rows: Sequence[Row], options: Options) -> Comparison:
    title = f"Neural Arithmetic Units, Figure {figure}"
    return comparison(rows, title=title, layout=Layout(x="strength", x_title="Strength of the penalty λ̂", joined=True))


def claims(figure: str, compared: Comparison) -> list[Claim]:
    _, unit, settled = FIGURES[figure]
    rates = {cell.x: cell.measured.ours[SUCCESS.name] for cell in compared.cells}
    if settled not in rates:
        return []
    best = max(rates, key=lambda x: rates[x].value or 0.0)
    limit = rates[settled].high
    return [
        Claim(
            f"The scaling factor λ̂ is optimised; Table 4 has {settled:g} for {unit}.",
            ", ".join(f"λ̂ {x:g}: {percent(rate.value or 0.0)}" for x, rate in rates.items()) + f"; best at {best:g}.",
            None if limit is None else (rates[best].value or 0.0) <= limit,
        )
    ]


def experiment(figure: str) -> Experiment:
    operation, unit, _ = FIGURES[figure]
    sign = {"add": "+", "sub": "−", "mul": "×"}[operation]
    return Experiment(
        id=f"nau2020/figure{figure}",
        title=f"Figure {figure}: strength of the sparsity penalty, {unit} on {sign}",
        trainings=lambda options: trainings(figure, options),
        show=comparison_page(
            lambda rows, options: compare(figure, rows, options),
            lambda compared: claims(figure, compared),
            judged=("paper",) if unit == "NMU" else ("quick", "paper"),
        ),
        about=about("nau2020", "strength").format(unit=unit),
        reasons=reasons("nau2020", "strength", f"strength-{operation}", "arithmetic"),
        quick_reasons=reasons("nau2020", "strength-quick") if unit == "NMU" else (),
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
