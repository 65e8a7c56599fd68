"""Table 1: on how many of seven tasks each unit is among the best, or the best two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019 import runs, table2, table3, verdicts
from numerate.experiments.nru2019.beside import Column
from numerate.experiments.nru2019.units import UNITS
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import BAND, FAINT, RATES, frame_cells, lay_out, style
from numerate.results import Row
from numerate.train import NetworkTraining

TEXT, PIXELS = "PTB characters", "psMNIST"
Ahead = Callable[[Sequence[Row], Sequence[Row]], bool | None]


def trainings(options: Options) -> list[NetworkTraining]:
    """The runs of Figures 1, 2 and 4 and of Tables 2 and 3."""
    return [*runs.trainings(runs.TASKS)(options), *table2.trainings(options), *table3.trainings(options)]


def by_value(column: Column, lower_is_better: bool, a: Sequence[Row], b: Sequence[Row]) -> bool:
    """Whether the mean of ``a`` is better, by more than what agrees with a printed number."""
    sign = 1 if lower_is_better else -1
    errors = [sign * column.scale * float(np.mean([row.scores[column.score] for row in rows])) for rows in (a, b)]
    ours, theirs = np.nan_to_num(errors, nan=np.inf)  # without a value: behind all others
    return bool(ours + column.near < theirs)


AHEAD: dict[str, Ahead] = {
    TEXT: partial(by_value, table2.BITS, True),
    PIXELS: partial(by_value, table3.TEST, False),
}
"""Of the tasks that are not solved; the others are compared by :func:`verdicts.ahead`."""


@dataclass(frozen=True)
class Ranking:
    """Task -> unit -> how many units are ahead of it, so 0 for the best and those that cannot be told from it."""

    behind: dict[str, dict[str, int]]
    complete: bool
    """Whether all units of all tasks were run."""

    @classmethod
    def of(cls, rows: Sequence[Row], options: Options) -> "Ranking":
        wanted: dict[str, set[str]] = {}
        for training in trainings(options):
            wanted.setdefault(str(training.labels["task"]), set()).add(str(training.labels["unit"]))
        behind = {}
        for task, members in runs.by_task(rows).items():
            groups, ahead = runs.by_unit(members), AHEAD.get(task, verdicts.ahead)
            behind[task] = {
                unit: sum(ahead(other, own) is True for name, other in groups.items() if name != unit)
                for unit, own in groups.items()
            }
        return cls(behind, all(units <= set(behind.get(task, {})) for task, units in wanted.items()))

    def top(self, unit: str, places: int) -> int:
        """On how many tasks the unit is among so many best."""
        return sum(found.get(unit, places) < places for found in self.behind.values())


def printed(places: int) -> dict[str, int]:
    cells = published.cells(paper="nru2019", table="1", metric=f"tasks_in_top{places}")
    return {cell.model: int(cell.value) for cell in cells if cell.value is not None}


def draw(rows: Sequence[Row], options: Options) -> Page:
    found = Ranking.of(rows, options)
    theirs = {places: printed(places) for places in (1, 2)}
    lines = []
    for unit in UNITS:
        places = [found.behind[task].get(unit) for task in found.behind]
        if any(place is not None for place in places):
            own = ["–" if place is None else str(1 + place) for place in places]
            tops = [str(value) for k in (1, 2) for value in (found.top(unit, k), theirs[k][unit])]
            lines.append([unit, *own, *tops])
    header = ["unit", *found.behind, "top 1", "top 1, published", "top 2", "top 2, published"]
    return Page(
        "NRU, Table 1: units among the best",
        pictures=[picture(found)],
        tables=[TextTable("Place on each task", header, lines)],
    )


def picture(found: Ranking) -> Picture:
    tasks = list(found.behind)
    units = [unit for unit in UNITS if any(unit in places for places in found.behind.values())]
    with style():
        fig = Figure(figsize=(max(7.2, 1.8 + 1.1 * len(tasks)), 1.0 + 0.36 * len(units)))
        ax = fig.subplots()
        for column, task in enumerate(tasks):
            for line, unit in enumerate(units):
                place = found.behind[task].get(unit)
                shade = BAND if place is None else RATES(max(0.08, 0.85 - 0.3 * place))
                ax.add_patch(Rectangle((column - 0.47, line - 0.45), 0.94, 0.9, fc=shade, ec="none"))
                colour = FAINT if place is None else "#fefeff" if place == 0 else "#1b1f25"
                label = "–" if place is None else str(1 + place)
                weight = "bold" if place is not None and place < 2 else "normal"
                ax.text(column, line, label, ha="center", va="center", color=colour, weight=weight)
        frame_cells(ax, units, tasks)
        lay_out(fig)
    return Picture(
        "places",
        fig,
        "The place of each unit on each task: one more than the number of units that are ahead of it. Units that "
        "cannot be told apart share a place. A dash: not run.",
    )


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    found = Ranking.of(rows, options)
    tasks = sum("NRU" in places for places in found.behind.values())
    told = found.complete and options.as_published
    top = {k: {unit: found.top(unit, k) for unit in UNITS} for k in (1, 2)}
    first = max(top[1], key=lambda unit: top[1][unit])
    return [
        Claim(
            "NRU is among the best two on all seven tasks.",
            f"on {top[2]['NRU']} of the {tasks} that it was run on.",
            top[2]["NRU"] == tasks if told else None,
        ),
        Claim(
            "NRU is the best on more tasks than any other unit (printed: 4; EURNN 2).",
            ", ".join(f"{unit} {count}" for unit, count in top[1].items() if count) + ".",
            first == "NRU" and list(top[1].values()).count(top[1][first]) == 1 if told else None,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="nru2019/table1",
        title="Table 1: on how many of seven tasks each unit is among the best",
        trainings=trainings,
        show=picture_page(draw, claims),
        about=about("nru2019", "table1"),
        reasons=reasons("nru2019", "ranking"),
        quick_reasons=reasons("nru2019", "recall-quick", "text-quick"),
    )
]
