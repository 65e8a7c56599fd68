"""The nine gates of the paper on the LSTM and the GRU, by the paper's names."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from numerate.experiments.models import sequence_model
from numerate.experiments.recipe import Recipe
from numerate.recurrent import GATES, GRU, LSTM, RMC, Recurrent
from numerate.train import Adam

Core = Literal["LSTM", "GRU", "RMC"]
CORES: dict[str, Callable[..., Recurrent]] = {"LSTM": LSTM, "GRU": GRU, "RMC": RMC}
KINDS = ("-", "C", "O", "U", "R", "OM", "OR", "UM", "UR")
"""In the order of Table 5."""
SHORT = ("-", "C", "U", "R", "UR")
"""What the paper adds, and what it is compared with."""


def unit_name(core: Core, kind: str) -> str:
    """``LSTM``, ``UR-LSTM``"""
    return core if kind == "-" else f"{kind}-{core}"


def unit_names(core: Core, kinds: Sequence[str] = KINDS) -> tuple[str, ...]:
    return tuple(unit_name(core, kind) for kind in kinds)


def layer(core: Core, kind: str, hidden: int, longest: int, downsize: int = 16, **options: Any) -> partial[Recurrent]:
    """A layer but for its number of inputs.

    Args:
        core: LSTM, GRU or RMC.
        kind: of the gate.
        hidden: size of the state; of a slot, for RMC.
        longest: T_max of the chrono initialisation.
        downsize: units that share an entry of a master gate.
        options: further ones of the layer.
    """
    own: dict[str, Any] = {"gate": kind}
    if GATES[kind].bias == "chrono":
        own["timescale"] = longest
    if GATES[kind].master:
        own["downsize"] = downsize
    if core != "RMC":
        own["recurrent_bias"] = False  # one bias for each map, as with the other gates
    return partial(CORES[core], hidden_size=hidden, **own, **options)


def recipe(layer: Callable[[int], Recurrent], rate: float = 1e-3, limit: float = 1.0, **reading: Any) -> Recipe:
    """Adam, the gradient's norm clipped; ``reading``: keywords of :class:`~numerate.recurrent.SequenceModel`."""
    return Recipe(partial(sequence_model, layer=layer, **reading), Adam(rate, clip="norm", limit=limit))


def recipes(core: Core, hidden: int, longest: int, kinds: Sequence[str] = KINDS, **settings: Any) -> dict[str, Recipe]:
    """Name -> recipe, all of one size; ``settings``: of :func:`recipe`."""
    return {unit_name(core, kind): recipe(layer(core, kind, hidden, longest), **settings) for kind in kinds}
