"""Figure 7: gradient norms of NRU, JANET and LSTM-chrono on the copying task."""

from collections.abc import Sequence

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019.runs import order, trainings
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page, Picture
from numerate.report.figures import name_decades, style
from numerate.report.learning import Curves, curves, legend, panels, plot_curves
from numerate.results import Row
from numerate.tasks import Copying

TOP = ("NRU", "JANET", "LSTM-chrono")
EARLY = 5_000
"""Updates that count as the initial stages."""
LATE = 25_000
"""After these, the paper says, the other models' norms rise."""
HIGHER = (
    "Significantly higher gradient norms for NRU during the initial stages (our test: no overlap of runs until {:,})."
)
DECLINE = "NRU's gradient norms decline after it has converged (our test: the last fifth of updates below the first)."
RISE = (
    f"JANET's and LSTM-chrono's gradient norms rise after about {LATE:,} updates (our test: in most runs the mean "
    f"after them is higher than from {EARLY:,} to {LATE:,})."
)


def draw(rows: Sequence[Row], options: Options) -> Page:
    series, colours = curves(rows, "gradient_norm"), order(rows)
    with style():
        fig, (ax,) = panels(1, 6.4, 3.7)
        plot_curves(ax, series, order=colours, first="NRU")
        ax.set_yscale("log")
        name_decades(ax.yaxis)
        ax.set_ylabel("norm of the gradient")
        legend(fig, series, colours, first="NRU")
    caption = (
        "The norm of the whole gradient before clipping, the mean between two points: median over seeds and, as a "
        "band, the middle half of them."
    )
    return Page("NRU, Figure 7: gradient norms on the copying task", pictures=[Picture("norms", fig, caption)])


def mean_norms(series: Curves, after: int, until: float) -> np.ndarray:
    """The mean norm of each run between two updates; not finite for a run that diverges before."""
    return series.values[:, (series.steps > after) & (series.steps <= until)].mean(1)


def rises(series: Sequence[Curves]) -> tuple[str, bool | None]:
    """Of each unit, the runs whose norm is higher late than midway; whether they are most of the finite ones."""
    says, told = [], []
    for group in series:
        if group.steps[-1] <= LATE:
            return "too few updates", None
        midway, late = mean_norms(group, EARLY, LATE), mean_norms(group, LATE, np.inf)
        whole = np.isfinite(midway) & np.isfinite(late)
        higher = int((late > midway)[whole].sum())
        says.append(f"in {higher} of {whole.sum()} runs of {group.name}")
        if diverged := len(whole) - int(whole.sum()):
            says[-1] += f" ({diverged} more diverged)"
        told.append(2 * higher > whole.sum() if whole.any() else None)
    return ", ".join(says), None if None in told else all(told)


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    series = {group.name: group for group in curves(rows, "gradient_norm")}
    if not all(name in series for name in TOP) or options.size == "smoke":
        return [Claim(sentence.format(EARLY), "too little was run.") for sentence in (HIGHER, RISE, DECLINE)]
    until = min(EARLY, int(series["NRU"].steps[-1]))
    early = {name: mean_norms(series[name], 0, until) for name in TOP}
    others = np.concatenate([early[name] for name in TOP[1:]])
    higher = True if early["NRU"].min() > others.max() else False if early["NRU"].max() < others.min() else None
    middle = series["NRU"].median[1:]
    fifth = max(1, len(middle) // 5)
    first, last = float(np.median(middle[:fifth])), float(np.median(middle[-fifth:]))
    risen, holds = rises([series[name] for name in TOP[1:]])
    medians = ", ".join(f"{name} {np.median(values):.2g}" for name, values in early.items())
    return [
        Claim(HIGHER.format(until), f"median run's mean until then: {medians}.", higher),
        Claim(RISE, f"{risen}.", holds if options.size == "paper" else None),
        Claim(
            DECLINE,
            f"median over seeds and updates: {first:.2g}, then {last:.2g}.",
            last < first if options.size == "paper" else None,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="nru2019/figure7",
        title="Figure 7: gradient norms of NRU, JANET and LSTM-chrono",
        trainings=trainings([Copying(100)], TOP),
        show=picture_page(draw, claims),
        about=about("nru2019", "figure7"),
        reasons=reasons("nru2019", "recall"),
        units=TOP,
    )
]
