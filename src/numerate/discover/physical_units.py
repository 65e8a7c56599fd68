"""Physical units of columns, by pint: dimensions as exponents, and which formulas make physical sense."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import sympy

from numerate.discover.formula import Dimensions

Dimension = dict[str, Fraction]
"""Base dimension, such as length or time -> exponent; those of exponent 0 are left out."""


@dataclass(frozen=True)
class Unit:
    """A unit as it was written, its dimension, and how large it is in SI base units."""

    text: str
    dimension: Dimension
    scale: float


@cache
def _registry() -> Any:
    try:
        import pint
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("units need extra packages: pip install 'numerate[formula]'") from error
    registry = pint.UnitRegistry(on_redefinition="ignore")
    registry.define("@alias astronomical_unit = AU")  # astronomers outnumber users of absorbance units
    registry.define("solar_mass = 1.98841e30 kilogram = M_sun = Msun")
    registry.define("magnitude = [] = mag")
    return registry


def parse_unit(text: str) -> Unit:
    """``kg m/s^2`` -> dimension and scale. Raises ValueError if it is no unit, or one with an offset such as degC."""
    registry = _registry()
    written = text.strip()
    if written in ("", "1", "-"):
        return Unit("1", {}, 1.0)
    try:
        quantity = registry.Quantity(registry.parse_expression(written))
        scale = float(quantity.to_base_units().magnitude)
        offset = float(registry.Quantity(0, quantity.units).to_base_units().magnitude)
    except Exception as error:
        raise ValueError(f"{written!r} is no unit that is known; write units such as m, km/s, kg m/s^2 or 1") from error
    if offset:
        raise ValueError(f"{written!r} has an offset, so it cannot stand in a formula; use kelvin")
    if not scale > 0:
        raise ValueError(f"{written!r} is no unit; write units such as m, km/s, kg m/s^2 or 1")
    exponents = {
        name.strip("[]"): Fraction(power).limit_denominator(12) for name, power in quantity.dimensionality.items()
    }
    return Unit(written, {name: power for name, power in exponents.items() if power}, scale)


def parse_units(units: str | Sequence[str], names: Sequence[str], target: str) -> dict[str, Unit]:
    """Column -> unit, from units in the order of the inputs, the target's last. Raises ValueError if one is missing."""
    written = units.split(",") if isinstance(units, str) else list(units)
    columns = [*names, target]
    if len(written) != len(columns):
        raise ValueError(
            f"{len(columns)} units are needed, for {', '.join(names)} and then {target}; got {len(written)}"
        )
    return {name: parse_unit(each) for name, each in zip(columns, written)}


def product(*parts: tuple[Mapping[str, Fraction], Fraction | int]) -> Dimension:
    """Product of powers of dimensions."""
    total: Dimension = {}
    for dimension, power in parts:
        for name, exponent in dimension.items():
            total[name] = total.get(name, Fraction(0)) + exponent * power
    return {name: exponent for name, exponent in total.items() if exponent}


def dimensions(units: Mapping[str, Unit], names: Sequence[str], target: str) -> Dimensions:
    """What the search needs to know: exponents of inputs and target over the base dimensions."""
    bases = sorted({base for unit in units.values() for base in unit.dimension})

    def row(name: str) -> list[Fraction]:
        return [units[name].dimension.get(base, Fraction(0)) for base in bases]

    return Dimensions([row(name) for name in names], row(target), bases)


def reachable(units: Mapping[str, Unit], names: Sequence[str], target: str) -> bool:
    """Whether a product of powers of the inputs has the target's dimension; else a constant must carry units."""
    of = dimensions(units, names, target)
    if not any(of.target):
        return True
    inputs = sympy.Matrix([[sympy.Rational(value) for value in row] for row in of.inputs]).T
    return inputs.rank() == inputs.row_join(sympy.Matrix([sympy.Rational(value) for value in of.target])).rank()


class Nonsense(ValueError):
    """A formula adds unlike dimensions or takes a function of one."""


def show(dimension: Mapping[str, Fraction]) -> str:
    """Length/time**2 in SI units: m s^-2; 1 for a plain number."""
    names = {
        "length": "m", "time": "s", "mass": "kg", "temperature": "K", "current": "A", "substance": "mol",
        "luminosity": "cd",
    }  # fmt: skip
    parts = [names.get(name, name) + ("" if power == 1 else f"^{power}") for name, power in dimension.items()]
    return " ".join(parts) or "1"


def constant_dimensions(
    expression: sympy.Expr, units: Mapping[str, Unit], target: str, *, overall: bool = False
) -> dict[sympy.Expr, Dimension]:
    """What each constant must have as dimension for the formula to make sense, where that is decided.

    Exact factors and exponents are plain numbers; free constants (floats, and symbols that are no columns) and terms
    that are numbers may carry units. Raises :class:`Nonsense` if unlike dimensions are added, or a function is taken of
    one.

    Args:
        expression: The formula of columns.
        units: Of the columns.
        target: The column it stands for.
        overall: Whether the exact factor in front may carry units too: it must where no product of inputs has the
            target's dimension.
    """
    walk = _Walk({sympy.Symbol(name): unit.dimension for name, unit in units.items()}, {})
    walk.settle(expression, units[target].dimension, overall)
    return walk.found


@dataclass(frozen=True)
class _Walk:
    """Dimensions of the parts of a formula: ``known`` of the columns, ``found`` of the constants."""

    known: dict[Any, Dimension]
    found: dict[sympy.Expr, Dimension]

    def is_constant(self, part: sympy.Expr) -> bool:
        return not part.free_symbols & self.known.keys()

    def settle(self, part: Any, wanted: Dimension, overall: bool = False) -> None:
        """Make ``part`` have the dimension ``wanted``, noting what its constants must have for that."""
        own = self.of(part)
        if own == wanted:
            return
        if own is not None:
            if not overall:
                raise Nonsense(f"{part} has the dimension {show(own)}, not {show(wanted)}")
            self.found[part.as_coeff_Mul()[0]] = product((wanted, 1), (own, -1))
        elif self.is_constant(part):
            self.found[part] = wanted
        elif isinstance(part, sympy.Add):
            for term in part.args:
                self.settle(term, wanted)
        elif isinstance(part, sympy.Mul):
            self._settle_product(part, wanted)
        elif isinstance(part, sympy.Pow):
            self.settle(part.base, product((wanted, 1 / Fraction(float(part.exp)).limit_denominator(64))))

    def _settle_product(self, part: sympy.Mul, wanted: Dimension) -> None:
        """A product with one open factor decides that factor; its constants count as one."""
        number, rest = part.as_independent(*self.known, as_Add=False)
        each = [(factor, self.of(factor)) for factor in (number, *sympy.Mul.make_args(rest))]
        open_ones = [factor for factor, dimension in each if dimension is None]
        if len(open_ones) == 1:
            others = ((dimension, -1) for _, dimension in each if dimension is not None)
            self.settle(open_ones[0], product((wanted, 1), *others))

    def of(self, part: Any) -> Dimension | None:
        """The dimension of a part, None where a constant leaves it open."""
        if part in self.known:
            return self.known[part]
        if self.is_constant(part):
            return None if part.free_symbols or part.atoms(sympy.Float) else {}
        if isinstance(part, sympy.Mul):
            each = [self.of(factor) for factor in part.args]
            return None if None in each else product(*((dimension, 1) for dimension in each if dimension is not None))
        if isinstance(part, sympy.Add):
            return self._of_sum(part)
        if isinstance(part, sympy.Pow):
            return self._of_power(part)
        if isinstance(part, sympy.Abs):
            return self.of(part.args[0])
        for argument in part.args:
            self.settle(argument, {})
        return {}

    def _of_sum(self, part: sympy.Add) -> Dimension | None:
        each = [(term, None if self.is_constant(term) else self.of(term)) for term in part.args]  # it may be 273 K
        decided = [dimension for _, dimension in each if dimension is not None]
        if any(dimension != decided[0] for dimension in decided):
            raise Nonsense(f"{part} adds {show(decided[0])} to unlike dimensions")
        for term, dimension in each if decided else ():
            if dimension is None:
                self.found.update({term: decided[0]}) if self.is_constant(term) else self.settle(term, decided[0])
        return decided[0] if decided else None

    def _of_power(self, part: sympy.Pow) -> Dimension | None:
        base = self.of(part.base)
        if part.exp.is_number:
            return None if base is None else product((base, Fraction(float(part.exp)).limit_denominator(64)))
        self.settle(part.exp, {})
        if base:
            raise Nonsense(f"{part} raises {show(base)} to a power that varies")
        return {}
