"""Tables 1, 2, 5 and 6: the ten-parameter function, and the arithmetic task with every model and operation."""

from collections.abc import Sequence
from dataclasses import dataclass

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import after_sums
from numerate.experiments.nau2020 import figure9
from numerate.experiments.nau2020.recipes import INPUTS, OWN, SHORTER, gated_recipes, recipes, setting
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Comparison, Layout, PublishedTest, comparison
from numerate.results import Row
from numerate.tasks import Arithmetic, ten_parameter_function
from numerate.tasks.task import Task
from numerate.train import Training

OPERATIONS = ("mul", "div", "add", "sub", "sqrt", "square")
OVERFLOWING = {("6", "Gated NAU/NMU", operation) for operation in ("add", "sub")}
"""(table, model, operation) of cells that differ because runs overflow."""


@dataclass(frozen=True)
class Place:
    """What one operation of a table is run with."""

    task: Task
    steps: int
    recipes: dict[str, Recipe]


def trainings(cells: Sequence[tuple[str, str]], places: dict[str, Place], options: Options) -> list[Training]:
    """One configuration per (operation, model)."""
    return [
        recipe.training(
            task=place.task,
            seeds=options.seed_range(smoke=2, quick=10, paper=100),
            steps=place.steps,
            labels={"unit": name, "operation": operation, "task": place.task.__class__.__name__},
        )
        for operation, place in places.items()
        for name, recipe in choose_recipes(options.units, place.recipes, placed=after_sums).items()
        if (operation, name) in cells or name not in place.recipes
    ]


def compare(table: str, rows: Sequence[Row], options: Options) -> Comparison:
    layout = Layout(
        panel="task",
        x="operation",
        xs=OPERATIONS,
        match=lambda cell: ("Arithmetic", cell.model, cell.op),
        x_title="Operation",
        panel_titles={"Arithmetic": "Ten-parameter function" if table == "1" else "Arithmetic task"},
    )
    short = "rates" if table == "1" else "series"  # quick runs of the others are of another setting: orders, not rates
    (overflow,) = reasons("nau2020", "gated")
    notes = {("Arithmetic", model, op): overflow for place, model, op in OVERFLOWING if place == table}
    return comparison(
        rows,
        published.cells(paper="nau2020", table=table),
        title=f"Neural Arithmetic Units, Table {table}",
        layout=layout,
        test=PublishedTest({"smoke": None, "quick": short, "paper": "rates"}[options.size]),
        notes=notes if options.size == "paper" else {},
    )


def experiment(table: str, title: str, steps: int = 5_000_000, gated: bool = False) -> Experiment:
    cells = list(dict.fromkeys((c.op, c.model) for c in published.cells(paper="nau2020", table=table)))
    operations = list(dict.fromkeys(operation for operation, _ in cells))

    def place(operation: str, size: str) -> Place:
        if table == "1":  # runs are short and end before a late penalty would begin, so only smoke shortens them
            task, shorter = ten_parameter_function(operation), SHORTER[size] if size == "smoke" else 1
        else:
            inputs, shorter = (INPUTS[size], SHORTER[size]) if gated else setting(operation, size)
            task = Arithmetic(operation, inputs=inputs)
        return Place(task, max(2000, steps // shorter), gated_recipes(shorter) if gated else recipes(shorter))

    def work(options: Options) -> list[Training]:
        return trainings(cells, {operation: place(operation, options.size) for operation in operations}, options)

    return Experiment(
        f"nau2020/table{table}",
        title,
        work,
        comparison_page(
            lambda rows, options: compare(table, rows, options), pictures=figure9.pictures if gated else None
        ),
        about("nau2020", "table1" if table == "1" else "arithmetic"),
        reasons("nau2020", "models", "arithmetic"),
        reasons("nau2020", "sums-quick") if table in ("2", "6") else (),
        units=tuple(dict.fromkeys(model for _, model in cells)),
        own=OWN,
    )


EXPERIMENTS = [
    experiment("1", "Table 1: the ten-parameter function (x1 + x2)(x1 + x2 + x3 + x4)", steps=200_000),
    experiment("2", "Table 2: the arithmetic task, the main models, × + −"),
    experiment("5", "Table 5: does the gate choose? A sum layer and a gated unit", gated=True),
    experiment("6", "Table 6: the arithmetic task, eleven models, six operations"),
]
