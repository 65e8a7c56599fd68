"""Heim et al.'s large-scale arithmetic: 100 inputs, 100 hidden values; medians of the test error."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import Layer, after_sums, two_layers
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.recipes import INALU_RECIPE
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, PublishedTest, comparison
from numerate.report.errors import ERROR, ERRORS, errors
from numerate.report.text import scientific
from numerate.results import Row
from numerate.tasks.large_scale import LargeScale
from numerate.train import Adam, Penalty, Training
from numerate.units import INALU, NALU, NAU, NMU, NPU, After, Growth, NaiveNPU, RealNPU, l1, penalty

LAYERS: dict[str, tuple[Layer, Layer]] = {
    "NPU": (NAU, NPU),
    "Real NPU": (NAU, RealNPU),
    "NALU": (NALU, NALU),
    "iNALU": (INALU, INALU),
    "NMU": (NAU, NMU),
    "Naive NPU": (NAU, NaiveNPU),
}
TITLES = {"add": "a + b", "sub": "a − b", "mul": "a · b", "inverse": "1 / a", "sqrt": "√a"}
QUICK = ("add", "mul", "inverse", "sqrt")
"""Those for which the authors print medians."""
STEPS = {"smoke": 200, "quick": 20_000, "paper": 50_000}
SIZES = {"smoke": (10, 5, 1), "quick": (20, 10, 2), "paper": (100, 50, 12)}
"""Inputs, subset, overlap."""


def recipe_for(name: str, operation: str, options: Options, hidden: int) -> Recipe:
    """L1 on all weights, ten times stronger after every fifth of a run; faster rate for sums.

    iNALU has its own recipe.
    """
    fifth = max(1, (options.steps or STEPS[options.size]) // 5)
    start, end = (1e-9, 1e-7) if operation == "inverse" else (1e-5, 1e-4)
    first, second = LAYERS[name]
    model = partial(two_layers, first=first, second=second, hidden=hidden)
    if name == "iNALU":
        late = (Penalty(penalty, After(0.05, fifth), below=1.0),)
        return replace(INALU_RECIPE, model=model, penalties=late)
    rate = 1e-2 if operation == "add" else 5e-3
    return Recipe(model, Adam(rate), (Penalty(l1, Growth(start, end, fifth)),))


def trainings(options: Options) -> list[Training]:
    inputs, subset, overlap = SIZES[options.size]
    operations = tuple(TITLES) if options.size == "paper" else ("add",) if options.size == "smoke" else QUICK
    return [
        recipe.training(
            task=LargeScale(operation, inputs=inputs, subset=subset, overlap=overlap),
            seeds=options.seed_range(smoke=2, quick=4, paper=10),
            steps=STEPS[options.size],
            evaluate_every=min(1000, STEPS[options.size]),
            evaluation_size=1000,
            labels={"unit": name, "operation": operation, "size": f"{inputs} inputs"},
        )
        for operation in operations
        for name, recipe in choose_recipes(
            options.units,
            {name: recipe_for(name, operation, options, inputs) for name in LAYERS},
            placed=partial(after_sums, hidden=inputs),
        ).items()
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    panel = f"{SIZES[options.size][0]} inputs"
    return comparison(
        rows,
        published.cells(paper="npu2020"),
        title="Primer 2022: Heim et al.'s large-scale arithmetic",
        layout=Layout(
            panel="size",
            x="operation",
            xs=list(TITLES),
            order=list(LAYERS),
            match=lambda cell: (panel, cell.model, cell.op),
            x_title="Function",
        ),
        test=PublishedTest("rates" if options.size == "paper" else None),
        measure=errors,
        metrics=ERRORS,
    )


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 6.4."""
    error = {(c.x, c.series): c.measured.ours[ERROR.name].value or 0.0 for c in compared.cells}
    if not {(operation, name) for operation in ("add", "mul", "inverse") for name in LAYERS} <= error.keys():
        return []

    def listed(operation: str) -> str:
        return ", ".join(f"{name} {scientific(error[operation, name])}" for name in LAYERS) + "."

    def best(operation: str) -> float:
        return min(error[operation, "NPU"], error[operation, "Real NPU"])

    others = min(error["inverse", name] for name in LAYERS if name not in ("NPU", "Real NPU"))
    ratio = best("inverse") / others
    return [
        Claim(
            "For division the best module is NPU (or RealNPU).",
            listed("inverse"),
            None if 0.5 < ratio < 2 else ratio < 1,
        ),
        Claim(
            "The NPU is outperformed by the NMU for multiplication.",
            listed("mul"),
            error["mul", "NMU"] < error["mul", "NPU"],
        ),
        Claim(
            "The NPU outperforms the iNALU for multiplication and division.",
            f"×: {listed('mul')} ÷: {listed('inverse')}",
            all(best(operation) < error[operation, "iNALU"] for operation in ("mul", "inverse")),
        ),
        Claim(
            "Stacked on top of a NAU, the NPU performs similar to the NMU for addition.",
            listed("add"),
            0.1 < error["add", "NPU"] / error["add", "NMU"] < 10,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="primer2022/npu-large",
        title="Heim et al.: large-scale arithmetic, 100 inputs, 100 hidden values, five models",
        trainings=trainings,
        show=comparison_page(compare, claims),
        about=about("primer2022", "npu-large"),
        reasons=reasons("primer2022", "npu-large"),
        quick_reasons=reasons("primer2022", "npu-large-quick"),
        units=LAYERS,
        own="the second of two layers, behind an NAU, as NPU and NMU are",
    )
]
