"""Schlör et al.'s experiments 4 and 5: two layers that sum and combine, over initialisations and distributions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import two_layers
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, PublishedTest, comparison
from numerate.report.errors import ERRORS, errors
from numerate.report.text import percent
from numerate.results import Row
from numerate.tasks.distributions import DistributedSums, Distribution
from numerate.train import Adam, Penalty, Restart, Training
from numerate.units import INALU, NALU, After, penalty

OPERATIONS = ("add", "sub", "mul", "div")
FUNCTION = {
    Distribution("uniform", -3, 3): Distribution("uniform", -5, -3),
    Distribution("normal", -3, 3): Distribution("normal", 3, 4),
}
"""Training -> test."""
STEPS = {"smoke": 1000, "quick": 30_000, "paper": 100_000}
CHOSEN = (0.0, -1.0, 1.0)
"""Means of the gate, M̂ and Ŵ that the authors settle on."""
THREE = (-1.0, 0.0, 1.0)
GRID = tuple(product(THREE, THREE, THREE))
DEVIATIONS = (0.1, 0.5)


def inalu(steps: int, means: tuple[float, float, float] = CHOSEN, deviation: float = 0.1) -> Recipe:
    """Two iNALUs; the penalty begins after a tenth of the run, as theirs."""
    gate, m_hat, w_hat = means
    layer = partial(INALU, init=(w_hat, m_hat, gate, deviation))
    model = partial(two_layers, first=layer, second=layer)
    late = (Penalty(penalty, After(0.05, steps // 10), below=1.0),)
    return Recipe(model, Adam(clip="value", limit=0.1), late, Restart())


def named(means: tuple[float, float, float]) -> str:
    """(0, −1, 1)"""
    return f"({', '.join(f'{mean:g}' for mean in means)})".replace("-", "−")


# ------------------------------------------------------------ experiment 4: initialisation


def initialisations(options: Options) -> list[Training]:
    steps, quick = STEPS[options.size], options.size != "paper"
    grid = GRID if options.size != "smoke" else (CHOSEN, (1.0, 1.0, 1.0))
    train, test = Distribution("normal", -3, 3), Distribution("normal", 3, 4)
    return [
        inalu(options.steps or steps, means, deviation).training(
            task=DistributedSums(operation, train, test, inputs=10 if quick else 100),
            seeds=options.seed_range(smoke=2, quick=5, paper=20),
            steps=steps,
            batch=64,
            labels={"unit": named(means), "operation": operation, "deviation": deviation},
        )
        for means in grid
        for deviation in (DEVIATIONS[:1] if quick else DEVIATIONS)
        for operation in (("add", "mul") if options.size == "smoke" else OPERATIONS)
    ]


def compare_initialisations(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        title="Primer 2022: Schlör et al., influence of the initialisation",
        layout=Layout(
            panel="deviation",
            x="operation",
            xs=OPERATIONS,
            order=[named(means) for means in GRID],
            panel_titles={f"{d}": f"iNALU, standard deviation {d:g}" for d in DEVIATIONS},
            x_title="Operation",
        ),
        measure=errors,
        metrics=(SUCCESS, ERRORS[0]),
    )


def initialisation_claims(compared: Comparison) -> list[Claim]:
    solved: dict[str, list[int]] = {}
    for cell in compared.cells:
        count = solved.setdefault(cell.series, [0, 0])
        count[0] += cell.measured.solved or 0
        count[1] += cell.measured.n
    if len(solved) < len(GRID):
        return []
    rates = {means: k / n for means, (k, n) in solved.items()}
    ranked = sorted(rates, key=lambda means: -rates[means])
    rank = 1 + sum(rate > rates[named(CHOSEN)] for rate in rates.values())
    division = sum(cell.measured.solved or 0 for cell in compared.cells if cell.x == "div")
    best = ", ".join(f"{means} {percent(rates[means])}" for means in ranked[:3])
    return [
        Claim(
            "Means of 0, −1 and 1 for the gate, M̂ and Ŵ result in the most stable modules.",
            f"over all operations {percent(rates[named(CHOSEN)])} of the runs are solved, rank {rank} of {len(GRID)}; "
            f"the best: {best}.",
            rank == 1 or (None if rates[ranked[0]] - rates[named(CHOSEN)] < 0.1 else False),
        ),
        Claim(
            "Even when using such initialisations, the stability problem remains for division.",
            f"{division} runs on ÷ are solved.",
            division == 0,
        ),
    ]


# ------------------------------------------------------------ experiment 5: the function


def function_recipes(steps: int) -> dict[str, Recipe]:
    return {"NALU": Recipe(partial(two_layers, first=NALU, second=NALU)), "iNALU": inalu(steps)}


def placed(recipe: Recipe) -> Recipe:
    """A unit of the user's own in both layers, as ours are."""
    return replace(recipe, model=partial(two_layers, first=recipe.model, second=recipe.model))


def functions(options: Options) -> list[Training]:
    smoke, steps = options.size == "smoke", STEPS[options.size]
    return [
        recipe.training(
            task=DistributedSums(operation, train, test, inputs=10 if smoke else 100),
            seeds=options.seed_range(smoke=2, quick=5, paper=10),
            steps=steps,
            batch=64,
            labels={"unit": name, "operation": operation, "inputs": train.name},
        )
        for name, recipe in choose_recipes(
            options.units, function_recipes(options.steps or steps), placed=placed
        ).items()
        for train, test in list(FUNCTION.items())[: 1 if smoke else None]
        for operation in (("add", "mul") if smoke else OPERATIONS)
    ]


def compare_functions(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        published.cells(paper="inalu2020", table="experiment 5"),
        title="Primer 2022: Schlör et al., simple function learning",
        layout=Layout(
            x="inputs",
            xs=[distribution.name for distribution in FUNCTION],
            panels=OPERATIONS,
            order=("NALU", "iNALU"),
            match=lambda cell: (cell.op, cell.model, cell.split),
            x_title="Distribution of the training inputs",
        ),
        test=PublishedTest("rates" if options.size == "paper" else None),
        measure=errors,
        metrics=(SUCCESS, ERRORS[0]),
    )


def function_claims(compared: Comparison) -> list[Claim]:
    rate = {(c.series, c.panel, c.x): (c.measured.solved or 0) / c.measured.n for c in compared.cells}
    places = [(operation, distribution.name) for operation in OPERATIONS for distribution in FUNCTION]
    if any((unit, *place) not in rate for unit in ("NALU", "iNALU") for place in places):
        return []
    means = {unit: sum(rate[unit, *place] for place in places) / len(places) for unit in ("NALU", "iNALU")}
    division = max(rate["iNALU", "div", d.name] for d in FUNCTION)
    return [
        Claim(
            "iNALU generally outperforms NALU.",
            f"over all eight places iNALU solves {percent(means['iNALU'])} of its runs, NALU {percent(means['NALU'])}.",
            means["iNALU"] > means["NALU"],
        ),
        Claim(
            "For division both the iNALU and NALU performances remain comparable.",
            f"iNALU solves at most {percent(division)} of its runs on ÷, "
            f"NALU {percent(max(rate['NALU', 'div', d.name] for d in FUNCTION))}.",
            division < 0.2,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="primer2022/inalu-initialisation",
        title="Schlör et al.: influence of the initialisation, 27 means of gate, M̂ and Ŵ",
        trainings=initialisations,
        show=comparison_page(compare_initialisations, initialisation_claims),
        about=about("primer2022", "inalu-initialisation"),
        reasons=reasons("primer2022", "inalu-function", "inalu-initialisation"),
    ),
    Experiment(
        id="primer2022/inalu-function",
        title="Schlör et al.: simple function learning, two layers, sums of 100 inputs",
        trainings=functions,
        show=comparison_page(compare_functions, function_claims),
        about=about("primer2022", "inalu-function"),
        reasons=reasons("primer2022", "inalu-function"),
        units=("NALU", "iNALU"),
        own="each of two layers, as NALU is",
    ),
]
