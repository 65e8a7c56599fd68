"""Stored networks that read digits, tested once more with the weights of their cell rounded (ours)."""

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


@torch.no_grad()
def with_rounded_cells(work: Work, rows: Sequence[Row]) -> list[Row]:
    """The runs, with their errors at each length once the cell's weights are rounded; a cell without levels has none.

    Scores ``snapped_validation``, ``snapped_error`` at the training length, ``snapped_length_20`` and so on at others.
    Without MNIST in the data folder, or without stored weights, the runs are as they were.
    """
    trainings = {key: training for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    held_out: dict[Any, list[Batch]] = {}
    found = []
    for row in rows:
        if "best" not in row.weights:
            found.append(row)
            continue
        task: Any = trainings[row.key].task
        model = trained(trainings[row.key], row)
        if not isinstance(model.cell, Unit):
            found.append(row)
            continue
        if task not in held_out:
            try:
                data = task.data()
            except DataError:
                return list(rows)
            held_out[task] = [task.evaluation(split, 0, data) for split in ("validation", "test")]
        model.cell.snap_()
        validation, test = (task.measures(model(batch.x), batch) for batch in held_out[task])
        scores = {f"snapped_{name}": _mean(value) for name, value in test.items()}
        found.append(replace(row, scores={**row.scores, "snapped_validation": _mean(validation["error"]), **scores}))
    return found


def _mean(sum_and_count: torch.Tensor) -> float:
    return float(sum_and_count[0] / sum_and_count[1])
