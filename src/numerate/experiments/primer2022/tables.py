"""Tables 9 to 12 (figures 14 to 17): the single module task, four operations, nine ranges, every unit."""

from collections.abc import Sequence

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.recipes import RECIPES
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Comparison, Layout, PublishedTest, comparison
from numerate.results import Row
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Training

TABLES = {"9": "add", "10": "sub", "11": "mul", "12": "div"}
STEPS = {"smoke": 1000, "quick": 50_000, "paper": 50_000}
SEEDS = {"smoke": 2, "quick": 10, "paper": 25}
NAMES = {"add": "addition", "sub": "subtraction", "mul": "multiplication", "div": "division"}


def trainings(operations: Sequence[str], options: Options) -> list[Training]:
    seeds = options.seed_range(**SEEDS)
    ranges = options.training_ranges(PRIMER_RANGES, smoke=((1.0, 2.0), (-2.0, 2.0)))
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=SingleModule(operation, span, PRIMER_RANGES[span]),  # type: ignore[index]
            seeds=seeds,
            steps=steps,
            labels={"unit": name, "operation": operation, "range": span},
        )
        for operation in operations
        for name, recipe in choose_recipes(options.units, RECIPES[operation]).items()
        for span in ranges
    ]


def compare(tables: Sequence[str], rows: Sequence[Row], options: Options) -> Comparison:
    theirs = [cell for table in tables for cell in published.cells(paper="primer2022", table=table)]
    title = f"Primer 2022, Table {tables[0]}" if len(tables) == 1 else "Primer 2022, Tables 9 to 12"
    layout = Layout(panels=list(NAMES), xs=list(PRIMER_RANGES))
    test = PublishedTest(None if options.size == "smoke" else "rates")
    return comparison(rows, theirs, title=title, layout=layout, test=test)


def experiment(id: str, title: str, tables: Sequence[str]) -> Experiment:
    operations = [TABLES[table] for table in tables]
    return Experiment(
        id=id,
        title=title,
        trainings=lambda options: trainings(operations, options),
        show=comparison_page(lambda rows, options: compare(tables, rows, options)),
        about=about("primer2022", "tables"),
        reasons=reasons("primer2022", "tables"),
        units=tuple(dict.fromkeys(name for operation in operations for name in RECIPES[operation])),
        ranges=tuple(PRIMER_RANGES),
    )


EXPERIMENTS = [
    experiment("primer2022", "Tables 9 to 12 in one: every unit on the single module task, + − × ÷", list(TABLES)),
    *(
        experiment(
            f"primer2022/table{number}",
            f"Table {number}: {NAMES[operation]} with a single module, nine ranges",
            [number],
        )
        for number, operation in TABLES.items()
    ),
]
