"""Every exported unit at a small size, with the options that are held to the contract, and inputs for it.

CalcNet, which takes an expression beside its inputs, is held to the same on two fixed expressions.
"""

import inspect
from collections.abc import Iterable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

import numerate.units
from numerate.units import CalcNet, Unit, outer_units

I, O = 3, 2  # noqa: E741  the papers' letters

UNITS: dict[str, type[Unit]] = {
    name: unit
    for name in numerate.units.__all__
    if inspect.isclass(unit := getattr(numerate.units, name)) and issubclass(unit, Unit) and unit is not Unit
}


class Calculator(nn.Module):
    """CalcNet on expressions of its first three inputs, which between them use every operation; outputs repeat them."""

    expressions = ("a / b * (a + 2)", "(b - c) * a - c / a")
    bounds: dict[str, tuple[float, float]] = {}

    def __init__(self, in_features: int, out_features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.out_features = out_features
        self.net = CalcNet(device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.net(text, dict(zip("abc", x.unbind(-1)))) for text in self.expressions]
        return torch.stack([found[o % 2] for o in range(self.out_features)], -1)

    @property
    def levels(self) -> dict[str, Any]:
        return {prefix + key: value for prefix, unit in outer_units(self.net) for key, value in unit.levels.items()}

    def coefficients(self) -> dict[str, Tensor]:
        return {}

    def formula(self, names: str, tolerance: float) -> Any:
        return sympy.Matrix([self.net.formula(text, tolerance) for text in self.expressions])

    def snap_(self) -> "Calculator":
        assert self.net.snap_() is self.net
        return self

    def snapped_parameters(self) -> dict[str, Tensor]:
        return {f"net.{key}": value for key, value in self.net.snapped_parameters().items()}

    def __getattr__(self, name: str) -> Any:
        if name in ("reset_parameters", "effective_weights", "sparsity_error", "penalty"):
            return getattr(self.net, name)
        return super().__getattr__(name)


MODULES: dict[str, Any] = {**UNITS, "CalcNet": Calculator}

# Options in place of the defaults, to be small.
SMALL: dict[str, dict[str, Any]] = {"MLP": {"hidden": (3,)}}

# Further options of a unit to be held to the same contract.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "Dense": [{"activation": "tanh"}, {"activation": "prelu"}, {"activation": "crelu"}],
    "GNALU": [{"gate_base": "e"}],
    "INALU": [{"gate": "input"}, {"init": "schloer"}, {"clip": "input"}],
    "MLP": [{"hidden": (2, 2), "activation": "crelu"}, {"hidden": (3,), "activation": "prelu"}],
    "MulMCFC": [{"sign": "product"}, {"sign": "cosine"}],
    "NALU": [{"weights": "separate"}],
    "NAU": [{"init": "glorot"}, {"clip": "forward"}],
    "NLRL": [{"form": "and"}, {"form": "or"}, {"gate": "words"}, {"negate": False}],
    "NMRU": [{"sign": False}, {"gate": True}, {"gate": True, "gating": "scale"}],
    "NMU": [{"init": "paper"}, {"clip": "forward"}],
    "NPU": [{"clip_gate": "step"}],
    "NSR": [{"paths": 3, "scale": 2.0}, {"pair": True}],
    "RealNPU": [{"clip_gate": "step"}],
    "StochasticNMU": [{"noise_range": "batch"}],
}


def cases(modules: Iterable[str] = MODULES) -> Any:
    found = []
    for name in modules:
        for options in [SMALL.get(name, {}), *VARIANTS.get(name, [])]:
            text = ",".join(f"{key}={value}" for key, value in options.items())
            found.append(pytest.param(name, options, id=f"{name}({text})"))
    return pytest.mark.parametrize(("name", "options"), found)


def make(
    name: str, options: dict[str, Any], *, seed: int = 0, dtype: torch.dtype = torch.float64, sizes: Any = (I, O)
) -> Any:
    unit: Any = MODULES[name](*sizes, **options, dtype=dtype)
    unit.reset_parameters(torch.Generator().manual_seed(seed))
    return unit.eval()


def width(options: dict[str, Any]) -> int:
    return 2 * O if options.get("pair") else O


def safe(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    """Inputs where every unit is smooth: inside (0, 1), away from both ends."""
    return torch.rand(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 0.7 + 0.15


def signed(unit: nn.Module, rows: int) -> Tensor:
    """Inputs of both signs, where the unit takes them."""
    x = safe(rows, I)
    x[::2, 1] *= -1
    return x.abs() if unit(x).isnan().any() else x


def parameters(unit: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in unit.named_parameters()}
