"""numerate: units that do arithmetic, logic and long memory, and the experiments of the arithmetic papers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numerate.discover.estimator import FormulaRegressor as FormulaRegressor

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "FormulaRegressor":  # scikit-learn and sympy are loaded when it is asked for
        return import_module("numerate.discover.estimator").FormulaRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
