"""What the table says of the claims of both papers, and of what is known of linear recurrences."""

from collections.abc import Sequence

import numpy as np

from numerate.experiments.experiment import Options
from numerate.experiments.memory.scores import Cell, cells, ranks, standings
from numerate.experiments.memory.units import INVARIANT, LINEAR, OLD, POSITIVE
from numerate.report import Claim
from numerate.results import Row

TRACKING = ("parity", "counting mod 5")
NEW = ("sLSTM", "LMU", *LINEAR)
"""Units published after the paper on NRU, but for the gates of the paper on UR."""


def both(rows: Sequence[Row], options: Options) -> list[Claim]:
    """Those of NRU (2019), of the UR gates (2020), and of the linear recurrences since."""
    if options.size == "smoke":
        return []
    found = cells(rows)
    return [
        among_top_two(found, options),
        ahead(found, "UR-LSTM", "LSTM"),
        ahead(found, "UR-GRU", "GRU"),
        overtaken(found),
        linear_fail(found, options),
        invariant_fail(found, options),
    ]


def _solves(cell: Cell) -> bool:
    return 2 * cell.solved > len(cell.rows)


def among_top_two(found: Sequence[Cell], options: Options) -> Claim:
    """Of the units that the paper compares, on tasks of memory; tracking a state is not its subject."""
    known = [cell for cell in found if cell.unit in OLD and cell.task not in TRACKING]
    placed = ranks(known)
    own = {task: places["NRU"] for task, places in placed.items() if "NRU" in places and len(places) > 2}
    says = ", ".join(f"{task} {place:g} of {len(placed[task])}" for task, place in own.items())
    holds = None if not own or options.size != "paper" else max(own.values()) <= 2
    text = "NRU is among the top two of the units of its paper on every task (Chandar et al., 2019)."
    return Claim(text, f"place on {says}." if own else "no runs of NRU beside others.", holds)


def ahead(found: Sequence[Cell], first: str, second: str) -> Claim:
    """On how many tasks one unit is ahead of another; tasks on which neither solves a run cannot tell."""
    by = {(cell.unit, cell.task): cell for cell in found}
    pairs = [
        (by[first, t], by[second, t])
        for t in dict.fromkeys(c.task for c in found)
        if (first, t) in by and (second, t) in by
    ]
    told = [(a, b) for a, b in pairs if not a.solvable or a.solved or b.solved]
    better = [a.task for a, b in told if a.order < b.order]
    worse = [a.task for a, b in told if a.order > b.order]
    says = f"ahead on {', '.join(better) or 'none'}; behind on {', '.join(worse) or 'none'}"
    rest = len(pairs) - len(better) - len(worse)
    says += f"; {rest} of {len(pairs)} tasks cannot tell" if rest else ""
    holds = None if not better and not worse else not worse
    return Claim(f"UR gates make the {second} better wherever memory is long (Gu et al., 2020).", f"{says}.", holds)


def overtaken(found: Sequence[Cell]) -> Claim:
    """By mean place over the tasks that both have."""
    standing = {s.unit: s.rank.value or 0.0 for s in standings(found)}
    ours = {unit: standing[unit] for unit in ("NRU", "UR-LSTM") if unit in standing}
    since = {unit: standing[unit] for unit in NEW if unit in standing}
    text = "Units since then have overtaken both (our test: a newer unit has a better mean place than NRU and UR-LSTM)."
    if len(ours) < 2 or not since:
        return Claim(text, "not all of them were run.", None)
    best = min(since, key=lambda unit: since[unit])
    says = ", ".join(f"{unit} {place:.1f}" for unit, place in (*ours.items(), (best, since[best])))
    return Claim(text, f"mean place {says}.", since[best] < min(ours.values()))


def linear_fail(found: Sequence[Cell], options: Options) -> Claim:
    """One solved run refutes it; that the others solve it makes it say something."""
    some = [cell for cell in found if cell.task in TRACKING]
    linear = [f"{cell.unit} on {cell.task}" for cell in some if cell.unit in LINEAR and cell.solved]
    others = sorted({cell.unit for cell in some if cell.unit not in LINEAR and _solves(cell)})
    text = "Linear recurrences track neither a parity nor a count, which nonlinear ones do (Grazzi et al., 2025)."
    says = f"solved by {', '.join(others) or 'no nonlinear unit'}; of the linear ones {', '.join(linear) or 'no run'}."
    known = bool(others) and any(cell.unit in LINEAR for cell in some)
    return Claim(text, says, False if linear else True if known and options.size == "paper" else None)


def invariant_fail(found: Sequence[Cell], options: Options) -> Claim:
    """On selective copying."""
    some = [cell for cell in found if cell.task.startswith("selective")]
    text = "Selective copying needs a transition that depends on the input (Gu & Dao, 2023)."
    shares = {cell.unit: float(np.median([row.scores["best_test"] for row in cell.rows])) for cell in some}
    said = ", ".join(f"{unit} {shares[unit]:.0%}" for unit in (*POSITIVE, *INVARIANT) if unit in shares)
    fixed = [cell for cell in some if cell.unit in INVARIANT]
    free = [cell for cell in some if cell.unit in POSITIVE]
    if not fixed or not free:
        return Claim(text, "not all of them were run.", None)
    holds = any(map(_solves, free)) and not any(cell.solved for cell in fixed)
    return Claim(text, f"symbols wrong: {said}.", holds if options.size == "paper" else None)
