"""Stored networks that read digits: how sparse their cell is, and a test with its weights rounded (ours)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from numerate.data.files import DataError
from numerate.experiments.experiment import Work
from numerate.experiments.models import trained
from numerate.results import Row
from numerate.tasks import Batch
from numerate.units.base import Unit
from numerate.units.penalties import units_sparsity_error

Batches = tuple[Batch, Batch]
"""To validate and to test on."""


@torch.no_grad()
def with_rounded_cells(work: Work, rows: Sequence[Row]) -> list[Row]:
    """The runs, with the sparsity error of their cell and their errors at each length once its weights are rounded.

    The score ``best_sparsity`` takes the place of the stored one, which earlier versions took over the whole network.
    Scores ``snapped_validation``, ``snapped_error`` at the training length, ``snapped_length_20`` and so on at others
    need MNIST in the data folder. Runs without stored weights, or whose cell is not a unit, are as they were.
    """
    trainings = {key: training for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    held_out: dict[Any, Batches | None] = {}
    found = []
    for row in rows:
        model: Any = trained(trainings[row.key], row) if "best" in row.weights else None
        if not isinstance(getattr(model, "cell", None), Unit):
            found.append(row)
            continue
        task: Any = trainings[row.key].task
        if task not in held_out:
            held_out[task] = _held_out(task)
        scores = {"best_sparsity": float(units_sparsity_error(model))} | _rounded_errors(model, task, held_out[task])
        found.append(replace(row, scores={**row.scores, **scores}))
    return found


def _held_out(task: Any) -> Batches | None:
    """None without MNIST in the data folder."""
    try:
        data = task.data()
    except DataError:
        return None
    return task.evaluation("validation", 0, data), task.evaluation("test", 0, data)


def _rounded_errors(model: Any, task: Any, held_out: Batches | None) -> dict[str, float]:
    """Rounds the weights of the cell, in place."""
    if held_out is None:
        return {}
    model.cell.snap_()
    validation, test = (task.measures(model(batch.x), batch) for batch in held_out)
    return {"snapped_validation": _mean(validation["error"])} | {
        f"snapped_{name}": _mean(value) for name, value in test.items()
    }


def _mean(sum_and_count: torch.Tensor) -> float:
    return float(sum_and_count[0] / sum_and_count[1])
