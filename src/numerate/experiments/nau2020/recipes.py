"""The models of the arithmetic task as they were run (Table 4 differs: see the reasons)."""

from functools import partial

from numerate.experiments.models import Layer, two_layers
from numerate.experiments.recipe import Recipe
from numerate.train import Penalty
from numerate.units import (
    NAC,
    NALU,
    NAU,
    NMU,
    Dense,
    GatedNAUNMU,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    Ramp,
    penalty,
)

SHORTER = {"smoke": 2500, "quick": 10, "paper": 1}
"""By how much the five million steps are shortened, and with them the penalties that set in late."""
INPUTS = {"smoke": 10, "quick": 10, "paper": 100}
"""Their number of inputs: with 100, multiplication needs about a million steps before anything is solved."""
SUMS = ("add", "sub")
OWN = "the second of two layers, behind an NAU, as NMU is"
"""What a unit of the user's own is in these experiments."""


def setting(operation: str, size: str) -> tuple[int, int]:
    """Inputs, and by how much a run is shortened. Sums are found early among 100 inputs, so quick runs keep them."""
    return (100, 25) if size == "quick" and operation in SUMS else (INPUTS[size], SHORTER[size])


def sparse(scale: float, start: int, end: int, shorter: int) -> tuple[Penalty, ...]:
    """Sparsity penalty with warm-up; ``shorter`` divides its times where a run has fewer steps."""
    return (Penalty(penalty, Ramp(scale, start // shorter, end // shorter)),)


def early(shorter: int, scale: float = 0.01) -> tuple[Penalty, ...]:
    """NAU's schedule: from step 5,000 to 50,000, wherever the run has as many.

    It is not shortened with the run: what λ̂ and Adam's rate leave is a jitter of the weights near 1e-4, and the
    threshold of − allows 1e-5. NAU passes it before the penalty has grown, or not at all.
    """
    return sparse(scale, 5_000, 50_000, max(1, shorter // 100))


def late(shorter: int, scale: float = 10.0) -> tuple[Penalty, ...]:
    """NMU's schedule: from step 1,000,000 to 2,000,000."""
    return sparse(scale, 1_000_000, 2_000_000, shorter)


def layers(first: Layer, second: Layer, *, hidden: int = 2, penalties: tuple[Penalty, ...] = ()) -> Recipe:
    return Recipe(partial(two_layers, first=first, second=second, hidden=hidden), penalties=penalties)


def activated(activation: str) -> partial[Dense]:
    return partial(Dense, activation=activation)


def recipes(shorter: int = 1, hidden: int = 2) -> dict[str, Recipe]:
    """Printed name -> recipe of all eleven models; ``shorter`` shortens the late penalties with the run."""
    linear = activated("none")
    return {
        "NAC•,NMU": layers(NAU, NACMulNMU, penalties=late(shorter), hidden=hidden),
        "NAC•,σ": layers(NAC, NACMulSigmoid, hidden=hidden),
        "NAC•": layers(NAC, NACMul, hidden=hidden),
        "NAC+": layers(NAC, NAC, hidden=hidden),
        "Gated NAU/NMU": layers(GatedNAUNMU, GatedNAUNMU, penalties=late(shorter), hidden=hidden),
        "Linear": layers(linear, linear, hidden=hidden),
        "NALU": layers(NALU, NALU, hidden=hidden),
        "NAU": layers(NAU, NAU, penalties=early(shorter), hidden=hidden),
        "NMU": layers(NAU, NMU, penalties=late(shorter), hidden=hidden),
        "ReLU": layers(activated("relu"), linear, hidden=hidden),
        "ReLU6": layers(activated("relu6"), linear, hidden=hidden),
    }


def gated_recipes(shorter: int = 1) -> dict[str, Recipe]:
    """The three models of Table 5: a sum layer followed by a unit that must choose."""
    return {
        "Gated NAU/NMU": layers(NAU, GatedNAUNMU, penalties=late(shorter)),
        "NALU (separate)": layers(NAC, partial(NALU, weights="separate")),
        "NALU (shared)": layers(NAC, NALU),
    }
