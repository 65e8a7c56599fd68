"""Arithmetic and logic units: each a pure function and a thin ``torch.nn.Module`` beside it; torch alone is needed."""

from numerate.units.base import Unit, outer_units, snap, snapped_parameters
from numerate.units.calcnet import CalcNet
from numerate.units.constraints import apply_bounds_, bound_after_step, parameter_bounds
from numerate.units.inalu import INALU, inalu
from numerate.units.mcfc import MCFC, MulMCFC, mcfc, mul_mcfc
from numerate.units.mlp import MLP, Dense, dense
from numerate.units.nac import (
    NAC,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    nac,
    nac_mul,
    nac_mul_nmu,
    nac_mul_sigmoid,
    nac_radius,
)
from numerate.units.nalu import GNALU, NALU, ComplexNALU, GatedNAUNMU, complex_nalu, gated_nau_nmu, nalu
from numerate.units.nau import NAU, nau
from numerate.units.nlrl import NLRL, nlrl
from numerate.units.nmu import NMU, nmu
from numerate.units.npu import (
    NPU,
    ModifiedRealNPU,
    NaiveNPU,
    NaiveRealNPU,
    RealNPU,
    naive_npu,
    naive_real_npu,
    npu,
    real_npu,
)
from numerate.units.nsr import NSR, comparison, nsr
from numerate.units.penalties import After, Constant, Growth, Ramp, l1, penalty, sparsity_error
from numerate.units.robust import NMRU, ReciprocalUnit, StochasticNMU, nmru, reciprocal_unit, stochastic_nmu
from numerate.units.symbolic import formula

__all__ = [
    "GNALU",
    "INALU",
    "MCFC",
    "MLP",
    "NAC",
    "NALU",
    "NAU",
    "NLRL",
    "NMRU",
    "NMU",
    "NPU",
    "NSR",
    "After",
    "CalcNet",
    "ComplexNALU",
    "Constant",
    "Dense",
    "GatedNAUNMU",
    "Growth",
    "ModifiedRealNPU",
    "MulMCFC",
    "NACMul",
    "NACMulNMU",
    "NACMulSigmoid",
    "NaiveNPU",
    "NaiveRealNPU",
    "Ramp",
    "RealNPU",
    "ReciprocalUnit",
    "StochasticNMU",
    "Unit",
    "apply_bounds_",
    "bound_after_step",
    "comparison",
    "complex_nalu",
    "dense",
    "formula",
    "gated_nau_nmu",
    "inalu",
    "l1",
    "mcfc",
    "mul_mcfc",
    "nac",
    "nac_mul",
    "nac_mul_nmu",
    "nac_mul_sigmoid",
    "nac_radius",
    "naive_npu",
    "naive_real_npu",
    "nalu",
    "nau",
    "nlrl",
    "nmru",
    "nmu",
    "npu",
    "nsr",
    "outer_units",
    "parameter_bounds",
    "penalty",
    "real_npu",
    "reciprocal_unit",
    "snap",
    "snapped_parameters",
    "sparsity_error",
    "stochastic_nmu",
]
