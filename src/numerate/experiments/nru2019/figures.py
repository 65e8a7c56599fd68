"""Figures 1, 2 and 4: learning curves on copying, variable copying and denoising. Figure 3: steps to converge."""

from collections.abc import Callable, Sequence

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019 import verdicts
from numerate.experiments.nru2019.runs import (
    TASKS,
    UPDATES,
    RecallTask,
    curve_picture,
    overview_picture,
    sized,
    solved_pictures,
    table,
    title,
    trainings,
)
from numerate.experiments.nru2019.units import OTHER_NRU, UNITS
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page
from numerate.report.learning import curves
from numerate.results import Row
from numerate.tasks import Copying, Denoising, VariableCopying

TOP = ("NRU", "JANET", "LSTM-chrono")
Claims = Callable[[Sequence[Row], Options], list[Claim]]


def of(kind: type[RecallTask]) -> list[RecallTask]:
    return [task for task in TASKS if isinstance(task, kind)]


def page(heading: str) -> Callable[[Sequence[Row], Options], Page]:
    def draw(rows: Sequence[Row], options: Options) -> Page:
        return Page(heading, pictures=[curve_picture(rows), *solved_pictures(rows)], tables=[table(rows)])

    return draw


def runs_of(rows: Sequence[Row], kinds: tuple[type[RecallTask], ...], options: Options) -> verdicts.Runs:
    """With the tasks of those kinds that the size has, run or not."""
    tasks = sized([task for task in TASKS if isinstance(task, kinds)], options)
    return verdicts.Runs(rows, [title(task) for task in tasks], options)


def copying_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    runs = runs_of(rows, (Copying,), options)
    return [
        *verdicts.solves_within(runs, "EURNN", 500),
        *verdicts.first_then_second(runs, "NRU", "JANET"),
        *verdicts.ratio(runs, "JANET", "NRU"),
        *verdicts.stays_at_guessing(runs, ["RNN-orth", "RNN-id"]),
    ]


def variable_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    runs = runs_of(rows, (VariableCopying,), options)
    poorly = "EURNN performs poorly where the lag varies (our test: no run is solved)."
    return [*verdicts.first_then_second(runs, "NRU", "JANET"), *verdicts.fails(runs, "EURNN", poorly)]


def denoising_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    runs = runs_of(rows, (Denoising,), options)
    fails = "EURNN does not converge to the solution (our test: no run is solved)."
    return [
        *verdicts.all_solve_but(runs, UNITS, ["EURNN"], UPDATES["paper"]),
        *verdicts.fails(runs, "EURNN", fails),
        *learns_first(runs),
    ]


def learns_first(runs: verdicts.Runs, share: float = 0.1) -> list[Claim]:
    """By the median loss after a tenth of the updates of NRU."""
    units = ("NRU", "JANET", *verdicts.GATED)

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        series = {name: curves(groups[name], "validation")[0] for name in units}
        at = share * series["NRU"].steps[-1]
        losses = {name: float(np.interp(at, group.steps[1:], group.median[1:])) for name, group in series.items()}
        says = f"at update {at:,.0f} " + ", ".join(f"{n} {v:.3f}" for n, v in losses.items())
        first = min(losses, key=lambda name: losses[name]) == "NRU"
        return says, None if runs.options.size == "smoke" else first

    sentence = f"NRU learns faster in the beginning (our test: lowest median loss of the gated units at {share:.0%})."
    return runs.on_each_task(sentence, units, test)


def draw_figure3(rows: Sequence[Row], options: Options) -> Page:
    top = [row for row in rows if row.labels["unit"] in TOP] or list(rows)
    return Page(
        "NRU, Figure 3: steps to converge, and every unit on every task",
        pictures=[overview_picture(rows), *solved_pictures(top)],
        tables=[table(rows)],
    )


def figure3_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    runs = runs_of(rows, (Copying, VariableCopying), options)
    return [*verdicts.first_then_second(runs, *TOP[:2], others=TOP[2:]), *verdicts.ratio(runs, "JANET", "NRU")]


def experiment(figure: str, heading: str, tasks: Sequence[RecallTask], show: Callable, claims: Claims) -> Experiment:
    return Experiment(
        id=f"nru2019/{figure}",
        title=heading,
        trainings=trainings(tasks),
        show=picture_page(show, claims),
        about=about("nru2019", figure),
        reasons=reasons("nru2019", "recall", *(["variable"] if figure in ("figure2", "figure3") else [])),
        quick_reasons=reasons("nru2019", "recall-quick"),
        units=(*UNITS, *OTHER_NRU),
    )


EXPERIMENTS = [
    experiment(
        "figure1", "Figure 1: copying, T = 100 and 200, ten units", of(Copying),
        page("NRU, Figure 1: the copying task"), copying_claims,
    ),
    experiment(
        "figure2", "Figure 2: copying with a variable lag", of(VariableCopying),
        page("NRU, Figure 2: copying with a variable lag"), variable_claims,
    ),
    experiment(
        "figure3", "Figure 3: steps to converge; an overview of ten units and five tasks", TASKS,
        draw_figure3, figure3_claims,
    ),
    experiment(
        "figure4", "Figure 4: denoising, T = 100", of(Denoising),
        page("NRU, Figure 4: the denoising task"), denoising_claims,
    ),
]  # fmt: skip
