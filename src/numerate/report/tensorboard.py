"""Curves of runs as TensorBoard event files."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from numerate.labels import file_names
from numerate.report.single import label_text
from numerate.results import Row


def write_events(rows: Iterable[Row], folder: str | Path) -> int:
    """One event file per run, ``folder/experiment/labels/key``; how many runs there were.

    A run whose folder is there already is left as it is. Raises RuntimeError without the package tensorboardX.
    """
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise RuntimeError("event files need the package tensorboardX: pip install 'numerate[tensorboard]'") from None
    count = 0
    for row in rows:
        place = Path(folder).joinpath(*file_names(_words(row)).values(), row.key.name)
        count += 1
        if place.exists():
            continue
        with SummaryWriter(str(place), write_to_disk=True) as writer:
            for step, values in row.points():
                for name, value in values.items():
                    writer.add_scalar(name, value, step, _time(row))
    return count


def _words(row: Row) -> list[str]:
    labels = " ".join(f"{name}={label_text(value)}" for name, value in row.labels.items())
    return [row.experiment or "no experiment", labels or "no labels"]


def _time(row: Row) -> float:
    """When the run was stored, in seconds since 1970; 0 if nobody noted."""
    try:
        return datetime.fromisoformat(row.provenance.created).timestamp()
    except ValueError:
        return 0.0
