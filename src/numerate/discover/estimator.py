"""The scikit-learn estimator: ``FormulaRegressor().fit(X, y).formula_``."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("FormulaRegressor needs extra packages: pip install 'numerate[formula]'") from error

from numerate.discover import export
from numerate.discover.checks import check_columns, check_names, check_rows
from numerate.discover.formula import Formula, Found
from numerate.discover.frames import check_frame, target_names
from numerate.discover.module import FormulaModule
from numerate.discover.physical_units import Unit, parse_units
from numerate.discover.run import ConstantNote, explain_constants, find, values

Progress = Callable[[Formula, float], None]


class FormulaRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """The formula behind a table: a search for y = f(x) in closed form.

    Fitted attributes: ``formula_`` (a sympy expression whose symbols are the columns' names), ``formulas_`` (the front
    of error against size, each a :class:`numerate.discover.Formula`), ``exact_`` (whether the formula is a law to the
    last digit rather than an approximation), ``noise_`` (estimated standard deviation of the noise in y), ``relative_``
    (whether errors count relative to y; ``noise_`` does so then), ``groups_`` (dimensionless groups, name -> exponent),
    ``outliers_`` (rows left out, by number). With several targets each of
    them is a list, one entry for each target.

    Args:
        seconds: Processor time for each target, on one core. An exact law ends the search earlier.
        functions: Functions a formula may contain, such as ``["exp", "sin"]``; None allows the default set.
        units: Physical units of the inputs, in order, and of the target, such as ``"m, s, m/s"``.
        relative: Whether errors count relative to the target, row by row. None lets the data say: a target of one sign
            over two orders of magnitude whose errors grow with it. Sample weights given, None means no.
        robust: Whether gross outliers, at most a fifth of the rows, are looked for and left out.
        random_state: Seed of the search; the same seed gives the same formula unless time runs out first.
        progress: Called with the best :class:`numerate.discover.Formula` so far and the seconds gone by.
    """

    def __init__(
        self,
        seconds: float = 10.0,
        *,
        functions: Sequence[str] | None = None,
        units: str | Sequence[str] | None = None,
        relative: bool | None = None,
        robust: bool = False,
        random_state: Any = 0,
        progress: Progress | None = None,
    ) -> None:
        self.seconds = seconds
        self.functions = functions
        self.units = units
        self.relative = relative
        self.robust = robust
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FormulaRegressor":
        """Look for a formula; X: (n, d), y: (n,) or (n, targets), sample_weight: (n,)"""
        check_frame(X)
        targets = y
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.names_ = list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])]))
        columns = y.reshape(len(y), -1).astype(np.float64)
        unnamed = ["y"] if columns.shape[1] == 1 else [f"y{i}" for i in range(columns.shape[1])]
        self.target_names_ = target_names(targets) or unnamed
        self._check(X, columns)
        self.found_ = [self._find(X, columns[:, i], weights, target) for i, target in enumerate(self.target_names_)]
        self.single_ = y.ndim == 1
        self.formula_ = self._each(lambda found: found.best.expression)
        self.formulas_ = self._each(lambda found: found.front)
        self.exact_ = self._each(lambda found: found.exact)
        self.noise_ = self._each(lambda found: found.noise)
        self.relative_ = self._each(lambda found: found.relative)
        self.groups_ = self._each(lambda found: found.groups)
        self.outliers_ = self._each(lambda found: list(found.outliers))
        return self

    def _units(self, target: str) -> dict[str, Unit] | None:
        return None if self.units is None else parse_units(self.units, self.names_, target)

    def _find(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, target: str) -> Found:
        return find(
            X,
            y,
            names=self.names_,
            target=target,
            weights=weights,
            seconds=self.seconds,
            functions=self.functions,
            units=self._units(target),
            relative=self.relative,
            robust=self.robust,
            seed=self._seed(),
            progress=self.progress,
        )

    def _check(self, X: np.ndarray, columns: np.ndarray) -> None:
        if not self.seconds > 0:
            raise ValueError(f"seconds must be positive, got {self.seconds!r}")
        check_names(self.names_)
        check_rows(len(X))
        for i, target in enumerate(self.target_names_):
            check_columns(X, columns[:, i], self.names_, target)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _each(self, of: Callable[[Found], Any]) -> Any:
        each = [of(found) for found in self.found_]
        return each[0] if self.single_ else each

    def predict(self, X: Any) -> np.ndarray:
        """Values of the formula; X: (n, d) -> (n,) or (n, targets)"""
        check_is_fitted(self)
        check_frame(X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        columns = np.stack([values(found.best, X, self.names_) for found in self.found_], -1)
        return columns[:, 0] if self.single_ else columns

    def constants(self) -> list[ConstantNote]:
        """The free constants with standard errors; with units also what they are, as ``2*pi/sqrt(g_n)``."""
        check_is_fitted(self)
        notes = [explain_constants(f.best, self._units(t), t) for f, t in zip(self.found_, self.target_names_)]
        return [note for each in notes for note in each]

    def latex(self) -> Any:
        """The formula in LaTeX."""
        check_is_fitted(self)
        return self._each(lambda found: export.latex(found.best.expression))

    def code(self, language: str = "python") -> str:
        """A function for each target in ``python`` (NumPy), ``c`` or ``torch``."""
        check_is_fitted(self)
        words = export.identifiers(self.target_names_)
        functions = ["formula"] if self.single_ else [f"formula_{words[name]}" for name in self.target_names_]
        parts = [
            export.code(found.best.expression, self.names_, language, function)
            for found, function in zip(self.found_, functions)
        ]
        return "\n\n".join(parts)

    def to_module(self, *, device: Any = None, dtype: Any = None) -> FormulaModule:
        """A layer (..., d) -> (..., targets) whose constants train."""
        check_is_fitted(self)
        expressions: list[sympy.Expr] = [found.best.expression for found in self.found_]
        options = {} if dtype is None else {"dtype": dtype}
        return FormulaModule(expressions, self.names_, device=device, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags
