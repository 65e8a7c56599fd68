"""Numbers in words: errors along training, and what each word has come to stand for."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from numerate.report import Picture
from numerate.report.figures import lay_out, name_decades, style
from numerate.report.learning import curves, legend, panels, plot_curves
from numerate.results import Row
from numerate.tasks.number_words import SMALL, TENS, VOCABULARY

MEANT = {word: float(number) for number, word in enumerate(SMALL)} | {
    word: 20.0 + 10 * number for number, word in enumerate(TENS)
}
"""What a word adds; those that are not here add nothing."""
CURVES = {"test_fitted": "training set", "test": "test set"}


def short(name: str) -> str:
    """A name that fits beside a picture: LSTM, final."""
    return re.sub(r" w/ (\w+) states?$", r", \1", name)


def errors_along(rows: Sequence[Row], order: Sequence[str]) -> Picture:
    """The mean absolute error along training, on the training set and on the test set."""
    rows = [replace(row, labels={**row.labels, "unit": short(row.labels["unit"])}) for row in rows]
    names = list(dict.fromkeys([*map(short, order), *(row.labels["unit"] for row in rows)]))
    drawn = np.concatenate([group.values[np.isfinite(group.values)] for c in CURVES for group in curves(rows, c)])
    lowest = max(1e-3, min(10.0, 0.5 * float(drawn[drawn > 0].min(initial=10.0))))
    with style():
        fig, axes = panels(2, 3.9, 3.4)
        for ax, (curve, title) in zip(axes, CURVES.items()):
            plot_curves(ax, curves(rows, curve), order=names, baseline=250.0, baseline_name="a constant: 250")
            ax.set_yscale("log")
            ax.set_ylim(lowest, 1e3)
            name_decades(ax.yaxis)
            ax.set_title(title)
        axes[0].set_ylabel("mean absolute error")
        legend(fig, curves(rows, "test"), names)
    return Picture(
        "along", fig, "Error along training: median over sizes, rates and seeds, and the middle half of them."
    )


def learnt_words(rows: Sequence[Row]) -> Picture:
    """Factor and term of each word in the run with the lowest validation error."""
    best = min(rows, key=lambda row: row.scores["best_validation"])
    weights = {name: np.asarray(value)[0] for name, value in best.stored_weights("best").items()}
    learnt = {"factor": np.exp(weights["log_factor"]), "term": 10 * weights["tens"]}
    places = np.arange(len(VOCABULARY))
    wanted = {
        "factor": [100.0 if word == "hundred" else 1.0 for word in VOCABULARY],
        "term": [MEANT.get(word, 0.0) for word in VOCABULARY],
    }
    with style():
        fig = Figure(figsize=(8.2, 4.2))
        axes = fig.subplots(2, 1, sharex=True)
        for ax, (name, right) in zip(axes, wanted.items()):
            ax.plot(places, right, "o", ms=7, mfc="none", mec="0.6", label="right")
            ax.plot(places, learnt[name], "o", ms=3.5, color="C0", label="learnt")
            ax.set_ylabel(name)
        axes[0].legend(loc="upper left")
        axes[1].set_xticks(places, VOCABULARY, rotation=90)
        lay_out(fig)
    caption = (
        "What each word stands for in the best run of factor and term. A word that training shows on its own alone has "
        "any factor: nothing is multiplied there."
    )
    return Picture("learnt", fig, caption)
