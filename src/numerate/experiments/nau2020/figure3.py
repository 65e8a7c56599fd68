"""Figure 3: multiplication over the hidden size and over the training range."""

from collections.abc import Sequence
from functools import partial

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import after_sums
from numerate.experiments.nau2020.recipes import INPUTS, OWN, SHORTER, recipes
from numerate.experiments.pages import comparison_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.published import Published
from numerate.report import Comparison, Layout, PublishedTest, comparison
from numerate.results import Row
from numerate.tasks import Arithmetic
from numerate.tasks.task import Range
from numerate.train import Training

MODELS = ("NAC•,NMU", "NAC•,σ", "NAC•", "NALU", "NMU")
RANGES: dict[tuple[float, float], Range] = {
    (-2.0, -1.0): (-6.0, -2.0),
    (-2.0, 2.0): ((-6.0, -2.0), (2.0, 6.0)),
    (0.0, 1.0): (1.0, 5.0),
    (0.1, 0.2): (0.2, 2.0),
    (1.0, 2.0): (2.0, 6.0),
    (1.1, 1.2): (1.2, 6.0),
    (10.0, 20.0): (20.0, 40.0),
}
HIDDEN = {"smoke": (2, 3), "quick": (2, 4, 7, 10), "paper": tuple(range(2, 11))}
TITLES = {"hidden": "Hidden size", "range": "Training range"}


def trainings(options: Options) -> list[Training]:
    shorter, inputs = SHORTER[options.size], INPUTS[options.size]
    seeds = options.seed_range(smoke=2, quick=10, paper=50)
    ranges = options.training_ranges(RANGES, smoke=tuple(RANGES)[:2])
    places: list[tuple[str, object, int, tuple[float, float]]] = [
        *(("hidden", hidden, hidden, (1.0, 2.0)) for hidden in HIDDEN[options.size]),
        *(("range", span, 2, span) for span in ranges),  # type: ignore[misc]
    ]
    return [
        recipe.training(
            task=Arithmetic("mul", span, RANGES[span], inputs=inputs),
            seeds=seeds,
            steps=5_000_000 // shorter,
            labels={"unit": name, "operation": "mul", "parameter": parameter, "value": value},
        )
        for parameter, value, hidden, span in places
        for name, recipe in choose_recipes(
            options.units,
            {m: recipes(shorter, hidden)[m] for m in MODELS},
            placed=partial(after_sums, hidden=hidden),
        ).items()
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    theirs = published.cells(paper="nau2020", table=["figure 3a", "figure 3b"])
    layout = Layout(
        panel="parameter",
        x="value",
        panels=list(TITLES),
        panel_titles=TITLES,
        x_titles=TITLES,
        order=MODELS,
        match=_place,
        joined=True,
    )
    test = PublishedTest({"smoke": None, "quick": "series", "paper": "rates"}[options.size])
    return comparison(rows, theirs, title="Neural Arithmetic Units, Figure 3", layout=layout, test=test)


def _place(cell: Published) -> tuple[str, str, object]:
    """Panel, series and x of a published point, such as 'hidden_size 2' or 'interpolation_range U[-2,-1]'."""
    kind, _, value = cell.x.partition(" ")
    if kind == "hidden_size":
        return "hidden", cell.model, float(value)
    return "range", cell.model, published.parse_range(value)


EXPERIMENTS = [
    Experiment(
        id="nau2020/figure3",
        title="Figure 3: multiplication over hidden size and training range",
        trainings=trainings,
        show=comparison_page(compare),
        about=about("nau2020", "figure3"),
        reasons=reasons("nau2020", "figure3", "models", "arithmetic"),
        units=MODELS,
        ranges=tuple(RANGES),
        own=OWN,
    )
]
