"""What the table says of the claims of both papers, and of what is known of linear recurrences."""

from collections.abc import Sequence

import numpy as np

from numerate.experiments.experiment import Options
from numerate.experiments.memory.overview import left
from numerate.experiments.memory.scores import Cell, cells, errors, middle, ranks, standings
from numerate.experiments.memory.units import INVARIANT, LINEAR, OLD, POSITIVE
from numerate.report import Claim
from numerate.report.text import thousands
from numerate.results import Row
from numerate.stats import normal_mean, rank_agreement

NEW = ("sLSTM", "LMU", *LINEAR)
"""Units published after the paper on NRU, but for the gates of the paper on UR."""
LEVEL = 0.05


def both(rows: Sequence[Row], options: Options) -> list[Claim]:
    """Those of NRU (2019), of the UR gates (2020), and of the linear recurrences since."""
    if options.size == "smoke":
        return []
    found, long = cells(rows), options.as_published  # short tasks say nothing of long memory
    return [
        *(tracking(found, task) for task in tasks_of_tracking(found)),
        invariant_fail(found, long),
        among_top_two(found, long),
        ahead(found, "UR-LSTM", "LSTM", long),
        ahead(found, "UR-GRU", "GRU", long),
        overtaken(found, long),
    ]


def solves(cell: Cell) -> bool:
    """Whether most runs at the best rate do."""
    return 2 * cell.solved > len(cell.rows)


# ---------------------------------------------------------------- state tracking


def tasks_of_tracking(found: Sequence[Cell]) -> list[str]:
    """Parity and counting, where the state has to be followed step by step."""
    names = dict.fromkeys(cell.task for cell in found)
    return [task for task in names if task == "parity" or task.startswith("counting")]


def trackers(found: Sequence[Cell]) -> str:
    """A sentence: which units track a state, in some run, and which do not in any; nothing without both kinds."""
    tasks = tasks_of_tracking(found)
    able = {
        unit: [t for t in tasks if any(map(_ever, _of(found, unit, t)))]
        for unit in dict.fromkeys(c.unit for c in found)
    }
    linear = [unit for unit in able if unit in LINEAR and any(_of(found, unit, task) for task in tasks)]
    if not linear or not any(able[unit] for unit in able if unit not in LINEAR):
        return ""
    parts = []
    for some in dict.fromkeys(tuple(solved) for unit, solved in able.items() if solved and unit not in LINEAR):
        units = [unit for unit, solved in able.items() if unit not in LINEAR and tuple(solved) == some]
        parts.append(f"{' and '.join(some)}: {', '.join(units)}")
    exceptions = [unit for unit in linear if able[unit]]
    rest = f"of the linear recurrences {', '.join(exceptions)}" if exceptions else f"none of {', '.join(linear)}"
    return f"State tracking is solved on {'; on '.join(parts)}; {rest}."


def _of(found: Sequence[Cell], unit: str, task: str) -> list[Cell]:
    return [cell for cell in found if (cell.unit, cell.task) == (unit, task)]


def _ever(cell: Cell) -> int:
    """Runs that are solved, at whatever rate."""
    return sum(solved for solved, _ in cell.rates.values())


def tracking(found: Sequence[Cell], task: str) -> Claim:
    """One solved run of a linear recurrence refutes it; it holds if others need half the updates or less."""
    linear = [cell for cell in found if cell.task == task and cell.unit in LINEAR]
    others = [cell for cell in found if cell.task == task and cell.unit not in LINEAR and cell.solved]
    what = "track a parity" if task == "parity" else task.replace("counting mod", "count modulo")
    text = (
        f"Linear recurrences cannot {what}, nonlinear ones can (Grazzi et al., 2025; our test: no linear run is "
        "solved, with twice the updates that a run of a nonlinear unit needs)."
    )
    if not linear or not others:
        return Claim(text, "not both kinds were run." if not linear else "no nonlinear unit solves it.", None)
    given = min(int(row.curves["steps"][-1]) for cell in linear for row in cell.rows)
    runs = sum(runs for cell in linear for _, runs in cell.rates.values())
    solved = [cell.unit for cell in linear if _ever(cell)]
    shares = [left(cell) for cell in linear]
    first = min(min(cell.times) for cell in others)
    units = ", ".join(f"{cell.unit} {cell.solved} of {len(cell.rows)}" for cell in others)
    says = f"runs solved: {units}, the first at update {thousands(first)}; of {runs} linear runs "
    says += f"{sum(map(_ever, linear))} ({', '.join(solved)})" if solved else "none"
    says += f" in {given:,} updates, with {min(shares):.0%} to {max(shares):.0%} of the error of guessing left."
    return Claim(text, says, False if solved else True if 2 * first <= given else None)


def invariant_fail(found: Sequence[Cell], long: bool) -> Claim:
    """On selective copying."""
    some = [cell for cell in found if cell.task.startswith("selective")]
    text = (
        "Selective copying needs a transition that depends on the input (Gu & Dao, 2023; our test: of the diagonal "
        "recurrences some with such a transition solve it, and none without)."
    )
    shares = {cell.unit: middle(errors(cell.rows)) for cell in some}
    said = ", ".join(f"{unit} {shares[unit]:.0%}" for unit in (*POSITIVE, *INVARIANT) if unit in shares)
    fixed = [cell for cell in some if cell.unit in INVARIANT]
    free = [cell for cell in some if cell.unit in POSITIVE]
    if not fixed or not free:
        return Claim(text, "not all of them were run.", None)
    holds = any(map(solves, free)) and not any(cell.solved for cell in fixed)
    return Claim(text, f"symbols wrong: {said}.", holds if long else None)


# ---------------------------------------------------------------- long memory


def among_top_two(found: Sequence[Cell], long: bool) -> Claim:
    """Of the units that the paper compares, on tasks of memory; tracking a state is not its subject."""
    aside = tasks_of_tracking(found)
    placed = ranks([cell for cell in found if cell.unit in OLD and cell.task not in aside])
    own = {task: places["NRU"] for task, places in placed.items() if "NRU" in places and len(places) > 2}
    says = ", ".join(f"{task}: {place:g} of {len(placed[task])}" for task, place in own.items())
    text = "NRU is among the top two of the units of its paper on every task of memory (Chandar et al., 2019)."
    holds = max(own.values()) <= 2 if own and long else None
    return Claim(text, f"place on {says}." if own else "no runs of NRU beside others.", holds)


def ahead(found: Sequence[Cell], first: str, second: str, long: bool) -> Claim:
    """On which tasks of memory one unit is ahead of another beyond chance."""
    aside = tasks_of_tracking(found)
    by = {(cell.unit, cell.task): cell for cell in found if cell.task not in aside}
    pairs = [(cell, by[second, task]) for (unit, task), cell in by.items() if unit == first and (second, task) in by]
    told = {a.task: a.order < b.order for a, b in pairs if differs(a, b)}
    better, worse = ([task for task, is_better in told.items() if is_better is want] for want in (True, False))
    rest = [a.task for a, b in pairs if a.task not in told]
    parts = {"ahead on": better, "behind on": worse, "no difference beyond chance on": rest}
    says = "; ".join(f"{words} {', '.join(some)}" for words, some in parts.items() if some)
    text = (
        f"UR gates make the {second} better wherever memory is long (Gu et al., 2020; our test: {first} is ahead on "
        f"some tasks and behind on none, by the rank sums of its runs, p < {LEVEL})."
    )
    return Claim(text, f"{says}." if says else "not both were run.", not worse if told and long else None)


def differs(a: Cell, b: Cell) -> bool:
    """Whether times to solve, or errors where nothing is solved, differ beyond chance."""
    one, other = (cell.times if cell.solvable else errors(cell.rows) for cell in (a, b))
    whose = [0] * len(one) + [1] * len(other)
    return rank_agreement(whose, [*one, *other], LEVEL).word in ("same order", "other order")


def overtaken(found: Sequence[Cell], long: bool) -> Claim:
    """By places on the tasks that both have."""
    text = (
        "Units since then have overtaken both (our test: of the newer units, the one with the best mean place is "
        "ahead of NRU and UR-LSTM by the 95 % interval of the difference in places)."
    )
    standing = {s.unit: s.rank.value or 0.0 for s in standings(found)}
    since = [unit for unit in NEW if unit in standing]
    if not since or not {"NRU", "UR-LSTM"} <= set(standing):
        return Claim(text, "not all of them were run.", None)
    best = min(since, key=lambda unit: standing[unit])
    gaps = [_gap(found, best, unit) for unit in ("NRU", "UR-LSTM")]
    says = f"mean place {', '.join(f'{unit} {standing[unit]:.1f}' for unit in (best, 'NRU', 'UR-LSTM'))}."
    return Claim(text, says, _verdict(gaps) if long else None)


def _gap(found: Sequence[Cell], one: str, other: str) -> tuple[float, float]:
    """An interval of how many places behind ``other`` it is."""
    places = [(places[one], places[other]) for places in ranks(found).values() if one in places and other in places]
    gap = normal_mean(np.array([a - b for a, b in places]))
    return (-np.inf if gap.low is None else gap.low, np.inf if gap.high is None else gap.high)


def _verdict(gaps: Sequence[tuple[float, float]]) -> bool | None:
    if all(high < 0 for _, high in gaps):
        return True
    return False if any(low > 0 for low, _ in gaps) else None
