"""The experiments there are: every ``EXPERIMENTS`` of a file below this folder."""

import importlib
import pkgutil
import re
from collections.abc import Sequence
from functools import cache

import numerate.experiments as package
from numerate.experiments.experiment import Experiment


@cache
def experiments(paper: str = "") -> dict[str, Experiment]:
    """Experiments by id; a new file is a new experiment.

    ``paper``: those of one folder (or file) alone, the name of which is the first part of their ids.
    """
    by_id: dict[str, Experiment] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if paper in ("", info.name.split(".")[2]):
            module = importlib.import_module(info.name)
            by_id |= {experiment.id: experiment for experiment in getattr(module, "EXPERIMENTS", ())}
    return dict(sorted(by_id.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def select(ids: Sequence[str]) -> list[Experiment]:
    """Experiments by id; the name of a paper that is no experiment itself stands for all of its experiments."""
    selected: dict[str, Experiment] = {}
    for name in ids:
        known = experiments(name.split("/")[0])
        matching = (
            {name: known[name]} if name in known else {i: e for i, e in known.items() if i.startswith(f"{name}/")}
        )
        if not matching:
            papers = sorted({id_.split("/")[0] for id_ in experiments()})
            raise ValueError(
                f"there is no experiment {name!r}; see 'numerate list experiments' ({', '.join(papers)}, ...)"
            )
        selected |= matching
    return list(selected.values())
