"""The recurrent units of the comparison, each as wide as the same number of parameters allows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from numerate.experiments.models import sequence_model
from numerate.experiments.recipe import Recipe
from numerate.experiments.unit_choice import Unit, choose_recipes, short_name
from numerate.recurrent import (
    DNC,
    EURNN,
    GORU,
    GRU,
    JANET,
    LMU,
    LRU,
    LSTM,
    NRU,
    OLSTM,
    OMLSTM,
    RLSTM,
    RMC,
    RNN,
    S4D,
    S5,
    S6,
    SLSTM,
    UGRNN,
    ULSTM,
    URGRU,
    URLSTM,
    Cell,
    MinGRU,
    MinLSTM,
    Recurrent,
    StatisticalRU,
)

Layer = Callable[..., Recurrent]
"""(inputs, hidden_size=H) -> layer"""


@dataclass(frozen=True)
class Budget:
    """What all models have in common.

    Args:
        parameters: of a model, its readout among them.
        readout: width of the readout's hidden layer: behind a linear readout, a linear recurrence is a linear map.
        within: largest share by which a model may have more or fewer parameters.
    """

    parameters: int
    readout: int
    within: float


FULL, SMALL = Budget(24_000, 64, 0.02), Budget(12_000, 32, 0.03)
"""Of a small model, one hidden unit more is a larger share."""
MEMORY = 64
"""Of the units that have a memory beside h: NRU and LMU."""


def layers(length: int) -> Mapping[str, Layer]:
    """Units by name, the most telling ones first; ``length``: steps of a sequence, for those that are told."""
    return {
        "LSTM": LSTM,
        "GRU": GRU,
        "NRU": partial(NRU, memory_size=MEMORY, heads=4),
        "UR-LSTM": URLSTM,
        "JANET": partial(JANET, timescale=length),
        "S6": S6,
        "minGRU": MinGRU,
        "LRU": partial(LRU, r_min=0.9, r_max=0.999),
        "sLSTM": SLSTM,
        "EURNN": partial(EURNN, capacity=8),
        "RNN": partial(RNN, recurrent_init="orthogonal"),
        "S4D": S4D,
        "S5": S5,
        "LMU": partial(LMU, memory_size=MEMORY, theta=length),
        "minLSTM": MinLSTM,
        "LSTM-chrono": partial(LSTM, timescale=length),
        "UR-GRU": URGRU,
        "GORU": partial(GORU, capacity=8),
        "IRNN": partial(RNN, recurrent_init="identity", activation="relu"),
        "UGRNN": UGRNN,
        "U-LSTM": ULSTM,
        "R-LSTM": RLSTM,
        "O-LSTM": OLSTM,
        "OM-LSTM": partial(OMLSTM, downsize=1),
        "SRU": partial(StatisticalRU, statistics_size=48, summary_size=20),
        "RMC": partial(RMC, slots=2, heads=1),
        "DNC": partial(DNC, slots=8, width=8, read_heads=2),
    }


UNITS = tuple(layers(100))
SLOW = ("RMC", "DNC")
"""Units without a compiled loop: only if they are asked for."""
OLD = ("LSTM", "GRU", "NRU", "JANET", "EURNN", "RNN", "LSTM-chrono", "GORU", "IRNN")
"""Units that the paper on NRU compares."""
POSITIVE = ("S6", "minGRU", "minLSTM")
"""Diagonal recurrences whose transition depends on the input, with positive entries."""
INVARIANT = ("LRU", "S4D", "S5")
"""Diagonal recurrences whose transition is the same at every step."""
LINEAR = (*POSITIVE, *INVARIANT)


PROBED = (8, 24, 64)
"""Hidden sizes from whose counts that of a budget is guessed."""
BEYOND = 16
"""The search ends at so many times the guess."""


def own_layer(inputs: int, *, unit: Callable[[int, int], Any], hidden_size: int) -> Recurrent:
    """A user's own layer, or the layer of their own cell. Raises ValueError if it is neither, or cannot be made."""
    try:
        made = unit(inputs, hidden_size)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"cannot make {short_name(unit)} of (inputs, hidden size) = ({inputs}, {hidden_size}): {reason}"
        ) from error
    if isinstance(made, Cell):
        made = Recurrent(made)
    if not isinstance(made, Recurrent):
        raise ValueError(
            f"a unit of your own is a numerate.recurrent.Cell, or a layer of numerate.recurrent, of (inputs, hidden "
            f"size), got {type(made).__name__}"
        )
    return made


def size(model: torch.nn.Module) -> int:
    """Trained numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


class Counts:
    """Parameters of a model by its hidden size; a size that raises ValueError cannot be made.

    Args:
        model: hidden size -> model.
    """

    def __init__(self, model: Callable[[int], torch.nn.Module]) -> None:
        self.model = model
        self.known: dict[int, int] = {}
        self.errors: dict[int, ValueError] = {}

    def has(self, hidden: int) -> bool:
        """Whether this size can be made."""
        if hidden not in self.known and hidden not in self.errors:
            try:
                self.known[hidden] = _shaped_size(partial(self.model, hidden))
            except ValueError as error:
                self.errors[hidden] = error
        return hidden in self.known

    def near(self, hidden: int, low: int, high: int) -> int | None:
        """The size between ``low`` and ``high``, both left out, that is nearest to ``hidden`` and can be made."""
        start = min(max(hidden, low + 1), high - 1)
        outwards = (one for away in range(high - low) for one in (start - away, start + away) if low < one < high)
        return next(filter(self.has, outwards), None)


def equal_size(layer: Layer, inputs: int, outputs: int, budget: Budget = FULL) -> int:
    """The hidden size at which a model has as near to the budget's parameters as it can.

    Sizes that cannot be made are passed over, such as those that a number of heads does not divide. Raises ValueError
    if none can be made, or if the nearest is not within the budget.
    """

    def model(hidden: int) -> torch.nn.Module:
        return sequence_model(inputs, outputs, layer=partial(layer, hidden_size=hidden), hidden=budget.readout)

    counts, wanted, share = Counts(model), budget.parameters, budget.within
    found = _nearest(counts, wanted)
    if abs(counts.known[found] - wanted) > share * wanted:
        raise ValueError(
            f"{_unit_name(layer)} cannot have {wanted:,} parameters within {100 * share:g} % with {inputs} inputs and "
            f"{outputs} outputs: the nearest is {counts.known[found]:,}, at hidden size {found}"
        )
    return found


def _unit_name(layer: Layer) -> str:
    return short_name(layer.keywords.get("unit", layer) if isinstance(layer, partial) else layer)


def _nearest(counts: Counts, wanted: int) -> int:
    """The size whose count is nearest: steps from a guess that double until they pass it, then bisection."""
    aim = guess = _guess(counts, wanted)
    low, step = 0, 1
    high = end = BEYOND * max(guess, *PROBED) + 1
    while (found := counts.near(aim, low, high)) is not None:
        low, high = (found, high) if counts.known[found] < wanted else (low, found)
        if low == 0 or high == end:
            aim, step = (high - step if low == 0 else low + step), 2 * step
        else:
            aim = (low + high) // 2
    sizes = [hidden for hidden in (low, high, *counts.known) if hidden in counts.known]
    return min(sizes, key=lambda hidden: abs(counts.known[hidden] - wanted))


def _guess(counts: Counts, wanted: int) -> int:
    """Where a parabola through three counts has as many as wanted, which is exact for most units."""
    sizes = list(islice(filter(counts.has, dict.fromkeys((*PROBED, *range(1, PROBED[-1])))), 3))
    if not sizes:
        raise counts.errors[PROBED[0]]
    known = [counts.known[size] for size in sizes]
    square, slope, constant = (*[0.0] * (3 - len(sizes)), *np.polyfit(sizes, known, len(sizes) - 1))
    if square > 1e-6:
        found = max(np.roots([square, slope, constant - wanted]).real)
    else:
        found = (wanted - constant) / slope if slope > 1e-6 else sizes[-1]
    return int(np.clip(round(found), 1, wanted))


def _shaped_size(make: Callable[[], torch.nn.Module]) -> int:
    """:func:`size` of what ``make`` makes, without initial weights where it can do without: those of S5 take long."""
    try:
        with torch.device("meta"):
            return size(make())
    except Exception:  # a cell of the user's own may compute with its weights
        with torch.random.fork_rng(devices=[]):  # what is drawn here is not used
            return size(make())


@cache
def hidden_size(unit: str, inputs: int, outputs: int, budget: Budget = FULL) -> int:
    """Of one of our units; the length of the sequences does not matter."""
    return equal_size(layers(2)[unit], inputs, outputs, budget)


def recipes(
    units: tuple[Unit, ...] | None,
    default: tuple[str, ...],
    inputs: int,
    outputs: int,
    length: int,
    budget: Budget = FULL,
    **reading: Any,
) -> dict[str, Recipe]:
    """Those of the units asked for; a user's own cell or layer among them.

    Args:
        units: as the options have them; None: ``default``.
        inputs, outputs: of the task.
        length: of its sequences.
        budget: of every model.
        reading: keywords of :class:`~numerate.recurrent.SequenceModel`.
    """

    def model(layer: Layer, hidden: int) -> Any:
        return partial(sequence_model, layer=partial(layer, hidden_size=hidden), hidden=budget.readout, **reading)

    def placed(own: Recipe) -> Recipe:
        layer = partial(own_layer, unit=own.model)
        return replace(own, model=model(layer, equal_size(layer, inputs, outputs, budget)))

    known = layers(length)
    wanted = known if units is None else {name: known[name] for name in known if name in units}
    ours = {name: Recipe(model(known[name], hidden_size(name, inputs, outputs, budget))) for name in wanted}
    return choose_recipes(units, ours, default=default, placed=placed)
