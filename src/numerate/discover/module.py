"""A formula as a torch module."""

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from numerate.discover.export import compiled, text, with_parameters


class FormulaModule(nn.Module):
    """Formulas of named inputs as a layer: (..., inputs) -> (..., formulas).

    Coefficients, offsets and free exponents are the entries of ``constants``, in order of appearance, and train.
    Ones, signs and exact exponents are structure and stay as they are.

    Args:
        expressions: One formula for each output.
        names: The inputs in order; the symbols of the formulas are among them.
        dtype: Of the constants; double precision unless told otherwise, because formulas are exact to it.
    """

    def __init__(
        self,
        expressions: Sequence[sympy.Expr],
        names: Sequence[str],
        *,
        device: Any = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.expressions, self.names = tuple(expressions), tuple(names)
        values = [value for each in self.expressions for value in with_parameters(each)[1].values()]
        self.constants = nn.Parameter(torch.tensor(values, device=device, dtype=dtype))
        self._compile()

    def _compile(self) -> None:
        inputs = [sympy.Symbol(name) for name in self.names]
        self._functions, self._counts = [], []
        for each in self.expressions:
            structure, values = with_parameters(each)
            self._functions.append(compiled(structure, [*inputs, *values], "torch"))
            self._counts.append(len(values))

    def forward(self, x: Tensor) -> Tensor:
        inputs = x.unbind(-1)
        if len(inputs) != len(self.names):
            raise ValueError(f"the formula has {len(self.names)} inputs ({', '.join(self.names)}), got {len(inputs)}")
        shape, outputs, first = x.shape[:-1], [], 0
        for function, count in zip(self._functions, self._counts):
            value = function(*inputs, *self.constants[first : first + count].unbind())
            outputs.append(torch.as_tensor(value, device=x.device, dtype=x.dtype).expand(shape))
            first += count
        return torch.stack(outputs, -1)

    def formulas(self) -> list[sympy.Expr]:
        """The formulas with the constants as they are now."""
        found, values = [], iter(self.constants.tolist())
        for each in self.expressions:
            structure, parameters = with_parameters(each)
            found.append(structure.xreplace({symbol: sympy.Float(next(values), 17) for symbol in parameters}))
        return found

    def extra_repr(self) -> str:
        return "; ".join(text(each) for each in self.formulas())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_functions", "_counts")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._compile()
