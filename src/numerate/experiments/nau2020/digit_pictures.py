"""What the networks of sequential MNIST make of a digit: the number that the cell is given, against the digit shown."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from numerate.data import mnist
from numerate.experiments.experiment import Work
from numerate.report import Picture
from numerate.report.figures import lay_out, style
from numerate.results import Row
from numerate.tasks.digits import DEVIATION, MEAN

IMAGES = 20
"""Test images of each digit that are read."""


def read_numbers(work: Work, rows: Sequence[Row]) -> list[Picture]:
    """The number that each network reads from images of each digit, scaled so that the digits fit best."""
    images = mnist.load()
    chosen = torch.cat([(images.test_labels == digit).nonzero()[:IMAGES, 0] for digit in range(10)])
    x = (images.test[chosen].flatten(1).float() / 255 - MEAN) / DEVIATION
    digits = images.test_labels[chosen].numpy()
    trainings = {key: training for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    names = list(dict.fromkeys(row.labels["unit"] for row in rows))
    with style():
        fig = Figure(figsize=(1.9 * len(names) + 0.6, 2.5))
        for place, name in enumerate(names):
            ax = fig.add_subplot(1, len(names), place + 1)
            for row in [row for row in rows if row.labels["unit"] == name]:
                ax.plot(range(10), _read(trainings[row.key], row, x, digits), color="C0", alpha=0.5, linewidth=1)
            ax.plot(range(10), range(10), color="0.5", linestyle=":", linewidth=1)
            ax.set(title=name, xlabel="digit shown", xticks=range(0, 10, 3))
            if place == 0:
                ax.set_ylabel("number read, mean")
        lay_out(fig)
    caption = (
        "What the cell is given for an image, the mean over images of each digit: a line for each seed. On the dotted "
        "line the convolutional network has learnt what a digit is worth, and the cell gathers digits; elsewhere the "
        "two share the work in a way that no other cell could use."
    )
    return [Picture("numbers", fig, caption)]


def _read(training: object, row: Row, x: torch.Tensor, digits: np.ndarray) -> np.ndarray:
    model = training.build(row.seed)  # type: ignore[attr-defined]
    model.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in row.weights["best"].items()})
    with torch.no_grad():
        numbers = model.reader(x)[:, 0].numpy()
    return np.array([numbers[digits == digit].mean() for digit in range(10)])
