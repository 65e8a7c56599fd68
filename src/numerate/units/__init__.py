"""Arithmetic and logic units: each a pure function and a thin ``torch.nn.Module`` beside it; torch alone is needed."""

from numerate.units.base import Unit, outer_units, snap, snapped_parameters
from numerate.units.constraints import apply_bounds_, bound_after_step, parameter_bounds
from numerate.units.nau import NAU, nau
from numerate.units.nlrl import NLRL, nlrl
from numerate.units.nmu import NMU, nmu
from numerate.units.nsr import NSR, comparison, nsr
from numerate.units.penalties import After, Constant, Growth, Ramp, l1, penalty, sparsity_error
from numerate.units.symbolic import formula

__all__ = [
    "NAU",
    "NLRL",
    "NMU",
    "NSR",
    "After",
    "Constant",
    "Growth",
    "Ramp",
    "Unit",
    "apply_bounds_",
    "bound_after_step",
    "comparison",
    "formula",
    "l1",
    "nau",
    "nlrl",
    "nmu",
    "nsr",
    "outer_units",
    "parameter_bounds",
    "penalty",
    "snap",
    "snapped_parameters",
    "sparsity_error",
]
