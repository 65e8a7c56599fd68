"""Constants of a form that is given: least squares with the linear ones eliminated (Golub and Pereyra, 1973)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from numerate.discover.export import compiled, replaced

STARTS = 64


@dataclass(frozen=True)
class ConstantsFit:
    """Fitted constants of a formula, each with its standard error.

    ``formula``: the expression with the constants put in. ``error``: root mean square of the residuals.
    ``deviation``: residual standard deviation, which counts the constants as degrees of freedom.
    """

    formula: sympy.Expr
    constants: dict[str, float]
    standard_errors: dict[str, float]
    error: float
    deviation: float


def fit_constants(
    expression: sympy.Expr | str,
    X: Any,
    y: Any,
    *,
    names: Sequence[str] | None = None,
    start: Mapping[str, float] | None = None,
    weights: Any = None,
    seed: int = 0,
) -> ConstantsFit:
    """Fit the constants of a formula: every symbol that is no column is one.

    Args:
        expression: A sympy expression or its text, such as ``"b1*(1 - exp(-b2*x))"``.
        X: (n, d) with ``names``, or a data frame or dictionary of columns.
        y: (n,)
        names: The columns of X, where it is an array.
        start: A guess for each constant. Without it, starts are drawn from many orders of magnitude.
        weights: (n,), not negative.
        seed: Of the drawn starts.

    Raises:
        ValueError: If there are no constants, fewer rows than constants, or no start gives finite values.
    """
    columns = _columns(X, names)
    y = np.asarray(y, float).reshape(-1)
    problem = _Problem.of(_parsed(expression, columns), columns, y, weights)
    missing = [name for name in problem.names if name not in start] if start is not None else []
    if missing:
        raise ValueError(f"start has no value for {', '.join(missing)}; it needs one for {', '.join(problem.names)}")
    found = [each for each in problem.candidates(start, seed) if each is not None]
    if not found:
        raise ValueError("the formula has no finite values from any start; give start= a guess for each constant")
    return problem.summary(min(found, key=problem.loss))


def _columns(X: Any, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    if isinstance(X, Mapping):
        return {str(name): np.asarray(values, float) for name, values in X.items()}
    if names is None and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    table = np.asarray(X, float)
    table = table[:, None] if table.ndim == 1 else table
    names = names or [f"x{i}" for i in range(table.shape[1])]
    if len(names) != table.shape[1]:
        raise ValueError(f"X has {table.shape[1]} columns and {len(names)} names")
    return {name: table[:, i] for i, name in enumerate(names)}


def _parsed(expression: sympy.Expr | str, columns: Mapping[str, Any]) -> sympy.Expr:
    if not isinstance(expression, str):
        return sympy.sympify(expression)
    from numerate.discover.parse import parse_formula

    return parse_formula(expression)


@dataclass(frozen=True)
class _Problem:
    """Least squares in constants, of which the linear ones follow from the others."""

    expression: sympy.Expr
    names: tuple[str, ...]
    linear: tuple[bool, ...]
    y: np.ndarray
    root_weights: np.ndarray
    value: Callable[..., Any]
    slopes: Callable[..., Any]

    @classmethod
    def of(cls, expression: sympy.Expr, columns: Mapping[str, np.ndarray], y: np.ndarray, weights: Any) -> "_Problem":
        symbols: list[Any] = list(expression.free_symbols)
        constants = sorted((s for s in symbols if s.name not in columns), key=lambda s: s.name)
        if not constants:
            raise ValueError(f"{expression} has no constants to fit: every symbol is a column")
        if len(y) <= len(constants):
            raise ValueError(f"{len(constants)} constants need more than {len(constants)} rows, got {len(y)}")
        used = [name for name in columns if sympy.Symbol(name) in expression.free_symbols]
        table = [columns[name] for name in used]
        symbols = [*map(sympy.Symbol, used), *constants]
        derivatives = [sympy.diff(expression, constant) for constant in constants]
        value = compiled(expression, symbols)
        slopes = [compiled(each, symbols) for each in derivatives]
        root = np.ones(len(y)) if weights is None else np.sqrt(np.asarray(weights, float))

        def stacked(c: np.ndarray) -> np.ndarray:
            return np.stack([np.broadcast_to(np.asarray(f(*table, *c), float), y.shape) for f in slopes], 1)

        return cls(
            expression,
            tuple(constant.name for constant in constants),
            _jointly_linear(expression, constants),
            y,
            root,
            lambda c: np.broadcast_to(np.asarray(value(*table, *c), float), y.shape),
            stacked,
        )

    def residual(self, c: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            r = (np.asarray(self.value(c)) - self.y) * self.root_weights
        return np.where(np.isfinite(r), r, 1e150)

    def jacobian(self, c: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            J = self.slopes(c) * self.root_weights[:, None]
        return np.where(np.isfinite(J), J, 0.0)

    def loss(self, c: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            return float(np.sum(self.residual(c) ** 2))

    def completed(self, nonlinear: np.ndarray) -> np.ndarray | None:
        """All constants from the nonlinear ones: the linear ones by least squares."""
        c = np.zeros(len(self.names))
        free = np.array(self.linear)
        c[~free] = nonlinear
        J = self.jacobian(c)[:, free]
        with np.errstate(over="ignore"):
            scale = np.linalg.norm(J, axis=0)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            return None
        c[free] = np.linalg.lstsq(J / scale, -self.residual(c), rcond=None)[0] / scale
        return c

    def candidates(self, start: Mapping[str, float] | None, seed: int) -> list[np.ndarray | None]:
        free = np.array(self.linear)
        if free.all():
            return [self.polished(self.completed(np.zeros(0)))]
        if start is None:
            guesses = _guesses(int((~free).sum()), seed)
            rough = [self.projected(guess, 30) for guess in guesses]
            best = sorted((c for c in rough if c is not None), key=self.loss)[:6]
            return [self.polished(c) for c in best]
        given = np.array([start[name] for name in self.names], float)
        return [self.polished(given), self.polished(self.projected(given[~free], 1000))]

    def projected(self, nonlinear: np.ndarray, evaluations: int) -> np.ndarray | None:
        """Levenberg-Marquardt on the nonlinear constants alone."""
        from scipy.optimize import least_squares

        free = np.array(self.linear)
        far = np.full(len(self.y), 1e150)

        def residual(part: np.ndarray) -> np.ndarray:
            c = self.completed(part)
            return far if c is None else self.residual(c)

        if not free.any() or not np.isfinite(residual(nonlinear)).all() or residual(nonlinear)[0] == 1e150:
            return self.completed(nonlinear) if free.any() else nonlinear
        with np.errstate(all="ignore"):
            found = least_squares(
                residual, nonlinear, method="lm", x_scale=np.abs(nonlinear) + 1e-12, max_nfev=evaluations * 10
            )
        return self.completed(found.x)

    def polished(self, start: np.ndarray | None) -> np.ndarray | None:
        """Levenberg-Marquardt on all constants, then Gauss-Newton steps to the last digits."""
        from scipy.optimize import least_squares

        if start is None or not np.isfinite(start).all() or not self.loss(start) < 1e290:
            return None
        jacobian: Any = self.jacobian
        tight: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 5000}
        try:
            with np.errstate(all="ignore"):
                c = np.asarray(least_squares(self.residual, start, jacobian, method="lm", x_scale="jac", **tight).x)
        except (ValueError, np.linalg.LinAlgError):
            return None
        for _ in range(20):
            J = self.jacobian(c)
            scale = np.linalg.norm(J, axis=0) + 1e-300
            step = np.linalg.lstsq(J / scale, -self.residual(c), rcond=None)[0] / scale
            if not self.loss(c + step) <= self.loss(c):
                break
            c = c + step
        return c

    def summary(self, c: np.ndarray) -> ConstantsFit:
        J = self.jacobian(c)
        scale = np.linalg.norm(J, axis=0) + 1e-300
        rss, spare = self.loss(c), len(self.y) - len(c)
        covariance = np.linalg.pinv((J / scale).T @ (J / scale)) / np.outer(scale, scale) * rss / spare
        errors = np.sqrt(np.maximum(np.diag(covariance), 0))
        values = dict(zip(self.names, map(float, c)))
        put_in = {sympy.Symbol(name): sympy.Float(value, 17) for name, value in values.items()}
        return ConstantsFit(
            replaced(self.expression, put_in),
            values,
            dict(zip(self.names, map(float, errors))),
            float(np.sqrt(rss / np.sum(self.root_weights**2))),
            float(np.sqrt(rss / spare)),
        )


def _jointly_linear(expression: sympy.Expr, constants: Sequence[sympy.Symbol]) -> tuple[bool, ...]:
    """A largest set, taken greedily, of constants in which the formula is linear all at once."""
    chosen: list[sympy.Symbol] = []
    for constant in constants:
        slope = sympy.diff(expression, constant)
        if not slope.free_symbols & {constant, *chosen} and all(
            constant not in sympy.diff(expression, c).free_symbols for c in chosen
        ):
            chosen.append(constant)
    return tuple(constant in chosen for constant in constants)


def _guesses(count: int, seed: int) -> np.ndarray:
    """Starts of both signs over eight orders of magnitude; (STARTS, count)"""
    rng = np.random.default_rng([seed, 17])
    sizes = 10 ** rng.uniform(-4, 4, (STARTS, count))
    return np.where(rng.random((STARTS, count)) < 0.5, -sizes, sizes)
