"""Figure 8: multiplication over the number of inputs, the size of the subsets and their overlap."""

from collections.abc import Sequence

from numerate.experiments.experiment import Experiment, Options, choose_recipes
from numerate.experiments.models import after_sums
from numerate.experiments.nau2020.recipes import OWN, SHORTER, recipes
from numerate.experiments.nau2020.tables import REASONS
from numerate.experiments.pages import comparison_page
from numerate.report import Comparison, comparison
from numerate.results import Row
from numerate.tasks import Arithmetic
from numerate.train import Training

MODELS = ("NAC•,NMU", "NAC•,σ", "NAC•", "NALU", "NMU")
QUICK_MODELS = ("NAC•,σ", "NAC•", "NMU")
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


def trainings(options: Options) -> list[Training]:
    shorter = SHORTER[options.size]
    known = {name: recipes(shorter)[name] for name in (MODELS if options.size == "paper" else QUICK_MODELS)}
    found = []
    for parameter, values in VALUES[options.size].items():
        for value in values:
            default = {"inputs": 100 if options.size == "paper" else 20}
            task = Arithmetic("mul", **default | {parameter: int(value) if parameter == "inputs" else value})  # type: ignore[arg-type]
            found += [
                recipe.training(
                    task=task,
                    seeds=options.seed_range(smoke=2, quick=10, paper=50),
                    steps=millions(task.inputs) * 1_000_000 // shorter,
                    labels={"unit": name, "operation": "mul", "parameter": parameter, "value": value},
                )
                for name, recipe in choose_recipes(options.units, known, placed=after_sums).items()
            ]
    return found


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows, title="Neural Arithmetic Units, Figure 8", panel="parameter", x="value", panels=list(TITLES),
        panel_titles=TITLES, x_titles=TITLES, order=MODELS, joined=True,
    )  # fmt: skip


EXPERIMENTS = [
    Experiment(
        id="nau2020/figure8",
        title="Figure 8: multiplication over input size, subset ratio and overlap",
        trainings=trainings,
        show=comparison_page(compare),
        about=(
            "One parameter of the arithmetic task varies, the others stay at their defaults: 100 inputs, subset ratio "
            "0.25, overlap ratio 0.5 (Madsen & Johansen 2020, C.4)."
        ),
        reasons=(
            "Beyond 100 inputs a run of paper size has 10 (to 200) or 15 million steps, as run.",
            "Subsets have ⌊ratio · inputs⌋ elements: with 4 inputs they are single numbers without overlap.",
            "Seen at quick size: NMU leads throughout, NAC• is last; large subsets and many inputs are hard for all "
            "within 500,000 steps, and with full overlap, a square, NMU alone succeeds.",
            "The paper's figure is known to us as text (C.4) alone; there are no published points to overlay.",
            *REASONS[1:],
        ),
        quick_reasons=("Where not said otherwise there are 20 inputs in place of 100.",),
        own=OWN,
    )
]
