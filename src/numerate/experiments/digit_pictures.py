"""What networks that read digits make of one: the number that the next layer is given, against the digit shown."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from numerate.data import mnist
from numerate.data.files import DataError
from numerate.experiments.experiment import Work
from numerate.experiments.models import trained
from numerate.report import Picture
from numerate.report.figures import lay_out, style
from numerate.results import Row
from numerate.tasks.digits import normalised
from numerate.train import NetworkTraining, Training

IMAGES = 20
"""Test images of each digit that are read."""
COLUMNS = 6
"""Panels beside each other."""


def read_numbers(
    work: Work,
    rows: Sequence[Row],
    caption: str,
    panel: Callable[[Row], str] = lambda row: row.labels["unit"],
    shown: Sequence[int] = range(10),
    exact: bool = False,
) -> list[Picture]:
    """The mean number that each network reads from images of each digit: a line for each run, a panel by ``panel``.

    ``shown``: the digits; ``exact``: whether they are drawn beside as what should be read. Without MNIST in the data
    folder there is no picture.
    """
    try:
        images = mnist.load()
    except DataError:
        return []
    rows = [row for row in rows if "best" in row.weights]
    if not rows:
        return []
    chosen = torch.cat([(images.test_labels == digit).nonzero()[:IMAGES, 0] for digit in shown])
    x = normalised(images.test[chosen].flatten(1))
    digits = images.test_labels[chosen].numpy()
    trainings = {key: training for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    names = list(dict.fromkeys(map(panel, rows)))
    columns = min(len(names), COLUMNS)
    lines = -(-len(names) // columns)
    with style():
        fig = Figure(figsize=(1.9 * columns + 0.6, 2.5 * lines))
        for place, name in enumerate(names):
            ax = fig.add_subplot(lines, columns, place + 1)
            for row in [row for row in rows if panel(row) == name]:
                ax.plot(shown, _read(trainings[row.key], row, x, digits), color="C0", alpha=0.5, linewidth=1)
            if exact:
                ax.plot(shown, shown, color="0.5", linestyle=":", linewidth=1)
            ax.set(title=name, xlabel="digit shown", xticks=shown[::3])
            if place % columns == 0:
                ax.set_ylabel("number read, mean")
        lay_out(fig)
    return [Picture("numbers", fig, caption)]


@torch.no_grad()
def _read(training: Training | NetworkTraining, row: Row, x: torch.Tensor, digits: np.ndarray) -> np.ndarray:
    model: Any = trained(training, row)
    numbers = model.reader(x)[:, 0].numpy()
    return np.array([numbers[digits == digit].mean() for digit in np.unique(digits)])
