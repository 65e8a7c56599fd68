"""A comparison that no paper has: every unit, one protocol, on the single module task and on the two-layer task."""

from collections.abc import Sequence
from functools import partial

from numerate.experiments.experiment import Experiment, Options, Recipe, choose_recipes
from numerate.experiments.models import two_layers
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.recipes import INALU_RECIPE
from numerate.report import SUCCESS, Comparison, comparison
from numerate.results import Row
from numerate.tasks import Arithmetic, SingleModule
from numerate.tasks.task import Task
from numerate.train import Adam, Penalty, Training
from numerate.units import (
    GNALU,
    MCFC,
    NAC,
    NALU,
    NAU,
    NMRU,
    NMU,
    NPU,
    ComplexNALU,
    Dense,
    GatedNAUNMU,
    Growth,
    ModifiedRealNPU,
    MulMCFC,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    NaiveNPU,
    NaiveRealNPU,
    Ramp,
    RealNPU,
    ReciprocalUnit,
    StochasticNMU,
    l1,
    penalty,
)

OPERATIONS = ("add", "sub", "mul", "div")
INPUTS = (2, 10, 100)
ABOUT = (
    "Every unit as its own authors train it, on one range: trained on [1, 2), tested on [2, 6). Single module: one "
    "unit, two relevant inputs among 2, 10 or 100. Two layers: sums of two subsets of 100 inputs, then the operation; "
    "the first layer is NAU, the second the unit. Success as in the papers."
)
REASONS = (
    "No paper runs all of these under one protocol, so there is nothing published to compare with.",
    "Penalty schedules follow the share of the run at which their papers place them: 40 % to 70 %.",
)


def recipes(steps: int) -> dict[str, Recipe]:
    """Each unit with its authors' optimiser and penalty, the schedules in proportion to the length of the run."""

    def sparse(scale: float) -> tuple[Penalty, ...]:
        return (Penalty(penalty, Ramp(scale, 2 * steps // 5, 7 * steps // 10)),)

    shrink = (Penalty(l1, Growth(1e-9, 1e-7, every=steps // 5)),)
    fast, clipped = Adam(5e-3), Adam(1e-2, clip="norm", limit=1.0)
    return {
        "Linear": Recipe(partial(Dense, activation="none")),
        "NAC+": Recipe(NAC),
        "NAC•": Recipe(NACMul),
        "NAC•,σ": Recipe(NACMulSigmoid),
        "NAC•,NMU": Recipe(NACMulNMU, penalties=sparse(10.0)),
        "NALU (shared)": Recipe(NALU),
        "NALU (separate)": Recipe(partial(NALU, weights="separate")),
        "Complex NALU": Recipe(ComplexNALU),
        "G-NALU": Recipe(GNALU),
        "iNALU": INALU_RECIPE,
        "NAU": Recipe(NAU, penalties=sparse(0.01)),
        "NMU": Recipe(NMU, penalties=sparse(10.0)),
        "Stochastic NMU": Recipe(StochasticNMU, penalties=sparse(10.0)),
        "Gated NAU/NMU": Recipe(GatedNAUNMU, penalties=sparse(10.0)),
        "NPU": Recipe(NPU, fast, shrink),
        "Real NPU": Recipe(RealNPU, fast, shrink),
        "Naive NPU": Recipe(NaiveNPU, fast, shrink),
        "Naive Real NPU": Recipe(NaiveRealNPU, fast, shrink),
        "Modified Real NPU": Recipe(ModifiedRealNPU, fast, sparse(1.0)),
        "NMRU": Recipe(NMRU, clipped, sparse(10.0)),
        "Reciprocal Unit": Recipe(ReciprocalUnit, penalties=sparse(10.0)),
        "MCFC": Recipe(MCFC, penalties=sparse(10.0)),
        "MulMCFC": Recipe(MulMCFC, penalties=sparse(10.0)),
    }


def after_sums(recipe: Recipe) -> Recipe:
    """The same unit behind an NAU of two hidden values."""
    model = partial(two_layers, first=NAU, second=recipe.model)
    return Recipe(model, recipe.optimiser, recipe.penalties, recipe.restart)


def trainings(options: Options) -> list[Training]:
    steps = {"smoke": 1000, "quick": 20_000, "paper": 200_000}[options.size]
    seeds = options.seed_range(smoke=1, quick=6, paper=25)
    sizes = (2,) if options.size == "smoke" else INPUTS
    chosen = choose_recipes(options.units, recipes(steps))
    places: list[tuple[str, int, bool]] = [(f"Single module, {n} inputs", n, False) for n in sizes]
    if options.size != "smoke":
        places.append(("Two layers, 100 inputs", 100, True))
    return [
        (after_sums(recipe) if layered else recipe).training(
            task=_task(operation, inputs, layered),
            seeds=seeds,
            steps=steps,
            labels={"unit": name, "operation": operation, "task": title},
        )
        for title, inputs, layered in places
        for name, recipe in chosen.items()
        for operation in OPERATIONS
    ]


def _task(operation: str, inputs: int, layered: bool) -> Task:
    return Arithmetic(operation, inputs=inputs) if layered else SingleModule(operation, inputs=inputs)


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    ranked = _ranking(rows)
    return comparison(
        rows,
        title="The zoo: every unit under one protocol",
        panel="task",
        x="operation",
        xs=OPERATIONS,
        order=ranked,
        metrics=(SUCCESS,),
        x_title="Operation",
    )


def _ranking(rows: Sequence[Row]) -> list[str]:
    """Units by their share of solved runs over everything, best first."""
    solved: dict[str, list[bool]] = {}
    for row in rows:
        solved.setdefault(str(row.labels["unit"]), []).append(row.scores["best_test"] < row.threshold)
    return sorted(solved, key=lambda unit: (-sum(solved[unit]) / len(solved[unit]), unit))


EXPERIMENTS = [
    Experiment(
        "zoo", "Every unit under one protocol: which solves what", trainings, comparison_page(compare), ABOUT, REASONS
    )
]
