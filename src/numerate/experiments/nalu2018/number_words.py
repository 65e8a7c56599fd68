"""Table 11, with NAC and NALU of the main text's Table 3: numbers in words, read as numbers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from numerate import published
from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.nalu2018 import word_pictures
from numerate.experiments.nalu2018.word_models import FactorAndTerm, number_reader
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, Measured, Metric, Picture, PublishedTest, comparison, text
from numerate.results import Row
from numerate.stats import median
from numerate.tasks import NumberWords
from numerate.train import Adam, Cosine, NetworkTraining
from numerate.units import NAC, NALU, Dense

FINAL, SUMMED, OWN = "LSTM w/ final state", "LSTM w/ summed states", "factor and term"
WITH_NAC, WITH_NALU = "LSTM + NAC", "LSTM + NALU"
HEADS = {
    FINAL: partial(number_reader, head=Dense),
    SUMMED: partial(number_reader, head=Dense, read="summed"),
    WITH_NAC: partial(number_reader, head=NAC),
    WITH_NALU: partial(number_reader, head=NALU),
}
NAMES = (*HEADS, OWN)
STEPS = {"smoke": 10, "quick": 10_000, "paper": 300_000}
POINTS = {"smoke": 2, "quick": 20, "paper": 100}
OWN_ADAM = Adam(0.1, betas=(0.9, 0.9))
SETS = {"train": ("Train", "best_test_fitted"), "validation": ("Validation", "best_validation"),
        "test": ("Test", "best_test")}  # fmt: skip
"""Set -> its title, the score of a run on it."""


@dataclass(frozen=True)
class Setting:
    """One point of the paper's sweep: the layer size and the learning rate."""

    size: int
    rate: float


SWEEP = {
    "smoke": (Setting(16, 0.01),),
    "quick": (Setting(32, 0.01),),
    "paper": tuple(Setting(size, rate) for size in (16, 32) for rate in (0.01, 0.001)),
}


def trainings(options: Options) -> list[NetworkTraining]:
    """The LSTMs at every setting; ours at one."""
    steps = options.steps or STEPS[options.size]
    every = max(1, steps // POINTS[options.size])
    seeds = options.seed_range(smoke=1, quick=3, paper=10)
    known = {name: Recipe(head) for name, head in HEADS.items()} | {
        OWN: Recipe(FactorAndTerm, OWN_ADAM, schedule=Cosine(steps))
    }
    chosen = choose_recipes(
        options.units, known, placed=lambda own: replace(own, model=partial(number_reader, head=own.model))
    )
    return [
        recipe.network_training(
            model=recipe.model if name == OWN else partial(recipe.model, size=setting.size),  # type: ignore[arg-type]
            task=NumberWords(),
            seeds=seeds,
            optimiser=recipe.optimiser if name == OWN else Adam(setting.rate),
            steps=steps,
            evaluate_every=every,
            labels={"unit": name, "setting": "" if name == OWN else f"{setting.size} wide, rate {setting.rate:g}"},
        )
        for name, recipe in chosen.items()
        for setting in (SWEEP[options.size][:1] if name == OWN else SWEEP[options.size])
    ]


# ---------------------------------------------------------------- best runs and all runs


def metric(what: str, name: str, meaning: str) -> Metric:
    return Metric(
        name, f"Mean absolute error, {what}", "log", floor=1e-4, ceiling=1e4, target=0.5, tick=text.power,
        meaning=meaning,
    )  # fmt: skip


BEST = metric(
    "best run", "mae_best", "Of all sizes, rates and seeds the run with the lowest validation error, as in the paper."
)
ALL = metric(
    "all runs", "mae", "The median over all sizes, rates and seeds, with the interval between two order statistics."
)


def by_set(rows: Iterable[Row]) -> Iterator[Row]:
    """Each run once for each set."""
    for row in rows:
        for name in SETS:
            yield replace(row, labels={**row.labels, "set": name, "task": "words"})


def error(row: Row) -> float:
    """Mean absolute error of a run on the set that its label names, at its best validation point."""
    value = row.scores.get(SETS[row.labels["set"]][1], math.nan)
    return math.inf if math.isnan(value) else value


def measure(rows: Sequence[Row]) -> Measured:
    errors = np.array([error(row) for row in rows])
    near = np.nan_to_num([row.scores.get("best_validation", math.nan) for row in rows], nan=math.inf)
    best = errors[[int(near.argmin())]]
    diverged = sum(row.status == "diverged" for row in rows)
    return Measured(len(rows), {BEST.name: median(best), ALL.name: median(errors)}, diverged=diverged)


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    cells = published.cells(paper="nalu2018", table=["11", "3"])
    return comparison(
        list(by_set(rows)),
        [*cells, *(replace(cell, metric=BEST.name) for cell in cells)],
        title="NALU 2018, Table 11",
        layout=Layout(
            panel="task",
            x="set",
            xs=list(SETS),
            order=NAMES,
            match=lambda cell: ("words", cell.model, cell.split),
            x_title="Set",
            panel_titles={"words": "Numbers from 0 to 999 in words"},
        ),
        test=PublishedTest("series" if options.size == "paper" else None),
        measure=measure,
        metrics=[BEST, ALL],
    )


def claims(compared: Comparison) -> list[Claim]:
    found = {(c.series, c.x): math.nan if (value := c.measured.ours[BEST.name].value) is None else value
             for c in compared.cells}  # fmt: skip

    def at(*names: str) -> list[float]:
        return [found.get((name, "test"), math.nan) for name in names]

    (final, summed, nac, nalu, own) = at(*NAMES)
    fitted = [found.get((name, "train"), math.nan) for name in (FINAL, SUMMED)]
    return [
        Claim(
            "Summing the preceding states is slightly advantageous to simply outputting the final state.",
            f"test error {show(summed)} summed, {show(final)} final (printed: 29.4 and 32.2).",
            _told(final, summed, holds=summed < final),
        ),
        Claim(
            "The LSTMs overfit the 169 numbers of training (our test: a tenth of the test error at most).",
            f"training error {show(fitted[0])} final, {show(fitted[1])} summed.",
            _told(final, summed, *fitted, holds=fitted[0] < final / 10 and fitted[1] < summed / 10),
        ),
        Claim(
            "LSTM + NAC does poorly on training and test sets (our test: a larger test error than both LSTMs).",
            f"test error {show(nac)}.",
            _told(final, summed, nac, holds=nac > max(final, summed)),
        ),
        Claim(
            "LSTM + NALU generalises best by a wide margin (our test: a tenth of the LSTMs' test error).",
            f"test error {show(nalu)} (printed: 0.41).",
            _told(final, summed, nalu, holds=nalu < min(final, summed) / 10),
        ),
        Claim(
            "(Ours) A factor and a term for each word do better than the printed LSTM + NALU, 0.41.",
            f"test error {show(own)}.",
            _told(own, holds=own < 0.41),
        ),
    ]


def show(error: float) -> str:
    return "not run" if math.isnan(error) else text.number(error)


def _told(*values: float, holds: bool) -> bool | None:
    return None if any(map(math.isnan, values)) else holds


def pictures(work: Work, rows: Sequence[Row]) -> list[Picture]:
    own = [row for row in rows if row.labels["unit"] == OWN and row.status == "finished"]
    return [word_pictures.errors_along(rows, NAMES), *([word_pictures.learnt_words(own)] if own else [])]


EXPERIMENTS = [
    Experiment(
        id="nalu2018/table11",
        title="Table 11: numbers in words, read by an LSTM, with NAC or NALU, and as factors and terms",
        trainings=trainings,
        show=comparison_page(compare, claims, pictures=pictures, judged=("paper",)),
        about=about("nalu2018", "table11"),
        reasons=reasons("nalu2018", "table11"),
        quick_reasons=reasons("nalu2018", "table11-quick"),
        units=NAMES,
        own="the layer on top of the LSTM, as NALU is",
    )
]
