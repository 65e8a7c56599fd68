"""What ``numerate fit --time`` does: read trajectories, find an equation for each state, simulate, write the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from numerate.discover import Formula, export
from numerate.discover.equations import Equations, equations
from numerate.discover.table import check_known, numbers, read_frame
from numerate.discover.trajectories import Trajectory
from numerate.fit import LANGUAGES, candidates
from numerate.report.formula import FormulaPage, Law, Picture, trajectories_figure, write_formula_page
from numerate.report.text import number, percent

CLOSE = 0.05
"""A simulation within this part of the states' standard deviations follows the data."""


@dataclass(frozen=True)
class Trajectories:
    """Trajectories of one system, from a file."""

    trajectories: Sequence[Trajectory]
    names: tuple[str, ...]

    @property
    def summary(self) -> str:
        rows = sum(len(each.t) for each in self.trajectories)
        count = len(self.trajectories)
        return f"{rows:,} points, {count} {'trajectory' if count == 1 else 'trajectories'} of {', '.join(self.names)}"


def read_trajectories(path: Path, time: str, states: Sequence[str] | None, trajectory: str | None) -> Trajectories:
    """States against time from a file; ``trajectory`` names the column that tells trajectories apart."""
    frame = read_frame(path)
    check_known([time, *(states or ()), *([] if trajectory is None else [trajectory])], frame.columns, path)
    names = tuple(states or (name for name in frame.columns if name not in (time, trajectory)))
    if not names:
        raise ValueError(f"{path} has no column besides the time {time!r}; equations need states")
    parts = [frame] if trajectory is None else frame.partition_by(trajectory, maintain_order=True)
    read = [
        Trajectory(numbers(part[time], [time]), np.column_stack([numbers(part[name], names) for name in names]))
        for part in parts
    ]
    return Trajectories(read, names)


def find_equations(
    data: Trajectories,
    *,
    seconds: float,
    functions: Sequence[str] | None,
    seed: int,
    progress: Callable[[str, Formula, float], None] | None = None,
) -> Equations:
    """One equation for each state."""
    return equations(
        [each.t for each in data.trajectories],
        [each.x for each in data.trajectories],
        names=data.names,
        seconds=seconds,
        functions=functions,
        seed=seed,
        progress=progress,
    )


def verdict(found: Equations) -> str:
    """How the simulation fares."""
    if not np.isfinite(found.error):
        return "the equations approximate the slopes, but integrated they leave the data"
    distance = f"{percent(found.error)} of the states' standard deviations"
    if found.error < CLOSE:
        return f"best approximation; integrated from the first points it stays within {distance} of the data"
    return f"best approximation of the slopes; integrated from the first points it misses the data by {distance}"


def summary(found: Equations) -> Any:
    """For the terminal."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(f"d{n}/dt ≈ {export.text(f)}", style="bold") for n, f in zip(found.names, found.formulas)]
    return Group(*lines, Text(f"  {verdict(found)}", style="yellow"))


def write_report(
    found: Equations, data: Trajectories, path: Path, folder: Path, settings: Mapping[str, str], command: str
) -> Path:
    """The page: equations, simulation against the data, the front of each."""
    simulated = [found.simulate(each.x[0], each.t) for each in data.trajectories]
    times, states = [each.t for each in data.trajectories], [each.x for each in data.trajectories]
    picture = Picture(
        "simulation",
        trajectories_figure(times, states, simulated, data.names),
        "Dots: the data. Lines: the equations, integrated from the first point of each trajectory.",
    )
    laws = [_law(found, i) for i in range(len(data.names))]
    page = FormulaPage(
        f"Equations of {', '.join(data.names)}",
        f"{path.name}: {data.summary}",
        laws,
        [picture],
        usage=_usage(path, found),
        settings=settings,
        command=command,
    )
    return write_formula_page(page, folder)


def _law(found: Equations, i: int) -> Law:
    name, formula, got = found.names[i], found.formulas[i], found.found[i]
    target = f"d{name}/dt"
    return Law(
        target,
        export.mathml(target, formula, "≈"),
        verdict(found) if i == 0 else "",
        False,
        [
            (
                "found as",
                "a sparse polynomial"
                if got is None
                else f"the simplest formula with an error of {number(got.noise)} in the slopes",
            )
        ],
        [] if got is None else candidates(got, target),
        code={
            title: export.code(formula, found.names, language, f"{export.identifiers([name])[name]}_slope")
            for title, language in LANGUAGES.items()
        },
    )


def _usage(path: Path, found: Equations) -> str:
    return (
        "from numerate.discover import equations\n\n"
        "found = equations(t, x, names=" + repr(list(found.names)) + ")   # t: (n,), x: (n, states), or lists of such\n"
        "found.formulas                  # one for each state\n"
        "found.simulate(x[0], t)         # integrated from the first point\n"
    )
