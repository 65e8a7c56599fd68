"""Baselines: a dense layer and a multilayer perceptron, with every nonlinearity that the papers compare."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.units import symbolic
from numerate.units.base import Unit

THRESHOLD, BELOW = 1, 0  # the paper gives none; of those tried these come nearest to its Table 5
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda z: z,
    "hardtanh": F.hardtanh,
    "sigmoid": torch.sigmoid,
    "relu6": F.relu6,
    "tanh": torch.tanh,
    "softsign": F.softsign,
    "threshold": lambda z: F.threshold(z, THRESHOLD, BELOW),
    "selu": F.selu,
    "elu": F.elu,
    "softshrink": F.softshrink,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "tanhshrink": F.tanhshrink,
    "softplus": F.softplus,
    "crelu": lambda z: torch.cat((torch.relu(z), torch.relu(-z)), -1),
}
"""Name -> function; beside these there is ``"prelu"``, whose slope is learnt."""

NAMES = (*ACTIVATIONS, "prelu")
GAINS = {"tanh": 5 / 3, "sigmoid": 1.0, "softsign": 1.0, "none": 1.0}


def dense(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor | None = None, *, activation: str = "none") -> Tensor:
    r""":math:`φ(W x + b)`; ``slope`` (1,) is PReLU's.

    x: (..., I), weight: (O, I), bias: (O,) -> (..., O); CReLU: (..., 2 O).
    """
    if (slope is not None) != (one_of("activation", activation, NAMES) == "prelu"):
        raise ValueError(f"activation='prelu' needs a slope and no other takes one, got activation={activation!r}")
    z = F.linear(x, weight) + bias  # apart, so that stacked layers round as a single one does
    return torch.where(z > 0, z, slope * z) if slope is not None else ACTIVATIONS[activation](z)


class Dense(Unit):
    r"""A linear map with bias and a nonlinearity: :math:`φ(W x + b)`.

    ``activation``: none, hardtanh, sigmoid, relu6, tanh, softsign, threshold, selu, elu, softshrink, relu, leaky_relu,
    tanhshrink, softplus, prelu or crelu, with PyTorch's own constants. Threshold is z above 1 and 0 elsewhere. CReLU
    gives relu(z) and relu(-z), so that out_features, which must be even, is twice the rows of W.

    ``weight``: (out_features, in_features), ``bias``: (out_features,), ``slope``: (1,), 1/4, with prelu alone.
    tanh: Xavier uniform, gain 5/3; sigmoid, softsign, none: gain 1; relu, relu6, elu: Kaiming uniform, bound
    sqrt(6 / I); selu: U(-r, r), r = sqrt(3 / I); biases zero (Madsen & Johansen 2020, as run). The others, which Trask
    et al. (2018, appendix A) name alone: PyTorch's default, weights and biases from U(-r, r), r = 1 / sqrt(I).
    """

    weight: nn.Parameter
    bias: nn.Parameter
    slope: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, *, activation: str = "none", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.activation = one_of("activation", activation, NAMES)
        if activation == "crelu" and out_features % 2:
            raise ValueError(f"out_features must be even with activation='crelu', got {out_features}")
        rows = out_features // 2 if activation == "crelu" else out_features
        self.weight = nn.Parameter(torch.empty(rows, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        slope = nn.Parameter(torch.empty(1, device=device, dtype=dtype)) if activation == "prelu" else None
        self.register_parameter("slope", slope)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.zeros_(self.bias)
        if self.activation in GAINS:
            nn.init.xavier_uniform_(self.weight, GAINS[self.activation], generator=generator)
        elif self.activation in ("relu", "relu6", "elu"):
            radius = sqrt(6 / self.in_features)
            nn.init.uniform_(self.weight, -radius, radius, generator=generator)
        elif self.activation == "selu":
            radius = sqrt(3 / self.in_features)
            nn.init.uniform_(self.weight, -radius, radius, generator=generator)
        else:
            radius = sqrt(1 / self.in_features)
            nn.init.uniform_(self.weight, -radius, radius, generator=generator)
            nn.init.uniform_(self.bias, -radius, radius, generator=generator)
        if self.slope is not None:
            nn.init.constant_(self.slope, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        return dense(self.check_input(x), self.weight, self.bias, self.slope, activation=self.activation)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        slope = {} if self.slope is None else {"slope": self.slope}
        return {"bias": self.bias, **slope}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w, bias = weights["weight"], weights["bias"]
        z = [symbolic.linear(inputs, w.row(o)) + bias[o] for o in range(w.rows)]
        if self.activation == "crelu":
            return [_nonlinear("relu", s * value) for s in (1, -1) for value in z]
        slope = weights["slope"][0] if self.slope is not None else None
        return [_nonlinear(self.activation, value, slope) for value in z]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation!r}"


class MLP(Unit):
    """Hidden layers with a nonlinearity, then a linear map: :class:`Dense` layers, initialised as those are.

    The sparsity error counts all weight matrices and no bias.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        hidden: the widths, by default three layers of eight (Trask et al. 2018). ``(2,)`` is the baseline of Madsen &
            Johansen (2020), activation then linear, as run.
        activation: name of the nonlinearity; ``"crelu"`` doubles every hidden width.
        device, dtype: as in ``torch.nn.Linear``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: Sequence[int] = (8, 8, 8),
        activation: str = "relu",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if not isinstance(hidden, Sequence):
            raise ValueError(f"hidden must be a sequence of widths, such as (8, 8), got {hidden!r}")
        self.activation, self.hidden = one_of("activation", activation, NAMES), tuple(hidden)
        factor = 2 if activation == "crelu" else 1
        widths = [in_features, *(factor * positive("hidden", width) for width in hidden)]
        layers = [Dense(i, o, activation=activation, device=device, dtype=dtype) for i, o in pairwise(widths)]
        self.layers = nn.Sequential(*layers, Dense(widths[-1], out_features, device=device, dtype=dtype))

    def _dense(self) -> list[tuple[str, Dense]]:
        return [(f"layers.{name}.", layer) for name, layer in self.layers.named_children() if isinstance(layer, Dense)]

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for _, layer in self._dense():
            layer.reset_parameters(generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.check_input(x))

    def effective_weights(self) -> dict[str, Tensor]:
        return {prefix + name: w for prefix, layer in self._dense() for name, w in layer.effective_weights().items()}

    def coefficients(self) -> dict[str, Tensor]:
        return {prefix + name: c for prefix, layer in self._dense() for name, c in layer.coefficients().items()}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        values = list(inputs)
        for prefix, layer in self._dense():
            own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            values = layer.expressions(values, own)
        return values

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hidden={self.hidden!r}, activation={self.activation!r}"


@cache
def _threshold() -> Any:
    import sympy

    class threshold(sympy.Function):
        """z above the threshold, else the value below; of numbers alone, as sympy's own steps compare long sums."""

        nargs = 1
        is_real = True

        @classmethod
        def eval(cls, *args: Any) -> Any:
            (z,) = args
            return (z if z > THRESHOLD else sympy.Integer(BELOW)) if z.is_Number else None

        @staticmethod
        def _imp_(z: float) -> float:
            return z if z > THRESHOLD else BELOW

    return threshold


def _nonlinear(activation: str, z: Any, slope: Any = None) -> Any:
    """The nonlinearity in sympy; maxima and minima are left unevaluated, as comparing long sums is slow."""
    import sympy

    def above(value: Any) -> Any:
        return sympy.Max(value, 0, evaluate=False)

    def below(value: Any) -> Any:
        return sympy.Min(value, 0, evaluate=False)

    if z.is_Number:  # a constant input
        above, below = (lambda value: sympy.Max(value, 0)), (lambda value: sympy.Min(value, 0))
    half = sympy.Rational(1, 2)
    forms: dict[str, Callable[[], Any]] = {
        "none": lambda: z,
        "hardtanh": lambda: above(z + 1) - above(z - 1) - 1,
        "sigmoid": lambda: symbolic.sigmoid(z),
        "relu6": lambda: above(z) - above(z - 6),
        "tanh": lambda: sympy.tanh(z),
        "softsign": lambda: z / (1 + sympy.Abs(z)),
        "threshold": lambda: _threshold()(z),
        "selu": lambda: SELU_SCALE * (above(z) + SELU_ALPHA * below(sympy.exp(z) - 1)),
        "elu": lambda: above(z) + below(sympy.exp(z) - 1),
        "softshrink": lambda: above(z - half) + below(z + half),
        "relu": lambda: above(z),
        "leaky_relu": lambda: above(z) + sympy.Rational(1, 100) * below(z),
        "tanhshrink": lambda: z - sympy.tanh(z),
        "softplus": lambda: sympy.log(1 + sympy.exp(z)),
        "prelu": lambda: above(z) + slope * below(z),
    }
    return forms[activation]()
