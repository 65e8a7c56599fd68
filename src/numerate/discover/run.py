"""From a user's table to a search: equal rows joined, idle columns left out, units understood, nonsense refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from numerate.discover import export
from numerate.discover import expressions as ex
from numerate.discover.checks import check_rows, varying
from numerate.discover.choose import Chooser
from numerate.discover.clock import Clock
from numerate.discover.export import replaced
from numerate.discover.formula import Formula, Found
from numerate.discover.noise import is_relative
from numerate.discover.physical_units import Nonsense, Unit, constant_dimensions, dimensions, reachable, show
from numerate.discover.pool import Candidate
from numerate.discover.refit import refit
from numerate.discover.robust import robust_search
from numerate.discover.search import FEWEST, FITTED, search
from numerate.discover.shown import with_shown_constants

FUNCTIONS = ("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "abs")
"""Functions a formula may contain."""


FREE_EXPONENT = 5.0  # nats
SEEN = 1e-9  # relative error below which no noise can be seen
FEW_ROWS = 50
"""Up to so many rows the description length chooses from the front."""


def canonical(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows without weight dropped, equal rows joined, the rest in an order that depends on their values and the seed.

    A row of weight k is then the same as k equal rows, and the order of the file does not matter.
    X: (n, d), y: (n,), weights: (n,) -> the same of fewer rows; weights is None if all are equal.
    """
    table = np.column_stack([X, y])
    total = np.ones(len(y)) if weights is None else weights
    table, total = table[total > 0], total[total > 0]
    rows, joined = distinct(table, total)
    order = np.random.default_rng(seed).permutation(len(rows))
    rows, joined = rows[order], joined[order]
    return rows[:, :-1], rows[:, -1], None if np.ptp(joined) == 0 else joined


def distinct(table: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their values, equal ones joined, and the weights of each together."""
    order = np.argsort(table[:, 0], kind="stable")
    if (np.diff(table[order, 0]) > 0).all():  # much faster than comparing whole rows
        return table[order], weights[order]
    rows, index = np.unique(table, axis=0, return_inverse=True)
    return rows, np.bincount(index.reshape(-1), weights, minlength=len(rows))


def find(
    X: np.ndarray,
    y: np.ndarray,
    *,
    names: Sequence[str],
    target: str = "y",
    weights: np.ndarray | None = None,
    seconds: float = 10.0,
    functions: Sequence[str] | None = None,
    units: Mapping[str, Unit] | None = None,
    relative: bool | None = None,
    robust: bool = False,
    seed: int = 0,
    progress: Callable[[Formula, float], None] | None = None,
) -> Found:
    """The search, as a user's table needs it; X: (n, d), y: (n,)

    Args:
        X: Inputs; columns that are constant are left out of the search.
        y: Target.
        names: Of the inputs.
        target: Name of the target.
        weights: Of the rows.
        seconds: Processor time.
        functions: Functions a formula may contain; None for the default set.
        units: Column -> unit, of every input and the target; formulas that make no physical sense are refused.
        relative: Whether errors count relative to the target, row by row; None: where no weights are given and the
            data say so.
        robust: Whether gross outliers are looked for and left out; ``outliers`` says which rows.
        seed: Of the search.
        progress: Called with the best formula so far and the seconds gone by.

    Raises:
        ValueError: If a function is not known, errors are to be relative to a target that is 0 somewhere, or no formula
            found makes physical sense.
    """
    check_functions(functions)
    clock = Clock(seconds)
    given, unweighted = np.column_stack([X, y]), weights is None
    X, y, weights = canonical(X, y, weights, seed)
    check_rows(len(y))
    used = varying(X)
    if relative is None:
        relative = unweighted and is_relative(X[:, used], y)
    if relative:
        weights = relative_weights(y, target) * (1.0 if weights is None else weights)
    active = [name for name, each in zip(names, used) if each]
    complete = units is None or reachable(units, active, target)
    found = (robust_search if robust else search)(
        X[:, used],
        y,
        names=active,
        weights=weights,
        seconds=max(seconds - clock.elapsed, 0.1 * seconds),
        functions=functions,
        dimensions=dimensions(units, active, target) if units is not None and complete else None,
        seed=seed,
        progress=progress,
    )
    if found.outliers:
        out = np.isin(np.arange(len(y)), found.outliers)
        found = replace(found, outliers=places(np.column_stack([X, y])[out], given))
        X, y, weights = X[~out], y[~out], None if weights is None else weights[~out]
    found = refitted(found, X[:, used], y, weights, clock)
    found = found if len(y) > FEW_ROWS else chosen_for_few(found, len(y))
    found = found if units is None else sensible(found, units, target)
    found = shown(found, X[:, used], y, weights, clock)
    if not relative:
        return found
    return replace(
        found, relative=True, noise=found.noise and found.noise / found.best.error * found.best.relative_error
    )


def shown(found: Found, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, clock: Clock) -> Found:
    """The standard errors of the numbers that the formulas show; of the front, while there is time."""
    fitted = max(int(FITTED * clock.seconds), FEWEST)
    best = with_shown_constants(found.best, X, y, weights, fitted)
    front = []
    for each in found.front:
        if each is found.best:
            each = best
        elif clock.elapsed < clock.seconds:
            each = with_shown_constants(each, X, y, weights, fitted)
        front.append(each)
    return replace(found, best=best, front=front)


def relative_weights(y: np.ndarray, target: str) -> np.ndarray:
    """Weights by which squared errors are relative to the target: (n,) -> (n,), mean 1."""
    if not y.all():
        raise ValueError(f"relative errors need a target that is nowhere 0; {target!r} is in some row")
    weights = (np.abs(y).min() / y) ** 2
    return weights / np.mean(weights)


def places(rows: np.ndarray, table: np.ndarray) -> tuple[int, ...]:
    """Which rows of the table are among ``rows``, by number."""
    wanted = {row.tobytes() for row in rows}
    return tuple(i for i, row in enumerate(table) if row.tobytes() in wanted)


def refitted(found: Found, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, clock: Clock) -> Found:
    """The front with constants fitted to all rows, while there is time; the search fits all but the best to some."""
    chooser = Chooser(X, y, weights, 0, found.best.names)
    front = []
    for each in found.front:
        if each is not found.best and each.constants and clock.elapsed < clock.seconds:
            fit = refit(each.tree, X, y, weights, steps=30)
            each = chooser.formula(Candidate(0.0, fit.error, fit.tree, fit.standard_errors, ""), rounded=False)
        front.append(each)
    return replace(found, front=better_than_smaller(front, found.best))


def better_than_smaller(front: Sequence[Formula], best: Formula) -> list[Formula]:
    """The formulas that are better than every smaller one, and ``best``; smallest first."""
    kept: list[Formula] = []
    for each in sorted(front, key=lambda each: each.size):
        if each is best or not kept or each.error < min(other.error for other in kept):
            kept.append(each)
    return kept


def chosen_for_few(found: Found, rows: int) -> Found:
    """The formula of the front with the shortest description of data and formula together.

    A formula costs its size, and each free constant the digits that the data give it: a power of 3/2 is cheaper than
    one of 1.4996. With few rows that decides against formulas that have a constant for every row.
    """
    if found.exact:
        return found
    best = min(found.front, key=lambda each: description_length(each, rows))
    front = better_than_smaller(found.front, best)
    return replace(
        found, best=best, front=front, exact=best.exact, noise=best.error if best.relative_error > SEEN else 0.0
    )


def description_length(formula: Formula, rows: int) -> float:
    """Natural units of information: misfit of the rows, digits of the constants, size of the formula.

    A free exponent costs more than another constant: exponents of laws are simple fractions, as a rule.
    """
    if len(formula.constants) >= rows - 1:
        return np.inf
    digits = [np.log1p(abs(value) / error) if error > 0 else 36.0 for value, error in formula.constants.values()]
    structure = 1.5 * formula.size + FREE_EXPONENT * free_exponents(formula.tree)
    return rows * np.log(formula.relative_error + 1e-16) + sum(digits) + structure


def free_exponents(tree: ex.Tree) -> int:
    """How many exponents of the formula are fitted numbers."""
    own = tree[0] == "power" and tree[2][0] == "c"
    return own + sum(free_exponents(part) for part in tree[1:] if isinstance(part, tuple))


def values(formula: Formula, X: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The formula's values at rows of a table with columns ``names``; X: (n, d) -> (n,)"""
    return formula.predict(X[:, [list(names).index(name) for name in formula.names]])


def check_functions(functions: Sequence[str] | None) -> None:
    """Raises ValueError at a function that no formula can contain."""
    for name in functions or ():
        if name not in FUNCTIONS:
            raise ValueError(f"the function {name!r} is not known; there are {', '.join(FUNCTIONS)}")


def sensible(found: Found, units: Mapping[str, Unit], target: str) -> Found:
    """The result without formulas that make no physical sense. Raises ValueError if none is left."""
    front = [each for each in found.front if makes_sense(each, units, target)]
    if makes_sense(found.best, units, target):
        return replace(found, front=front)
    if not front:
        raise ValueError("no formula was found that agrees with the units; check them, or allow more seconds")
    best = min(front, key=lambda each: each.error)
    return replace(found, best=best, front=front, exact=best.exact)


def makes_sense(formula: Formula, units: Mapping[str, Unit], target: str) -> bool:
    """Whether the formula adds and compares like with like."""
    try:
        overall = not reachable(units, formula.names, target)
        constant_dimensions(formula.expression, units, target, overall=overall)
    except Nonsense:
        return False
    return True


def smaller(found: Found, size: int) -> Found:
    """The result with the best formula of at most ``size`` nodes in front. Raises ValueError if there is none."""
    few = [each for each in found.front if each.size <= size]
    if not few:
        raise ValueError(f"no formula of size {size} or less was found; the smallest has {found.front[0].size}")
    best = found.best if found.best.size <= size else min(few, key=lambda each: each.error)
    return replace(found, best=best, exact=best.exact)


@dataclass(frozen=True)
class ConstantNote:
    """A free constant: value, standard error (NaN if not known), unit, and the physical constants it is."""

    value: float
    standard_error: float
    unit: str = ""
    name: str = ""

    def __str__(self) -> str:
        digits = ".0f" if 100 <= self.standard_error < 1e6 else ".2g"
        error = f" ± {self.standard_error:{digits}}" if self.standard_error > 1e-12 * abs(self.value) else ""
        unit = f" {self.unit}" if self.unit not in ("", "1") else ""
        return f"{self.value:.{export.DIGITS}g}{error}{unit}" + (f" = {self.name}" if self.name else "")


def explain_constants(
    formula: Formula, units: Mapping[str, Unit] | None = None, target: str = "y"
) -> list[ConstantNote]:
    """Every free constant with its standard error, and with unit and name where units are given."""
    if units is None:
        return [ConstantNote(value, error) for value, error in formula.constants.values()]
    from numerate.discover.physical import name_constant

    expression, values, errors = _in_base_units(formula, units, target)
    overall = not reachable(units, formula.names, target)
    notes = []
    for part, dimension in constant_dimensions(expression, units, target, overall=overall).items():
        value = float(replaced(part, values))
        slopes = [float(replaced(sympy.diff(part, symbol), values)) for symbol in errors]
        error = float(np.sqrt(sum((slope * each) ** 2 for slope, each in zip(slopes, errors.values()))))
        named = name_constant(value, dimension, 3 * error / abs(value)) if value and np.isfinite(error) else None
        if named or part.free_symbols or dimension:
            notes.append(ConstantNote(value, error, show(dimension), str(named or "")))
    return notes


def _in_base_units(
    formula: Formula, units: Mapping[str, Unit], target: str
) -> tuple[sympy.Expr, dict[sympy.Symbol, sympy.Float], dict[sympy.Symbol, float]]:
    """The formula of columns in SI base units, its free constants as symbols, their values and standard errors."""
    known = [(value, error) for value, error in formula.constants.values()]
    values: dict[sympy.Symbol, sympy.Float] = {}
    errors: dict[sympy.Symbol, float] = {}
    for number in sorted(formula.expression.atoms(sympy.Float)):
        symbol = sympy.Dummy("c")
        values[symbol] = number
        near = [error for value, error in known if np.isclose(abs(value), abs(float(number)), rtol=1e-9)]
        errors[symbol] = near[0] if near else np.nan
    expression = replaced(formula.expression, {number: symbol for symbol, number in values.items()})
    scales = {sympy.Symbol(name): units[name].scale for name in formula.names}
    expression = replaced(expression, {column: column / scale for column, scale in scales.items() if scale != 1})
    return expression * (units[target].scale if units[target].scale != 1 else 1), values, errors
