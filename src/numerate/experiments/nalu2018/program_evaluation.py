"""Figure 6: the sum of two integers, tested on larger ones; and programs with control flow, the harder variant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor, nn

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import sequence_model
from numerate.experiments.nalu2018.models import OwnCell
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.recurrent import DNC, LSTM, UGRNN, ControlledNALU, Recurrent, UnitRNN
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import style
from numerate.report.learning import Curves, curves, grouped, legend, looks, panels
from numerate.report.text import thousands_tick
from numerate.results import Row
from numerate.tasks import ProgramEvaluation
from numerate.train import Adam, Cosine, NetworkTraining
from numerate.units import NAU

RATE = 0.01
SOLVED = 0.95
"""Share of right digits of a model that solves a range."""
TITLES = {2: "below 100", 3: "three digits", 4: "four digits"}
ORDER = ("LSTM", "UGRNN", "DNC", "NALU", "NAU")
OTHERS = ORDER[:3]
SENTENCES = {
    "addition": (
        "The task is simple for all models to solve",
        "All models fail to generalise except for the recurrent NALU",
    ),
    "control": (
        "(Ours) Programs, too, are simple for all models to solve",
        "(Ours) Of programs, too, all models fail to generalise except for the recurrent NALU",
    ),
}
"""By kind of programs. The paper speaks of addition alone."""


class LastNumber(nn.Module):
    """The first of the numbers that a layer gives at the last step; (T, B, I) -> (B, 1)."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][-1][..., :1]


def last_number(inputs: int, outputs: int, *, layer: Callable[[int], Recurrent]) -> LastNumber:
    """A recurrent layer whose output is the answer. Raises ValueError unless one number is asked for."""
    if outputs != 1:
        raise ValueError(f"the layer's first number is the answer, not {outputs}")
    return LastNumber(layer(inputs))


@dataclass(frozen=True)
class Figure:
    """One of the two tasks.

    Args:
        id: of the experiment.
        kind: of the programs.
        title: what it shows.
        hidden: units of every network.
        numbers: that NALU keeps.
        steps: by size.
        seeds: by size.
    """

    id: str
    kind: Literal["addition", "control"]
    title: str
    hidden: int
    numbers: int
    steps: Mapping[str, int]
    seeds: Mapping[str, int]


FIGURES = (
    Figure(
        "figure6", "addition", "Figure 6: the sum of two integers, and of larger ones", 32, 1,
        {"smoke": 4, "quick": 5_000, "paper": 50_000}, {"smoke": 1, "quick": 10, "paper": 10},
    ),
    Figure(
        "figure6-programs", "control", "Figure 6, the harder task: programs with if, + and −",
        64, 4,
        {"smoke": 4, "quick": 2_000, "paper": 100_000}, {"smoke": 1, "quick": 3, "paper": 10},
    ),
)  # fmt: skip


def recipes(figure: Figure) -> dict[str, Recipe]:
    def network(layer: Any) -> Recipe:
        return Recipe(partial(sequence_model, layer=partial(layer, hidden_size=figure.hidden), read="last"))

    nalu = partial(ControlledNALU, hidden_size=figure.hidden, numbers=figure.numbers, arithmetic_inputs=1)
    known = {"LSTM": network(LSTM), "UGRNN": network(UGRNN), "DNC": network(DNC)}
    known["NALU"] = Recipe(partial(last_number, layer=nalu))
    if figure.kind == "addition":
        known["NAU"] = Recipe(as_cell(NAU))
    return known


def as_cell(unit: Any) -> partial[LastNumber]:
    """A unit as the cell, on a step's inputs and its own last output, the answer."""
    return partial(last_number, layer=partial(UnitRNN, hidden_size=1, unit=unit))


def users_cell(inputs: int, *, unit: Any) -> Recurrent:
    """The same with a user's unit, made of (inputs, outputs) alone."""
    return Recurrent(OwnCell(inputs, 1, unit))


def trainings(figure: Figure) -> Callable[[Options], list[NetworkTraining]]:
    def make(options: Options) -> list[NetworkTraining]:
        steps, smoke = options.steps or figure.steps[options.size], options.size == "smoke"
        task = ProgramEvaluation(figure.kind)
        chosen = choose_recipes(
            options.units,
            recipes(figure),
            default=("LSTM", "NALU") if smoke else None,
            placed=lambda own: replace(own, model=partial(last_number, layer=partial(users_cell, unit=own.model))),
        )
        return [
            recipe.network_training(
                task=replace(task, batch_size=4, evaluation_batches=1) if smoke else task,
                seeds=options.seed_range(**figure.seeds),
                optimiser=Adam(RATE, clip="norm", limit=1.0),
                schedule=Cosine(steps),
                steps=steps,
                evaluate_every=max(1, steps // (100 if options.size == "paper" else 20)),
                labels={"unit": name, "task": figure.kind},
            )
            for name, recipe in chosen.items()
        ]

    return make


# ---------------------------------------------------------------- digits that match


def quantity(digits: int) -> str:
    return f"test_matching_{digits}"


def digits_of(rows: Sequence[Row]) -> list[int]:
    """Digits of the numbers of each range that was tested."""
    names = rows[0].curves if rows else {}
    return sorted(int(name.rpartition("_")[2]) for name in names if name.startswith("test_matching_"))


def last(rows: Sequence[Row], digits: int) -> np.ndarray:
    """Share of right digits at the end of each run; 0 of one that diverged."""
    ends = [0.0 if row.status == "diverged" else float(row.curves[quantity(digits)][-1]) for row in rows]
    return np.nan_to_num(np.array(ends))


def band(group: Curves) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation over the runs at each point; a run that diverged has no right digits."""
    values = np.nan_to_num(np.where(np.isfinite(group.values), group.values, 0.0))
    return values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(group.steps))


def plot_bands(ax: Axes, series: Sequence[Curves], order: Sequence[str]) -> None:
    """Means as lines, two standard deviations to either side as bands."""
    look = looks(order)
    for group in series:
        mean, deviation = band(group)
        colour, _ = look[group.name]
        width, zorder = (2.2, 4) if group.name == "NALU" else (1.3, 3)
        low, high = (100 * np.clip(mean + side * 2 * deviation, 0, 1) for side in (-1, 1))
        ax.fill_between(group.steps, low, high, color=colour, alpha=0.14, lw=0, zorder=2)
        ax.plot(group.steps, 100 * mean, color=colour, lw=width, zorder=zorder)
    ax.xaxis.set_major_formatter(lambda value, _: thousands_tick(value) if value >= 0 else "")
    ax.set(xlim=(0, max(group.steps[-1] for group in series)), ylim=(0, 102), xlabel="update")


def picture(rows: Sequence[Row]) -> Picture:
    ranges = digits_of(rows)
    names = [*ORDER, *dict.fromkeys(row.labels["unit"] for row in rows if row.labels["unit"] not in ORDER)]
    with style():
        fig, axes = panels(len(ranges), 3.1, 3.2, columns=3)
        for ax, digits in zip(axes, ranges):
            plot_bands(ax, curves(rows, quantity(digits)), names)
            ax.set_title(TITLES.get(digits, f"{digits} digits"))
        axes[0].set_ylabel("right digits of test answers, %")
        legend(fig, curves(rows, quantity(ranges[0])), names, first="NALU")
    runs = max(map(len, grouped(rows, "unit").values()))
    over = f"mean over {runs} runs and, as bands, two standard deviations" if runs > 1 else "one run each"
    caption = f"Digits of the rounded answer that match: {over}."
    return Picture("digits", fig, caption)


def table(rows: Sequence[Row]) -> TextTable:
    ranges = digits_of(rows)
    header = ["unit", "runs", "parameters", *(TITLES.get(d, f"{d} digits") for d in ranges), "runs that extrapolate"]
    lines = []
    for unit, some in grouped(rows, "unit").items():
        ends = {digits: last(some, digits) for digits in ranges}
        cells = [
            f"{100 * e.mean():.1f}" + (f" ± {200 * e.std(ddof=1):.1f}" if len(e) > 1 else "") for e in ends.values()
        ]
        right = int((ends[ranges[-1]] > SOLVED).sum())
        parameters = f"{int(some[0].scores['parameters']):,}" if "parameters" in some[0].scores else "–"
        lines.append([unit, str(len(some)), parameters, *cells, f"{right} of {len(some)}"])
    return TextTable(
        "Right digits after the last update, %: mean over runs, and two standard deviations", header, lines
    )


def headline(rows: Sequence[Row]) -> str:
    """How many runs extrapolate."""
    most = digits_of(rows)[-1]
    found = [
        f"{unit} {int((last(some, most) > SOLVED).sum())} of {len(some)}"
        for unit, some in grouped(rows, "unit").items()
    ]
    return f"Runs with more than {SOLVED:.0%} of the digits right on numbers of {most} digits: {', '.join(found)}."


def page(figure: Figure) -> Callable[[Sequence[Row], Options], Page]:
    def draw(rows: Sequence[Row], options: Options) -> Page:
        title = f"NALU 2018, {figure.title}"
        if not digits_of(rows):
            return Page(title)
        return Page(title, headline(rows), [picture(rows)], [table(rows)])

    return draw


def claims(figure: Figure) -> Callable[[Sequence[Row], Options], list[Claim]]:
    """The sentences of appendix E, which are of the sum, and ours of programs; no verdicts below the paper's size."""
    simple, alone = SENTENCES[figure.kind]

    def found(rows: Sequence[Row], options: Options) -> list[Claim]:
        groups = {unit: some for unit, some in grouped(rows, "unit").items() if unit in (*OTHERS, "NALU")}
        if options.size == "smoke" or not groups:
            return []
        means = {unit: {d: float(last(some, d).mean()) for d in digits_of(rows)} for unit, some in groups.items()}
        settled = options.size == "paper" and len(means) == 4
        inside, third, fourth = (
            ", ".join(f"{unit} {100 * shares[d]:.0f} %" for unit, shares in means.items()) for d in (2, 3, 4)
        )
        others = [means[unit] for unit in OTHERS if unit in means]
        nalu = means.get("NALU", {2: 0.0, 3: 0.0, 4: 0.0})
        solved = all(shares[2] > SOLVED for shares in means.values())
        only_nalu = all(shares[4] < 0.5 for shares in others) and nalu[4] > SOLVED
        said = [
            Claim(
                f"{simple} (our test: {SOLVED:.0%} of the digits below 100).",
                f"{inside}.",
                solved if settled else None,
            ),
            Claim(
                f"{alone} (our test: four digits, below 50 % and above {SOLVED:.0%}).",
                f"{fourth}.",
                only_nalu if settled else None,
            ),
        ]
        if figure.kind == "addition":
            ahead = settled and means["UGRNN"][3] > max(means["LSTM"][3], means["DNC"][3]) + 0.1
            text = "The UGRNN proves much better than the LSTM and DNC (our test: by ten points on three digits)."
            said.append(Claim(text, f"{third}.", ahead if settled else None))
        return said

    return found


def experiment(figure: Figure) -> Experiment:
    text = "figure6" if figure.kind == "addition" else "programs"
    return Experiment(
        id=f"nalu2018/{figure.id}",
        title=figure.title,
        trainings=trainings(figure),
        show=picture_page(page(figure), claims(figure)),
        about=about("nalu2018", text),
        reasons=reasons("nalu2018", text),
        quick_reasons=reasons("nalu2018", f"{text}-quick"),
        units=tuple(recipes(figure)),
        own="the recurrent cell, on a step's inputs and its own last output, which is the answer",
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
