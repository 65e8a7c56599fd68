"""Figures 10, 11 and 12: the strength of the sparsity penalty, for NAU on + and −, for NMU on ×."""

from collections.abc import Sequence

from numerate.experiments.experiment import Experiment, Options, Recipe
from numerate.experiments.nau2020.recipes import SHORTER, early, late, layers, setting
from numerate.experiments.nau2020.tables import REASONS
from numerate.experiments.pages import comparison_page
from numerate.report import SUCCESS, Claim, Comparison, comparison
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
    operation, unit, chosen = FIGURES[figure]
    inputs, shorter = size(figure, options)
    return [
        recipe(unit, strength, shorter).training(
            task=Arithmetic(operation, inputs=inputs),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=5_000_000 // shorter,
            labels={"unit": unit, "operation": operation, "strength": strength},
        )
        for strength in (STRENGTHS if options.size != "smoke" else (0.0, chosen))
    ]


def compare(figure: str, rows: Sequence[Row], options: Options) -> Comparison:
    title = f"Neural Arithmetic Units, Figure {figure}"
    return comparison(rows, title=title, x="strength", x_title="Strength of the penalty λ̂", joined=True)


def claims(figure: str, compared: Comparison) -> list[Claim]:
    _, unit, chosen = FIGURES[figure]
    found = {c.x: c.measured.ours[SUCCESS.name] for c in compared.cells}
    if chosen not in found:
        return []
    best = max(found, key=lambda x: found[x].value or 0.0)
    limit = found[chosen].high
    return [
        Claim(
            f"The scaling factor λ̂ is optimised; Table 4 has {chosen:g} for {unit}.",
            ", ".join(f"λ̂ {x:g}: {percent(rate.value or 0.0)}" for x, rate in found.items()) + f"; best at {best:g}.",
            None if limit is None else (found[best].value or 0.0) <= limit,
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
            lambda rows, options: compare(figure, rows, options), lambda compared: claims(figure, compared)
        ),
        about=f"How strongly {unit}'s weights should be drawn to discrete values (Madsen & Johansen 2020, C.6).",
        reasons=(
            "The paper's figure is known to us as text (C.6) alone; there are no published points to overlay.",
            "A claim holds here if the best success rate lies inside the interval of the chosen strength.",
            "For − every λ̂ succeeds: the threshold is reached before the penalty grows.",
            *REASONS[1:],
        ),
        quick_reasons=(
            "At quick size a product's penalty sets in at 100,000 steps, before all runs have found the product: "
            "strong penalties then lose runs. With two hidden values none is needed (C.3), so that no penalty at all "
            "succeeds most often; what it does shows in the sparsity error.",
            "The size of the quick × runs was chosen after trying others: among 100 inputs nothing is solved in "
            "200,000 steps, among 10 everything is at any λ̂.",
        ),
        takes=(),
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
