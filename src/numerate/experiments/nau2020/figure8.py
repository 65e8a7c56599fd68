"""Figure 8: multiplication over the number of inputs, the size of the subsets and their overlap."""

from collections.abc import Sequence

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import after_sums
from numerate.experiments.nau2020.recipes import OWN, SHORTER, recipes
from numerate.experiments.pages import comparison_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Comparison, Layout, comparison
from numerate.results import Row
from numerate.tasks import Arithmetic
from numerate.train import Training

MODELS = ("NAC•,NMU", "NAC•,σ", "NAC•", "Gated NAU/NMU", "NALU", "NMU")
QUICK_MODELS = ("NAC•,σ", "NAC•", "Gated NAU/NMU", "NMU")
TITLES = {"inputs": "Input size", "subset_ratio": "Subset ratio", "overlap_ratio": "Overlap ratio"}
VALUES: dict[str, dict[str, tuple[float, ...]]] = {
    "smoke": {"inputs": (20,), "subset_ratio": (0.1,), "overlap_ratio": (0.0,)},
    "quick": {
        "inputs": (4, 10, 20, 30),
        "subset_ratio": (0.05, 0.1, 0.25, 0.5),
        "overlap_ratio": (0.0, 0.25, 0.5, 1.0),
    },
    "paper": {
        "inputs": (4, 10, 25, 50, 75, 100, 125, 150, 175, 200, 225, 250, 275, 300),
        "subset_ratio": (0.05, 0.1, 0.25, 0.5),
        "overlap_ratio": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
    },
}


def millions(inputs: int) -> int:
    """Millions of steps at paper size: twice or three times as many beyond 100 inputs."""
    return 5 if inputs <= 100 else 10 if inputs <= 200 else 15


def task(parameter: str, value: float, inputs: int) -> Arithmetic:
    """The multiplication task with one parameter changed; ``inputs`` is the usual number of inputs."""
    settings = {"inputs": inputs} | {parameter: int(value) if parameter == "inputs" else value}
    return Arithmetic("mul", **settings)  # type: ignore[arg-type]


def trainings(options: Options) -> list[Training]:
    shorter, paper = SHORTER[options.size], options.size == "paper"
    known = {name: recipes(shorter)[name] for name in MODELS}
    chosen = choose_recipes(options.units, known, default=None if paper else QUICK_MODELS, placed=after_sums)
    return [
        recipe.training(
            task=(varied := task(parameter, value, 100 if paper else 20)),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=millions(varied.inputs) * 1_000_000 // shorter,
            labels={"unit": name, "operation": "mul", "parameter": parameter, "value": value},
        )
        for parameter, values in VALUES[options.size].items()
        for value in values
        for name, recipe in chosen.items()
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    layout = Layout(
        panel="parameter",
        x="value",
        panels=list(TITLES),
        panel_titles=TITLES,
        x_titles=TITLES,
        order=MODELS,
        joined=True,
    )
    return comparison(rows, title="Neural Arithmetic Units, Figure 8", layout=layout)


EXPERIMENTS = [
    Experiment(
        id="nau2020/figure8",
        title="Figure 8: multiplication over input size, subset ratio and overlap",
        trainings=trainings,
        show=comparison_page(compare),
        about=about("nau2020", "figure8"),
        reasons=reasons("nau2020", "figure8", "arithmetic"),
        quick_reasons=reasons("nau2020", "figure8-quick"),
        units=MODELS,
        own=OWN,
    )
]
