"""CalcNet (Rana et al., 2019): an expression taken apart by precedence, each operation done by a trained unit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self

import torch
from torch import Tensor, nn

from numerate.units import penalties, symbolic
from numerate.units.base import Unit, outer_units, snapped_parameters
from numerate.units.nau import NAU
from numerate.units.nmu import NMU
from numerate.units.robust import ReciprocalUnit


class ExpressionError(ValueError):
    """A malformed expression: says where, what was expected and what was found."""


@dataclass(frozen=True)
class Token:
    """One word of an expression; ``position`` counts from 0."""

    kind: Literal["number", "name", "operator", "open", "close", "end"]
    text: str
    position: int
    unary: bool = False


_WORDS = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<operator>[-+*/^])"
    r"|(?P<open>\()|(?P<close>\))|(?P<end>$))"
)
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_UNARY_BINDING = 3  # -x^2 is -(x^2), -x*y is (-x)*y


def _fail(expression: str, position: int, expected: str, found: str) -> NoReturn:
    raise ExpressionError(
        f"malformed expression at position {position}: expected {expected}, found {found}\n"
        f"  {expression}\n  {' ' * position}^"
    )


def tokens(expression: str) -> list[Token]:
    """The words of ``expression``, the last one of kind ``end``."""
    found, position = [], 0
    while not found or found[-1].kind != "end":
        match = _WORDS.match(expression, position)
        if match is None or match.lastgroup is None:
            position += len(expression[position:]) - len(expression[position:].lstrip())
            _fail(expression, position, "a number, a name, an operator or a bracket", repr(expression[position]))
        kind: Any = match.lastgroup
        found.append(Token(kind, match[kind], match.start(kind)))
        position = match.end()
    return found


def postfix(expression: str) -> list[Token]:
    """The tokens in the order of their evaluation (shunting yard): brackets, ^, unary -, then * and /, then + and -.

    ``^`` groups from the right, all others from the left. Unary minus is written 0 - x, so that a unit does it too.
    """
    output: list[Token] = []
    waiting: list[Token] = []  # operators and brackets whose right-hand side is not complete

    def binding(token: Token) -> int:
        return 0 if token.kind == "open" else _UNARY_BINDING if token.unary else _BINDING[token.text]

    operand_next = True
    for token in tokens(expression):
        found = "the end" if token.kind == "end" else repr(token.text)
        if operand_next:
            if token.kind in ("number", "name"):
                output.append(token)
                operand_next = False
            elif token.kind == "open":
                waiting.append(token)
            elif token.text == "-":
                output.append(Token("number", "0", token.position))
                waiting.append(Token("operator", "-", token.position, unary=True))
            else:
                _fail(expression, token.position, "a number, a name, '-' or '('", found)
        elif token.kind == "operator":
            least = binding(token) + (token.text == "^")
            while waiting and binding(waiting[-1]) >= least:
                output.append(waiting.pop())
            waiting.append(token)
            operand_next = True
        elif token.kind in ("close", "end"):
            while waiting and waiting[-1].kind != "open":
                output.append(waiting.pop())
            if token.kind == "close" and not waiting:
                _fail(expression, token.position, "an operator or the end", "')' without its '('")
            if token.kind == "end" and waiting:
                _fail(expression, token.position, f"')' for the '(' at position {waiting[-1].position}", found)
            if waiting:
                waiting.pop()
        else:
            _fail(expression, token.position, "an operator, ')' or the end", found)
    return output


def exact_units(device: Any = None, dtype: Any = None) -> dict[str, Unit]:
    """Units with the weights that do + - * / exactly: NAU, NAU, NMU and ReciprocalUnit."""

    @torch.no_grad()
    def exact(unit: type[NAU] | type[NMU] | type[ReciprocalUnit], weight: list[float]) -> Unit:
        module = unit(2, 1, device=device, dtype=dtype)
        module.weight.copy_(torch.tensor([weight]))
        return module

    return {
        "+": exact(NAU, [1, 1]),
        "-": exact(NAU, [1, -1]),
        "*": exact(NMU, [1, 1]),
        "/": exact(ReciprocalUnit, [1, -1]),
    }


class CalcNet(nn.Module):
    """Evaluates an expression such as ``"a * (b - 2) / 4"``; every operation is done by a unit (..., 2) -> (..., 1).

    ``units`` maps ``+ - * / ^`` to such modules, usually trained before; what it leaves out is taken from
    :func:`exact_units`, which knows all but ``^``, in the type and on the device of those given. The values of names
    are numbers, or tensors of shapes that broadcast.

    Mistry et al. (2022), section 5.6: the expression is decomposed into sub-expressions that obey the rules of
    precedence and solved from the inside outwards. Chosen here, where that leaves it open: the order is found by the
    shunting yard, unary minus is the subtraction unit's 0 - x, and gradients pass to the units and to the values.
    """

    like: Tensor

    def __init__(self, units: Mapping[str, nn.Module] | None = None, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        units = dict(units or {})
        unknown = [symbol for symbol in units if symbol not in _BINDING]
        if unknown:
            raise ValueError(f"units must be given for operators among {' '.join(_BINDING)}, got {unknown[0]!r}")
        for symbol, unit in units.items():
            sizes = getattr(unit, "in_features", 2), getattr(unit, "out_features", 1)
            if sizes != (2, 1):
                raise ValueError(
                    f"the unit for {symbol} must have 2 inputs and 1 output, got {sizes[0]} and {sizes[1]}"
                )
        example = next((p for unit in units.values() for p in unit.parameters()), None)
        if example is not None:
            device, dtype = device or example.device, dtype or example.dtype
        self.units = nn.ModuleDict({**exact_units(device, dtype), **units})
        self.register_buffer("like", torch.empty(0, device=device, dtype=dtype), persistent=False)

    def forward(self, expression: str, values: Mapping[str, Tensor | float] | None = None) -> Tensor:
        """The value of ``expression``: a scalar tensor, or the broadcast shape of the ``values`` it names.

        Values that are plain numbers or of another type become the type of the units.
        """
        values = values or {}

        def named(token: Token) -> Tensor:
            if token.text not in values:
                known = ", ".join(values) or "none"
                _fail(expression, token.position, f"a name that has a value ({known})", repr(token.text))
            return torch.as_tensor(values[token.text]).to(self.like)

        def number(token: Token) -> Tensor:
            return self.like.new_tensor(float(token.text))

        def applied(unit: nn.Module, left: Tensor, right: Tensor) -> Tensor:
            return unit(torch.stack(torch.broadcast_tensors(left, right), -1)).squeeze(-1)

        return self._evaluated(expression, number, named, applied)

    def formula(self, expression: str, tolerance: float = 0.01) -> Any:
        """What the units make of ``expression``, in sympy: the expression itself once all of them are exact.

        Weights are rounded and marked as in :meth:`Unit.formula`.
        """
        import sympy

        def applied(unit: nn.Module, left: Any, right: Any) -> Any:
            return symbolic.expressions(unit, [left, right], tolerance)[0]

        return self._evaluated(
            expression, lambda token: sympy.Rational(token.text), lambda token: symbolic.symbol(token.text), applied
        )

    def _evaluated(
        self,
        expression: str,
        number: Callable[[Token], Any],
        named: Callable[[Token], Any],
        applied: Callable[[nn.Module, Any, Any], Any],
    ) -> Any:
        """``expression`` from the inside outwards, with what a number, a name and a unit mean."""
        stack: list[Any] = []
        for token in postfix(expression):
            if token.kind == "number":
                stack.append(number(token))
            elif token.kind == "name":
                stack.append(named(token))
            else:
                if token.text not in self.units:
                    known = " ".join(self.units)
                    _fail(expression, token.position, f"an operator that has a unit ({known})", repr(token.text))
                right, left = stack.pop(), stack.pop()
                stack.append(applied(self.units[token.text], left, right))
        return stack.pop()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the parameters of every unit as the unit itself does, also of those that began exact."""
        for unit in self.units.values():
            reset: Any = getattr(unit, "reset_parameters", None)
            if reset is not None:
                reset(generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """The effective weights of all units; names as in the state dict, ``units.+.weight``."""
        return {prefix + k: w for prefix, unit in outer_units(self) for k, w in unit.effective_weights().items()}

    def sparsity_error(self) -> Tensor:
        """The largest of the units."""
        return penalties.sparsity_error(self)

    def penalty(self) -> Tensor:
        """The sum of the units' own."""
        return penalties.penalty(self)

    def snapped_parameters(self) -> dict[str, Tensor]:
        """Those of all units; names as in the state dict."""
        return snapped_parameters(self)

    @torch.no_grad()
    def snap_(self) -> Self:
        """Round the weights of every unit to its discrete values, in place."""
        for name, value in self.snapped_parameters().items():
            self.get_parameter(name).copy_(value)
        return self
