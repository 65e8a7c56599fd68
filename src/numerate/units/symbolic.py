"""From trained weights to a formula (sympy)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor, nn

from numerate.checks import number


@cache
def _approx() -> Any:
    import sympy

    class approx(sympy.Function):
        """A number that the unit uses but that is not one of its discrete values; prints as ≈0.9731."""

        is_commutative = True
        is_real = True
        nargs = 1

        @classmethod
        def _should_evalf(cls, arg: Any) -> int:
            return -1  # keep the mark: sympy would otherwise evaluate a function of a Float at once

        @property
        def number(self) -> Any:
            return self.args[0]

        def doit(self, **hints: Any) -> Any:
            return self.number

        def _eval_evalf(self, prec: int) -> Any:
            return self.number._eval_evalf(prec)

        def _sympystr(self, printer: Any) -> str:
            return f"≈{float(self.number):.4g}"

        def _latex(self, printer: Any, exp: str | None = None) -> str:
            text = rf"{{\approx}}{float(self.number):.4g}"
            return text if exp is None else rf"\left({text}\right)^{{{exp}}}"

    return approx


def approx(value: float) -> Any:
    """Mark a number as not exact; ``expression.doit()`` takes the marks off again."""
    import sympy

    return _approx()(sympy.Float(value))


def rounded(value: float, levels: Sequence[float], tolerance: float) -> Any:
    """The level within ``tolerance`` of ``value`` as an exact number, else ``value`` marked with ≈; 0 is exact."""
    import sympy

    if value == 0:
        return sympy.Integer(0)
    nearest = min(levels, key=lambda level: abs(level - value), default=None)
    if nearest is not None and abs(nearest - value) <= tolerance:
        return sympy.nsimplify(nearest)
    return approx(value)


def rounded_matrix(weight: Tensor, levels: Sequence[float], tolerance: float) -> Any:
    """:func:`rounded` for every entry; (O, I) tensor -> (O, I) sympy matrix; a vector or number -> a row."""
    import sympy

    rows = weight.detach().double().cpu().reshape(-1, weight.shape[-1] if weight.dim() else 1).tolist()
    return sympy.Matrix([[rounded(value, levels, tolerance) for value in row] for row in rows])


def sigmoid(value: Any) -> Any:
    """1 / (1 + exp(-value))."""
    import sympy

    return 1 / (1 + sympy.exp(-value))


def is_negative(value: Any) -> Any:
    """1 where ``value`` < 0, else 0."""
    import sympy

    step: Any = sympy.Heaviside
    return step(-value, 0)


def linear(inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    """The sum of w x."""
    import sympy

    return sum((w * x for x, w in zip(inputs, weights)), sympy.Integer(0))


def size_powers(inputs: Sequence[Any], exponents: Sequence[Any], eps: Any) -> Any:
    """The product of (abs(x) + eps)^w."""
    import sympy

    return sympy.prod([(sympy.Abs(x) + eps) ** w for x, w in zip(inputs, exponents)])


def signed_powers(inputs: Sequence[Any], exponents: Sequence[Any], eps: Any) -> Any:
    """The real part of the product of x^w, abs(x) + eps being the size of x; a whole power is written as it is."""
    import sympy

    factors, angle = [], sympy.Integer(0)
    for x, w in zip(inputs, exponents):
        if w.is_integer and eps == 0:
            factors.append(x**w)
        else:
            factors.append((sympy.Abs(x) + eps) ** w)
            angle += sympy.pi * w * is_negative(x)
    return sympy.prod(factors) * sympy.cos(angle)


def input_names(names: Sequence[str] | None, count: int) -> list[str]:
    """``names`` as a list of ``count``; x1, x2, ... if None; a string is cut at blanks and commas or into letters."""
    if isinstance(names, str):
        names = list(names) if names.isalpha() and len(names) == count else names.replace(",", " ").split()
    if names is None:
        names = [f"x{i + 1}" for i in range(count)]
    if len(names) != count:
        raise ValueError(f"names must give {count} input names, got {len(names)}")
    if len({*map(str, names)}) < count:
        raise ValueError(f"names must give {count} different names, got {', '.join(map(str, names))}")
    return [str(name) for name in names]


def symbol(name: str) -> Any:
    """The sympy symbol of an input, a real number."""
    import sympy

    return sympy.Symbol(name, real=True)


def expressions(module: nn.Module, inputs: list[Any], tolerance: float) -> list[Any]:
    """What ``module`` computes of sympy expressions: one per output."""
    from numerate.units.base import Unit

    if isinstance(module, Unit | nn.Linear) and len(inputs) != module.in_features:
        raise ValueError(f"{type(module).__name__} takes {module.in_features} inputs, got {len(inputs)}")
    if isinstance(module, Unit):
        levels = module.levels
        weights = {
            name: rounded_matrix(weight, levels.get(name, ()), tolerance)
            for name, weight in (module.effective_weights() | module.coefficients()).items()
        }
        return list(module.expressions(inputs, weights))
    if isinstance(module, nn.Sequential):
        for layer in module:
            inputs = expressions(layer, inputs, tolerance)
        return inputs
    if isinstance(module, nn.Identity):
        return inputs
    if isinstance(module, nn.Linear):
        matrix = rounded_matrix(module.weight, (), tolerance)
        bias = module.bias.detach().tolist() if module.bias is not None else [0.0] * module.out_features
        return [
            sum((matrix[o, i] * x for i, x in enumerate(inputs)), approx(bias[o]) if bias[o] else 0)
            for o in range(module.out_features)
        ]
    raise TypeError(
        f"no formula is known for {type(module).__name__}; "
        "allowed are numerate units, nn.Linear and nn.Sequential of them"
    )


def _in_features(module: nn.Module) -> int:
    for layer in module.modules():
        size = getattr(layer, "in_features", None)
        if isinstance(size, int):
            return size
    raise TypeError(f"no formula is known for {type(module).__name__}: none of its layers says its in_features")


def formula(module: nn.Module, names: Sequence[str] | None = None, tolerance: float = 0.01) -> Any:
    """The sympy expression that a unit, or an ``nn.Sequential`` of units, computes.

    ``names``: one per input, a list or a string such as ``"a b c"`` or ``"abc"``; default x1, x2, ...
    One output gives an expression, several a column matrix. Numbers marked ≈ are not discrete values of the unit.
    """
    import sympy

    tolerance = number("tolerance", tolerance, 0)
    module = getattr(module, "_orig_mod", module)  # inside what torch.compile gives
    inputs = [symbol(name) for name in input_names(names, _in_features(module))]
    outputs = expressions(module, inputs, tolerance)
    return outputs[0] if len(outputs) == 1 else sympy.Matrix(outputs)
