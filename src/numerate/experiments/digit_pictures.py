"""What networks that read digits make of one: the number that the next layer is given, against the digit shown."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from numerate.data import mnist
from numerate.data.files import DataError
from numerate.experiments.experiment import Work
from numerate.report import Picture
from numerate.report.figures import lay_out, style
from numerate.results import Row
from numerate.tasks.digits import DEVIATION, MEAN

IMAGES = 20
"""Test images of each digit that are read."""
COLUMNS = 6
"""Panels beside each other."""


def read_numbers(
    work: Work,
    rows: Sequence[Row],
    caption: str,
    panel: Callable[[Row], str] = lambda row: row.labels["unit"],
    exact: Sequence[float] = (),
) -> list[Picture]:
    """The mean number that each network reads from images of each digit: a line for each run, a panel by ``panel``.

    ``exact``: numbers to draw beside, one for each digit. Without MNIST in the data folder there is no picture.
    """
    try:
        images = mnist.load()
    except DataError:
        return []
    if not rows:
        return []
    chosen = torch.cat([(images.test_labels == digit).nonzero()[:IMAGES, 0] for digit in range(10)])
    x = (images.test[chosen].flatten(1).float() / 255 - MEAN) / DEVIATION
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
                ax.plot(range(10), _read(trainings[row.key], row, x, digits), color="C0", alpha=0.5, linewidth=1)
            if exact:
                ax.plot(range(10), exact, color="0.5", linestyle=":", linewidth=1)
            ax.set(title=name, xlabel="digit shown", xticks=range(0, 10, 3))
            if place % columns == 0:
                ax.set_ylabel("number read, mean")
        lay_out(fig)
    return [Picture("numbers", fig, caption)]


def _read(training: object, row: Row, x: torch.Tensor, digits: np.ndarray) -> np.ndarray:
    model = training.build(row.seed)  # type: ignore[attr-defined]
    model.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in row.weights["best"].items()})
    with torch.no_grad():
        numbers = model.reader(x)[:, 0].numpy()
    return np.array([numbers[digits == digit].mean() for digit in range(10)])
