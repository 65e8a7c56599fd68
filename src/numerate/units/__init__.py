"""Arithmetic and logic units: each a pure function and a thin ``torch.nn.Module`` beside it; torch alone is needed."""

from numerate.units.base import Unit, outer_units, snap, snapped_parameters
from numerate.units.constraints import apply_bounds_, bound_after_step, parameter_bounds
from numerate.units.nau import NAU, nau
from numerate.units.nmu import NMU, nmu
from numerate.units.penalties import Constant, Growth, Ramp, l1, penalty, sparsity_error
from numerate.units.symbolic import formula

__all__ = [
    "NAU",
    "NMU",
    "Constant",
    "Growth",
    "Ramp",
    "Unit",
    "apply_bounds_",
    "bound_after_step",
    "formula",
    "l1",
    "nau",
    "nmu",
    "outer_units",
    "parameter_bounds",
    "penalty",
    "snap",
    "snapped_parameters",
    "sparsity_error",
]
