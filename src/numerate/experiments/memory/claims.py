"""What the table says of the claims of both papers, and of what is known of linear recurrences."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from numerate.experiments.experiment import Options
from numerate.experiments.memory.overview import guess
from numerate.experiments.memory.runs import PLACES
from numerate.experiments.memory.scores import Cell, cells, errors, middle, ranks, standings
from numerate.experiments.memory.units import INVARIANT, LINEAR, OLD, POSITIVE
from numerate.report import Claim
from numerate.report.text import thousands
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.stats import normal_mean, rank_agreement

NEW = ("sLSTM", "LMU", *LINEAR)
"""Units published after the paper on NRU, but for the gates of the paper on UR."""
LEVEL = 0.05


def both(rows: Sequence[Row], options: Options) -> list[Claim]:
    """Those of NRU (2019), of the UR gates (2020), and of the linear recurrences since."""
    if options.size == "smoke":
        return []
    found, long = cells(rows), options.as_published  # short tasks say nothing of long memory
    of_all_tasks = [
        among_top_two(found, long),
        ahead(found, "UR-LSTM", "LSTM", long),
        ahead(found, "UR-GRU", "GRU", long),
        overtaken(found, long),
    ]
    if {cell.task for cell in found} < {place.title for place in PLACES[options.size]()}:  # some can only refute them
        of_all_tasks = [replace(claim, holds=None if claim.holds else claim.holds) for claim in of_all_tasks]
    return [
        *(tracking(found, task) for task in tasks_of_tracking(found)),
        invariant_fail(found, long),
        *of_all_tasks,
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
    """A sentence: which units track a state in most runs, and which linear ones in any; nothing without both kinds."""
    tracking = [cell for cell in found if cell.task in tasks_of_tracking(found)]
    linear = [cell for cell in tracking if cell.unit in LINEAR]
    able: dict[str, list[str]] = {}
    for cell in tracking:
        if cell.unit not in LINEAR and solves(cell):
            able.setdefault(cell.unit, []).append(cell.task)
    if not linear or not able:
        return ""
    by_tasks: dict[str, list[str]] = {}
    for unit, tasks in able.items():
        by_tasks.setdefault(" and ".join(tasks), []).append(unit)
    parts = [f"{tasks}: {', '.join(units)}" for tasks, units in by_tasks.items()]
    exceptions = dict.fromkeys(cell.unit for cell in linear if _ever(cell))
    units = exceptions or dict.fromkeys(cell.unit for cell in linear)
    rest = f"{'some run' if exceptions else 'no run'} of the linear recurrences {', '.join(units)}"
    return f"State tracking is solved in most runs on {'; on '.join(parts)}; in {rest}."


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
    runs = [row for cell in linear for row in cell.every]
    tried = [row for row in runs if row.status != "diverged" and not judge(row).solved] or runs
    given = min(int(row.curves["steps"][-1]) for row in tried)
    solved = [cell.unit for cell in linear if _ever(cell)]
    first = min(min(cell.times) for cell in others)
    units = ", ".join(f"{cell.unit} {cell.solved} of {len(cell.rows)}" for cell in others)
    never = [cell.unit for cell in found if cell.task == task and cell.unit not in LINEAR and not cell.solved]
    beside = f" (none of {', '.join(never)})" if never else ""
    says = f"runs solved at the best rate: {units}{beside}, the first at update {thousands(first)}; "
    says += f"of {len(runs)} linear runs "
    says += f"at all rates {sum(map(_ever, linear))} ({', '.join(solved)})" if solved else "at all rates none"
    says += f" in {given:,} updates, with {_shares(runs)} of the error of guessing left."
    return Claim(text, says, False if solved else True if 2 * first <= given else None)


def _shares(runs: Sequence[Row]) -> str:
    """The least and the largest test error as shares of that of guessing."""
    shares = [error / guess(row) for row, error in zip(runs, errors(runs))]
    least, most = (f"{share:.0%}" if np.isfinite(share) else "∞" for share in (min(shares), max(shares)))
    return f"{least} to {most}"


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
