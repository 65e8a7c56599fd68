"""Errors on the interpolation and the extrapolation set, raw and relative to an untrained model."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from numerate import published
from numerate.published import Published, printed_name
from numerate.report import Claim, Comparison, Layout, Measured, Metric, PublishedTest, comparison, text
from numerate.results import Row
from numerate.stats import Estimate, median

SPLITS = {"interpolation": ("Interpolation", "best_validation", "validation"),
          "extrapolation": ("Extrapolation", "best_test", "test")}  # fmt: skip
"""Set -> its title, the score of a run on it, the curve of that score."""
TRAINING = {"train": ("Training", "train", "")}
"""The loss of the last batch, for tables that print it; untrained models have none."""
FUNCTIONS = {
    "a": "a", "add": "a + b", "sub": "a − b", "mul": "a · b", "div": "a / b", "square": "a²", "sqrt": "√a"
}  # fmt: skip
NAMES = {"Relu6": "ReLU6", "Crelu": "CReLU"}
PRINTED = 0.05  # a relative score below this was printed as 0.0
RANDOM = "Random"
Scores = dict[tuple[str, str], float]


def shade(score: float) -> float:
    """1 where a score was printed as 0.0, 0 where it is as bad as random, logarithmic between."""
    clipped = min(max(score, PRINTED), 100.0)
    return 1 - math.log(clipped / PRINTED) / math.log(100 / PRINTED)


def raw(what: str, name: str = "") -> Metric:
    return Metric(
        f"mse{name}", f"Squared error, {what}", "log", floor=1e-4, ceiling=1e12,
        show=text.scientific, show_interval=text.scientific_interval, tick=text.power, meaning=MEANING[what],
    )  # fmt: skip


def relative(what: str, name: str = "") -> Metric:
    return Metric(
        f"mse_percent_of_random{name}", f"Score (100: untrained), {what}", "log",
        floor=PRINTED, ceiling=1e4, target=1.0, show=text.number, tick=text.power,
        brief=lambda score: text.brief(round(score, 1)), shade=shade,
        brief_title=f"score, {what} (100: an untrained model)",
        meaning=f"100 · error / error of an untrained model. {MEANING[what]}",
    )  # fmt: skip


MEANING = {
    "best runs": "Chosen by interpolation error among all seeds and rates, as in the paper's appendix D (here it does "
    "not say): the best run, or the median of those that tie with it at the precision of the printed errors.",
    "all runs": "The median over all seeds and rates, with the interval between two order statistics.",
}
RAW = raw("best runs", "_best"), raw("all runs")
RELATIVE = relative("best runs", "_best"), relative("all runs")
RATES = 0.01, 0.001
"""Learning rates; those of appendix D, the only ones in the paper."""


def by_split(rows: Iterable[Row], reference: str, splits: Iterable[str] = SPLITS) -> Iterator[Row]:
    """Each run once for each set; the untrained runs of the reference model are those of the model called Random."""
    for row in rows:
        for split in (split for split in splits if split in SPLITS or split in row.scores):
            labels = {**row.labels, "split": split}
            yield replace(row, labels=labels)
            if row.labels["unit"] == reference and split in SPLITS:
                yield replace(row, labels={**labels, "unit": RANDOM})


def error(row: Row) -> float:
    """The error of a run on the set its label names; of a Random one before the first step."""
    _, score, curve = (SPLITS | TRAINING)[row.labels["split"]]
    value = float(row.curves[curve][0]) if row.labels["unit"] == RANDOM else row.scores[score]
    return math.inf if math.isnan(value) else value


def baselines(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    """(set, function) -> median error of the untrained runs; batches are like the interpolation set."""
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.labels["unit"] == RANDOM:
            errors.setdefault((row.labels["split"], row.labels["function"]), []).append(error(row))
    medians = {place: float(np.median(values)) for place, values in errors.items()}
    return medians | {("train", f): value for (split, f), value in medians.items() if split == "interpolation"}


def measure(random: Mapping[tuple[str, str], float], tied: float) -> Callable[[Sequence[Row]], Measured]:
    """Best and median runs of a group, raw and relative to the errors of ``random`` models.

    Runs with an interpolation score of at most ``tied`` are all best ones.
    """

    def measured(rows: Sequence[Row]) -> Measured:
        split, function = rows[0].labels["split"], rows[0].labels["function"]
        errors = np.array([error(row) for row in rows])
        near = np.nan_to_num([row.scores["best_validation"] for row in rows], nan=math.inf)
        best = errors[near <= max(near.min(), tied / 100 * random["interpolation", function])]
        best = errors if rows[0].labels["unit"] == RANDOM else best
        estimates: dict[str, Estimate] = {}
        for scale, metrics in ((1.0, RAW), (100 / random[split, function], RELATIVE)):
            estimates |= {metric.name: median(scale * values) for metric, values in zip(metrics, (best, errors))}
        return Measured(len(rows), estimates, diverged=sum(row.status == "diverged" for row in rows))

    return measured


def compare(
    rows: Iterable[Row],
    *,
    table: str,
    reference: str,
    order: Sequence[str],
    metrics: Sequence[Metric],
    title: str,
    tied: float = PRINTED,
    other_setting: bool = False,
    training: bool = False,
) -> Comparison:
    """Sets as panels, functions across; the order of the models is what is compared.

    A function of which the reference has no run yet is left out: there is nothing to be relative to. ``training``:
    the loss in training, a score named ``train``, is a set of its own.
    """
    splits = TRAINING | SPLITS if training else SPLITS
    labelled = list(by_split(rows, reference, splits))
    random = baselines(labelled)
    measurable = [row for row in labelled if (row.labels["split"], row.labels["function"]) in random]
    shown = [row for row in measurable if metrics is RAW or row.labels["unit"] != RANDOM]
    return comparison(
        shown,
        printed(table, splits),
        title=title,
        layout=Layout(
            panel="split",
            x="function",
            panels=list(splits),
            order=[RANDOM, *order],
            xs=list(FUNCTIONS.values()),
            match=lambda cell: (_split(cell), NAMES.get(cell.model, cell.model), FUNCTIONS[cell.op]),
            x_title="Function",
            panel_titles={split: words[0] for split, words in splits.items()},
        ),
        test=PublishedTest(None if other_setting else "series", beside=[RANDOM]),
        measure=measure(random, tied),
        metrics=metrics,
    )


def printed(table: str, splits: Collection[str] = SPLITS) -> list[Published]:
    """The numbers of a table, once for each of our two measures."""
    cells = [cell for cell in published.cells(paper="nalu2018", table=table) if _split(cell) in splits]
    return [*cells, *(replace(cell, metric=f"{cell.metric}_best") for cell in cells)]


def _split(cell: Published) -> str:
    return cell.split.partition(" ")[0]


def best_scores(compared: Comparison, split: str, units: Iterable[str], functions: Iterable[str] = FUNCTIONS) -> Scores:
    """(unit, function) -> relative score of the best run, for those that were run."""
    name, wanted, across = RELATIVE[0].name, set(map(printed_name, units)), {FUNCTIONS[f] for f in functions}
    cells = [cell for cell in compared.of(split) if cell.series in wanted and cell.x in across]
    return {(cell.series, cell.x): value for cell in cells if (value := cell.measured.ours[name].value) is not None}


def claim(sentence: str, scores: Scores, holds: Callable[[float], bool], expected: int, what: str) -> Claim:
    """A sentence that holds if all ``scores`` pass; not to be told unless all ``expected`` ones are there."""
    passed = [place for place, score in scores.items() if holds(score)]
    failed = [f"{unit} on {function}" for unit, function in scores if (unit, function) not in passed]
    ours = f"{len(passed)} of {len(scores)} {what}" + (f"; not {', '.join(failed)}" if 0 < len(failed) <= 8 else "")
    return Claim(sentence, f"{ours}.", None if len(scores) < expected else not failed)
