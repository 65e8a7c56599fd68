"""What the search gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import sympy as sp

from numerate.discover import expressions as ex


@dataclass(frozen=True)
class Formula:
    """A formula and how well it fits.

    Args:
        expression: sympy, in symbols named as the inputs; constants exact where found, else Float.
        error: root mean square error on the data, weighted if weights were given.
        relative_error: error over the root mean square of y.
        size: number of nodes.
        constants: each constant that is not exact, by name: (value, standard error).
        exact: a law to the last digit.
        names: the inputs, in the order of the columns.
        tree: the same formula as an expression tree.
    """

    expression: sp.Expr
    error: float
    relative_error: float
    size: int
    constants: dict[str, tuple[float, float]]
    exact: bool
    names: tuple[str, ...] = ()
    tree: ex.Tree = field(default=ex.ONE, repr=False)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Values at the rows of X: (n, d) -> (n,); not a number where the formula is not defined."""
        with np.errstate(all="ignore"):
            return ex.column(self.tree, np.asarray(X, float)).copy()


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Args:
        best: the formula chosen.
        front: error against size, smallest first, each better than all smaller ones.
        exact: whether best is a law to the last digit.
        noise: estimated standard deviation of the noise in y, or of that over y if errors are relative; 0.0 if none can
            be seen.
        groups: dimensionless groups found, each input: exponent.
        seconds: CPU time used.
        cut: whether the time limit ended the search; the same seed may then end elsewhere.
        relative: whether errors count relative to y, row by row.
        outliers: rows that were left out, by number; only a robust search leaves any out.
    """

    best: Formula
    front: list[Formula]
    exact: bool
    noise: float
    groups: list[dict[str, Fraction]]
    seconds: float
    cut: bool = False
    relative: bool = False
    outliers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dimensions:
    """Physical dimensions: exponents (inputs x base units), of the target, and the names of the base units."""

    inputs: Sequence[Sequence[Fraction]]
    target: Sequence[Fraction]
    names: Sequence[str]
