"""Forget gates of a trained network before and after training: a mean activation for each unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from numerate.experiments.experiment import Work
from numerate.experiments.ur2020.runs import by_unit, order
from numerate.recurrent import SequenceModel
from numerate.report import Picture
from numerate.report.figures import FAINT, lay_out, style
from numerate.report.gates import per_unit
from numerate.report.learning import looks, panels
from numerate.results import Row
from numerate.train import NetworkTraining

BINS = 40
TALL = 3
"""Outlines more than so many times as high as what is filled are cut."""


@dataclass(frozen=True)
class Forgetting:
    """Mean forget activation of each unit over a test batch and its steps, (H,), before and after training."""

    before: np.ndarray
    after: np.ndarray

    @property
    def timescales(self) -> np.ndarray:
        """1 / (1 − f) after training, sorted."""
        return np.sort(1 / np.maximum(1 - self.after, 1e-12))


def forgetting(training: NetworkTraining, row: Row) -> Forgetting:
    """Of one run, from its start and its last weights."""
    model = training.build(row.seed)
    assert isinstance(model, SequenceModel)
    x = training.task.evaluation("test", 0, {}).x
    found = []
    for weights in (None, row.stored_weights("final")):
        if weights is not None:
            model.load_state_dict({name: torch.from_numpy(np.array(w)) for name, w in weights.items()})
        with torch.no_grad():
            found.append(per_unit(model.eval().layer.inspect(x).activations[-1]["forget"]))
    return Forgetting(*found)


def found_in(work: Work, rows: Sequence[Row]) -> dict[str, Forgetting]:
    """Unit -> of its run with the lowest seed."""
    trainings = {key: training for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    found = {}
    for unit, members in by_unit(rows).items():
        row = min(members, key=lambda row: row.seed)
        training = trainings[row.key]
        assert isinstance(training, NetworkTraining)
        found[unit] = forgetting(training, row)
    return found


def picture(found: Mapping[str, Forgetting], rows: Sequence[Row], low: float = 0.0) -> Picture:
    """A panel for each unit: units by their mean forget activation, from ``low`` to 1."""
    look = looks(order(rows))
    with style():
        fig, axes = panels(len(found), 2.9, 2.3, columns=3)
        for ax, (unit, of) in zip(axes, found.items()):
            histogram(ax, of, look[unit][0], low)
            ax.set_title(unit)
        for ax in axes[-3:]:
            ax.set_xlabel("mean forget activation")
        axes[0].set_ylabel("units")
        lay_out(fig, rect=(0, 0.25 / fig.get_figheight(), 1, 1), w_pad=1.6, h_pad=1.4)
        keys = [
            Line2D([], [], color=FAINT, lw=1.1, label="before"),
            Patch(fc=FAINT, alpha=0.55, label="after training"),
        ]
        fig.legend(handles=keys, loc="lower center", ncols=2)
    return Picture(
        "forget",
        fig,
        "How many units have which forget activation, the mean over a test batch and all steps: outlined before "
        f"training, filled after it. An outline more than {TALL} times as high as what is filled is cut.",
    )


def histogram(ax: Axes, of: Forgetting, colour: str, low: float) -> None:
    edges = np.linspace(low, 1, BINS + 1)
    before, after = (np.histogram(np.clip(values, low, 1), edges)[0] for values in (of.before, of.after))
    ax.stairs(before, edges, color=FAINT, lw=1.1, label="before")
    ax.stairs(after, edges, color=colour, fill=True, alpha=0.55, label="after")
    ax.set_xlim(low, 1)
    highest = max(after.max(), min(before.max(), TALL * after.max()))
    ax.set_ylim(0, 1.15 * highest)
