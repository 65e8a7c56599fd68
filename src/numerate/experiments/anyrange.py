"""Every unit on ranges drawn at random by a fixed rule: a benchmark that a unit cannot be tuned to."""

from collections.abc import Sequence
from dataclasses import dataclass

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.zoo import OPERATIONS, picture, ranking, rate_tables, recipes, share_table
from numerate.report import SUCCESS, Comparison, Layout, Page, Picture, comparison
from numerate.results import Row
from numerate.tasks import AnyRange, random_ranges
from numerate.train import Training


@dataclass(frozen=True)
class Size:
    """How much of the benchmark to run: the first of the ranges, steps, and which units (None: all)."""

    ranges: int
    steps: int
    units: tuple[str, ...] | None = None


SIZES = {
    "smoke": Size(2, 1000, ("NATU", "NAU", "NMU", "Real NPU")),
    "quick": Size(20, 20_000),
    "paper": Size(200, 50_000),
}
INPUTS = (2, 10)


def chosen(options: Options) -> dict[str, Recipe]:
    size = SIZES[options.size]
    return choose_recipes(options.units, recipes(size.steps), default=size.units)


def trainings(options: Options) -> list[Training]:
    size = SIZES[options.size]
    units, ranges = chosen(options), tuple(random_ranges(size.ranges))
    return [
        recipe.training(
            task=AnyRange(operation, train_range, test_range, inputs),
            seeds=options.seed_range(smoke=1, quick=1, paper=1),
            steps=size.steps,
            labels={"unit": name, "operation": operation, "task": f"{inputs} inputs", "range": train_range},
        )
        for inputs in INPUTS
        for name, recipe in units.items()
        for operation in OPERATIONS
        for train_range, test_range in ranges
    ]


def compare(rows: Sequence[Row]) -> Comparison:
    return comparison(
        rows,
        title="Any range: every unit on ranges drawn at random",
        layout=Layout(panel="task", x="operation", xs=OPERATIONS, order=list(ranking(rows)), x_title="Operation"),
        metrics=(SUCCESS,),
    )


def headline(rows: Sequence[Row]) -> str:
    """The best unit, and the best of the others."""
    shares = [f"{unit} {100 * (share.solved.value or 0.0):.1f} %" for unit, share in ranking(rows).items()]
    return f"Share of solved runs over all ranges, operations and numbers of inputs: {', '.join(shares[:3])}."


def draw(rows: Sequence[Row], options: Options) -> Page:
    compared, ranked = compare(rows), ranking(rows)
    caption = (
        "Share of the ranges that are solved, in percent, units down, operations across, one block per number of "
        "inputs. Right, over all of them: the share of solved runs with its Wilson interval; hollow: with the best "
        "weights rounded to the unit's discrete values wherever the validation error is not worse."
    )
    tables = [share_table(ranked), *rate_tables(compared)]
    return Page(compared.title, headline(rows), [Picture("overview", picture(compared, ranked), caption)], tables)


def fewer(options: Options) -> dict[str, dict[str, int]]:
    """Smaller sizes have fewer ranges, and smoke fewer units unless the user has chosen them."""
    found = {"ranges": {name: size.ranges for name, size in SIZES.items()}}
    if not options.units:
        found["units"] = {name: len(size.units or recipes(size.steps)) for name, size in SIZES.items()}
    return found


EXPERIMENTS = [
    Experiment(
        id="anyrange",
        title="Every unit on ranges drawn at random, + − × ÷, 2 and 10 inputs",
        trainings=trainings,
        show=picture_page(draw, fewer=fewer),
        about=about("anyrange", "anyrange"),
        reasons=reasons("anyrange", "anyrange"),
        units=tuple(recipes(1000)),
        own="the whole model",
    )
]
