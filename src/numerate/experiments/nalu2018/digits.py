"""Table 10: counting and adding handwritten digits in series of 10, tested on 1, 10, 100 and 1000."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from numerate import published
from numerate.experiments.digit_reader import SIDE, Reader, over_lengths, read_all, with_lengths
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nalu2018.scores import raw
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.published import Published
from numerate.recurrent import GRU, LSTM, RNN
from numerate.report import Claim, Comparison, Layout, Measured, Metric, PublishedTest, comparison, text
from numerate.results import Row
from numerate.stats import Estimate, median
from numerate.tasks import DigitSequences
from numerate.train import Adam, NetworkTraining, Penalty
from numerate.train.networks.grouping import checked_layer
from numerate.units import NAC, NALU, NAU, Ramp, penalty

FEATURES = 10
"""Numbers that the convolutional network reads from an image, and hidden values of LSTM, GRU and RNN."""
LENGTHS = (1, 10, 100, 1000)
STEPS = {"smoke": 2, "quick": 1500, "paper": 20_000}
TASKS = {"count": "Counting", "sum": "Addition"}
BASELINES = ("LSTM", "GRU", "RNN-tanh", "RNN-ReLU")


class SeriesNetwork(nn.Module):
    """Ten numbers for each image, a recurrent layer through them, its last output; (L, B, 784) -> (B, outputs).

    Of images in one row, (N, 784), it makes series of each of ``lengths`` and gives their outputs length by length.

    Args:
        outputs: numbers that are told of a series.
        unit: an arithmetic unit as the cell: h_t = unit([x_t; h_{t-1}]), and h is the output; or None.
        layer: else a recurrent layer of (inputs, hidden values), with a linear layer on top.
        initial: h before the first step.
        lengths: of series that are made of images in one row.
    """

    def __init__(
        self,
        outputs: int,
        *,
        unit: Callable[[int, int], nn.Module] | None = None,
        layer: Callable[[int, int], nn.Module] | None = None,
        initial: float = 0.0,
        lengths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.reader = Reader(FEATURES, (10, 20), 50)
        self.cell: Any = None if unit is None else checked_layer(unit, FEATURES + outputs, outputs)
        self.layer: Any = None if layer is None else layer(FEATURES, FEATURES)
        self.readout = None if layer is None else nn.Linear(FEATURES, outputs)
        self.outputs, self.initial, self.lengths = outputs, initial, tuple(lengths)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:
            return self.gather(self.reader(x.reshape(-1, SIDE * SIDE)).view(*x.shape[:2], -1))[-1]
        return over_lengths(self.gather, read_all(self.reader, x), self.lengths, last=True)

    def gather(self, features: Tensor) -> Tensor:
        """(L, B, 10) -> (L, B, outputs)"""
        if self.readout is not None:
            return self.readout(self.layer(features)[0])
        h, found = features.new_full((features.shape[1], self.outputs), self.initial), []
        for x in features.unbind(0):
            h = self.cell(torch.cat((x, h), -1))
            found.append(h)
        return torch.stack(found)


def series_network(inputs: int, outputs: int, **options: Any) -> SeriesNetwork:
    """A network for images of 784 pixels; ``options``: those of :class:`SeriesNetwork`."""
    if inputs != SIDE * SIDE:
        raise ValueError(f"a series network reads {SIDE * SIDE} pixels, not {inputs}")
    return SeriesNetwork(outputs, **options)


def recipes(steps: int) -> dict[str, Recipe]:
    """Printed name -> network; NAU, which came later, with its penalty from a quarter to three quarters of the run.

    NALU's gradients are clipped: its errors begin near 10¹², a size that Adam remembers for thousands of updates.
    """

    def layer(kind: Callable[..., nn.Module]) -> Recipe:
        return Recipe(partial(series_network, layer=kind))

    sparse = Penalty(penalty, Ramp(0.01, max(1, steps // 4), max(2, steps * 3 // 4)))
    return {
        "LSTM": layer(LSTM),
        "GRU": layer(GRU),
        "RNN-tanh": layer(partial(RNN, activation="tanh")),
        "RNN-ReLU": layer(partial(RNN, activation="relu")),
        "NAC": Recipe(partial(series_network, unit=NAC)),
        "NALU": Recipe(partial(series_network, unit=NALU), Adam(clip="norm", limit=1.0)),
        "NAU": Recipe(partial(series_network, unit=NAU), penalties=(sparse,)),
    }


def placed(own: Recipe) -> Recipe:
    """A unit of the user's own takes the place of the cell."""
    start = float(getattr(own.model, "neutral", 0.0))
    return replace(own, model=partial(series_network, unit=own.model, initial=start))


def task(operation: str, size: str) -> DigitSequences:
    whole = DigitSequences(operation, 10, LENGTHS, read="last", fixed=False)  # type: ignore[arg-type]
    if size == "smoke":
        return replace(whole, length=2, batch_size=2, held_out=40, test_lengths=(1, 4))
    return whole if size == "paper" else replace(whole, batch_size=16, held_out=5000)


def trainings(options: Options) -> list[NetworkTraining]:
    steps = options.steps or STEPS[options.size]
    known = recipes(steps)
    default = ["NAC", "LSTM"] if options.size == "smoke" else list(known)
    chosen = choose_recipes(options.units, known, default=default, placed=placed)
    return [
        recipe.network_training(
            model=with_lengths(recipe.model, given),
            task=given,
            seeds=options.seed_range(smoke=2, quick=3, paper=10),
            steps=steps,
            evaluate_every=max(1, steps // 5),
            labels={"unit": name, "task": operation},
        )
        for operation in TASKS
        for given in [task(operation, options.size)]
        for name, recipe in chosen.items()
    ]


# ---------------------------------------------------------------- beside the published numbers


def accuracy(what: str, name: str = "") -> Metric:
    return Metric(
        f"accuracy_percent{name}", f"Accuracy at length 1 in %, {what}", limits=(0.0, 100.0),
        show=lambda value: f"{value:.2f}",
        meaning="The share of series of one digit that are told right: by the largest count, or the nearest number.",
    )  # fmt: skip


METRICS = raw("best runs", "_best"), accuracy("best runs", "_best"), raw("all runs"), accuracy("all runs")


def at_each_length(rows: Sequence[Row]) -> list[Row]:
    """One row for each run and length; ``best_test`` is the error there, and at length 1 the share of right answers."""
    found = []
    for row in rows:
        trained = int(row.config["task"]["length"])
        others = {int(name[17:]): value for name, value in row.scores.items() if name.startswith("best_test_length_")}
        values = {trained: row.scores["best_test"], **others, 1: row.scores["best_test_accuracy"]}
        for length, value in values.items():
            labels = {**row.labels, "length": length}
            found.append(replace(row, labels=labels, scores={**row.scores, "best_test": value}))
    return found


def measure(rows: Sequence[Row]) -> Measured:
    """The run with the smallest validation error, and the median run: accuracy at length 1, squared error at others."""
    of_one = rows[0].labels["length"] == 1
    missing, scale = (0.0, 100.0) if of_one else (math.inf, 1.0)
    values = np.array([scale * row.scores["best_test"] for row in rows])
    values = np.where(np.isfinite(values), values, missing)
    near = np.nan_to_num([row.scores["best_validation"] for row in rows], nan=math.inf)
    best = Estimate(float(values[near.argmin()]), n=1, how="best run")
    name = "accuracy_percent" if of_one else "mse"
    ours = {f"{name}_best": best, name: median(values)}
    return Measured(len(rows), ours, diverged=sum(row.status == "diverged" for row in rows))


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    cells = published.cells(paper="nalu2018", table="10")
    return comparison(
        at_each_length(rows),
        [*cells, *(replace(cell, metric=f"{cell.metric}_best") for cell in cells)],
        title="NALU 2018, Table 10",
        layout=Layout(
            panel="task",
            x="length",
            panels=list(TASKS),
            order=[*BASELINES, "NAC", "NALU", "NAU"],
            panel_titles=TASKS,
            x_title="Length of the series",
            match=_place,
        ),
        test=PublishedTest("series" if options.size == "paper" else None),
        measure=measure,
        metrics=METRICS,
    )


def _place(cell: Published) -> tuple[str, str, object]:
    return cell.op, cell.model, int(cell.split.rpartition(" ")[2])


def claims(compared: Comparison) -> list[Claim]:
    """What the table shows in print."""
    known = {(c.panel, c.series, c.x): c.measured.ours for c in compared.cells}
    found = [ours.get("mse_best") or ours.get("accuracy_percent_best") for ours in known.values()]
    value = {place: each.value for place, each in zip(known, found) if each is not None and each.value is not None}
    if not {(t, name, 1000.0) for t in TASKS for name in (*BASELINES, "NAC", "NALU")} <= set(value):
        return []

    def listed(length: float, names: Sequence[str]) -> str:
        parts = [
            f"{TASKS[t].lower()} {', '.join(f'{name} {text.number(value[t, name, length])}' for name in names)}"
            for t in TASKS
        ]
        return "; ".join(parts)

    far = {t: min(value[t, name, 1000.0] for name in BASELINES) for t in TASKS}
    units = [(t, name) for t in TASKS for name in ("NAC", "NALU")]
    others = [(t, name, length) for t in TASKS for name in (*BASELINES, "NALU") for length in (10.0, 100.0, 1000.0)]
    spread, bounded = 82.5, ("LSTM", "GRU", "RNN-tanh")
    return [
        Claim(
            "In print, NAC and NALU have smaller errors than all others at length 1000.",
            f"best runs at length 1000: {listed(1000.0, ('NAC', 'NALU', *BASELINES))}.",
            all(value[t, name, 1000.0] < far[t] for t, name in units),
        ),
        Claim(
            "In print, NAC has the smallest error at every length of both tasks.",
            f"it beats {sum(value[t, 'NAC', n] < value[t, name, n] for t, name, n in others)} of {len(others)} others.",
            all(value[t, "NAC", n] < value[t, name, n] for t, name, n in others),
        ),
        Claim(
            "In print, LSTM, GRU and RNN-tanh do not learn to add ten digits: their error is at least the variance of "
            "the sum, 82.5.",
            ", ".join(f"{name} {text.number(value['sum', name, 10.0])}" for name in bounded) + " at length 10.",
            all(value["sum", name, 10.0] >= spread for name in bounded),
        ),
        *(
            [
                Claim(
                    "(Ours) NAU errs less than NAC and NALU at length 1000.",
                    f"{listed(1000.0, ('NAU', 'NAC', 'NALU'))}.",
                    all(value[t, "NAU", 1000.0] < value[t, name, 1000.0] for t, name in units),
                )
            ]
            if ("sum", "NAU", 1000.0) in value
            else []
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="nalu2018/table10",
        title="Table 10: counting and adding handwritten digits, series of 1 to 1000",
        trainings=trainings,
        show=comparison_page(compare, claims, judged=("paper",)),
        about=about("nalu2018", "table10"),
        reasons=reasons("nalu2018", "table10"),
        quick_reasons=reasons("nalu2018", "table10-quick"),
        units=tuple(recipes(STEPS["paper"])),
        own="the recurrent cell, on ten numbers read from an image and its own last output",
    )
]
