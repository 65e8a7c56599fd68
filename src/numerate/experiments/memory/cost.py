"""What a step costs as sequences grow: measured by ``python -m benchmarks.memory``, kept in ``cost.csv``."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from numerate.experiments.memory.units import UNITS
from numerate.report import Picture
from numerate.report.figures import lay_out, short, style
from numerate.report.learning import looks


@dataclass(frozen=True)
class Cost:
    """Forward and backward pass of a layer of 24,000 parameters with its readout.

    Args:
        machine: where it was measured.
        unit: whose.
        length: steps of a sequence.
        batch: sequences.
        microseconds: a step of the whole batch, forward and backward.
        kilobytes: that the backward pass needs of a step, for one sequence.
    """

    machine: str
    unit: str
    length: int
    batch: int
    microseconds: float
    kilobytes: float


@cache
def costs() -> tuple[Cost, ...]:
    """What is stored; nothing if nothing is."""
    place = resources.files(__package__ or "") / "cost.csv"
    if not place.is_file():
        return ()
    lines = csv.DictReader(place.read_text(encoding="utf-8").splitlines())
    return tuple(
        Cost(
            line["machine"], line["unit"], int(line["length"]), int(line["batch"]),
            float(line["microseconds"]), float(line["kilobytes"]),
        )
        for line in lines
    )  # fmt: skip


def cost_pictures(measured: Sequence[Cost] | None = None) -> list[Picture]:
    """Time and memory of a step by length, a column for each machine; nothing if nothing was measured."""
    from matplotlib.figure import Figure

    measured = costs() if measured is None else measured
    machines = list(dict.fromkeys(cost.machine for cost in measured))
    if not machines:
        return []
    units = [unit for unit in UNITS if any(cost.unit == unit for cost in measured)]
    look = looks(units)
    with style():
        fig = Figure(figsize=(3.6 * len(machines) + 3.6 + 1.4, 4.0))
        axes = fig.subplots(1, len(machines) + 1, squeeze=False)[0]
        for ax, machine in zip(axes, machines):
            for unit in units:
                own = sorted((c for c in measured if (c.unit, c.machine) == (unit, machine)), key=lambda c: c.length)
                colour, marker = look[unit]
                ax.plot(
                    [c.length for c in own], [c.microseconds for c in own], color=colour, marker=marker, ms=3.5, lw=1.1
                )
            batch = next(cost.batch for cost in measured if cost.machine == machine)
            ax.set(
                title=f"{machine}, batch {batch}",
                xlabel="steps of a sequence",
                ylabel="µs a step, forward and backward",
            )
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
        for unit in units:
            own = sorted((c for c in measured if (c.unit, c.machine) == (unit, machines[-1])), key=lambda c: c.length)
            colour, marker = look[unit]
            memory = [c.kilobytes * c.length / 1024 for c in own]
            axes[-1].plot(
                [c.length for c in own], memory, color=colour, marker=marker, ms=3.5, lw=1.1, label=short(unit)
            )
        axes[-1].set(title="memory", xlabel="steps of a sequence", ylabel="MiB kept for the backward pass, a sequence")
        axes[-1].set_xscale("log", base=2)
        axes[-1].set_yscale("log")
        lay_out(fig, rect=(0, 0, 1 - 1.3 / fig.get_figwidth(), 1), w_pad=1.5)
        fig.legend(loc="center right", fontsize=7.5)
    caption = (
        "What a step costs as sequences grow, at 24,000 parameters: its time, and what is kept for the backward pass. "
        "A unit whose time a step falls as sequences grow leaves the machine idle on short ones. Measured by "
        "python -m benchmarks.memory."
    )
    return [Picture("cost", fig, caption)]
