"""Figures 1, 2 and 4: learning curves on copying, variable copying and denoising. Figure 3: steps to converge."""

from collections.abc import Callable, Sequence

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019 import verdicts
from numerate.experiments.nru2019.runs import (
    TASKS,
    RecallTask,
    by_task,
    curve_picture,
    overview_picture,
    solved_pictures,
    table,
    trainings,
)
from numerate.experiments.nru2019.units import UNITS
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


def page(title: str) -> Callable[[Sequence[Row], Options], Page]:
    def draw(rows: Sequence[Row], options: Options) -> Page:
        return Page(title, pictures=[curve_picture(rows), *solved_pictures(rows)], tables=[table(rows)])

    return draw


def copying_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    return [
        verdicts.solves_within(rows, "EURNN", 500),
        verdicts.first_then_second(rows, "NRU", "JANET"),
        verdicts.ratio(rows, "JANET", "NRU"),
        verdicts.stays_at_guessing(rows, ["RNN-orth", "RNN-id"], options),
    ]


def variable_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    poorly = "EURNN performs poorly where the lag varies (our test: no run is solved)."
    return [verdicts.first_then_second(rows, "NRU", "JANET"), verdicts.fails(rows, "EURNN", options, poorly)]


def denoising_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    fails = "EURNN does not converge to the solution (our test: no run is solved)."
    return [
        verdicts.all_solve_but(rows, options, ["EURNN"]),
        verdicts.fails(rows, "EURNN", options, fails),
        learns_first(rows, options),
    ]


def learns_first(rows: Sequence[Row], options: Options, share: float = 0.1) -> Claim:
    """By the median loss after a tenth of the updates of NRU."""
    found, holds = [], []
    for task, members in by_task(rows).items():
        series = {group.name: group for group in curves(members, "validation") if group.name in ("NRU", *UNITS[1:5])}
        if len(series) < 2 or "NRU" not in series:
            continue
        at = share * series["NRU"].steps[-1]
        losses = {name: float(np.interp(at, group.steps[1:], group.median[1:])) for name, group in series.items()}
        found.append(f"{task}: at update {at:,.0f} " + ", ".join(f"{n} {v:.3f}" for n, v in losses.items()))
        holds.append(min(losses, key=lambda name: losses[name]) == "NRU")
    sentence = f"NRU learns faster in the beginning (our test: lowest median loss of the gated units at {share:.0%})."
    return Claim(sentence, "; ".join(found) + "." if found else "no runs.", _verdict(holds, options))


def _verdict(holds: Sequence[bool], options: Options) -> bool | None:
    return None if options.size == "smoke" or not holds else all(holds)


def draw_figure3(rows: Sequence[Row], options: Options) -> Page:
    top = [row for row in rows if row.labels["unit"] in TOP] or list(rows)
    return Page(
        "NRU, Figure 3: steps to converge, and every unit on every task",
        pictures=[overview_picture(rows), *solved_pictures(top)],
        tables=[table(rows)],
    )


def figure3_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    copying = [row for row in rows if "copying" in row.labels["task"]]
    return [
        verdicts.first_then_second(copying, *TOP[:2], others=TOP[2:]),
        verdicts.ratio(copying, "JANET", "NRU"),
    ]


def experiment(figure: str, title: str, tasks: Sequence[RecallTask], show: Callable, claims: Claims) -> Experiment:
    return Experiment(
        id=f"nru2019/{figure}",
        title=title,
        trainings=trainings(tasks),
        show=picture_page(show, claims),
        about=about("nru2019", figure),
        reasons=reasons("nru2019", "recall", *(["variable"] if figure in ("figure2", "figure3") else [])),
        quick_reasons=reasons("nru2019", "recall-quick"),
        units=UNITS,
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
